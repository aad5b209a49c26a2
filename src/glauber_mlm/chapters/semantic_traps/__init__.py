"""Chapter 4: long chains as text."""

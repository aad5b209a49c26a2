"""Chapter 1: exact chains, influence, margins."""

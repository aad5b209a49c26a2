"""Chapter 3: meeting times, the boundary, scaling, the cold."""

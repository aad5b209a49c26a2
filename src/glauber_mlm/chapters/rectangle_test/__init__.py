"""Chapter 2: the defects of rectangles, their floor and their control."""

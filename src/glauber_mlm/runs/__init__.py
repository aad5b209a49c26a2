"""Long runs on disk: streamed chains, and finished grid cells found again by their content."""

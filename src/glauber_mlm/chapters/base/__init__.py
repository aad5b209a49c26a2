"""What every chapter stands on: parameters, claims and their ledger, grids of finished cells, display."""

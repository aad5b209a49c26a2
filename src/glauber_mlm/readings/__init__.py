"""What is read off models and off recorded paths: rectangle, influence, margins, likelihood, drift of a count, stays, trajectories."""

"""What is estimated from samples, stated once: survival, bootstrap intervals, scaling laws and crossings."""

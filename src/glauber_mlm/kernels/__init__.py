"""Glauber kernels: plain, event-driven and coupled, over one deterministic core."""

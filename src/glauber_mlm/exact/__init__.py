"""Chains small enough to be written down: enumeration, finite chains, exact Glauber quantities, and the exact coupling of Curie-Weiss."""

"""Figures: tables in, matplotlib figures out; nothing is computed here."""

"""What the chapters say: tables and sentences for a reader, made of what the studies return.

Nothing is computed here that a verdict rests on, and a change here voids no cached result.
"""

"""The recipe that turns the embedded sentence encoder into a masked language model."""

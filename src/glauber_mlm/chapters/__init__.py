"""The chapters: one room a notebook, named as it is, over a small shared base."""

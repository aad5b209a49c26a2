"""Glauber dynamics on masked language models: conditionals, kernels, exact and simulated mixing, and the book that shows them.

`__version__` is the one place that states the version; the package metadata, the citation file and the records of a run read or repeat it.
"""

__version__ = "0.1.0"

"""Families of conditionals p(x_i | rest): masked LMs, causal LMs by candidates, and solvable models."""

from glauber_mlm.conditionals.protocol import Conditionals, check_rows, check_states, require_certifiable
from glauber_mlm.conditionals.restricted import Restricted

__all__ = ["Conditionals", "Restricted", "check_rows", "check_states", "require_certifiable"]

"""What a kernel asks of a model: the logits of one masked site, and nothing else."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from glauber_mlm.errors import UserError


@runtime_checkable
class Conditionals(Protocol):
    """A family of conditionals on token sequences of one length.

    Attributes
    ----------
    length : int
        n, tokens in a state. Frame tokens such as [CLS] are not part of a state.
    vocabulary : int
        V, width of a row.
    free_sites : Tensor of int64, shape (m,)
        Sites that a kernel may resample, in increasing order.
    device : torch.device
    dtype : torch.dtype
        Of the rows: float32 or float64.
    fingerprint : str
        Changes whenever the conditionals change.
    """

    length: int
    vocabulary: int
    free_sites: Tensor
    device: torch.device
    dtype: torch.dtype
    fingerprint: str

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        """Rows of logits at masked sites.

        Parameters
        ----------
        states : Tensor of int64, shape (B, n)
        sites : Tensor of int64, shape (B,)
            Site of each row. The result does not depend on `states[b, sites[b]]`.

        Returns
        -------
        Tensor, shape (B, V)
            Logits at temperature 1, -inf for tokens that cannot be drawn. Only differences within a row mean anything.
        """
        ...


def check_states(conditionals: Conditionals, states: Tensor) -> None:
    """Refuse states that the conditionals cannot take.

    Raises
    ------
    UserError
        Unless `states` is an int64 tensor of shape (B, n) with entries in [0, V).
    """
    if states.ndim != 2 or states.shape[1] != conditionals.length:
        raise UserError(
            f"states have shape {tuple(states.shape)}; this model takes (chains, {conditionals.length}): group chains of other lengths in batches of their own"
        )
    if states.dtype != torch.int64:
        raise UserError(f"states are {states.dtype}; token ids must be int64")
    if states.numel() and not 0 <= int(states.min()) <= int(states.max()) < conditionals.vocabulary:
        raise UserError(f"a state holds a token id outside [0, {conditionals.vocabulary})")

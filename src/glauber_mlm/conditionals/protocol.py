"""What a kernel asks of a model: the logits of one masked site, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
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


def require_certifiable(conditionals: Conditionals) -> None:
    """Refuse conditionals whose weights are in a precision too low for certificates.

    Judged by `precision`, the dtype of the weights, where conditionals have one: rows of a bfloat16 model are float32 and do not tell. By `dtype` otherwise.

    Raises
    ------
    UserError
        Unless the precision is float32 or float64.
    """
    precision = getattr(conditionals, "precision", None) or conditionals.dtype
    if precision not in (torch.float32, torch.float64):
        name = str(precision).removeprefix("torch.")
        raise UserError(
            f"certificates are computed in float32 or float64, not {name}; load the model with dtype float32"
        )


def check_rows(rows: Tensor, sites: Tensor, name: str, numbers: Sequence[int] | Tensor) -> None:
    """Refuse rows of logits that are no conditionals.

    Parameters
    ----------
    rows : Tensor, shape (B, V)
    sites : Tensor of int64, shape (B,)
    name : str
        What the rows belong to: "context", "state", "rectangle".
    numbers : sequence of int, length B
        The number of that for each row.

    Raises
    ------
    UserError
        Naming the first row that holds NaN or +inf, or bars every token.
    """
    bad = torch.nonzero(~torch.isfinite(rows.amax(dim=1)))[
        :, 0
    ].tolist()  # the maximum of a row passes on NaN
    if bad:
        row, number, site = rows[bad[0]], int(numbers[bad[0]]), int(sites[bad[0]])
        reason = (
            "are NaN"
            if bool(torch.isnan(row).any())
            else "are +inf"
            if bool(torch.isposinf(row).any())
            else "bar every token"
        )
        raise UserError(
            f"{name} {number}: logits at site {site} {reason}; check the model's weights and dtype"
        )


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

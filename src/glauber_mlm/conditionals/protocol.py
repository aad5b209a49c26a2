"""What a kernel asks of a model: the logits of one masked site, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from glauber_mlm.checks import shown
from glauber_mlm.errors import UserError

LARGEST_SIZE = 2**20  # sites, or tokens, of a model made here


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


def of_conditionals(name: str, value: Any) -> Any:
    """Rule of `checks.checked`: conditionals, told by what `Conditionals` asks for.

    Raises
    ------
    UserError
        Naming what is missing, or if `free_sites` are no sites.
    """
    # Not isinstance: from Python 3.12 on that does not see what a wrapper passes on by __getattr__.
    missing = [part for part in (*Conditionals.__annotations__, "logits") if not hasattr(value, part)]
    if isinstance(value, type) or missing:
        raise UserError(
            f"{name} is {shown(value)}, without {', '.join(missing) or 'being made'}; "
            "give conditionals, for instance models.load().conditionals(16)"
        )
    free = value.free_sites
    if not isinstance(free, Tensor) or free.dtype != torch.int64 or free.ndim != 1 or not len(free):
        raise UserError(f"{name} has free_sites {shown(free)}; give one or more, as a tensor of int64")
    return value


def check_device(name: str, value: Any) -> torch.device:
    """A device that is there and has float64, in which draws are made.

    Raises
    ------
    UserError
    """
    try:
        if not isinstance(value, str | torch.device):
            raise TypeError("no name of a device")
        place = torch.device(value)
        torch.empty(1, dtype=torch.float64, device=place)
    except (RuntimeError, AssertionError, TypeError, ImportError) as error:
        reason = " ".join(str(error).partition("\n")[0].split())[:200] or type(error).__name__
        raise UserError(
            f"{name} {shown(value)} cannot be used here ({reason}); 'cpu' always works"
        ) from error
    return place


def check_states(conditionals: Conditionals, states: Tensor) -> None:
    """Refuse states that the conditionals cannot take.

    Raises
    ------
    UserError
        Unless `states` is an int64 tensor of shape (B, n) with entries in [0, V), none of them a token that the conditionals bar (`barred`, if
        they have it): a state may hold sampled tokens only.
    """
    if not isinstance(states, torch.Tensor):
        raise UserError(
            f"states are {shown(states)}; give a tensor of token ids, int64 of shape "
            f"(chains, {conditionals.length})"
        )
    if states.ndim != 2 or states.shape[1] != conditionals.length:
        raise UserError(
            f"states have shape {tuple(states.shape)}; this model takes (chains, {conditionals.length}): group chains of other lengths in batches of their own"
        )
    if states.dtype != torch.int64:
        raise UserError(f"states are {states.dtype}; token ids must be int64")
    if states.numel() and not 0 <= int(states.min()) <= int(states.max()) < conditionals.vocabulary:
        raise UserError(f"a state holds a token id outside [0, {conditionals.vocabulary})")
    barred = torch.tensor(list(getattr(conditionals, "barred", ())), dtype=torch.int64, device=states.device)
    if len(found := torch.nonzero(torch.isin(states, barred))):
        chain, site = found[0].tolist()
        raise UserError(
            f"state {chain} holds token {int(states[chain, site])} at site {site}, which is never sampled; a start may hold "
            "sampled tokens only: choose another, or let it be sampled (allow_special)"
        )

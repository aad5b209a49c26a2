"""Finite chains written out: the states, and one set of logits that serves every temperature."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glauber_mlm.checks import a_number, checked
from glauber_mlm.conditionals.protocol import Conditionals, check_states, of_conditionals, require_certifiable
from glauber_mlm.conditionals.restricted import Restricted
from glauber_mlm.errors import UserError

LARGEST_CHAIN = 4096
_ENTRIES_A_CALL = 2**24


@dataclass(frozen=True)
class EnumeratedLogits:
    """Every row of conditionals that a finite chain can meet.

    Attributes
    ----------
    states : Tensor of int64, shape (S, n), on the CPU
    sites : ndarray of int64, shape (m,)
        The free sites.
    tokens : tuple of m ndarrays of int64, shapes (k_i,)
        Tokens seen among the states at each free site, in increasing order.
    logits : tuple of m ndarrays of float64, shapes (S, k_i)
        At temperature 1. States that share a masked context share the row, bit for bit.
    moves : tuple of m ndarrays of int64, shapes (S, k_i)
        Number of the state that results from writing a token at a site; the state itself where the token cannot be drawn.
    """

    states: Tensor
    sites: np.ndarray
    tokens: tuple[np.ndarray, ...]
    logits: tuple[np.ndarray, ...]
    moves: tuple[np.ndarray, ...]

    @checked(temperature=a_number(above=0))
    def probabilities(self, temperature: float) -> tuple[np.ndarray, ...]:
        """Conditional probabilities of `tokens` at a temperature: m arrays of float64, shapes (S, k_i), rows adding to 1."""
        rows = []
        for logits in self.logits:
            # The largest logit goes first, so that a low temperature overflows to probability 0 only.
            with np.errstate(over="ignore"):
                weights = np.exp((logits - logits.max(axis=1, keepdims=True)) / temperature)
            rows.append(weights / weights.sum(axis=1, keepdims=True))
        return tuple(rows)


@checked(conditionals=of_conditionals)
def enumerate_states(conditionals: Conditionals, base: Tensor | None = None) -> Tensor:
    """All states of a chain: allowed tokens at the free sites, a base state elsewhere.

    Parameters
    ----------
    conditionals : Conditionals
        Token sets are those of `Restricted`, if it is one (or several, one within another), else the whole vocabulary.
    base : Tensor of int64, shape (n,), optional
        Tokens of the sites that are not free; needed if there are any.

    Returns
    -------
    Tensor of int64, shape (S, n), on the CPU
        The first free site varies slowest; tokens in the order of the allowed sets.

    Raises
    ------
    UserError
        If there are more than 4096 states or none, or a base is missing or of the wrong shape.
    """
    sites = conditionals.free_sites.tolist()
    sets: dict[int, list[int] | range] = {site: range(conditionals.vocabulary) for site in sites}
    layer = conditionals
    while layer is not None:
        if isinstance(layer, Restricted):
            for site, allowed in zip(layer.free_sites.tolist(), layer.allowed or (), strict=False):
                if site in sets:
                    before = sets[site]
                    # Of nested restrictions the outermost gives the order.
                    sets[site] = (
                        list(dict.fromkeys(allowed))
                        if isinstance(before, range)
                        else [token for token in before if token in allowed]
                    )
            layer = layer.inner
        else:
            layer = getattr(layer, "wrapped", None)
    count = math.prod(len(tokens) for tokens in sets.values())
    if not 1 <= count <= LARGEST_CHAIN:
        raise UserError(
            f"the chain has {count} states; between 1 and {LARGEST_CHAIN} are allowed: free fewer sites or allow other tokens (Restricted)"
        )
    if base is None:
        if len(sites) < conditionals.length:
            raise UserError(
                f"only {len(sites)} of {conditionals.length} sites are free; give a base state for the others"
            )
        base = torch.zeros(conditionals.length, dtype=torch.int64)
    base = base.detach().cpu()[None] if isinstance(base, Tensor) else base
    check_states(conditionals, base)
    states = base.repeat(count, 1)
    states[:, sites] = torch.cartesian_prod(
        *[torch.tensor(list(tokens)) for tokens in sets.values()]
    ).reshape(count, len(sites))
    return states


@checked(conditionals=of_conditionals)
def enumerate_logits(conditionals: Conditionals, states: Tensor | None = None) -> EnumeratedLogits:
    """Ask once for the logits of every free site of every state.

    Parameters
    ----------
    conditionals : Conditionals
    states : Tensor of int64, shape (S, n), optional
        Distinct, closed under the moves of the chain; `enumerate_states(conditionals)` by default.

    Returns
    -------
    EnumeratedLogits
        What the functions of `glauber_mlm.exact.glauber` take in place of conditionals.

    Raises
    ------
    UserError
        If the states repeat, are too many, or are left by a move of positive probability; if logits are NaN, +inf or all -inf; or for
        weights in bfloat16.
    """
    require_certifiable(conditionals)
    states = enumerate_states(conditionals) if states is None else states
    check_states(conditionals, states)
    states = states.detach().cpu()
    if not 1 <= len(states) <= LARGEST_CHAIN:
        raise UserError(f"{len(states)} states; an exact chain takes between 1 and {LARGEST_CHAIN}")
    number = {key.tobytes(): index for index, key in enumerate(states.numpy())}
    if len(number) < len(states):
        raise UserError("a state is listed twice; list each state of the chain once")
    sites = conditionals.free_sites.cpu().numpy()
    tokens, logits, moves = [], [], []
    for site in sites.tolist():
        present, contexts = states[:, site].unique(), states.clone()
        contexts[:, site] = 0
        distinct, which = torch.unique(contexts, dim=0, return_inverse=True)
        rows = _rows(conditionals, distinct, site, present)
        move = np.empty((len(distinct), len(present)), dtype=np.int64)
        for column, token in enumerate(present.tolist()):
            distinct[:, site] = token
            move[:, column] = [number.get(key.tobytes(), -1) for key in distinct.numpy()]
        if (np.isfinite(rows) & (move < 0)).any():
            raise UserError(
                f"a move at site {site} leaves the listed states; list all states of the chain or bar the token (Restricted)"
            )
        own = np.arange(len(states))[:, None]
        tokens.append(present.numpy())
        logits.append(rows[which.numpy()])
        moves.append(np.where(np.isfinite(rows)[which.numpy()], move[which.numpy()], own))
    return EnumeratedLogits(states, sites, tuple(tokens), tuple(logits), tuple(moves))


def _rows(conditionals: Conditionals, contexts: Tensor, site: int, tokens: Tensor) -> np.ndarray:
    """Logits of `tokens` at one site, float64, after checking that no other token can be drawn."""
    size = max(1, _ENTRIES_A_CALL // conditionals.vocabulary)
    parts = []
    for chunk in contexts.split(size):
        rows = (
            conditionals.logits(
                chunk.to(conditionals.device), torch.full((len(chunk),), site, device=conditionals.device)
            )
            .detach()
            .cpu()
        )
        finite = torch.isfinite(rows)
        if bool((~finite & (rows != -math.inf)).any()) or not bool(finite.any(dim=1).all()):
            raise UserError(
                f"logits at site {site} hold NaN or +inf, or bar every token; the conditionals are broken there"
            )
        if not bool((finite.sum(dim=1) == finite[:, tokens].sum(dim=1)).all()):
            raise UserError(
                f"a token outside the listed states can be drawn at site {site}; bar it (Restricted) or list all states of the chain"
            )
        parts.append(rows[:, tokens].double())
    return torch.cat(parts).numpy()


def enumerated(
    conditionals: Conditionals | EnumeratedLogits, states: Tensor | None = None
) -> EnumeratedLogits:
    """Logits at hand, or asked for.

    Raises
    ------
    UserError
        If logits at hand are those of other states than `states`.
    """
    if not isinstance(conditionals, EnumeratedLogits):
        return enumerate_logits(conditionals, states)
    if states is not None and not torch.equal(states.cpu(), conditionals.states):
        raise UserError("the enumerated logits belong to other states than those given; leave states out")
    return conditionals

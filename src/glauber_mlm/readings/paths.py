"""Recorded chains: their states, and their distance to a reference.

A recorded chain is its first state `initial` of shape (n,), and for every step the site and the token put there, `sites` and `tokens` of shape (T,).
It has the T + 1 states ``x_0 .. x_T``; step `t` leads from ``x_t`` to ``x_{t+1}``.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from glauber_mlm.checks import a_whole, checked, optional
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import whole_array

Integers = NDArray[np.int64]


class SojournPath:
    """A chain compressed to its sojourns: maximal intervals in one state. Sojourn `k` ends with change `k`, the last with the record."""

    def __init__(self, initial: ArrayLike, sites: ArrayLike, tokens: ArrayLike) -> None:
        self.initial, sites, tokens = (
            np.asarray(values, dtype=np.int64) for values in (initial, sites, tokens)
        )
        if self.initial.ndim != 1 or self.initial.size == 0 or sites.ndim != 1 or sites.shape != tokens.shape:
            raise UserError(
                f"a chain is one initial state and two equally long lists, not {self.initial.shape}, {sites.shape} and {tokens.shape}"
            )
        if sites.size and not (0 <= sites.min() and sites.max() < self.initial.size):
            raise UserError(
                f"sites must lie between 0 and {self.initial.size - 1}, the places of the initial state"
            )
        self.steps = len(sites)
        before = _previous(self.initial, sites, tokens)
        changes = np.flatnonzero(before != tokens)
        self.sites, self.old, self.new = sites[changes], before[changes], tokens[changes]
        self.entries = np.concatenate([[0], changes + 1])
        self.ends = np.concatenate([changes + 1, [self.steps]])

    @property
    def sojourns(self) -> int:
        return len(self.entries)

    @cached_property
    def states(self) -> Integers:
        """The state of every sojourn, (sojourns, n)."""
        return _states_after(self.initial, self.sites, self.new, np.arange(self.sojourns))

    @cached_property
    def names(self) -> Integers:
        """One number for each distinct state, (sojourns,)."""
        return np.unique(self.states, axis=0, return_inverse=True)[1].reshape(-1)

    def extent(self, centre: int, radius: int, first: int, last: int) -> tuple[int, int]:
        """First and last sojourn of the maximal interval around `centre`, within ``[first, last]``, that keeps within `radius` of its state."""
        reference = self.states[centre]
        return centre - self._reach(reference, radius, centre, first, -1), centre + self._reach(
            reference, radius, centre, last, 1
        )

    def _reach(self, reference: Integers, radius: int, centre: int, limit: int, direction: int) -> int:
        """Sojourns one may go from `centre` towards `limit`. Change `k` lies between sojourns `k` and `k + 1`."""
        furthest, distance, done, piece = abs(limit - centre), 0, 0, 32
        while done < furthest:
            size = min(piece, furthest - done)
            start = centre + done if direction > 0 else centre - done - size
            window = slice(start, start + size)
            wanted = reference[self.sites[window]]
            gained = (self.new[window] != wanted).astype(np.int64) - (self.old[window] != wanted)
            distances = distance + np.cumsum(gained if direction > 0 else -gained[::-1])
            outside = distances > radius
            if outside.any():
                return done + int(np.argmax(outside))
            distance, done, piece = int(distances[-1]), done + size, 2 * piece
        return done


def _previous(initial: Integers, sites: Integers, tokens: Integers) -> Integers:
    """The token that each step finds at its site."""
    order = np.argsort(sites, kind="stable")
    ordered, before = sites[order], initial[sites[order]]
    again = np.flatnonzero(ordered[1:] == ordered[:-1]) + 1
    before[again] = tokens[order][again - 1]
    result = np.empty_like(tokens)
    result[order] = before
    return result


def _states_after(initial: Integers, sites: Integers, tokens: Integers, counts: Integers) -> Integers:
    """States after the first `counts` updates, (len(counts), n)."""
    result = np.empty((len(counts), len(initial)), dtype=np.int64)
    for site, token in enumerate(initial):
        updates = np.flatnonzero(sites == site)
        values = np.concatenate([[token], tokens[updates]])
        result[:, site] = values[np.searchsorted(updates, counts, side="left")]
    return result


@checked(initial=whole_array(1), sites=whole_array(1), tokens=whole_array(1), every=a_whole(1))
def reconstruct(initial: ArrayLike, sites: ArrayLike, tokens: ArrayLike, every: int) -> Integers:
    """The states at times ``0, every, 2 every, ...`` up to T.

    Returns
    -------
    int64 array, shape (T // every + 1, n)

    Raises
    ------
    UserError
        For `every` below 1 or a malformed chain.
    """
    path = SojournPath(initial, sites, tokens)
    moments = np.arange(0, path.steps + 1, every)
    return path.states[np.searchsorted(path.entries, moments, side="right") - 1]


@checked(
    initial=whole_array(1),
    sites=whole_array(1),
    tokens=whole_array(1),
    reference=optional(whole_array(1)),
)
def hamming_path(
    initial: ArrayLike, sites: ArrayLike, tokens: ArrayLike, reference: ArrayLike | None = None
) -> Integers:
    """Hamming distance of each state to `reference` (the initial state by default), int64 of shape (T + 1,), in O(T log T)."""
    path = SojournPath(initial, sites, tokens)
    target = path.initial if reference is None else np.asarray(reference, dtype=np.int64)
    if target.shape != path.initial.shape:
        raise UserError(f"the reference has shape {target.shape}, the states have {path.initial.shape}")
    wanted = target[path.sites]
    gained = (path.new != wanted).astype(np.int64) - (path.old != wanted)
    distances = (path.initial != target).sum() + np.concatenate([[0], np.cumsum(gained)])
    return distances[np.searchsorted(path.entries, np.arange(path.steps + 1), side="right") - 1]

"""Where a chain stays: intervals spent near one state, and dwell times against their exact law.

Times and lengths are in steps; a step that puts back the token that was there changes nothing, and counts. Recorded chains are as in
`glauber_mlm.readings.paths`.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from glauber_mlm.checks import a_mask, a_whole, checked, optional
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import finite, whole_array
from glauber_mlm.readings.paths import Integers, SojournPath

TRAP_STEPS = 100  # the shortest stay that claim S2 calls a trap
TRAP_RATIO = 10.0  # and the least multiple of the median stay of its chain


@dataclass(frozen=True)
class Stay:
    """An interval in which the chain keeps within a Hamming distance of one of its states.

    Attributes
    ----------
    start, end : int
        The states ``x_start .. x_{end-1}`` belong to it; where `censored`, ``x_end = x_T`` does too.
    length : int
        ``end - start``: the steps made from its states.
    centre : tuple of int, length n
        The reference state, occupied during the stay.
    radius : int
    occupancy : float
        Share of `length` spent in `centre` exactly.
    censored : bool
        Whether it lasted to the end of the record.
    """

    start: int
    end: int
    length: int
    centre: tuple[int, ...]
    radius: int
    occupancy: float
    censored: bool


@checked(
    initial=whole_array(1),
    sites=whole_array(1),
    tokens=whole_array(1),
    radius=a_whole(0),
    minimum=a_whole(1),
    top=optional(a_whole(0)),
)
def longest_stays(
    initial: ArrayLike,
    sites: ArrayLike,
    tokens: ArrayLike,
    radius: int,
    minimum: int = 1,
    top: int | None = 10,
) -> list[Stay]:
    """The longest stays, disjoint, longest first.

    Protocol (ours). A stay around an occupied state ``x_c`` is the maximal interval of times around `c` in which the chain keeps within `radius` of
    ``x_c``; excursions beyond `radius` end it, however short. The longest over *all* occupied states is taken (ties: the earliest, then the centre that is
    occupied longest), then the longest among what is left before and after it, where intervals are cut at its ends, and so on. The result is exact, not
    a scan of some reference states. ``radius=0`` gives the dwell times of single states.

    Parameters
    ----------
    initial, sites, tokens : array of int, shapes (n,), (T,), (T,)
    radius : int
        0 to n.
    minimum : int
        Shorter stays are left out; at least 1, in steps. A large one is fast: a stay of that length meets one of the times ``0, minimum, 2 minimum, ...``
        and lies within ``2 radius`` of the state there, so most of a fast chain is never searched.
    top : int, optional
        At most so many. All by default ``None``; with ``minimum=1`` these cover the record.

    Raises
    ------
    UserError
        For arguments out of range or a malformed chain.
    """
    path = SojournPath(initial, sites, tokens)
    if radius > len(path.initial):
        raise UserError(f"radius is {radius}; give at most {len(path.initial)}, the length of a state")
    waiting: list[tuple[int, int, int, int, int, int, int]] = []

    def search(first: int, last: int) -> None:
        found = _longest(path, radius, minimum, first, last) if first <= last else None
        if found is not None:
            length, start, centre, a, b = found
            heapq.heappush(waiting, (-length, start, centre, a, b, first, last))

    search(0, path.sojourns - 1)
    stays: list[Stay] = []
    while waiting and (top is None or len(stays) < top):
        negative, start, centre, a, b, first, last = heapq.heappop(waiting)
        occupied = _occupied(path, centre, a, b)
        state = tuple(int(token) for token in path.states[centre])
        stays.append(
            Stay(
                start,
                start - negative,
                -negative,
                state,
                radius,
                occupied / -negative,
                b == path.sojourns - 1,
            )
        )
        search(first, a - 1)
        search(b + 1, last)
    return stays


def _occupied(path: SojournPath, centre: int, a: int, b: int) -> int:
    """Steps made from the state of `centre` in the sojourns `a` to `b`."""
    durations = path.ends[a : b + 1] - path.entries[a : b + 1]
    return int(durations[path.names[a : b + 1] == path.names[centre]].sum())


def _longest(
    path: SojournPath, radius: int, minimum: int, first: int, last: int
) -> tuple[int, int, int, int, int] | None:
    """Length, start, centre and the first and last sojourn of the longest stay within sojourns ``[first, last]``; None below `minimum`."""
    moments = np.arange(path.entries[first], path.ends[last] + 1, minimum)
    anchors = np.unique(np.searchsorted(path.entries[first : last + 1], moments, side="right") - 1 + first)
    windows = []
    for anchor in anchors:
        a, b = path.extent(int(anchor), 2 * radius, first, last)
        windows.append((int(path.ends[b] - path.entries[a]), a, b))
    windows.sort(key=lambda window: (-window[0], window[1]))
    best: tuple[int, int, int] | None = None  # length, -start, occupancy
    result = None
    searched = np.zeros(last - first + 1, dtype=bool)
    for bound, low, high in windows:
        if bound < minimum or (best is not None and bound < best[0]):
            break
        if searched[low - first : high - first + 1].all():
            continue
        names = path.names[low : high + 1]
        _, place = np.unique(names, return_inverse=True)
        weight = np.bincount(place, weights=path.ends[low : high + 1] - path.entries[low : high + 1])
        # The states occupied longest come first: they give long stays, which rule out later windows.
        for centre in np.argsort(-weight[place], kind="stable") + low:
            if searched[centre - first]:
                continue
            a, b = path.extent(int(centre), radius, first, last)
            same = np.flatnonzero(path.names[a : b + 1] == path.names[centre]) + a
            searched[same - first] = True  # the same state within one stay spans the same stay
            length, start = int(path.ends[b] - path.entries[a]), int(path.entries[a])
            if length < minimum or (best is not None and (length, -start) < best[:2]):
                continue
            key = (length, -start, _occupied(path, int(centre), a, b))
            if best is None or key > best:
                best, result = key, (length, start, int(centre), a, b)
    return result


@dataclass(frozen=True)
class Dwells:
    """The dwells of a chain in single states, in order.

    Attributes
    ----------
    states : int64 array, shape (k, n)
    entries : int64 array, shape (k,)
        Time of entry.
    lengths : int64 array, shape (k,)
        Steps made from the state: those that stayed and the one that left. For the censored last one all stayed, and there may be none.
    censored : bool array, shape (k,)
        True for the last only.
    """

    states: Integers
    entries: Integers
    lengths: Integers
    censored: NDArray[np.bool_]


@checked(initial=whole_array(1), sites=whole_array(1), tokens=whole_array(1))
def dwell_times(initial: ArrayLike, sites: ArrayLike, tokens: ArrayLike) -> Dwells:
    """Every dwell of a chain; the lengths sum to T."""
    path = SojournPath(initial, sites, tokens)
    censored = np.zeros(path.sojourns, dtype=bool)
    censored[-1] = True
    return Dwells(path.states, path.entries, path.ends - path.entries, censored)


@checked(escape_probability=finite(None, 0, 1))
def expected_dwell(escape_probability: ArrayLike) -> NDArray[np.float64]:
    """Mean of a geometric dwell, ``1 / e`` steps; infinite at 0."""
    with np.errstate(divide="ignore"):
        return 1.0 / np.asarray(escape_probability, dtype=np.float64)


@dataclass(frozen=True)
class DwellTest:
    """Observed against expected escapes.

    Attributes
    ----------
    escapes : int
        Dwells that ended.
    expected : float
        Sum of the escape probabilities over all steps.
    z : float
        Positive where states are left sooner than predicted, negative where they hold longer.
    p_value : float
        Two-sided, normal; good from about twenty escapes on.
    """

    escapes: int
    expected: float
    z: float
    p_value: float


@checked(lengths=whole_array(1, 0, 1), escapes=finite(1, 0, 1), censored=a_mask(1))
def dwell_test(lengths: ArrayLike, escapes: ArrayLike, censored: ArrayLike) -> DwellTest:
    """Test dwell times against exact one-step escape probabilities.

    Every step made from a state with escape probability `e` leaves it with probability `e`, whatever happened before. So the number of
    escapes minus the sum of `e` over the steps is a martingale with predictable variation ``sum e (1 - e)`` over the steps, and
    ``z = (escapes - sum length e) / sqrt(sum length e (1 - e))`` is about standard normal. Steps of a censored dwell count in both sums and add no escape.

    The dwells must not be chosen by their length: give all those of a chain, or those in states named beforehand. The longest stays fail the test by selection.

    Parameters
    ----------
    lengths : array of int, shape (k,)
        At least 1; a censored one may be 0.
    escapes : array of float, shape (k,)
        Exact one-step escape probability of each dwell's state.
    censored : array of bool, shape (k,)

    Raises
    ------
    UserError
        For no dwells, unequal lengths, or values out of range.
    """
    steps, held, rates = (
        np.asarray(lengths, dtype=np.int64),
        np.asarray(censored, dtype=bool),
        np.asarray(escapes, dtype=np.float64),
    )
    if not steps.shape == held.shape == rates.shape:
        raise UserError(
            f"lengths {steps.shape}, escapes {rates.shape} and censored {held.shape} must be three lists "
            "of one length"
        )
    if (steps < 1 - held).any():
        raise UserError(
            "a dwell that ended made at least one step; lengths must be at least 1, or 0 where censored"
        )
    ended, expected, variance = int((~held).sum()), float(steps @ rates), float(steps @ (rates * (1 - rates)))
    excess = ended - expected
    if variance > 0:
        z = excess / np.sqrt(variance)
    else:
        z = 0.0 if abs(excess) < 1e-9 else np.copysign(np.inf, excess)
    return DwellTest(ended, expected, float(z), float(2 * stats.norm.sf(abs(z))))

"""Curie-Weiss from opposite starts: the exact temperature at which a share of the coupled pairs meets by the cap, beside the simulated one."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy import sparse
from scipy.optimize import brentq
from scipy.special import expit, logit

from glauber_mlm.checks import LEVEL, a_number, a_whole, an_instance, checked, optional
from glauber_mlm.kernels.coupled import steps_at_scale
from glauber_mlm.statistics.scaling import Crossing

LONGEST = 1024  # tokens; the pairs of counts of a longer chain do not fit into memory
_SEARCHED = (0.1, 4.0)  # temperatures, in units where tau_c = 1
_CLIPPED = 1e-12


@checked(length=a_whole(1, LONGEST), temperature=a_number(above=0), cap=a_whole(0))
def meeting_probability(length: int, temperature: float, cap: int) -> float:
    """Exact probability that all minus and all plus, coupled maximally, meet within `cap` steps.

    The coupling keeps the two chains in order, so a pair of states is told by the number of sites where both are plus and the number
    where they differ; that pair of numbers is a Markov chain of (n + 1)(n + 2) / 2 states.
    """
    transition, start, met = _ordered_pairs(length, temperature)
    law = start
    for _ in range(cap):
        law = transition @ law
    return float(law[met].sum())


def _ordered_pairs(length: int, temperature: float) -> tuple[sparse.csr_matrix, np.ndarray, np.ndarray]:
    """Transposed transition matrix of (both plus, differing), the law at the start, and where the two chains agree."""
    plus, differing = (values.ravel() for values in np.indices((length + 1, length + 1)))
    plus, differing = plus[plus + differing <= length], differing[plus + differing <= length]
    number = np.full((length + 2, length + 2), -1)
    number[plus, differing] = np.arange(len(plus))
    lower, upper = 2 * plus - length, 2 * (plus + differing) - length  # magnetisations
    rows, columns, values = [], [], []
    # Sites where both are plus, where they differ, where both are minus: how many, what leaves with them, spins there.
    kinds = ((plus, 1, 0, 1, 1), (differing, 0, 1, -1, 1), (length - plus - differing, 0, 0, -1, -1))
    for count, fewer_plus, fewer_differing, lower_spin, upper_spin in kinds:
        low, high = (
            expit(2 * (total - spin) / (length * temperature))
            for total, spin in ((lower, lower_spin), (upper, upper_spin))
        )
        for probability, more_plus, more_differing in ((low, 1, 0), (high - low, 0, 1), (1 - high, 0, 0)):
            possible = np.flatnonzero(count > 0)
            target = number[
                plus[possible] - fewer_plus + more_plus,
                differing[possible] - fewer_differing + more_differing,
            ]
            rows.append(target)
            columns.append(possible)
            values.append((count * probability / length)[possible])
    places = (np.concatenate(rows), np.concatenate(columns))
    transition = sparse.csr_matrix((np.concatenate(values), places), shape=(len(plus), len(plus)))
    start = np.zeros(len(plus))
    start[number[0, length]] = 1.0
    return transition, start, differing == 0


@checked(length=a_whole(1, LONGEST), level=LEVEL, multiple=a_number(above=0))
def exact_crossing(length: int, level: float, multiple: float) -> float | None:
    """The temperature at which the share `level` of the pairs meets within `multiple` n log n steps, to 0.005; None if there is none in 0.1 to 4."""
    cap = steps_at_scale(length, multiple)

    @cache
    def excess(temperature: float) -> float:
        met = meeting_probability(length, temperature, cap)
        return float(
            logit(np.clip(met, _CLIPPED, 1 - _CLIPPED)) - logit(level)
        )  # log-odds: nearly straight, so few evaluations

    if excess(_SEARCHED[0]) >= 0 or excess(_SEARCHED[1]) <= 0:
        return None
    return float(brentq(excess, *_SEARCHED, xtol=5e-3))


@checked(crossing=an_instance(Crossing), exact=optional(a_number()))
def is_inside(crossing: Crossing, exact: float | None) -> bool:
    """Whether the interval of a crossing, open where it runs off the grid, holds the exact temperature."""
    low = -np.inf if crossing.low is None else crossing.low
    high = np.inf if crossing.high is None else crossing.high
    return exact is not None and low <= exact <= high

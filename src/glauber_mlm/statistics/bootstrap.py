"""Bootstrap interval of a mean whose values may come in groups."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from glauber_mlm.checks import LEVEL, SEED, a_whole, checked, optional
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import finite, generator, labels

_MEAN = 2**34


@checked(values=finite(1), seed=SEED, groups=optional(labels), level=LEVEL, resamples=a_whole(1))
def mean_interval(
    values: ArrayLike,
    seed: int = 0,
    groups: ArrayLike | None = None,
    *,
    level: float = 0.95,
    resamples: int = 4000,
) -> tuple[float, float, float]:
    """Mean and percentile-bootstrap interval, groups taken as independent.

    Parameters
    ----------
    values : array, shape (k,)
        At least one, finite.
    seed : int
        Not negative.
    groups : array of names or whole numbers, shape (k,), optional
        Labels. Whole groups are resampled: values of one group (rectangles on one passage, say) are not independent. Default: each value is its own group.
    level : float
        Of confidence, in (0, 1).
    resamples : int

    Returns
    -------
    mean, low, high : float
        The interval of one group is infinite, for nothing says how far groups differ. Percentile intervals of few groups are too short.

    Raises
    ------
    UserError
        If `values` are empty or not finite, `groups` are not as many, or `level` is out of range.
    """
    sample = np.asarray(values, dtype=np.float64)
    if groups is not None and np.shape(groups) != sample.shape:
        raise UserError(
            f"{sample.size} values need as many group labels, not an array of shape {np.shape(groups)}"
        )
    index = (
        np.arange(sample.size) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    )
    sums, counts = np.bincount(index, sample), np.bincount(index)
    if len(sums) == 1:
        return float(sample.mean()), -math.inf, math.inf
    times = generator(seed, _MEAN).multinomial(
        len(sums), np.full(len(sums), 1 / len(sums)), size=resamples
    )  # how often each group is drawn
    low, high = np.quantile(times @ sums / (times @ counts), [(1 - level) / 2, (1 + level) / 2])
    return float(sample.mean()), float(low), float(high)

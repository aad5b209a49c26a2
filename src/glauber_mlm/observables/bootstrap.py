"""Bootstrap interval of a mean whose values may come in groups."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from glauber_mlm.errors import UserError
from glauber_mlm.observables.survival import check_level

_MEAN = 2**34


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
    groups : array, shape (k,), optional
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
    if sample.ndim != 1 or sample.size == 0 or not np.isfinite(sample).all():
        raise UserError(f"a mean needs finite values of shape (k,), at least one, not {sample.shape}")
    if groups is not None and np.shape(groups) != sample.shape:
        raise UserError(
            f"{sample.size} values need as many group labels, not an array of shape {np.shape(groups)}"
        )
    check_level(level)
    index = (
        np.arange(sample.size) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    )
    sums, counts = np.bincount(index, sample), np.bincount(index)
    if len(sums) == 1:
        return float(sample.mean()), -math.inf, math.inf
    generator = np.random.Generator(np.random.Philox(key=[seed, _MEAN]))
    times = generator.multinomial(
        len(sums), np.full(len(sums), 1 / len(sums)), size=resamples
    )  # how often each group is drawn
    low, high = np.quantile(times @ sums / (times @ counts), [(1 - level) / 2, (1 + level) / 2])
    return float(sample.mean()), float(low), float(high)

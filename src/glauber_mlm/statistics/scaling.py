"""How typical times depend on the length of the sequence and on the temperature: scaling fits, and the boundary between fast and slow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from glauber_mlm.checks import LEVEL, SEED, a_list, a_whole, checked, is_number, one_of, optional
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import finite, whole_array

_CROSSING = 0x63726F73  # keeps these draws apart from every other use of the same seed
_ROUNDING = 1e-12


@checked(n=finite(1, 2), medians=a_list(1), weights=optional(finite(1, above=0)), level=LEVEL)
def fit_scaling(
    n: ArrayLike, medians: Sequence[float | None], weights: ArrayLike | None = None, level: float = 0.95
) -> pd.DataFrame:
    """Least squares on logarithms of ``C n log n`` and of its rivals ``C n``, ``C n^2`` and ``C n^a``.

    Parameters
    ----------
    n : array of int, shape (k,)
        Lengths, at least 2, at least two of them distinct.
    medians : sequence of float, length k
        Positive times in steps.
    weights : array of float, shape (k,), optional
        Positive, proportional to the inverse variances of the *logarithms* of `medians`. Equal by default. The scale of the variance is estimated
        from the residuals, so common factors do not matter.
    level : float
        Confidence level of the intervals (Student's t; they take the law for true).

    Returns
    -------
    DataFrame
        One row for each of ``n log n``, ``n``, ``n^2``, ``n^a`` in the column `law`; `constant`, `constant_low`, `constant_high`; `exponent`, `exponent_low`,
        `exponent_high` (the power of n; nan for ``n log n``; limits only where it is fitted); `residual_rms` (weighted, of log T: 0.05 is about 5 %);
        `largest_residual` (absolute, of log T); `parameters`, `points`. Limits are nan without degrees of freedom.

    Raises
    ------
    UserError
        For a missing (beyond the cap) or non-positive median: a fit to censored medians is a fit to the cap.
    """
    lengths = np.asarray(n, dtype=np.float64)
    if not all(is_number(value) and 0 < value < math.inf for value in medians):
        raise UserError(
            "a median is missing or not positive; raise the cap or leave out that length and say so"
        )
    values = np.array(medians, dtype=np.float64)
    if lengths.shape != values.shape or len(np.unique(lengths)) < 2:
        raise UserError("a scaling fit needs as many medians as lengths, and two distinct lengths")
    share = np.ones_like(values) if weights is None else np.asarray(weights, dtype=np.float64)
    if share.shape != values.shape:
        raise UserError(f"{len(share)} weights for {len(values)} medians; give one for each")
    log_n, log_t, one = np.log(lengths), np.log(values), np.ones_like(values)
    laws = [
        ("n log n", log_n + np.log(log_n), one[:, None], math.nan),
        ("n", log_n, one[:, None], 1.0),
        ("n^2", 2 * log_n, one[:, None], 2.0),
        ("n^a", 0 * log_n, np.stack([one, log_n], axis=1), math.nan),
    ]
    rows = []
    for law, offset, design, exponent in laws:
        estimate, half, residual = _least_squares(design, log_t - offset, share, level)
        fitted = len(estimate) > 1
        rows.append(
            {
                "law": law,
                "constant": math.exp(estimate[0]),
                "constant_low": math.exp(estimate[0] - half[0]),
                "constant_high": math.exp(estimate[0] + half[0]),
                "exponent": estimate[1] if fitted else exponent,
                "exponent_low": estimate[1] - half[1] if fitted else math.nan,
                "exponent_high": estimate[1] + half[1] if fitted else math.nan,
                "residual_rms": math.sqrt(float(np.average(residual**2, weights=share))),
                "largest_residual": float(np.abs(residual).max()),
                "parameters": len(estimate),
                "points": len(values),
            }
        )
    return pd.DataFrame(rows)


def _least_squares(
    design: NDArray[np.float64], target: NDArray[np.float64], weights: NDArray[np.float64], level: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Weighted estimate, half widths of its intervals (nan without degrees of freedom), residuals."""
    root = np.sqrt(weights)
    estimate = np.linalg.lstsq(design * root[:, None], target * root, rcond=None)[0]
    residual = target - design @ estimate
    freedom = len(target) - design.shape[1]
    if freedom < 1:
        return estimate, np.full(len(estimate), math.nan), residual
    variance = float((weights * residual**2).sum()) / freedom
    covariance = np.linalg.inv(design.T @ (design * weights[:, None])) * variance
    return estimate, stats.t.ppf((1 + level) / 2, freedom) * np.sqrt(np.diag(covariance)), residual


@dataclass(frozen=True)
class Crossing:
    """Where a rising fraction passes a level.

    Attributes
    ----------
    temperature : float or None
        None unless the grid brackets the crossing.
    low, high : float or None
        Interval; None where it runs off that end of the grid.
    side : str
        ``"inside"``, ``"below the grid"`` (the fraction is above the level already at the lowest temperature) or ``"above the grid"`` (it stays
        below the level).
    """

    temperature: float | None
    low: float | None
    high: float | None
    side: str


@checked(
    temperatures=finite(1),
    met_counts=whole_array(1, 0),
    pairs=whole_array(least=1, members=1),
    level=LEVEL,
    seed=SEED,
    between=one_of("bracket", "linear"),
    resamples=a_whole(1),
    confidence=LEVEL,
)
def crossing_temperature(
    temperatures: ArrayLike,
    met_counts: ArrayLike,
    pairs: ArrayLike,
    level: float = 0.5,
    seed: int = 0,
    *,
    between: str = "bracket",
    resamples: int = 2000,
    confidence: float = 0.95,
) -> Crossing:
    """The temperature at which the fraction of pairs that met by their cap crosses `level`.

    The fraction is taken to rise with the temperature and nothing else: it is fitted by isotonic regression, and the estimate is interpolated linearly
    between the grid temperatures on either side. The interval comes from a parametric bootstrap: binomial counts drawn from the fit, pulled to
    ``(count + 1/2) / (pairs + 1)`` so that 0 of 12 may come out as 1 of 12, and fitted again.

    Parameters
    ----------
    temperatures : array, shape (k,)
        Distinct, at least two.
    met_counts, pairs : array of int, shape (k,)
        `pairs` may be one number. ``0 <= met <= pairs``, at least one pair.
    level : float
        In (0, 1).
    seed : int
        Of the bootstrap (Philox), not negative.
    between : str
        ``"bracket"``: each replicate gives the grid interval that holds its crossing, and the interval runs from the low quantile of their lower ends to
        the high quantile of their upper ends. Nothing is assumed between grid points, so it is never narrower than the grid. ``"linear"``: quantiles of
        the interpolated crossings; narrower, and too narrow where the fraction rises within one grid spacing.
    resamples : int
    confidence : float

    Raises
    ------
    UserError
        For bad shapes or ranges.
    """
    taus = np.asarray(temperatures, dtype=np.float64)
    met = np.asarray(met_counts, dtype=np.int64)
    number = np.asarray(pairs, dtype=np.int64)
    if number.shape not in ((), (1,), met.shape):
        raise UserError(
            f"pairs has shape {number.shape}; give one number, or one for each of {met.size} counts"
        )
    number = np.broadcast_to(number, met.shape)
    if taus.shape != met.shape or len(np.unique(taus)) != len(taus) or len(taus) < 2:
        raise UserError(
            "a crossing needs at least two distinct temperatures, with one count of met pairs for each"
        )
    if (met > number).any():
        raise UserError("more pairs met than there are; counts must lie between 0 and the number of pairs")
    order = np.argsort(taus)
    taus, met, number = taus[order], met[order], number[order]
    fraction = _rising(met, number)
    estimate = float(_crossing(taus, fraction, level)[1])
    generator = np.random.Generator(np.random.Philox([seed, _CROSSING]))
    drawn = generator.binomial(number, (fraction * number + 0.5) / (number + 1), size=(resamples, len(taus)))
    below, inside, above = _crossing(taus, _rising(drawn, number), level)
    lows, highs = (
        np.sort(below if between == "bracket" else inside),
        np.sort(above if between == "bracket" else inside),
    )
    tail = (1 - confidence) / 2
    low, high = lows[math.floor(tail * (resamples - 1))], highs[math.ceil((1 - tail) * (resamples - 1))]
    side = "inside" if math.isfinite(estimate) else "below the grid" if estimate < 0 else "above the grid"
    return Crossing(
        *(float(value) if math.isfinite(value) else None for value in (estimate, low, high)), side
    )


def _rising(met: NDArray[np.int64], number: NDArray[np.int64]) -> NDArray[np.float64]:
    """Isotonic regression of fractions, (..., k), many at once: the largest over starts of the smallest over ends of the pooled fraction."""
    size = met.shape[-1]
    zero = np.zeros((*met.shape[:-1], 1), dtype=np.int64)
    successes, trials = (
        np.concatenate([zero, met.cumsum(axis=-1)], axis=-1),
        np.concatenate([[0], number.cumsum()]),
    )
    gained = successes[..., None, 1:] - successes[..., :-1, None]  # from start a (rows) to end b (columns)
    tried = trials[None, 1:] - trials[:-1, None]
    ordered = tried > 0  # a <= b
    pooled = np.where(ordered, gained / np.where(ordered, tried, 1), np.inf)
    smallest = np.minimum.accumulate(pooled[..., ::-1], axis=-1)[..., ::-1]
    return np.where(np.triu(np.ones((size, size), dtype=bool)), smallest, -np.inf).max(axis=-2)


def _crossing(
    taus: NDArray[np.float64], fraction: NDArray[np.float64], level: float
) -> tuple[NDArray, NDArray, NDArray]:
    """Lower neighbour, linear interpolation and upper neighbour of the crossing of each row; infinite off the grid."""
    reached = fraction >= level - _ROUNDING
    never, place = ~reached.any(axis=-1), reached.argmax(axis=-1)
    before = np.maximum(place - 1, 0)
    low, high = (np.take_along_axis(fraction, index[..., None], axis=-1)[..., 0] for index in (before, place))
    rise = np.where(high > low, high - low, 1.0)
    inside = taus[before] + (taus[place] - taus[before]) * (level - low) / rise
    first = (place == 0) & ~never
    inside = np.where(first, np.where(high <= level + _ROUNDING, taus[0], -np.inf), inside)
    lower, upper = np.where(first, -np.inf, taus[before]), taus[place]
    return np.where(never, taus[-1], lower), np.where(never, np.inf, inside), np.where(never, np.inf, upper)

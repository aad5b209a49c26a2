"""Times that may not have come: meeting and hitting times, right-censored at a cap fixed before the run.

Times are in steps. A run that reached its cap without the event is censored there, never dropped.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from glauber_mlm.checks import LEVEL, a_mask, a_whole, checked
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import finite

_ROUNDING = 1e-12  # a product of Kaplan-Meier factors can miss one half by a rounding


@dataclass(frozen=True)
class Survival:
    """A Kaplan-Meier estimate of ``P(T > t)``.

    Attributes
    ----------
    times : float64 array, shape (k,)
        Distinct recorded times, ascending; the curve is constant from each to the next and 1 before the first.
    survival, lower, upper : float64 array, shape (k,)
        Estimate and pointwise confidence limits at those times.
    number, met : int
        Runs, and runs whose event was seen.
    cap : float
        The largest recorded time. Nothing is known beyond it if a run was censored there.
    level : float
        Confidence level of the limits.
    median : float or None
        The first time at which the estimate is at or below one half; None when it stays above ("> cap").
    median_interval : tuple of (float, float or None)
        Brookmeyer-Crowley: the first times at which the lower and the upper limit are at or below one half. A lower end of 0 excludes
        nothing; an upper end of None lies beyond the cap.
    """

    times: NDArray[np.float64]
    survival: NDArray[np.float64]
    lower: NDArray[np.float64]
    upper: NDArray[np.float64]
    number: int
    met: int
    cap: float
    level: float
    median: float | None
    median_interval: tuple[float, float | None]

    def at(self, t: float) -> float:
        """The estimate of ``P(T > t)``; nan beyond the cap unless every run had met by then."""
        return self._value(self.survival, 1.0, t)

    def interval_at(self, t: float) -> tuple[float, float]:
        """Pointwise confidence limits of ``P(T > t)``; nan where `at` is."""
        before = _none_yet(self.number, self.level)
        return self._value(self.lower, before, t), self._value(self.upper, 1.0, t)

    def _value(self, curve: NDArray[np.float64], before: float, t: float) -> float:
        if t > self.cap and self.survival[-1] > 0:
            return math.nan
        place = int(np.searchsorted(self.times, t, side="right"))
        return float(curve[place - 1]) if place else before

    @property
    def median_text(self) -> str:
        """The median as it is printed: ``"412 [300, 650]"``, ``"4800 [3900, > 5000]"`` or ``"> 5000"``."""
        if self.median is None:
            return f"> {self.cap:.0f}"
        low, high = self.median_interval
        return f"{self.median:.0f} [{low:.0f}, {f'> {self.cap:.0f}' if high is None else f'{high:.0f}'}]"


@checked(times=finite(1, 0), met=a_mask(1), level=LEVEL)
def kaplan_meier(times: ArrayLike, met: ArrayLike, level: float = 0.95) -> Survival:
    """Kaplan-Meier estimate with log-log (Kalbfleisch-Prentice) limits.

    The log-log limits do not exist where the estimate is 1 or 0. At 1 the lower limit is the exact one of Clopper and Pearson for no event
    among the runs still watched; at 0 the limits are 0 and the upper limit of the preceding time, which holds there because the curve
    does not rise.

    Parameters
    ----------
    times : array of float, shape (m,)
        Time of the event, or of the cap where it was not seen. Not negative, in steps.
    met : array of bool, shape (m,)
        Whether the event was seen.
    level : float
        In (0, 1).

    Raises
    ------
    UserError
        For no runs, unequal lengths, negative or non-finite times.
    """
    moments, seen = np.asarray(times, dtype=np.float64), np.asarray(met, dtype=bool)
    if moments.shape != seen.shape:
        raise UserError(f"times {moments.shape} and met {seen.shape} must be two lists of one length")
    curve = stats.ecdf(stats.CensoredData.right_censored(moments, ~seen)).sf
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter(
            "ignore", RuntimeWarning
        )  # undefined where the estimate is 1 or 0, which is seen to below
        limits = curve.confidence_interval(confidence_level=level, method="log-log")
    lower, upper = limits.low.probabilities.copy(), limits.high.probabilities.copy()
    untouched, finished = curve.probabilities >= 1, curve.probabilities <= 0
    watched = (moments[None, :] >= curve.quantiles[:, None]).sum(axis=1)
    lower[untouched], upper[untouched] = [_none_yet(count, level) for count in watched[untouched]], 1.0
    if finished.any():
        first = int(np.argmax(finished))
        lower[finished], upper[finished] = 0.0, upper[first - 1] if first else 1.0
    start = 0.0 if _none_yet(moments.size, level) <= 0.5 else _first_below(curve.quantiles, lower)
    median = _first_below(curve.quantiles, curve.probabilities)
    # Where even the lower limit stays above one half, the median lies beyond the cap with this confidence.
    interval = (float(moments.max()) if start is None else start, _first_below(curve.quantiles, upper))
    return Survival(
        curve.quantiles,
        curve.probabilities,
        lower,
        upper,
        int(moments.size),
        int(seen.sum()),
        float(moments.max()),
        level,
        median,
        interval,
    )


def _none_yet(watched: int, level: float) -> float:
    """Exact lower limit of a survival probability when none of `watched` runs has met."""
    return ((1 - level) / 2) ** (1 / watched)


def _first_below(times: NDArray[np.float64], curve: NDArray[np.float64]) -> float | None:
    below = curve <= 0.5 + _ROUNDING
    return float(times[np.argmax(below)]) if below.any() else None


@checked(successes=a_whole(0), number=a_whole(0), level=LEVEL)
def wilson_interval(successes: int, number: int, level: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a binomial proportion; (0, 1) when nothing was tried.

    Raises
    ------
    UserError
        Unless ``0 <= successes <= number``.
    """
    if successes > number:
        raise UserError(
            f"{successes} successes of {number} is impossible; successes must lie between 0 and the number tried"
        )
    if number == 0:
        return 0.0, 1.0
    interval = stats.binomtest(successes, number).proportion_ci(confidence_level=level, method="wilson")
    return float(interval.low), float(interval.high)


@dataclass(frozen=True)
class LagBound:
    """What lagged pairs say of the distance to stationarity.

    Attributes
    ----------
    times : array, shape (k,)
        In steps.
    bound : float64 array, shape (k,)
        Monte Carlo estimate of an upper bound of ``TV(law of X_t, mu)``; all nan if a pair was censored. It may exceed 1, where it says nothing.
    standard_error : float64 array, shape (k,)
        Of `bound`; nan with it.
    floor : float64 array, shape (k,)
        The same mean with each censored pair counted as if it met one step after its cap. Equal to `bound` without censored pairs.
        **With them it is not a bound of anything**, only what the bound would at least be.
    contributing : int64 array, shape (k,)
        Pairs whose term at `t` is positive. Where it is 0 the estimate is 0 because no such pair was drawn: at most 3/pairs of the pairs
        are like that (95 %), and how much they would add is not known.
    pairs, censored : int
    informative : bool
        False if any pair was censored.
    """

    times: NDArray[np.float64]
    bound: NDArray[np.float64]
    standard_error: NDArray[np.float64]
    floor: NDArray[np.float64]
    contributing: NDArray[np.int64]
    pairs: int
    censored: int
    informative: bool


@checked(meeting_times=finite(1, 0), lag=a_whole(1), times=finite(least=0), censored=a_mask(1))
def lag_bound(meeting_times: ArrayLike, lag: int, times: ArrayLike, censored: ArrayLike) -> LagBound:
    """Upper bound of the distance to stationarity from lagged coupled pairs (Biswas, Jacob and Vanetti 2019).

    With ``T = inf{t > L : X_t = Y_{t-L}}``, ``TV(law of X_t, mu) <= E[J_t]``, ``J_t = max(0, ceil((T - L - t) / L))``. A pair that has not met
    by its cap has a ``J_t`` that is known from below only, at *every* `t`: its meeting time may be anything above the cap. One censored
    pair therefore leaves no bound at any `t`, however late, and nan is returned. Leaving such pairs out, or counting them as met at the cap,
    would give a number below the bound.

    Parameters
    ----------
    meeting_times : array of int, shape (m,)
        `T` in steps of the leading chain `X`, above `lag`; for a censored pair the last time that was checked.
    lag : int
        `L`, at least 1, in steps.
    times : array, shape (k,)
        Not negative, in steps of `X`.
    censored : array of bool, shape (m,)

    Notes
    -----
    `bound` is an average over simulated pairs, so it is an upper bound up to `standard_error`, for the starting law that the pairs were drawn from.

    Raises
    ------
    UserError
        For no pairs, unequal lengths, a lag below 1, a pair that met at or before `lag`.
    """
    meetings, open_ended = np.asarray(meeting_times, dtype=np.float64), np.asarray(censored, dtype=bool)
    moments = np.atleast_1d(np.asarray(times, dtype=np.float64))
    if meetings.shape != open_ended.shape:
        raise UserError(
            f"meeting times {meetings.shape} and censored {open_ended.shape} must be two lists of one length"
        )
    if (meetings[~open_ended] <= lag).any() or (meetings[open_ended] < lag).any():
        raise UserError(
            f"a pair met at or before the lag {lag}; meeting times are counted on the leading chain, which runs alone up to the lag"
        )
    least = meetings + open_ended
    terms = np.maximum(0.0, np.ceil((least[:, None] - lag - moments[None, :]) / lag))
    floor, number = terms.mean(axis=0), meetings.size
    error = terms.std(axis=0, ddof=1) / math.sqrt(number) if number > 1 else np.full(moments.shape, math.nan)
    informative = not bool(open_ended.any())
    nothing = np.full(moments.shape, math.nan)
    return LagBound(
        moments,
        floor if informative else nothing,
        error if informative else nothing,
        floor,
        (terms > 0).sum(axis=0),
        number,
        int(open_ended.sum()),
        informative,
    )

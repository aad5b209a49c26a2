"""The decision rules of the claims, as code. Their words, which the ledger stores, are in `claims`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from glauber_mlm.chapters.base.claims import Verdict
from glauber_mlm.chapters.theory_checks.study import LONGEST_RESOLVED
from glauber_mlm.readings.stays import TRAP_RATIO, TRAP_STEPS
from glauber_mlm.statistics.scaling import Crossing
from glauber_mlm.statistics.survival import wilson_interval

ROUNDING = 1e-9  # relative; exact quantities of float64
FLOOR_FACTOR = 10
SIGNIFICANCE = 0.025  # on each of the two clocks of M1
HELD = (0.1, 0.5)  # shares of chains of M2
PAPER_WINDOW = (1.5, 2.0)

Interval = tuple[float, float, float]  # estimate, low end, high end


def incompatible(low: float, high: float, floor: float) -> Verdict:
    """R1: from the interval of mean |delta| and the numerical floor, in nats."""
    if low > FLOOR_FACTOR * floor:
        return Verdict.AGREES
    return Verdict.DISAGREES if high < floor else Verdict.UNDECIDED


def compatible(control: np.ndarray, rounding: float) -> Verdict:
    """R2: from the defects of the control and their rounding bound, in nats."""
    return Verdict.AGREES if np.abs(control).max() <= rounding else Verdict.DISAGREES


def across_sizes(models: Mapping[str, tuple[int, Verdict]]) -> Verdict:
    """R3: from number of parameters and verdict of R1 by model."""
    sizes, verdicts = {size for size, _ in models.values()}, [verdict for _, verdict in models.values()]
    if len(sizes) < 2:
        return Verdict.NOT_RUN
    if all(verdict == Verdict.AGREES for verdict in verdicts):
        return Verdict.AGREES
    return Verdict.DISAGREES if Verdict.DISAGREES in verdicts else Verdict.UNDECIDED


def contraction(table: pd.DataFrame) -> tuple[Verdict, int]:
    """T1: from exact chains with columns `alpha`, `mixing_time`, `bound`; also the number of cases with alpha < 1."""
    proved = table[table["alpha"] < 1]
    if proved.empty:
        return Verdict.NOT_RUN, 0
    # A mixing time beyond the search limit is NaN: it exceeds every bound below that limit, and says nothing of the others.
    least = proved["mixing_time"].fillna(LONGEST_RESOLVED)
    return (Verdict.VIOLATED if (least > proved["bound"]).any() else Verdict.NO_VIOLATION_FOUND), len(proved)


def margin_bound(margins: np.ndarray, escapes: np.ndarray, bounds: np.ndarray) -> tuple[Verdict, int]:
    """T2: from local margins (K,), exact escapes (T, K) and bounds (T, K); also the number of cases in which the bound is below 1."""
    cases = (margins > 0)[None, :] & np.isfinite(bounds)
    if not cases.any():
        return Verdict.NOT_RUN, 0
    violated = escapes[cases] > bounds[cases] * (1 + ROUNDING)
    return (Verdict.VIOLATED if violated.any() else Verdict.NO_VIOLATION_FOUND), int(
        (bounds[cases] < 1).sum()
    )


def pessimistic(ratios: Sequence[float]) -> Verdict:
    """T3: from proved contraction temperature over observed tau*(n), one for each length."""
    if not len(ratios):
        return Verdict.UNDECIDED
    if min(ratios) >= 10:
        return Verdict.AGREES
    return Verdict.DISAGREES if min(ratios) < 2 else Verdict.UNDECIDED


def scaling(laws: Mapping[str, pd.DataFrame]) -> Verdict:
    """M1: from the tests of the laws on each clock; see `law_tests`."""
    if set(laws) != {"coalescence", "semantic"}:
        return Verdict.UNDECIDED
    tables = {clock: table.set_index("law")["p_value"] for clock, table in laws.items()}
    kept = {clock: p["n log n"] >= SIGNIFICANCE for clock, p in tables.items()}
    rivals = {clock: [p[law] >= SIGNIFICANCE for law in ("n", "n^2")] for clock, p in tables.items()}
    if all(kept.values()) and not any(any(fits) for fits in rivals.values()):
        return Verdict.AGREES
    if any(not kept[clock] and any(rivals[clock]) for clock in tables):
        return Verdict.DISAGREES
    return Verdict.UNDECIDED


def held(longest: np.ndarray, steps: int, needed: int = 1000) -> Verdict:
    """M2: from the longest stay of each chain at the cold temperature, in steps."""
    low, high = wilson_interval(int((longest >= needed).sum()), len(longest))
    if low >= HELD[1]:
        return Verdict.AGREES
    return Verdict.DISAGREES if high < HELD[0] and steps >= 2 * needed else Verdict.UNDECIDED


def transition(crossings: Mapping[int, Crossing], calibrated: bool) -> Verdict:
    """M3: from tau*(n) by length, and whether the same code finds the exact tau*(n) of Curie-Weiss."""
    if not calibrated or not crossings or crossings[max(crossings)].temperature is None:
        return Verdict.UNDECIDED

    def meets(crossing: Crossing) -> bool:
        low = -np.inf if crossing.low is None else crossing.low
        high = np.inf if crossing.high is None else crossing.high
        return low <= PAPER_WINDOW[1] and high >= PAPER_WINDOW[0]

    # Where the grid does not bracket tau*, the interval still has the end that lies on the grid.
    first, last = crossings[min(crossings)], crossings[max(crossings)]
    rises = first.high is not None and last.low is not None and last.low > first.high
    falls = first.low is not None and last.high is not None and last.high < first.low
    if meets(last) and rises:
        return Verdict.AGREES
    if falls or not any(meets(crossing) for crossing in crossings.values()):
        return Verdict.DISAGREES
    return Verdict.UNDECIDED


def loses_identity(
    reached: Mapping[float, bool],
    below: Mapping[float, bool],
    coherent: Mapping[float, bool],
    long_enough: bool,
) -> Verdict:
    """S1: from `identity`, by temperature, and whether the runs are long enough to disagree."""
    if any(reached[tau] and coherent[tau] for tau in reached):
        return Verdict.AGREES
    return Verdict.DISAGREES if long_enough and all(below.values()) else Verdict.UNDECIDED


def traps(table: pd.DataFrame, steps: int, needed: int = TRAP_STEPS, factor: float = TRAP_RATIO) -> Verdict:
    """S2: from `stay_table` over all temperatures."""
    long = table[(table["length"] >= needed) & (table["ratio"] >= factor)]
    if {"perfect", "approximate"} <= set(long["kind"]):
        return Verdict.AGREES
    if not (table["length"] >= needed).any():
        return Verdict.DISAGREES if steps >= 10 * needed else Verdict.UNDECIDED
    return Verdict.UNDECIDED


def drift_upwards(frame: pd.DataFrame) -> tuple[Verdict, list[int], float, float]:
    """S3: from `exclamation_drift`; also the longest run of consecutive N on which every sampled state drifts upwards.

    Returns
    -------
    verdict : Verdict
    levels : list of int
        Of the longest run at one temperature, of the steepest among runs as long; empty if there is none.
    worst, temperature : float
        The smallest ratio on these levels, and where they are; NaN without a run.
    """
    runs, below = [], []
    for temperature, part in frame[frame["level"] > 0].groupby("temperature"):
        by_level = part.groupby("level")["ratio"]
        below += by_level.agg(lambda ratios: (ratios < 1).mean()).tolist()
        levels: list[int] = []
        worst = by_level.min()
        for level in worst.index[worst > 1]:
            levels = [*levels, int(level)] if levels and level == levels[-1] + 1 else [int(level)]
            runs.append((len(levels), float(worst[levels].min()), float(temperature), levels))
    if not runs:
        return (Verdict.DISAGREES if below and min(below) > 0.5 else Verdict.UNDECIDED), [], np.nan, np.nan
    length, ratio, where, longest = max(runs, key=lambda run: run[:2])
    return (Verdict.AGREES if length >= 2 else Verdict.UNDECIDED), longest, ratio, where


def recurrent(
    visits: pd.DataFrame, share: Interval, base: Interval, shuffled: Interval, long_enough: bool
) -> Verdict:
    """S4: from the recurrence counts of chains with other starts, estimates with interval of their share of time and of the two nulls, and whether runs are long enough to disagree.

    `visits` has `passage`, `visited`, `entries`, `returns`, `share`, `ends_inside`.
    """
    _, low, high = share
    if not visits["visited"].any() or high < min(base[0], shuffled[0]):
        return Verdict.DISAGREES if long_enough else Verdict.UNDECIDED
    if low <= max(base[2], shuffled[2]):
        return Verdict.UNDECIDED
    excess = (visits["ends_inside"] - visits["share"]).groupby(visits["passage"]).mean()
    leaves = excess.mean() <= 2 * excess.sem()
    return (
        Verdict.AGREES
        if leaves and (visits["returns"] > 0).any() and visits["entries"].mean() > 1
        else Verdict.UNDECIDED
    )

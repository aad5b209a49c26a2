"""The decision rules of the claims, as code. Their words, which the ledger stores, are in `claims`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from glauber_mlm.book.claims import Verdict
from glauber_mlm.observables.scaling import Crossing
from glauber_mlm.studies.theory import LONGEST_RESOLVED

ROUNDING = 1e-9  # relative; exact quantities of float64
FLOOR_FACTOR = 10
SIGNIFICANCE = 0.05
PAPER_WINDOW = (1.5, 2.0)


def incompatible(low: float, high: float, floor: float) -> Verdict:
    """R1: from the interval of mean |delta| and the numerical floor, in nats."""
    if low > FLOOR_FACTOR * floor:
        return Verdict.AGREES
    return Verdict.DISAGREES if high < floor else Verdict.UNDECIDED


def compatible(control: np.ndarray, rounding: float) -> Verdict:
    """R2: from the defects of the control and their rounding bound, in nats."""
    return Verdict.AGREES if np.abs(control).max() <= rounding else Verdict.DISAGREES


def across_sizes(verdicts: Mapping[int, Verdict]) -> Verdict:
    """R3: from the verdict of R1 by number of parameters."""
    if len(verdicts) < 2:
        return Verdict.NOT_RUN
    if all(verdict == Verdict.AGREES for verdict in verdicts.values()):
        return Verdict.AGREES
    return Verdict.DISAGREES if Verdict.DISAGREES in verdicts.values() else Verdict.UNDECIDED


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
    return (Verdict.VIOLATED if violated.any() else Verdict.NO_VIOLATION_FOUND), int((bounds[cases] < 1).sum())


def pessimistic(ratios: Sequence[float]) -> Verdict:
    """T3: from proved contraction temperature over observed tau*(n), one for each length."""
    if not len(ratios):
        return Verdict.UNDECIDED
    if min(ratios) >= 10:
        return Verdict.AGREES
    return Verdict.DISAGREES if min(ratios) < 2 else Verdict.UNDECIDED


def scaling(laws: Mapping[str, pd.DataFrame]) -> Verdict:
    """M1: from the tests of the laws on each clock; see `studies.mixing.law_tests`."""
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
    """M2: from the longest stay of each chain at the lowest temperature, in steps."""
    share = float((longest >= needed).mean())
    if share >= 0.5:
        return Verdict.AGREES
    return Verdict.DISAGREES if share < 0.1 and steps >= 2 * needed else Verdict.UNDECIDED


def transition(crossings: Mapping[int, Crossing]) -> Verdict:
    """M3: from tau*(n) by length."""
    if not crossings or crossings[max(crossings)].temperature is None:
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


def loses_identity(reached: Mapping[float, bool], coherent: Mapping[float, bool], long_enough: bool) -> Verdict:
    """S1: by temperature, whether the mean distance reached the unrelated level, and whether the text stayed likelier than shuffled text."""
    if any(reached[tau] and coherent[tau] for tau in reached):
        return Verdict.AGREES
    return Verdict.DISAGREES if long_enough else Verdict.UNDECIDED


def traps(table: pd.DataFrame, steps: int, needed: int = 100, factor: float = 10.0) -> Verdict:
    """S2: from `studies.landscape.stay_table` over all temperatures."""
    long = table[(table["length"] >= needed) & (table["ratio"] >= factor)]
    if {"perfect", "approximate"} <= set(long["kind"]):
        return Verdict.AGREES
    if not (table["length"] >= needed).any():
        return Verdict.DISAGREES if steps >= 10 * needed else Verdict.UNDECIDED
    return Verdict.UNDECIDED


def drift_upwards(frame: pd.DataFrame) -> tuple[Verdict, float, int]:
    """S3: from `studies.landscape.exclamation_drift`; also the best run of consecutive levels: its worst ratio and its number of levels.

    Levels are consecutive in the list of levels examined at one temperature, not necessarily in N.
    """
    best_ratio, best_run, below = 0.0, 0, []
    for _, part in frame[frame["level"] > 0].groupby("temperature"):
        worst = part.groupby("level")["ratio"].min()
        below += [float((group["ratio"] < 1).mean()) for _, group in part.groupby("level")]
        run: list[float] = []
        for ratio in worst:
            run = [*run, float(ratio)] if ratio > 1 else []
            if len(run) > best_run:
                best_run, best_ratio = len(run), min(run)
    if best_run >= 2:
        return Verdict.AGREES, best_ratio, best_run
    return (Verdict.DISAGREES if below and min(below) > 0.5 else Verdict.UNDECIDED), best_ratio, best_run


def recurrent(visits: pd.DataFrame, base: tuple[float, float], shuffled: tuple[float, float]) -> Verdict:
    """S4: from recurrence counts of chains with other starts, and intervals of the share of politics in shuffled and in whole passages of other topics.

    `visits` has `entries`, `returns`, `share`, `ends_inside`.
    """
    share = float(visits["share"].mean())
    if share <= max(base[1], shuffled[1]):
        return Verdict.DISAGREES
    returning = float((visits["returns"] > 0).mean())
    ending = float(visits["ends_inside"].mean())
    spread = 2 * np.sqrt(max(share * (1 - share), 1e-9) / len(visits))
    if returning > 0 and visits["entries"].mean() > 1 and ending <= share + spread:
        return Verdict.AGREES
    return Verdict.UNDECIDED

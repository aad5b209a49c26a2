"""The decision rules on figures made by hand: every verdict, both sides of every edge, and the words they are declared in."""

from __future__ import annotations

import inspect
import math

import numpy as np
import pandas as pd
import pytest

from glauber_mlm.chapters.base import rules
from glauber_mlm.chapters.base.claims import CLAIMS, Verdict
from glauber_mlm.chapters.semantic_traps.study import IDENTITY_SHARE
from glauber_mlm.chapters.theory_checks.study import LONGEST_RESOLVED
from glauber_mlm.readings.influence import mixing_bound
from glauber_mlm.readings.margins import escape_bound
from glauber_mlm.statistics.scaling import Crossing

AGREES, DISAGREES, UNDECIDED = Verdict.AGREES, Verdict.DISAGREES, Verdict.UNDECIDED
CLEAR, VIOLATED, NOT_RUN = Verdict.NO_VIOLATION_FOUND, Verdict.VIOLATED, Verdict.NOT_RUN

RULES = {
    "R1": rules.incompatible,
    "R2": rules.compatible,
    "R3": rules.across_sizes,
    "T1": rules.contraction,
    "T2": rules.margin_bound,
    "T3": rules.pessimistic,
    "M1": rules.scaling,
    "M2": rules.held,
    "M3": rules.transition,
    "S1": rules.loses_identity,
    "S2": rules.traps,
    "S3": rules.drift_upwards,
    "S4": rules.recurrent,
}


def test_every_claim_has_a_rule_that_names_it():
    assert set(RULES) == set(CLAIMS)
    for claim, rule in RULES.items():
        assert inspect.getdoc(rule).startswith(f"{claim}: ")
    public = {
        value
        for name, value in vars(rules).items()
        if inspect.isfunction(value) and value.__module__ == rules.__name__
    }
    assert public == set(RULES.values())


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_rule_gives_the_verdicts_that_its_words_name(claim: str):
    """The words say of each verdict when it is given; the code gives no other."""
    source, words = inspect.getsource(RULES[claim]), CLAIMS[claim].rule
    for verdict in Verdict:
        if f"Verdict.{verdict.name}" in source:
            assert str(verdict) in words and verdict in CLAIMS[claim].verdicts


@pytest.mark.parametrize(
    ("claim", "figure", "words"),
    [
        ("R1", rules.FLOOR_FACTOR == 10, "ten times the numerical floor"),
        ("M1", rules.SIGNIFICANCE == 0.025, "at 2.5 % on each"),
        ("M2", rules.HELD == (0.1, 0.5), "above one half; disagrees if it lies below a tenth"),
        ("M2", inspect.signature(rules.held).parameters["needed"].default == 1000, "at least 1000 steps"),
        ("M3", rules.PAPER_WINDOW == (1.5, 2.0), "[1.5, 2]"),
        ("S1", IDENTITY_SHARE == 0.9, "at least 0.9 of the level of unrelated passages"),
        ("S2", inspect.signature(rules.traps).parameters["needed"].default == 100, "at least 100 steps"),
        (
            "S2",
            inspect.signature(rules.traps).parameters["factor"].default == 10,
            "at least ten times the median stay",
        ),
    ],
)
def test_figures_are_those_of_the_words(claim: str, figure: bool, words: str):
    assert figure and words in CLAIMS[claim].rule


# Chapter 2.


@pytest.mark.parametrize(
    ("low", "high", "floor", "verdict"),
    [
        (0.5, 0.6, 1e-4, AGREES),
        (1.001e-3, 1.0, 1e-4, AGREES),
        (1e-3, 1.0, 1e-4, UNDECIDED),  # at ten times the floor, not above
        (5e-5, 5e-4, 1e-4, UNDECIDED),
        (0.0, 1e-4, 1e-4, UNDECIDED),  # at the floor, not below
        (0.0, 9.9e-5, 1e-4, DISAGREES),
        (1e-13, 2e-13, 0.0, AGREES),
    ],
)
def test_incompatible(low: float, high: float, floor: float, verdict: Verdict):
    assert rules.incompatible(low, high, floor) == verdict


@pytest.mark.parametrize(
    ("control", "rounding", "verdict"),
    [
        ([0.0, 0.0], 0.0, AGREES),
        ([1e-6, -2e-6], 2e-6, AGREES),
        ([1e-6, -2.1e-6], 2e-6, DISAGREES),
        ([0.0, math.nan], 1.0, DISAGREES),
    ],
)
def test_compatible(control: list[float], rounding: float, verdict: Verdict):
    assert rules.compatible(np.array(control), rounding) == verdict


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [
        ({}, NOT_RUN),
        ({"a": (1, AGREES)}, NOT_RUN),
        ({"a": (1, DISAGREES)}, NOT_RUN),
        ({"a": (1, AGREES), "b": (1, AGREES)}, NOT_RUN),
        ({"a": (1, AGREES), "b": (2, AGREES)}, AGREES),
        ({"a": (1, AGREES), "b": (2, AGREES), "c": (2, DISAGREES)}, DISAGREES),
        ({"a": (1, AGREES), "b": (2, UNDECIDED)}, UNDECIDED),
        ({"a": (1, UNDECIDED), "b": (2, AGREES), "c": (3, DISAGREES)}, DISAGREES),
    ],
)
def test_across_sizes(verdicts: dict[str, tuple[int, Verdict]], verdict: Verdict):
    assert rules.across_sizes(verdicts) == verdict


# Chapter 1.


def exact(*cases: tuple[float, float, float]) -> pd.DataFrame:
    return pd.DataFrame(cases, columns=["alpha", "mixing_time", "bound"])


@pytest.mark.parametrize(
    ("table", "verdict", "cases"),
    [
        (exact((0.5, 10, 12), (0.9, 80, 80), (1.5, 1e6, math.inf)), CLEAR, 2),
        (exact((0.5, 10, 12), (0.9, 81, 80)), VIOLATED, 2),
        (exact((1.0, 10, math.inf), (1.2, math.nan, math.inf)), NOT_RUN, 0),
        (exact(), NOT_RUN, 0),
        (exact((0.99, math.nan, 1e6)), VIOLATED, 1),  # beyond the search limit, and so beyond the bound
        (
            exact((1 - 1e-14, math.nan, 2.0 * LONGEST_RESOLVED)),
            CLEAR,
            1,
        ),  # nothing is known between the limit and the bound
    ],
)
def test_contraction(table: pd.DataFrame, verdict: Verdict, cases: int):
    assert rules.contraction(table) == (verdict, cases)


def test_contraction_takes_the_bound_of_the_theorem():
    bound = mixing_bound(0.5, 4)
    assert bound == math.ceil(4 / 0.5 * (math.log(4) + math.log(4)))
    assert (
        rules.contraction(exact((0.5, bound, bound)))[0] == CLEAR
        and rules.contraction(exact((0.5, bound + 1, bound)))[0] == VIOLATED
    )


def test_margin_bound():
    margins, taus = np.array([2.0, -1.0, 0.5]), np.array([0.1, 1.0])
    bounds = escape_bound(margins[None, :], taus[:, None], 11)
    assert bounds[0, 0] < 1 < bounds[1, 0] and bounds[0, 2] < 1 < bounds[1, 2]
    assert rules.margin_bound(margins, bounds.copy(), bounds) == (CLEAR, 2)
    assert rules.margin_bound(margins, bounds * (1 + 1e-12), bounds)[0] == CLEAR  # rounding
    above = bounds.copy()
    above[0, 2] *= 1.001
    assert rules.margin_bound(margins, above, bounds) == (VIOLATED, 2)
    outside = np.ones_like(bounds)
    outside[:, [0, 2]] = 0.0
    assert rules.margin_bound(margins, outside, bounds)[0] == CLEAR  # a state of negative margin is no case
    assert rules.margin_bound(np.array([0.0, -3.0]), np.ones((2, 2)), np.zeros((2, 2))) == (NOT_RUN, 0)


@pytest.mark.parametrize(
    ("ratios", "verdict"),
    [
        ([], UNDECIDED),
        ([10.0, 500.0], AGREES),
        ([9.99, 500.0], UNDECIDED),
        ([2.0], UNDECIDED),
        ([1.99, 500.0], DISAGREES),
    ],
)
def test_pessimistic(ratios: list[float], verdict: Verdict):
    assert rules.pessimistic(ratios) == verdict


# Chapter 3.


def law(n_log_n: float, n: float, n_square: float) -> pd.DataFrame:
    return pd.DataFrame({"law": ["n log n", "n", "n^2", "n^a"], "p_value": [n_log_n, n, n_square, math.nan]})


PASSES, RIVALS, ALL, NONE = (
    law(0.025, 0.0249, 0.0),
    law(0.0249, 0.0, 0.025),
    law(0.5, 0.2, 0.0),
    law(0.0, 0.0, 0.0),
)


@pytest.mark.parametrize(
    ("coalescence", "semantic", "verdict"),
    [
        (PASSES, PASSES, AGREES),
        (PASSES, ALL, UNDECIDED),
        (PASSES, NONE, UNDECIDED),
        (PASSES, RIVALS, DISAGREES),
        (RIVALS, RIVALS, DISAGREES),
        (NONE, NONE, UNDECIDED),
        (ALL, RIVALS, DISAGREES),
        (PASSES, None, UNDECIDED),
        (None, RIVALS, UNDECIDED),
        (None, None, UNDECIDED),
    ],
)
def test_scaling(coalescence: pd.DataFrame | None, semantic: pd.DataFrame | None, verdict: Verdict):
    laws = {"coalescence": coalescence, "semantic": semantic}
    assert rules.scaling({clock: table for clock, table in laws.items() if table is not None}) == verdict


@pytest.mark.parametrize(
    ("longest", "steps", "verdict"),
    [
        ([1000] * 11 + [999] * 3, 1000, AGREES),  # Wilson from 0.52
        ([1000] * 10 + [999] * 4, 4000, UNDECIDED),  # from 0.45
        ([999] * 35, 2000, DISAGREES),  # to 0.099
        ([999] * 34, 2000, UNDECIDED),
        ([999] * 35, 1999, UNDECIDED),
        ([1000] + [0] * 34, 4000, UNDECIDED),
        ([1000] + [0] * 60, 4000, DISAGREES),
    ],
)
def test_held(longest: list[int], steps: int, verdict: Verdict):
    assert rules.held(np.array(longest), steps) == verdict


def inside(low: float, at: float, high: float) -> Crossing:
    return Crossing(at, low, high, "inside")


def below(high: float | None) -> Crossing:
    return Crossing(None, None, high, "below the grid")


def above(low: float | None) -> Crossing:
    return Crossing(None, low, None, "above the grid")


@pytest.mark.parametrize(
    ("crossings", "verdict"),
    [
        ({8: inside(1.2, 1.3, 1.4), 16: inside(1.6, 1.7, 1.8)}, AGREES),
        ({16: inside(2.0, 2.1, 2.2), 8: inside(1.2, 1.3, 1.4)}, AGREES),  # in any order; the window is closed
        ({8: inside(1.0, 1.1, 1.2), 16: inside(1.3, 1.4, 1.5)}, AGREES),
        (
            {8: inside(1.2, 1.3, 1.6), 16: inside(1.6, 1.7, 1.8)},
            UNDECIDED,
        ),  # touching intervals do not say that it rises
        (
            {8: inside(1.2, 1.3, 1.4), 12: inside(1.0, 1.1, 1.2), 16: inside(1.6, 1.7, 1.8)},
            AGREES,
        ),  # smallest against largest
        ({8: inside(1.6, 1.7, 1.8), 16: inside(2.1, 2.2, 2.4)}, UNDECIDED),  # rises, out of the window
        ({8: inside(1.6, 1.7, 1.8), 16: inside(1.2, 1.3, 1.4)}, DISAGREES),  # falls
        ({8: inside(0.4, 0.5, 0.6), 16: inside(0.7, 0.8, 0.9)}, DISAGREES),  # nowhere near
        ({8: inside(0.4, 0.5, 0.6), 16: inside(0.7, 0.8, 1.5)}, AGREES),
        ({8: inside(2.1, 2.3, 2.5), 16: inside(2.6, 2.8, 3.0)}, DISAGREES),
        # The grid does not bracket tau* at the largest length.
        ({8: inside(1.2, 1.3, 1.4), 16: above(2.0)}, UNDECIDED),
        ({8: inside(1.2, 1.3, 1.4), 16: below(0.8)}, UNDECIDED),
        ({}, UNDECIDED),
        # It does not bracket it at the smallest: the end on the grid still counts.
        ({4: below(0.8), 8: inside(1.2, 1.3, 1.4), 16: inside(1.6, 1.7, 1.8)}, AGREES),
        ({4: below(1.6), 8: inside(1.2, 1.3, 1.4), 16: inside(1.6, 1.7, 1.8)}, UNDECIDED),
        ({4: below(None), 16: inside(1.6, 1.7, 1.8)}, UNDECIDED),
        ({4: above(2.2), 16: inside(1.6, 1.7, 1.8)}, DISAGREES),
        # An interval that runs off the grid there.
        ({8: inside(1.2, 1.3, 1.4), 16: Crossing(1.7, 1.6, None, "inside")}, AGREES),
        ({8: inside(1.2, 1.3, 1.4), 16: Crossing(1.7, None, 1.8, "inside")}, UNDECIDED),
        # One length alone cannot rise.
        ({8: inside(1.6, 1.7, 1.8)}, UNDECIDED),
        ({8: inside(0.6, 0.7, 0.8)}, DISAGREES),
    ],
)
def test_transition(crossings: dict[int, Crossing], verdict: Verdict):
    assert rules.transition(crossings, calibrated=True) == verdict
    assert rules.transition(crossings, calibrated=False) == UNDECIDED


# Chapter 4.


@pytest.mark.parametrize(
    ("places", "coherent", "long_enough", "verdict"),
    [
        ({0.5: "reached", 1.0: "below"}, {0.5: True, 1.0: False}, False, AGREES),
        (
            {0.5: "reached", 1.0: "below"},
            {0.5: False, 1.0: True},
            True,
            UNDECIDED,
        ),  # not at one and the same temperature
        ({0.5: "between", 1.0: "below"}, {0.5: True, 1.0: True}, True, UNDECIDED),  # too few chains to tell
        ({0.5: "below", 1.0: "below"}, {0.5: True, 1.0: False}, True, DISAGREES),
        ({0.5: "below", 1.0: "below"}, {0.5: True, 1.0: False}, False, UNDECIDED),
    ],
)
def test_loses_identity(places: dict, coherent: dict, long_enough: bool, verdict: Verdict):
    reached, below = ({tau: place == name for tau, place in places.items()} for name in ("reached", "below"))
    assert rules.loses_identity(reached, below, coherent, long_enough) == verdict


def stays(*found: tuple[str, int, float]) -> pd.DataFrame:
    return pd.DataFrame(found, columns=["kind", "length", "ratio"])


@pytest.mark.parametrize(
    ("table", "steps", "verdict"),
    [
        (stays(("perfect", 100, 10.0), ("approximate", 2000, 50.0)), 4000, AGREES),
        (stays(("perfect", 100, 9.9), ("approximate", 2000, 50.0)), 4000, UNDECIDED),
        (stays(("perfect", 2000, 50.0), ("perfect", 300, 20.0)), 4000, UNDECIDED),
        (stays(("perfect", 99, 50.0), ("approximate", 99, 50.0)), 1000, DISAGREES),
        (stays(("perfect", 99, 50.0), ("approximate", 99, 50.0)), 999, UNDECIDED),
        (stays(), 1000, DISAGREES),
        (stays(), 999, UNDECIDED),
        (
            stays(("perfect", 1000, 1.0)),
            1000,
            UNDECIDED,
        ),  # held all the time: long, but not longer than its neighbours
    ],
)
def test_traps(table: pd.DataFrame, steps: int, verdict: Verdict):
    assert rules.traps(table, steps) == verdict


def drift(levels: dict[int, list[float]], temperature: float = 1.0) -> pd.DataFrame:
    rows = [
        (level, temperature, state, ratio)
        for level, ratios in levels.items()
        for state, ratio in enumerate(ratios)
    ]
    return pd.DataFrame(rows, columns=["level", "temperature", "state", "ratio"])


@pytest.mark.parametrize(
    ("levels", "found"),
    [
        ({1: [0.1, 0.2], 2: [1.5, 2.0], 3: [3.0, 1.2]}, (AGREES, [2, 3], 1.2)),
        ({1: [0.1, 0.2], 2: [1.5, 2.0], 3: [3.0, 1.0]}, (UNDECIDED, [2], 1.5)),  # 1 is not above 1
        ({1: [1.5, 2.0], 2: [0.5, 2.0], 3: [1.2, 4.0]}, (UNDECIDED, [1], 1.5)),  # not neighbours
        ({1: [1.5, 2.0], 3: [1.2, 4.0]}, (UNDECIDED, [1], 1.5)),  # neighbours in the list, not in N
        (
            {4: [5.0], 1: [2.0], 2: [3.0], 3: [4.0]},
            (AGREES, [1, 2, 3, 4], 2.0),
        ),  # by level, in whatever order
        (
            {1: [2.0], 2: [3.0], 3: [0.1], 4: [1.1], 5: [1.2], 6: [1.3]},
            (AGREES, [4, 5, 6], 1.1),
        ),  # the longest run, not the steepest
        ({1: [2.0], 2: [3.0], 4: [2.5], 5: [2.5]}, (AGREES, [4, 5], 2.5)),  # of two as long, the steepest
        ({0: [math.inf], 1: [2.0]}, (UNDECIDED, [1], 2.0)),  # without "!" none can be lost
        ({1: [math.inf, 2.0], 2: [math.inf, math.inf]}, (AGREES, [1, 2], 2.0)),
        ({1: [0.1, 0.2, 5.0], 2: [0.1, 0.2, 5.0]}, (DISAGREES, [], math.nan)),
        ({1: [0.1, 5.0], 2: [0.1, 0.2]}, (UNDECIDED, [], math.nan)),  # half is not most
        ({0: [math.inf]}, (UNDECIDED, [], math.nan)),
    ],
)
def test_drift_upwards(levels: dict[int, list[float]], found: tuple[Verdict, list[int], float]):
    verdict, run, worst, temperature = rules.drift_upwards(drift(levels))
    assert (verdict, run) == found[:2] and worst == pytest.approx(found[2], nan_ok=True)
    assert temperature == 1.0 if run else math.isnan(temperature)


def test_drift_upwards_does_not_join_temperatures():
    both = pd.concat([drift({1: [2.0], 2: [0.5]}, 0.5), drift({1: [0.5], 2: [2.0]}, 1.0)])
    assert rules.drift_upwards(both)[:3] == (UNDECIDED, [1], 2.0)
    one = pd.concat([drift({1: [0.2], 2: [0.5]}, 0.5), drift({1: [2.0], 2: [3.0]}, 1.0)])
    assert rules.drift_upwards(one) == (AGREES, [1, 2], 2.0, 1.0)


def visits(count: int, share: float, entries: float, returning: int, ending: int) -> pd.DataFrame:
    first = np.arange(count)
    columns = {
        "share": share,
        "entries": entries,
        "returns": (first < returning).astype(int),
        "ends_inside": first < ending,
        "visited": share > 0,
    }
    return pd.DataFrame({"passage": first, **columns})


@pytest.mark.parametrize(
    ("table", "share", "base", "shuffled", "verdict"),
    [
        (visits(40, 0.2, 1.5, 10, 8), (0.2, 0.15, 0.3), (0.05, 0.0, 0.1), (0.02, 0.0, 0.05), AGREES),
        (
            visits(40, 0.2, 1.5, 10, 8),
            (0.2, 0.15, 0.3),
            (0.1, 0.0, 0.15),
            (0.02, 0.0, 0.05),
            UNDECIDED,
        ),  # not above the one null: not significant, no more
        (
            visits(40, 0.2, 1.5, 10, 8),
            (0.2, 0.15, 0.3),
            (0.05, 0.0, 0.1),
            (0.25, 0.2, 0.35),
            UNDECIDED,
        ),  # nor above the other, though below its estimate
        (
            visits(40, 0.2, 1.5, 10, 8),
            (0.2, 0.15, 0.3),
            (0.31, 0.2, 0.4),
            (0.4, 0.2, 0.5),
            DISAGREES,
        ),  # below both estimates
        (
            visits(40, 0.2, 1.5, 10, 8),
            (0.2, 0.15, 0.3),
            (0.3, 0.2, 0.4),
            (0.4, 0.2, 0.5),
            UNDECIDED,
        ),  # at one
        (
            visits(40, 0.2, 1.0, 10, 8),
            (0.2, 0.15, 0.3),
            (0.05, 0.0, 0.1),
            (0.02, 0.0, 0.05),
            UNDECIDED,
        ),  # entered once, not more
        (visits(40, 0.2, 1.5, 0, 8), (0.2, 0.15, 0.3), (0.05, 0.0, 0.1), (0.02, 0.0, 0.05), UNDECIDED),
        (
            visits(40, 0.2, 1.5, 10, 14),
            (0.2, 0.15, 0.3),
            (0.05, 0.0, 0.1),
            (0.02, 0.0, 0.05),
            AGREES,
        ),  # 0.35, within 0.2 + 2 x 0.076
        (visits(40, 0.2, 1.5, 10, 15), (0.2, 0.15, 0.3), (0.05, 0.0, 0.1), (0.02, 0.0, 0.05), UNDECIDED),
        (
            visits(40, 0.0, 0.0, 0, 0),
            (0.0, 0.0, 0.0),
            (0.0, 0.0, 0.1),
            (0.0, 0.0, 0.05),
            DISAGREES,
        ),  # nobody visits
    ],
)
def test_recurrent(table: pd.DataFrame, share: tuple, base: tuple, shuffled: tuple, verdict: Verdict):
    assert rules.recurrent(table, share, base, shuffled, True) == verdict
    assert rules.recurrent(table, share, base, shuffled, False) == (
        UNDECIDED if verdict == DISAGREES else verdict
    )


def test_chains_of_one_start_count_once_where_ends_are_judged():
    table, found = visits(40, 0.2, 1.5, 10, 15), ((0.2, 0.15, 0.3), (0.05, 0.0, 0.1), (0.02, 0.0, 0.05))
    assert rules.recurrent(table, *found, True) == UNDECIDED
    assert (
        rules.recurrent(table.assign(passage=table["passage"] // 10), *found, True) == AGREES
    )  # as many starts as four: nothing is significant
    assert rules.recurrent(table.assign(passage=0), *found, True) == UNDECIDED  # one start tells nothing

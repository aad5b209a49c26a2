"""What the chapter on mixing times computes, against exact chains and hand-made records."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from by_hand import ROUNDING, cell, laws_by_hand, letters, longest_by_hand, philox, states_of
from scipy import sparse, stats
from scipy.optimize import brentq
from scipy.special import expit
from statistics_helpers import P_VALUE, SIGMAS
from tiny_models import TinyModels
from torch import Tensor

from glauber_mlm.chapters.mixing_times import precision
from glauber_mlm.chapters.mixing_times import study as mixing
from glauber_mlm.chapters.mixing_times import words as mixing_words
from glauber_mlm.chapters.semantic_traps import study as landscape
from glauber_mlm.conditionals.solvable import RandomJoint
from glauber_mlm.conditionals.stubs import Counting
from glauber_mlm.errors import UserError
from glauber_mlm.exact import curie_weiss as calibration
from glauber_mlm.exact.glauber import coupled_meeting_times
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.coupled import coalescence, steps_at_scale
from glauber_mlm.passages import load_passages
from glauber_mlm.randomness import RandomStream
from glauber_mlm.readings.stays import longest_stays
from glauber_mlm.runs.cells import CellStore
from glauber_mlm.statistics.scaling import Crossing, crossing_temperature
from glauber_mlm.statistics.survival import lag_bound
from glauber_mlm.text import starts

pytest_plugins = ("tiny_fixtures",)

# Mixing: cells


def test_a_cell_is_the_coalescence_of_its_own_chains_and_has_the_exact_mean():
    model, temperature, pairs = RandomJoint(3, 2, 5), 0.8, 500
    states = model.states()
    first, second = states[[1]].repeat(pairs, 1), states[[6]].repeat(pairs, 1)
    found = mixing.coalescence_cell(model, first, second, temperature, seed=9, cap=10**5)
    assert all(found["met"]) and found["cap"] == 10**5 and found["lag"] == 0
    exact = coupled_meeting_times(model, temperature)[1, 6]
    times = np.array(found["times"])
    assert abs(times.mean() - exact) < SIGMAS * times.std(ddof=1) / math.sqrt(pairs)
    stream = RandomStream(9, starts.cell_chains(3, temperature, pairs))
    assert found["times"] == coalescence(model, first, second, temperature, stream, 10**5).times.tolist()
    assert (
        mixing.coalescence_cell(model, first, second, temperature + 0.1, seed=9, cap=10**5)["times"]
        != found["times"]
    )
    taken = []
    lagged = mixing.coalescence_cell(
        model, first, first, temperature, seed=9, cap=60, lag=7, progress=taken.append
    )
    assert lagged["lag"] == 7 and min(lagged["times"]) > 7 and sum(taken) == max(lagged["times"]) - 7
    censored = mixing.coalescence_cell(model, first, second, temperature, seed=9, cap=6)
    assert censored["times"] == np.minimum(times, 6).tolist() and censored["met"] == (times <= 6).tolist()
    assert 0 < sum(censored["met"]) < pairs


def test_a_cell_of_a_model_starts_from_pairs_of_passages(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 5, dtype="float64")
    first, second = starts.starting_pairs(conditionals, 6, seed=2)
    for coupling in ("maximal", "common"):
        found = mixing.model_cell(conditionals, 3.0, 6, 2, 120, coupling=coupling)
        assert found == mixing.coalescence_cell(conditionals, first, second, 3.0, 2, 120, coupling=coupling)
        assert any(found["met"])


def meeting_probability(n: int, temperature: float, cap: int) -> float:
    """Of all minus with all plus on Curie-Weiss, coupled maximally, within `cap` steps.

    The coupling is monotone, so the pair is told by the sites where both are plus (k) and those where they differ (d).
    """
    pairs = [(k, d) for d in range(n + 1) for k in range(n + 1 - d)]
    number = {pair: index for index, pair in enumerate(pairs)}
    rows, columns, values = [], [], []
    for (k, d), index in number.items():
        below, above = 2 * k - n, 2 * (k + d) - n
        for sites, change_k, change_d, spin_x, spin_y in (
            (k, 1, 0, 1, 1),
            (d, 0, 1, -1, 1),
            (n - k - d, 0, 0, -1, -1),
        ):
            if sites:
                p, q = (
                    expit(2 * (total - spin) / (n * temperature))
                    for total, spin in ((below, spin_x), (above, spin_y))
                )
                for probability, both_plus, differ in ((p, 1, 0), (q - p, 0, 1), (1 - q, 0, 0)):
                    if probability > 0:
                        rows.append(index)
                        columns.append(number[k - change_k + both_plus, d - change_d + differ])
                        values.append(sites / n * probability)
    transposed = sparse.csr_matrix((values, (columns, rows)), shape=(len(pairs), len(pairs)))
    law = np.zeros(len(pairs))
    law[number[0, n]] = 1.0
    for _ in range(cap):
        law = transposed @ law
    return float(law[[number[pair] for pair in pairs if pair[1] == 0]].sum())


def test_curie_weiss_cells_and_their_crossings_are_the_exact_ones():
    pairs, multiple, grid_of = 60, 25, {8: (0.4, 0.5, 0.65), 16: (0.5, 0.6, 0.75)}
    cells = {
        (n, tau): mixing.curie_weiss_cell(n, tau, pairs, 11, multiple)
        for n, taus in grid_of.items()
        for tau in taus
    }
    for (n, tau), found in cells.items():
        assert found["cap"] == steps_at_scale(n, multiple) == math.ceil(25 * n * math.log(n))
        exact = meeting_probability(n, tau, found["cap"])
        assert stats.binomtest(sum(found["met"]), pairs, exact).pvalue > P_VALUE
    exact = {
        n: brentq(
            lambda tau, n=n: meeting_probability(n, tau, steps_at_scale(n, multiple)) - 0.5,
            0.3,
            1.0,
            xtol=5e-3,
        )
        for n in (4, 8, 16)
    }
    assert 0.3 < exact[4] < exact[8] < exact[16] < 1
    found = mixing.crossings(cells, 0.5, seed=3)
    for n, crossing in found.items():
        taus = grid_of[n]
        direct = crossing_temperature(taus, [sum(cells[n, tau]["met"]) for tau in taus], pairs, 0.5, 3)
        assert crossing == direct and crossing.low <= exact[n] <= crossing.high
    assert found[8].temperature < found[16].temperature
    table = mixing.crossing_table(found)
    assert table["n"].tolist() == [8, 16] and table["tau_star"].tolist() == [
        found[8].temperature,
        found[16].temperature,
    ]
    assert table["low"].tolist() == [found[8].low, found[16].low] and table["side"].eq("inside").all()
    assert (
        mixing_words.describe_crossings(found)
        == f"tau*(8) = {found[8].temperature:.2f}; tau*(16) = {found[16].temperature:.2f}"
    )


def test_the_calibration_is_against_the_exact_crossing():
    for n, tau, cap in ((2, 0.7, 9), (5, 0.4, 60), (8, 0.6, 416)):
        assert calibration.meeting_probability(n, tau, cap) == pytest.approx(
            meeting_probability(n, tau, cap), rel=1e-9
        )
    assert calibration.meeting_probability(6, 0.5, 0) == 0.0
    by_hand = brentq(lambda tau: meeting_probability(8, tau, steps_at_scale(8, 25)) - 0.3, 0.1, 4.0)
    exact = {8: calibration.exact_crossing(8, 0.3, 25), 16: calibration.exact_crossing(16, 0.3, 0.01)}
    assert exact[8] == pytest.approx(by_hand, abs=5e-3) and exact[16] is None  # a cap of one step
    found = {8: Crossing(by_hand, None, by_hand + 0.1, "inside"), 16: Crossing(0.6, 0.5, 0.7, "inside")}
    table = mixing_words.calibration_table(found, exact)
    assert table["exact value is"].tolist() == ["inside", "no exact crossing"] and math.isnan(table["low"][0])
    inside = [
        (0.5, 0.4, 0.6),
        (0.4, 0.4, 0.6),
        (0.9, 0.4, None),
        (0.1, None, 0.6),
        (0.3, 0.4, 0.6),
        (0.7, 0.4, 0.6),
        (None, 0.4, 0.6),
        (7.0, None, None),
    ]
    assert [
        calibration.is_inside(Crossing(0.5, low, high, "inside"), value) for value, low, high in inside
    ] == [True] * 4 + [False] * 3 + [True]
    outside = {8: Crossing(1.0, 0.9, None, "inside")}
    assert mixing_words.calibration_table(outside, exact)["exact value is"].tolist() == ["outside"]
    assert mixing_words.describe_calibration(found, exact).endswith(
        "inside the 95 % interval at 1 of 2 lengths"
    )


@pytest.mark.slow
def test_the_crossing_of_curie_weiss_is_found_on_the_chapters_own_grid():
    for n in (8, 16, 32):
        cells = {
            (n, tau): mixing.curie_weiss_cell(n, tau, 60, 20260, 25)
            for tau in mixing.CALIBRATION_TEMPERATURES
        }
        exact = brentq(
            lambda tau, n=n: meeting_probability(n, tau, steps_at_scale(n, 25)) - 0.5, 0.3, 1.2, xtol=1e-3
        )
        crossing = mixing.crossings(cells, 0.5, seed=20260)[n]
        assert crossing.low <= exact <= crossing.high


def test_a_crossing_off_the_grid_stays_so_in_tables_and_words():
    found = {8: Crossing(None, None, 0.4, "below the grid"), 4: Crossing(0.5, 0.4, 0.6, "inside")}
    table = mixing.crossing_table(found)
    assert (
        table["n"].tolist() == [4, 8]
        and math.isnan(table["tau_star"][1])
        and math.isnan(table["low"][1])
        and table["high"][1] == 0.4
    )
    assert mixing_words.describe_crossings(found) == "tau*(4) = 0.50; tau*(8) below the grid"
    assert mixing_words.describe_intervals(found) == "n = 4: [0.4, 0.6]; n = 8: [off the grid, 0.4]"
    assert (
        mixing_words.describe_off_grid(found, "the model")
        == "No crossing on the grid for the model at n = 8 (below the grid)."
    )
    assert (
        mixing_words.describe_off_grid({4: found[4]}, "the model")
        == "Every length of the model has its crossing on the grid."
    )
    ratios = {4: 20.0, 8: 30.0}
    half_open = {4: found[4], 8: Crossing(1.0, None, 1.5, "inside")}
    assert (
        mixing_words.describe_ratio_intervals(ratios, half_open)
        == "n = 4: [17, 25], n = 8: [20, tau*(n) off the grid], 95 %"
    )
    assert (
        mixing_words.describe_ratio_intervals({}, found) is None
        and mixing_words.describe_exponents({}) is None
    )
    assert mixing_words.describe_ratios({}) == "tau*(n) lies outside the grid at every length"
    assert (
        mixing_words.describe_ratios({8: 271.6, 16: 300.2})
        == "proved / observed temperature: 272 (n = 8), 300 (n = 16)"
    )


def test_a_grid_computes_only_what_is_not_stored(tmp_path):
    computed = []

    def compute(n: int, tau: float) -> dict:
        computed.append((n, tau))
        return {"times": [n, tau]}

    def run(points, parameters, fingerprint="a") -> dict:
        computed.clear()
        return mixing.grid(
            CellStore(tmp_path), "cells", points, parameters, compute, lambda n: f"{fingerprint}-{n}"
        )

    points = [(4, 0.5), (4, 1.0), (8, 0.5)]
    cells = run(points, {"pairs": 3})
    assert computed == points and cells == {(n, tau): {"times": [n, tau]} for n, tau in points}
    assert run(points, {"pairs": 3}) == cells and computed == []
    assert run([*points, (8, 1)], {"pairs": 3}) == {**cells, (8, 1): {"times": [8, 1]}} and computed == [
        (8, 1)
    ]
    run(points[:2], {"pairs": 4})
    assert computed == points[:2]
    run(points[:2], {"pairs": 3}, fingerprint="b")
    assert computed == points[:2]
    run(points, {"pairs": 3})
    assert computed == []


# Mixing: clocks


def test_drift_cells_are_distances_along_the_plain_chain(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 6, dtype="float64")
    found = mixing.drift_cell(conditionals, 1.5, chains=4, steps=25, every=10, seed=7, embed=letters)
    assert found["times"] == [0, 10, 20, 25]
    states, _ = starts.starting_states(conditionals, 4, 7)
    state = plain.initial_state(conditionals, states, 1.5)
    first = starts.cell_chains(6, 1.5, 2048).stop  # chains of its own, none of the coalescence cell's
    _, record = plain.walk(conditionals, state, RandomStream(7, range(first, first + 4)), 0, 25)
    for chain in range(4):
        path = states_of(
            states[chain].numpy(), record.sites[:, chain].numpy(), record.tokens[:, chain].numpy()
        )[[0, 10, 20, 25]]
        vectors = letters([conditionals.decode(row) for row in path])
        assert found["drift"][chain] == pytest.approx(1 - vectors @ vectors[0], abs=ROUNDING)
    assert np.max(found["drift"]) > 0.05


def test_the_unrelated_level_is_the_mean_over_pairs_of_topics(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 12)
    level, error = mixing.unrelated(conditionals, letters)
    passages = load_passages()
    vectors = letters(
        [conditionals.decode(conditionals.encode(passage.text, "drop")[:12]) for passage in passages]
    )
    differ = np.array([[a.topic != b.topic for b in passages] for a in passages])
    distance = 1 - vectors @ vectors.T
    assert level == pytest.approx(distance[differ].mean(), rel=ROUNDING)
    without = []
    for left_out in range(len(passages)):
        kept = np.arange(len(passages)) != left_out
        without.append(distance[np.ix_(kept, kept)][differ[np.ix_(kept, kept)]].mean())
    assert error == pytest.approx(math.sqrt((len(passages) - 1) * np.var(without)), rel=1e-6)


def test_the_table_of_a_grid_by_hand():
    cells = {
        (8, 1.0): cell([100, 300, 200, 400], [True] * 4, 500),
        (8, 0.5): cell([500, 500, 500, 40], [False] * 3 + [True], 500),
        (4, 0.5): cell([7, 9], [True, True], 50),
    }
    table = mixing.grid_table(cells)
    assert table[["n", "temperature"]].to_numpy().tolist() == [[4, 0.5], [8, 0.5], [8, 1.0]]
    assert (
        table["pairs"].tolist() == [2, 4, 4]
        and table["met"].tolist() == [2, 1, 4]
        and table["cap"].tolist() == [50, 500, 500]
    )
    assert (
        table["median_steps"].iloc[[0, 2]].tolist() == [7, 200]
        and math.isnan(table["median_steps"][1])
        and table["median"][1] == "> 500"
    )
    assert mixing.censored_share(table) == pytest.approx(3 / 6)
    wide = mixing_words.pivot_medians(table)
    assert wide.columns.tolist() == ["temperature", "n = 4 (cap 50)", "n = 8 (cap 500)"] and wide[
        "temperature"
    ].tolist() == [0.5, 1.0]
    assert wide["n = 8 (cap 500)"][0] == "> 500" and pd.isna(wide["n = 4 (cap 50)"][1])


def exact_spread(values, weights) -> tuple[float, float]:
    """Standard deviation of a discrete law, and the standard error of one estimated from one draw."""
    centred = np.asarray(values) - np.average(values, weights=weights)
    variance, fourth = np.average(centred**2, weights=weights), np.average(centred**4, weights=weights)
    return math.sqrt(variance), math.sqrt((fourth - variance**2) / (4 * variance))


def test_the_error_of_a_median_is_that_of_the_exact_bootstrap_law():
    size, cap, resamples = 15, 900, 1000
    times = np.sort(philox(4).integers(20, 800, size=size))
    found = mixing.median_logs(cell(times[::-1].tolist(), [True] * size, cap), seed=2)
    below = stats.binom.sf(
        size // 2, size, np.arange(size + 1) / size
    )  # the median of a resample is among the k smallest
    spread, unit = exact_spread(np.log(times), np.diff(below))
    assert found[0] == pytest.approx(math.log(times[size // 2]))
    assert abs(found[1] - spread) < SIGMAS * unit / math.sqrt(resamples)
    few = cell([*times[:13].tolist(), *[cap] * 2], [True] * 13 + [False] * 2, cap)
    spread, unit = exact_spread(np.log([*times[:13], *[cap] * 2]), np.diff(below))
    assert abs(mixing.median_logs(few, seed=2)[1] - spread) < SIGMAS * unit / math.sqrt(resamples)
    censored = cell([*times[:8].tolist(), *[cap] * 7], [True] * 8 + [False] * 7, cap)
    log, error = mixing.median_logs(censored, seed=2)
    assert log == pytest.approx(math.log(times[7])) and math.isnan(
        error
    )  # many resamples have their median beyond the cap
    mostly = cell([*times[:7].tolist(), *[cap] * 8], [True] * 7 + [False] * 8, cap)
    assert all(math.isnan(value) for value in mixing.median_logs(mostly, seed=2))


def test_the_semantic_clock_reads_the_ensemble_mean():
    times = list(range(0, 101, 10))
    together = {"times": times, "drift": np.tile(np.arange(11) / 10, (5, 1)).tolist()}
    log, error = mixing.drift_logs(together, 0.35, 0.0, seed=1)
    assert log == pytest.approx(math.log(40)) and error == pytest.approx(10 / 40 / math.sqrt(12))
    assert all(math.isnan(value) for value in mixing.drift_logs(together, 1.5, 0.0, seed=1))
    fast, slow = np.minimum(np.arange(11) / 4, 1), np.arange(11) / 10
    apart = {"times": times, "drift": [fast.tolist(), slow.tolist()]}
    hits = [times[int(np.argmax(means >= 0.5))] for means in (fast, (fast + slow) / 2, slow)]
    assert len(set(hits)) == 3
    spread, unit = exact_spread(np.log(hits), [0.25, 0.5, 0.25])
    log, error = mixing.drift_logs(apart, 0.5, 0.0, seed=1)
    assert log == pytest.approx(math.log(hits[1]))
    sampled = math.sqrt(error**2 - (10 / hits[1]) ** 2 / 12)
    assert abs(sampled - spread) < SIGMAS * unit / math.sqrt(1000)
    # The level of chains that agree is 0.35 +- 0.1: the error is that of the first reading at or above a normal level.
    edges = stats.norm.cdf((np.arange(1, 11) / 10 - 0.35) / 0.1)
    spread, unit = exact_spread(np.log(times[1:]), np.diff(edges, prepend=0.0))
    _, error = mixing.drift_logs(together, 0.35, 0.1, seed=1)
    assert abs(math.sqrt(error**2 - (10 / 40) ** 2 / 12) - spread) < SIGMAS * unit / math.sqrt(1000)
    log, error = mixing.drift_logs(together, 0.95, 0.1, seed=1)
    assert log == pytest.approx(math.log(100)) and math.isnan(
        error
    )  # a third of the resamples never reach the level


LENGTHS = np.array([4, 8, 16, 32, 64, 128, 256])
LAWS = {
    "n log n": np.log(LENGTHS) + np.log(np.log(LENGTHS)),
    "n": np.log(LENGTHS),
    "n^2": 2 * np.log(LENGTHS),
}


def test_laws_are_rejected_as_often_as_chi_square_says():
    """A true law at the nominal level, a wrong one with the power of the non-central law."""
    level, replicates, errors = 0.05, 150, np.array([0.2, 0.15, 0.1, 0.1, 0.12, 0.15, 0.2])
    generator = philox(21)
    rejected = {law: 0 for law in LAWS}
    p_values = []
    for _ in range(replicates):
        logs = 2.0 + LAWS["n log n"] + errors * generator.standard_normal(len(LENGTHS))
        table = mixing.law_tests(LENGTHS, logs, errors).set_index("law")
        p_values.append(table.loc["n log n", "p_value"])
        for law in rejected:
            rejected[law] += table.loc[law, "p_value"] < level
    assert stats.kstest(p_values, "uniform").pvalue > P_VALUE
    for law, count in rejected.items():
        bend = LAWS["n log n"] - LAWS[law]
        bend = (bend - np.average(bend, weights=1 / errors**2)) / errors
        power = stats.ncx2.sf(stats.chi2.isf(level, 6), 6, bend @ bend) if law != "n log n" else level
        assert stats.binomtest(int(count), replicates, power).pvalue > P_VALUE
        assert (power > 0.9) == (law != "n log n")


def test_law_tests_fit_constants_and_the_free_power():
    errors = np.array([0.1, 0.2, 0.1, 0.3, 0.1, 0.1, math.nan])
    logs = 1.5 + 1.4 * np.log(LENGTHS) + np.array([0.05, -0.1, 0.02, 0.2, -0.04, 0.01, 0.0])
    table = mixing.law_tests(LENGTHS, logs, errors).set_index("law")
    assert table.index.tolist() == ["n log n", "n", "n^2", "n^a"] and table["freedom"].iloc[:3].tolist() == [
        5,
        5,
        5,
    ]
    n, log_t, error = np.log(LENGTHS[:6]), logs[:6], errors[:6]
    for law, offset in LAWS.items():
        constant = np.average(log_t - offset[:6], weights=1 / error**2)
        chi_square = (((log_t - offset[:6] - constant) / error) ** 2).sum()
        assert table.loc[law, "constant"] == pytest.approx(math.exp(constant)) and table.loc[
            law, "chi_square"
        ] == pytest.approx(chi_square)
        assert table.loc[law, "p_value"] == pytest.approx(stats.chi2.sf(chi_square, 5))
    slope, intercept = np.polyfit(n, log_t, 1, w=1 / error)
    assert table.loc["n^a", "exponent"] == pytest.approx(slope) and table.loc[
        "n^a", "constant"
    ] == pytest.approx(math.exp(intercept))
    assert table.loc["n^a", "exponent_low"] < slope < table.loc["n^a", "exponent_high"]
    with pytest.raises(UserError, match="only 2 lengths"):
        mixing.law_tests([4, 8, 16], [1.0, 2.0, math.nan], [0.1, 0.1, math.nan])


def test_clocks_are_read_and_tested_apart():
    generator = philox(6)
    coalescing = {}
    for n in (4, 8, 16, 32):
        times = np.ceil(3 * n * math.log(n) * generator.exponential(size=41)).astype(int).tolist()
        coalescing[n, 1.5] = cell(times, [True] * 41, 10**6)
    coalescing[64, 1.5] = cell([100] * 41, [False] * 41, 100)
    grid_of_times = list(range(0, 200, 2))
    drifting = {
        (n, 1.5): {
            "times": grid_of_times,
            "drift": [[1 - math.exp(-t / (rate * n)) for t in grid_of_times] for rate in (0.9, 1.0, 1.1)],
        }
        for n in (4, 8)
    }
    levels = {4: (0.5, 0.01), 8: (0.6, 0.01)}
    points = mixing.clock_points(coalescing, drifting, levels, seed=3)
    assert list(zip(points["clock"], points["n"], strict=True)) == [
        ("coalescence", n) for n in (4, 8, 16, 32, 64)
    ] + [("semantic", 4), ("semantic", 8)]
    for row in points.iloc[:4].itertuples():
        assert (row.log, row.error) == mixing.median_logs(coalescing[row.n, 1.5], 3) and row.error > 0
        assert row.low == pytest.approx(row.time * math.exp(-2 * row.error)) and row.high == pytest.approx(
            row.time * math.exp(2 * row.error)
        )
        assert row.time == pytest.approx(np.median(coalescing[row.n, 1.5]["times"]))
    assert math.isnan(points["time"][4])
    assert (points["log"][6], points["error"][6]) == mixing.drift_logs(drifting[8, 1.5], 0.6, 0.01, 3)
    laws = mixing.laws_by_clock(points)
    assert list(laws) == ["coalescence"]  # two lengths are no test
    direct = mixing.law_tests(points["n"][:4], points["log"][:4], points["error"][:4])
    pd.testing.assert_frame_equal(laws["coalescence"], direct)
    p_values = direct.set_index("law")["p_value"]
    assert mixing_words.describe_laws(laws) == (
        f"coalescence: n log n p = {p_values['n log n']:.2g}, n p = {p_values['n']:.2g}, n^2 p = {p_values['n^2']:.2g}; free exponent {direct['exponent'].iloc[3]:.2f}"
    )
    power = direct.iloc[3]
    assert (
        mixing_words.describe_exponents(laws)
        == f"free exponent: coalescence [{power['exponent_low']:.2f}, {power['exponent_high']:.2f}], 95 %"
    )
    assert mixing_words.describe_laws({}) == "no clock with three usable lengths"


# Mixing: apparatus


def test_another_cap_reads_the_same_pairs_censored_earlier():
    generator, multiple, taus = philox(8), 25, (0.4, 0.6, 0.8, 1.0, 1.2)
    cells = {}
    for n in (4, 8):
        cap = steps_at_scale(n, multiple)
        for tau in taus:
            times = np.ceil(generator.exponential(cap / tau**4 / 10, size=30)).astype(int)
            cells[n, tau] = cell(np.minimum(times, cap).tolist(), (times <= cap).tolist(), cap)
    common = {(4, tau): cells[8, tau] for tau in taus}
    variations = mixing.vary_apparatus(cells, common, multiple, 0.5, seed=1)
    table = mixing_words.variation_table(variations).set_index("apparatus")

    def crossing(n: int, level: float, share_of_cap: float = 1.0) -> str:
        limit = steps_at_scale(n, multiple * share_of_cap)
        met = [
            sum(
                seen and time <= limit
                for time, seen in zip(cells[n, tau]["times"], cells[n, tau]["met"], strict=True)
            )
            for tau in taus
        ]
        found = crossing_temperature(taus, met, 30, level, 1)
        value = found.side if found.temperature is None else f"{found.temperature:.2f}"
        low, high = ("off the grid" if end is None else f"{end:g}" for end in (found.low, found.high))
        return f"{value} [{low}, {high}]"

    expected = {
        "as above: 50% met by 25 n log n, maximal coupling": (0.5, 1.0),
        "share 20%": (0.2, 1.0),
        "share 80%": (0.8, 1.0),
        "cap 5 n log n": (0.5, 0.2),
        "cap 12.5 n log n": (0.5, 0.5),
    }
    assert table.index.tolist() == [*expected, "common random numbers"]
    for name, (level, share) in expected.items():
        assert table.loc[name].tolist() == [crossing(n, level, share) for n in (4, 8)]
    assert table.loc["common random numbers"].tolist() == [crossing(8, 0.5), "–"]
    assert table["n = 4"].nunique() > 3  # the apparatus moves the reading


def test_the_moves_of_the_boundary_are_told_in_words():
    first = {4: Crossing(1.0, 0.9, 1.1, "inside"), 8: Crossing(1.5, 1.4, 1.6, "inside")}
    others = [
        ("share", {4: Crossing(0.8, 0.7, 0.85, "inside"), 8: Crossing(1.4, 1.2, 1.5, "inside")}),
        ("share", {4: Crossing(1.2, 1.0, 1.3, "inside"), 8: Crossing(None, 1.7, None, "above the grid")}),
        ("cap", {4: Crossing(1.0, None, 1.1, "inside"), 8: Crossing(1.6, 1.5, None, "inside")}),
        ("coupling", {8: Crossing(None, 1.6, None, "above the grid")}),
    ]
    variations = [
        mixing.Variation("", "as above", first),
        *(mixing.Variation(varied, varied, found) for varied, found in others),
    ]
    assert mixing_words.describe_variations(variations) == (
        "The boundary moves from the first row with the share by -0.20 to +0.20, with the cap by +0.00 to +0.10, with the coupling by an unknown amount, "
        "where both cross on the grid (5 of 7 readings); 2 of the 7 have an interval apart from the first row's."
    )
    assert mixing_words.describe_variations(variations[:2]).endswith(
        "(2 of 2 readings); 1 of the 2 has an interval apart from the first row's."
    )


def test_a_shortened_cell_is_the_run_with_the_lower_cap():
    model = RandomJoint(4, 2, 3)
    first = torch.zeros(60, 4, dtype=torch.int64)
    long, short = (mixing.coalescence_cell(model, first, 1 - first, 0.7, 4, cap) for cap in (200, 12))
    assert mixing._shortened(long, 12) == short and 0 < sum(short["met"]) < 60


def test_the_lag_table_prints_the_lag_bound():
    model, n, lag, pairs = RandomJoint(4, 3, 2), 4, 8, 40
    first = model.states()[philox(1).integers(81, size=pairs)]
    second = model.states()[philox(2).integers(81, size=pairs)]
    cells = {
        (n, tau): mixing.coalescence_cell(model, first, second, tau, 3, 2000, lag=lag) for tau in (0.5, 2.0)
    }
    cells[n, 0.3] = cell([2000] + [lag + 1] * 4, [False] + [True] * 4, 2000, lag)
    table = mixing_words.lag_table(cells, n)
    assert (
        table["temperature"].tolist() == [0.3, 0.5, 2.0]
        and table["pairs"].tolist() == [5, pairs, pairs]
        and table["censored pairs"].tolist() == [1, 0, 0]
    )
    columns = [name for name in table.columns if name.startswith("t = ")]
    assert columns == [f"t = {sweep} sweeps" for sweep in (5, 10, 15, 20, 30, 40)]
    assert table.loc[0, columns].eq("says nothing").all()
    seen = set()
    for _, row in table.iloc[1:].iterrows():
        found = cells[n, row["temperature"]]
        for sweep, column in zip((5, 10, 15, 20, 30, 40), columns, strict=True):
            bound = lag_bound(found["times"], lag, [n * sweep], ~np.array(found["met"]))
            by_hand = np.mean([max(0, math.ceil((time - lag - n * sweep) / lag)) for time in found["times"]])
            assert bound.bound[0] == pytest.approx(by_hand)
            seen.add(by_hand > 0)
            if by_hand > 0:
                assert row[column] == f"{min(1.0, by_hand):.2f} ± {2 * bound.standard_error[0]:.2f}"
            else:
                assert row[column] == f"0 of {pairs} pairs later: no estimate"
    assert seen == {True, False}


def test_holding_cells_hold_the_longest_stays_of_the_plain_chain(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 5, dtype="float64")
    holding = mixing.holding_cell(conditionals, 0.35, chains=3, steps=250, radius=1, seed=6)
    states, _ = starts.starting_states(conditionals, 3, 6)
    state = plain.initial_state(conditionals, states, 0.35)
    _, record = plain.walk(conditionals, state, RandomStream(6, starts.cell_chains(5, 0.35, 3)), 0, 250)
    paths = [
        states_of(states[k].numpy(), record.sites[:, k].numpy(), record.tokens[:, k].numpy())
        for k in range(3)
    ]
    by_hand = [longest_by_hand(path, 1) for path in paths]
    assert mixing.longest_of_each(holding).tolist() == [length if length >= 5 else 0 for length in by_hand]
    assert all(
        stays == sorted(stays, reverse=True) and len(stays) <= 5 and min(stays, default=5) >= 5
        for stays in holding["stays"]
    )
    contexts = {
        (int(site), *np.delete(path[t], int(site)))
        for k, path in enumerate(paths)
        for t, site in enumerate(record.sites[:, k])
    }
    assert holding["rows"] == len(contexts) < 750
    found = [
        longest_stays(
            states[k].numpy(), record.sites[:, k].numpy(), record.tokens[:, k].numpy(), 1, minimum=5, top=5
        )
        for k in range(3)
    ]
    assert holding["cut"] == [[stay.censored for stay in stays] for stays in found]
    assert mixing.longest_of_each({"stays": [[9, 3], [], [4]]}).tolist() == [9, 0, 4]
    assert (
        mixing_words.describe_longest({"stays": [[1500, 3], [4]], "cut": [[True, False], [False]]}, 4)
        == "4 to > 1,500"
    )
    assert mixing_words.describe_longest({"stays": [[9, 3], []], "cut": [[False, True], []]}, 3) == "< 3 to 9"


# Precision


def test_the_cost_of_precision_is_the_total_variation_of_one_step(tiny: TinyModels):
    first, second = RandomJoint(3, 4, 1), RandomJoint(3, 4, 2)
    states = first.states()[::7]
    table = precision.precision_cost(first, second, states, [0.5, 2.0])
    for row in table.itertuples():
        distances = []
        for state, site in itertools.product(states, range(3)):
            p, q = (
                torch.softmax(model.logits(state[None], torch.tensor([site]))[0] / row.temperature, dim=0)
                for model in (first, second)
            )
            distances.append(0.5 * float((p - q).abs().sum()))
        assert row._2 == pytest.approx(np.mean(distances), rel=ROUNDING) and row._3 == pytest.approx(
            max(distances), rel=ROUNDING
        )
    assert (
        precision.precision_cost(first, first, states, [0.5, 2.0])[["mean TV of one step", "largest seen"]]
        .eq(0)
        .all(axis=None)
    )
    single, half = (tiny.conditionals("bert", 6, dtype=dtype) for dtype in ("float32", "bfloat16"))
    states = landscape.random_states(single, 3, seed=1)
    cost = precision.precision_cost(half, single, states, [1.0])
    laws = [[laws_by_hand(model, state) for state in states] for model in (half, single)]
    by_hand = 0.5 * np.abs(np.array(laws[0]) - np.array(laws[1])).sum(axis=2)
    assert 0 < cost["mean TV of one step"][0] < cost["largest seen"][0] < 1
    # The engine keeps the head of a bfloat16 model in float32, so it loses no more than the model run in bfloat16 throughout.
    assert cost["mean TV of one step"][0] < by_hand.mean()


class Lonely(Counting):
    """Rows of a batch of one are those of another model: what batch mates do to floating point, made large."""

    def __init__(self, conditionals, alone) -> None:
        super().__init__(conditionals)
        self.alone = alone

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        return (self.alone if len(sites) == 1 else self.wrapped).logits(states, sites)


def test_trajectories_of_one_model_never_part_in_float64(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 6, dtype="float64")
    states = landscape.random_states(conditionals, 3, seed=2)
    table = precision.divergence({"float64": conditionals, "again": conditionals}, states, 1.0, 40, seed=1)
    assert table["compared with"].tolist() == ["float64, each chain alone", "float64, event-driven", "again"]
    assert (
        table["chains"].eq(3).all()
        and table["chains that part"].eq(0).all()
        and table["first at step"].isna().all()
    )


def test_divergence_says_when_and_how_many_part():
    model, other = RandomJoint(4, 3, 1), RandomJoint(4, 3, 2)
    states, steps = model.states()[:6], 12
    table = precision.divergence({"one": model, "two": other}, states, 2.0, steps, seed=5).set_index(
        "compared with"
    )
    runs = [
        plain.walk(m, plain.initial_state(m, states, 2.0), RandomStream(5, range(6)), 0, steps)[1].tokens
        for m in (model, other)
    ]
    parted = {step for step in range(steps) if not torch.equal(runs[0][step], runs[1][step])}
    assert table.loc["two", "first at step"] == min(parted)
    assert (
        table.loc["two", "chains that part"]
        == sum(not torch.equal(runs[0][:, k], runs[1][:, k]) for k in range(6))
        > 0
    )
    assert (
        table.loc["one, each chain alone", "chains that part"]
        == table.loc["one, event-driven", "chains that part"]
        == 0
    )
    alone = precision.divergence({"one": Lonely(model, other)}, states, 2.0, steps, seed=5).set_index(
        "compared with"
    )
    assert alone.loc["one, each chain alone"].tolist() == table.loc["two"].tolist()

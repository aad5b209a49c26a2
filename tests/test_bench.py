"""The benchmark's arithmetic, not its figures: how ratios are taken, what is counted, what is written."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from statistics_helpers import P_VALUE, chi_square_p
from tiny_models import TinyModels

from glauber_mlm import bench
from glauber_mlm.chapters.semantic_traps.study import random_states
from glauber_mlm.conditionals.stubs import PlantedMargins
from glauber_mlm.kernels import plain
from glauber_mlm.randomness import RandomStream

pytest_plugins = ("tiny_fixtures",)


class Clock:
    """Time that passes only while work is done."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []

    def __call__(self) -> float:
        return self.now

    def work(self, name: str, durations: list[float]):
        left = iter(durations)

        def run() -> None:
            self.log.append(name)
            self.now += next(left)

        return run


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(bench.time, "perf_counter", clock)
    return clock


def test_measurements_take_turns(clock: Clock):
    ratio = bench.side_by_side(clock.work("A", [6, 9, 2]), clock.work("B", [2, 1, 4]), repeats=3)
    assert clock.log == ["A", "B"] * 3
    assert ratio == bench.Ratio(median=3.0, low=0.5, high=9.0, repeats=3)


def test_the_median_is_of_ratios_not_the_ratio_of_medians(clock: Clock):
    ratio = bench.side_by_side(clock.work("A", [1, 10, 100]), clock.work("B", [4, 5, 200]), repeats=3)
    assert ratio == bench.Ratio(median=0.5, low=0.25, high=2.0, repeats=3)


def test_a_slow_machine_moves_both_sides_of_a_ratio(clock: Clock):
    drifting = [0.1, 0.8, 0.4, 0.05, 1.6]
    ratio = bench.side_by_side(
        clock.work("A", [2.5 * factor for factor in drifting]), clock.work("B", drifting)
    )
    assert (ratio.median, ratio.low, ratio.high) == pytest.approx((2.5, 2.5, 2.5)) and len(
        clock.log
    ) == 2 * bench.REPEATS


def test_a_ratio_that_takes_too_long_is_of_fewer_repeats(clock: Clock):
    ratio = bench.side_by_side(clock.work("A", [3 * bench.BUDGET, 1]), clock.work("B", [bench.BUDGET, 1]))
    assert ratio == bench.Ratio(3.0, 3.0, 3.0, repeats=1) and clock.log == ["A", "B"]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("loop_over_plain.float32", 1.79, True),
        ("loop_over_plain.float32", 1.8, False),
        ("event_rows_over_pairs", 1.06, True),
        ("memory_1e5_over_1e3", 1.06, True),
    ],
)
def test_a_miss_is_told(name: str, value: float, expected: bool):
    assert bench.missed(name, value) == expected


def test_a_ratio_prints_its_median_its_spread_and_of_how_many():
    assert str(bench.Ratio(1.8444, 1.5, 12.3456, 5)) == "  1.844   [1.500, 12.346] of 5"


def planted(length: int = 12, chains: int = 6, margin: float = 6.0) -> tuple[PlantedMargins, torch.Tensor]:
    patterns = torch.stack([torch.arange(length) * (k + 3) % 53 for k in range(chains)])
    return PlantedMargins(length, 53, margin, patterns), patterns


def test_event_figures_count_rows_against_the_pairs_that_the_plain_chain_visits():
    model, patterns = planted()
    temperature, steps = 0.8, 300
    figures = bench.event_figures(model, patterns, temperature, steps, repeats=1)
    _, record = plain.walk(
        model, plain.initial_state(model, patterns, temperature), RandomStream(0, range(6)), 0, steps
    )
    visited = set()
    for chain, start in enumerate(patterns.tolist()):
        state = list(start)
        for site, token in zip(
            record.sites[:, chain].tolist(), record.tokens[:, chain].tolist(), strict=True
        ):
            visited.add((site, *state[:site], *state[site + 1 :]))
            state[site] = token
    assert figures.rows_over_pairs == 1.0
    assert figures.ideal == 6 * steps / len(visited) > 1
    assert figures.speedup.low <= figures.speedup.median <= figures.speedup.high and figures.speedup.low > 0


def test_the_speedup_is_of_the_plain_kernel_over_the_event_driven_one(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
):
    model, patterns = planted()
    walk, event_walk = plain.walk, bench.EventDriven.walk

    def slow(*arguments):
        clock.now += 6.0
        return walk(*arguments)

    def fast(*arguments):
        clock.now += 2.0
        return event_walk(*arguments)

    monkeypatch.setattr(bench.plain, "walk", slow)
    monkeypatch.setattr(bench.EventDriven, "walk", fast)
    figures = bench.event_figures(model, patterns, 0.8, 20, repeats=2)
    assert figures.speedup == bench.Ratio(3.0, 3.0, 3.0, repeats=2) and figures.share == 3.0 / figures.ideal


def test_the_public_loop_draws_from_the_same_conditional(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 6)
    state, site, temperature, count = random_states(conditionals, 1, seed=0), 3, 0.7, 4000
    states, sites = state.repeat(count, 1), torch.full((count,), site)
    new = bench.public_loop_step(conditionals, states, sites, temperature, torch.Generator().manual_seed(1))
    others = torch.arange(6) != site
    assert torch.equal(new[:, others], states[:, others])
    law = torch.softmax(conditionals.logits(state, sites[:1])[0].double() / temperature, dim=0).numpy()
    assert chi_square_p(np.bincount(new[:, site].numpy(), minlength=conditionals.vocabulary), law) > P_VALUE


def test_what_is_written_has_a_target_and_what_has_a_target_is_written(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch, tmp_path, capsys
):
    peaks = {200: 100.0, 400: 125.0}
    loaded = {dtype: tiny.load("bert", dtype) for dtype in ("float32", "bfloat16")}
    monkeypatch.setattr(bench.models, "load", lambda dtype="float32": loaded[dtype])
    monkeypatch.setattr(bench, "peak_memory", peaks.__getitem__)
    monkeypatch.setattr(bench, "SETTLING_SWEEPS", 2)
    medians = bench.run_bench(tmp_path / "bench.json", quick=True)
    assert set(medians) == set(bench.TARGETS) and all(value > 0 for value in medians.values())
    assert json.loads((tmp_path / "bench.json").read_text(encoding="utf-8")) == medians
    assert medians["event_rows_over_pairs"] == 1.0 and medians["memory_1e5_over_1e3"] == 1.25
    printed = capsys.readouterr().out
    assert all(f"target {target}" in printed for target in bench.TARGETS.values())


def test_windows_are_distinct_stretches_of_the_passages(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 6)
    found = bench.windows(conditionals, 40)
    with pytest.warns(UserWarning, match="dropped"):
        coded = [conditionals.encode(passage.text, unknown="drop") for passage in bench.load_passages()]
    text = [token for tokens in coded for token in tokens]
    assert found.shape == (40, 6) and found.dtype == torch.int64
    starts = [[at for at in range(len(text) - 5) if text[at : at + 6] == row] for row in found.tolist()]
    assert all(starts) and starts[0][0] == 0
    assert len(np.unique(found.numpy(), axis=0)) == 40


def test_only_what_missed_is_profiled(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch, capsys):
    profiled = []
    monkeypatch.setattr(bench, "print_step_profile", profiled.append)
    monkeypatch.setattr(bench, "PLANTED_STEPS", 20)
    bench.print_profiles(set())
    assert profiled == [] and capsys.readouterr().out == ""
    loaded = tiny.load("bert", "float32")
    monkeypatch.setattr(bench.models, "load", lambda: loaded)
    monkeypatch.setattr(bench, "SETTLING_SWEEPS", 2)
    bench.print_profiles({"event_speedup_over_ideal.settled"})
    printed = capsys.readouterr().out
    assert (
        profiled == []
        and printed.count("The event-driven walk") == 1
        and "n = 16, batch 16, 200 steps, settled" in printed
    )
    bench.print_profiles({"step_over_forward.bfloat16", "event_speedup_over_ideal.planted"})
    printed = capsys.readouterr().out
    assert profiled == ["bfloat16"] and "planted margins" in printed and "tottime" in printed
    rows, forwards, plainly, steps = map(
        int, re.search(r"(\d+) rows in (\d+) forwards, .* (\d+) rows in (\d+)", printed).groups()
    )
    assert (
        steps == 20
        and plainly == 20 * bench.PLANTED_CHAINS
        and forwards <= 20
        and forwards <= rows <= plainly
    )


def test_a_step_profile_names_the_matrix_products(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch, capsys):
    loaded = tiny.load("bert", "float32")
    monkeypatch.setattr(bench.models, "load", lambda dtype: loaded)
    bench.print_step_profile("float32", length=6, batch=4)
    printed = capsys.readouterr().out
    assert "n = 6, batch 4, float32" in printed and "aten::addmm" in printed


@pytest.mark.slow
def test_the_bench_runs_on_the_embedded_model(tmp_path):
    medians = bench.run_bench(tmp_path / "b.json", quick=True)
    assert (
        set(json.loads((tmp_path / "b.json").read_text(encoding="utf-8")))
        == set(medians)
        == set(bench.TARGETS)
    )
    assert all(np.isfinite(value) and value > 0 for value in medians.values())
    assert 1 <= medians["event_rows_over_pairs"] <= 1.05

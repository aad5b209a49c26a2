"""What the chapters compute, against exact answers, brute force and hand-made records."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray
from scipy import sparse, stats
from scipy.optimize import brentq
from scipy.special import expit
from statistics_helpers import P_VALUE, SIGMAS, seed_of
from tiny_models import TinyModels
from torch import Tensor

from glauber_mlm.conditionals import Restricted
from glauber_mlm.conditionals.masked_lm import HEAD_TOLERANCE, MaskedLanguageModel
from glauber_mlm.conditionals.solvable import CurieWeiss, DefectTable, Ising, ProductMeasure, RandomJoint
from glauber_mlm.conditionals.stubs import Counting
from glauber_mlm.errors import UserError
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.coupled import coalescence, steps_at_scale
from glauber_mlm.observables.bootstrap import mean_interval
from glauber_mlm.observables.exact import coupled_meeting_times
from glauber_mlm.observables.margins import LocalView
from glauber_mlm.observables.rectangle import defects, draw_rectangles
from glauber_mlm.observables.scaling import Crossing, crossing_temperature
from glauber_mlm.observables.semantics import recurrence
from glauber_mlm.observables.stays import longest_stays
from glauber_mlm.observables.survival import lag_bound, wilson_interval
from glauber_mlm.observables.topics import NONE_OF_THESE, TopicScorer
from glauber_mlm.passages import Passage, load_passages
from glauber_mlm.randomness import RandomStream
from glauber_mlm.runs.cells import CellStore
from glauber_mlm.studies import calibration, landscape, mixing, precision, rectangles, starts, theory
from glauber_mlm.wording import landscape as landscape_words
from glauber_mlm.wording import mixing as mixing_words
from glauber_mlm.wording import theory as theory_words

pytest_plugins = ("tiny_fixtures",)

ROUNDING = 1e-9  # far above what float64 loses in the two small layers or in sums of this size, far below any effect tested


def philox(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def letters(texts: list[str]) -> np.ndarray:
    """An embedder for tests: counts of letters, of unit length."""
    counts = np.array([[1.0] + [text.count(chr(code)) for code in range(ord("a"), ord("z") + 1)] for text in texts])
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def laws_by_hand(conditionals: MaskedLanguageModel, state, temperature: float = 1.0) -> np.ndarray:
    """Conditionals at every site of one state, from the whole forward of the transformers model: shape (n, V)."""
    tokens = [int(token) for token in state]
    tokenizer = conditionals.tokenizer
    inputs = []
    for site in range(len(tokens)):
        masked = [*tokens[:site], tokenizer.mask_token_id, *tokens[site + 1 :]]
        inputs.append([tokenizer.cls_token_id, *masked, tokenizer.sep_token_id])
    with torch.no_grad():
        logits = conditionals.model(input_ids=torch.tensor(inputs)).logits.double().numpy()
    rows = logits[np.arange(len(tokens)), np.arange(len(tokens)) + 1]
    rows[:, conditionals.barred] = -np.inf
    weights = np.exp((rows - rows.max(axis=1, keepdims=True)) / temperature)
    return weights / weights.sum(axis=1, keepdims=True)


def escape_by_hand(conditionals: MaskedLanguageModel, state, temperature: float) -> float:
    laws = laws_by_hand(conditionals, state, temperature)
    laws[np.arange(len(state)), [int(token) for token in state]] = 0.0
    return float(laws.sum(axis=1).mean())


def states_of(initial, sites, tokens) -> np.ndarray:
    """All states of one recorded chain: shape (steps + 1, n)."""
    states = [np.array(initial)]
    for site, token in zip(sites, tokens, strict=True):
        states.append(states[-1].copy())
        states[-1][site] = token
    return np.array(states)


def longest_by_hand(states: np.ndarray, radius: int) -> int:
    """Steps made from the states of the longest interval within `radius` of one of its states."""
    last = len(states) - 1
    longest = 0
    for centre in range(len(states)):
        near = (states != states[centre]).sum(axis=1) <= radius
        outside = np.flatnonzero(~near)
        before, after = outside[outside < centre], outside[outside > centre]
        start, end = (before[-1] + 1 if len(before) else 0), (after[0] if len(after) else last)
        longest = max(longest, int(end - start))
    return longest


def matrix_by_hand(model, temperature: float) -> np.ndarray:
    states = [tuple(row) for row in model.states().tolist()]
    number = {state: index for index, state in enumerate(states)}
    matrix = np.zeros((len(states), len(states)))
    for state, index in number.items():
        for site in range(model.length):
            row = model.logits(torch.tensor([state]), torch.tensor([site]))[0] / temperature
            for token, probability in enumerate(torch.softmax(row, dim=0).tolist()):
                matrix[index, number[(*state[:site], token, *state[site + 1 :])]] += probability / model.length
    return matrix


def cell(times, met, cap, lag=0) -> dict:
    return {"times": list(times), "met": list(met), "cap": cap, "lag": lag}


# Starts


def test_starting_states_are_the_first_tokens_of_distinct_passages_balanced_over_topics(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 20)
    states, passages = starts.starting_states(conditionals, 14, seed=3)
    assert states.shape == (14, 20) and states.dtype == torch.int64
    by_hand = [conditionals.tokenizer(passage.text, add_special_tokens=False)["input_ids"][:20] for passage in passages]
    assert states.tolist() == by_hand
    assert len({passage.id for passage in passages}) == 14
    assert all(first.topic != second.topic for first, second in itertools.pairwise(passages))
    counts = pd.Series([passage.topic for passage in passages]).value_counts()
    assert counts.max() - counts.min() <= 1 and len(counts) == len({passage.topic for passage in load_passages()})
    again, same = starts.starting_states(conditionals, 14, seed=3)
    assert torch.equal(again, states) and same == passages
    assert starts.starting_states(conditionals, 14, seed=4)[1] != passages


def test_starting_pairs_differ_in_topic_and_use_each_passage_once(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 30)
    owner = {tuple(row): passage for row, passage in zip(starts.passage_states(conditionals, load_passages()).tolist(), load_passages(), strict=True)}
    assert len(owner) == len(load_passages())
    first, second = starts.starting_pairs(conditionals, len(owner) // 2, seed=5)
    one, other = ([owner[tuple(row)] for row in side.tolist()] for side in (first, second))
    assert all(a.topic != b.topic for a, b in zip(one, other, strict=True))
    assert {passage.id for passage in one + other} == {passage.id for passage in load_passages()}
    again = starts.starting_pairs(conditionals, len(owner) // 2, seed=5)
    assert torch.equal(again[0], first) and torch.equal(again[1], second)
    assert not torch.equal(starts.starting_pairs(conditionals, len(owner) // 2, seed=6)[0], first)


def test_too_many_starts_and_too_short_passages_are_refused(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch):
    conditionals = tiny.conditionals("bert", 10)
    number = len(load_passages())
    with pytest.raises(UserError, match=f"{number + 2} of {number}"):
        starts.starting_pairs(conditionals, number // 2 + 1, seed=0)
    with pytest.raises(UserError, match="food-0 has 2 tokens"):
        starts.passage_states(conditionals, [Passage("food-0", "food", "?", "bread rise")])
    text = load_passages()[0].text
    lopsided = [Passage("a-1", "a", "?", text)] + [Passage(f"b-{k}", "b", "?", text) for k in range(3)]
    monkeypatch.setattr(starts, "load_passages", lambda: lopsided)
    assert starts.starting_pairs(conditionals, 1, seed=0)[0].shape == (1, 10)
    with pytest.raises(UserError, match="2 pairs cannot be drawn"):
        starts.starting_pairs(conditionals, 2, seed=0)


def test_cells_of_a_grid_never_share_randomness():
    temperatures = [*mixing.CALIBRATION_TEMPERATURES, 1.000001, 0.0, 399.5, 4000.0]
    cells = [starts.cell_chains(length, temperature, 4096) for length in range(2, 130) for temperature in temperatures]
    ordered = sorted(cells, key=lambda chains: chains.start)
    assert all(before.stop <= after.start for before, after in itertools.pairwise(ordered))
    assert ordered[-1].stop < 2**64
    numbers = [chain for length in (4, 8) for temperature in (1.0, 1.2) for chain in starts.cell_chains(length, temperature, 5)]
    blocks = RandomStream(1, numbers).blocks(0, 2)
    assert len(set(blocks.flatten().tolist())) == blocks.numel()
    assert list(starts.cell_chains(8, 1.2, 10))[:3] == list(starts.cell_chains(8, 1.2, 3))


# Theory


def test_a_restriction_keeps_the_state_and_the_likeliest_others(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 8, dtype="float64")
    state = landscape.random_states(conditionals, 1, seed=1)[0]
    restricted = theory.restrict_to_likely(conditionals, state, free=4, tokens=3, seed=2)
    sites = restricted.free_sites.tolist()
    assert sites == sorted(set(sites)) and len(sites) == 4
    laws = laws_by_hand(conditionals, state)
    for site, allowed in zip(sites, restricted.allowed, strict=True):
        ranked = [token for token in np.argsort(-laws[site]) if token != state[site]]
        assert list(allowed) == [int(state[site]), *ranked[:2]]
    assert theory.restrict_to_likely(conditionals, state, free=4, tokens=3, seed=2).fingerprint == restricted.fingerprint
    assert len({tuple(theory.restrict_to_likely(conditionals, state, free=4, tokens=3, seed=seed).free_sites.tolist()) for seed in range(8)}) > 1


def test_a_restriction_out_of_range_is_refused():
    model, state = CurieWeiss(4), torch.zeros(4, dtype=torch.int64)
    for free, tokens in ((1, 2), (5, 2), (2, 1)):
        with pytest.raises(UserError, match="out of range"):
            theory.restrict_to_likely(model, state, free, tokens, seed=0)
    with pytest.raises(UserError, match="allow at most 2"):
        theory.restrict_to_likely(model, state, 2, 3, seed=0)
    assert theory.restrict_to_likely(model, state, 2, 2, seed=0).allowed == ((0, 1), (0, 1))


@pytest.mark.parametrize("model", [RandomJoint(3, 2, 7), DefectTable(1.5)], ids=["joint", "defect"])
def test_a_restricted_chain_is_described_as_by_brute_force(model):
    temperatures = [0.6, 1.0, 4.0]
    table = theory.restricted_chain(Restricted(model), torch.zeros(model.length, dtype=torch.int64), temperatures)
    assert table["temperature"].tolist() == temperatures
    for row in table.itertuples():
        matrix = matrix_by_hand(model, row.temperature)
        size = len(matrix)
        values, vectors = np.linalg.eig(matrix.T)
        mu = np.real(vectors[:, np.argmin(abs(values - 1))])
        mu /= mu.sum()
        if not isinstance(model, DefectTable):
            assert mu == pytest.approx(model.log_mu(row.temperature).exp().numpy(), rel=ROUNDING)
        assert row.largest_mass == pytest.approx(mu.max(), rel=ROUNDING)
        assert row.gap == pytest.approx(1 - sorted(abs(values))[-2], rel=ROUNDING) and row.gap_resolved
        power, steps = np.eye(size), 0
        while 0.5 * abs(power - mu).sum(axis=1).max() > 0.25:
            power, steps = power @ matrix, steps + 1
        assert row.mixing_time == steps
        flow = mu[:, None] * matrix
        off = ~np.eye(size, dtype=bool) & (flow > 0)
        production = (flow * np.log(np.where(off, flow, 1) / np.where(off, flow.T, 1)) * off).sum()
        assert row.entropy_production == pytest.approx(production, abs=1e-12)
        assert (production > 1e-3) == isinstance(model, DefectTable)
        sets = [np.array(inside) for inside in itertools.product([False, True], repeat=size) if 0 < mu[list(inside)].sum() <= 0.5]
        bottleneck = min(flow[np.ix_(inside, ~inside)].sum() / mu[inside].sum() for inside in sets)
        assert 0 < row.lower_bound <= 1 / (4 * bottleneck) * (1 + ROUNDING) and row.lower_bound <= steps

        influence = np.zeros((model.length, model.length))
        states = model.states()
        for j in range(model.length):
            other = states.clone()
            other[:, j] = 1 - other[:, j]
            for i in set(range(model.length)) - {j}:
                site = torch.full((size,), i)
                p, q = (torch.softmax(model.logits(tokens, site) / row.temperature, dim=1) for tokens in (states, other))
                influence[i, j] = 0.5 * (p - q).abs().sum(dim=1).max()
        assert row.alpha_row == pytest.approx(influence.sum(axis=1).max(), rel=ROUNDING)
        assert row.alpha_column == pytest.approx(influence.sum(axis=0).max(), rel=ROUNDING)
        assert row.alpha == min(row.alpha_row, row.alpha_column)
        if row.alpha < 1:
            assert row.bound == math.ceil(model.length / (1 - row.alpha) * (math.log(model.length) + math.log(4))) >= steps
        else:
            assert math.isinf(row.bound)
    assert (table["alpha"] < 1).any()


def test_a_chain_too_slow_to_resolve_is_said_to_be_so():
    chain = theory.restricted_chain(Restricted(Ising("cycle", 3)), torch.zeros(3, dtype=torch.int64), [0.05]).iloc[0]
    assert math.isnan(chain["mixing_time"]) and not chain["gap_resolved"]
    assert chain["lower_bound"] > theory.LONGEST_RESOLVED
    assert math.isinf(chain["bound"])


def test_descent_ends_at_the_argmax_of_every_site():
    table = torch.from_numpy(philox(3).normal(size=(5, 4)))
    settled = theory.descend(ProductMeasure(table), torch.zeros(6, 5, dtype=torch.int64), sweeps=20, seed=1)
    assert settled.tolist() == [table.argmax(dim=1).tolist()] * 6
    leaning = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1]])
    assert theory.descend(CurieWeiss(7), leaning, sweeps=20, seed=1).tolist() == [[1] * 7, [0] * 7]
    untouched = theory.descend(CurieWeiss(7), leaning, sweeps=0, seed=1)
    assert torch.equal(untouched, leaning)


def test_allowed_tokens_are_those_of_positive_probability(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 8)
    state = landscape.random_states(conditionals, 1, seed=1)[0]
    assert theory.allowed_tokens(conditionals).tolist() == (laws_by_hand(conditionals, state)[0] > 0).tolist()
    assert 0 < int((~theory.allowed_tokens(conditionals)).sum()) < conditionals.vocabulary


def test_the_table_of_settled_states_holds_local_maxima_by_margin(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 3)
    states = landscape.random_states(conditionals, 4, seed=1)
    view = LocalView(np.array([[1.0, 2, 3], [5, 4, 6], [-1, 9, 9], [2, 2, 2]]), np.array([[0.5, 0.4, 0.3, 0.2], [0.1, 0.05, 0.01, 0.0]]), np.array([1.0, 0.2]))
    table = theory_words.settled_table(view, conditionals, states, top=2)
    assert table["margin (nats)"].tolist() == [4.0, 2.0]
    assert table["text"].tolist() == [conditionals.decode(states[1]), conditionals.decode(states[3])]
    assert table["mean dwell at τ = 1 (steps)"].tolist() == pytest.approx([2.5, 5.0])
    assert table["mean dwell at τ = 0.2 (steps)"].tolist() == pytest.approx([20.0, 1e300])
    assert len(theory_words.settled_table(view, conditionals, states, top=9)) == 3


def test_margins_in_words_count_maxima_and_cases():
    def view(*margins: float) -> LocalView:
        return LocalView(np.array(margins)[:, None], np.full((2, len(margins)), 0.5), np.array([1.0, 0.2]))

    words = theory_words.describe_margins(view(-1, -1, 1), view(-1, 2, 3), informative=1, verdict="no violation found")
    assert words.startswith("2 of 3 settled states") and "passages they came from, 1 were" in words
    assert "Of 4 cases" in words and "below 1 in 1;" in words and "**no violation found**" in words
    nothing = theory_words.describe_margins(view(-1), view(-2), informative=0, verdict="undecided")
    assert nothing.startswith("0 of 1") and nothing.endswith("nothing to say here.")


def test_contraction_in_words_compares_bound_and_time():
    chains = pd.DataFrame(
        {
            "alpha": [0.5, 0.9, 1.2],
            "bound": [30.0, 40.0, math.inf],
            "mixing_time": [10.0, 16.0, 50.0],
            "entropy_production": [0.0, 2e-3, 0.5],
            "gap_resolved": [True, True, False],
        }
    )
    assert theory_words.count_contraction(chains) == "bound / exact mixing time at least 2.50 in 2 contracting cases"
    words = theory_words.describe_contraction(chains)
    assert (
        "below 1 in 2 of 3 cases" in words and "at best 2.5 times too long" in words and "in 1 of 3 cases" in words and "between 0.0e+00 and 5.0e-01" in words
    )
    assert "**beyond the bound**: bound over time is 0.800" in theory_words.describe_contraction(chains.assign(mixing_time=[10.0, 50.0, 50.0]))
    nowhere = chains.assign(alpha=1.5)
    assert theory_words.count_contraction(nowhere) == "no case with alpha below 1" and "nothing to say here" in theory_words.describe_contraction(nowhere)


# Rectangles


def test_starts_are_repeated_in_turn():
    states = torch.arange(6).reshape(3, 2)
    assert rectangles.rectangle_starts(states, 7).tolist() == [[0, 1], [2, 3], [4, 5], [0, 1], [2, 3], [4, 5], [0, 1]]
    assert torch.equal(rectangles.rectangle_starts(states, 2), states[:2])


def test_the_floor_is_how_far_delta_moves():
    model = DefectTable(1.0)
    drawn = draw_rectangles(model, model.states().repeat(20, 1), seed=1)
    reference = defects(model, drawn)
    assert reference.abs().tolist() == pytest.approx([1.0] * 80, rel=ROUNDING)
    floor = rectangles.numerical_floor(model, DefectTable(1.25), drawn, reference, seed=2)
    assert floor.batch.tolist() == [0.0] * 80 and floor.double.tolist() == pytest.approx([0.25] * 80, rel=ROUNDING)
    assert floor.largest == floor.double.max()
    moved = reference.clone()
    moved[37] += 0.5  # one rectangle alone, so that the new order must have been undone
    floor = rectangles.numerical_floor(model, model, drawn, moved, seed=2)
    assert np.flatnonzero(floor.batch).tolist() == np.flatnonzero(floor.double).tolist() == [37]
    assert floor.largest == pytest.approx(0.5, rel=ROUNDING)


def test_the_floor_of_float32_is_that_against_float64(tiny: TinyModels):
    single, double = (tiny.conditionals("bert", 8, dtype=dtype) for dtype in ("float32", "float64"))
    drawn = draw_rectangles(single, landscape.random_states(single, 24, seed=1), seed=1)
    delta = defects(single, drawn)
    floor = rectangles.numerical_floor(single, double, drawn, delta, seed=2)
    assert floor.double == pytest.approx((defects(double, drawn, batch=5) - delta).abs().numpy(), abs=ROUNDING)
    assert 0 < floor.largest < float(delta.abs().median())


def test_defects_by_protocol_hold_sites_fixed_and_are_the_planted_ones(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 8, dtype="float64")
    states = landscape.random_states(conditionals, 12, seed=1)
    frame = rectangles.defects_by_protocol(conditionals, states, seed=4)
    assert frame["protocol"].unique().tolist() == ["conditional", "top", "uniform"]
    for protocol, part in frame.groupby("protocol"):
        drawn = draw_rectangles(conditionals, states, seed=4, alternatives=protocol)
        assert part["delta"].to_numpy() == pytest.approx(defects(conditionals, drawn, batch=7).numpy(), abs=ROUNDING)
        assert part["distance"].tolist() == (drawn.i - drawn.j).abs().tolist()
        assert part["rectangle"].tolist() == list(range(12))
    assert frame.pivot(index="rectangle", columns="protocol", values="distance").nunique(axis=1).eq(1).all()
    planted = rectangles.defects_by_protocol(DefectTable(0.75), DefectTable(0.75).states().repeat(3, 1), seed=1)
    assert planted["delta"].abs().tolist() == pytest.approx([0.75] * 36, rel=ROUNDING) and planted["distance"].eq(1).all()


def test_the_summary_of_defects_by_hand():
    frame = pd.DataFrame({"protocol": ["top"] * 4 + ["uniform"] * 3, "delta": [0.05, -0.2, 0.4, -0.01, 1.0, -2.0, 3.0], "rectangle": [0, 1, 2, 3, 0, 1, 2]})
    table = rectangles.summary_by_protocol(frame, seed=3)
    assert table["alternatives"].tolist() == ["top", "uniform"] and table["rectangles"].tolist() == [4, 3]
    interval = ["mean |delta| (nats)", "95 % from", "to"]
    assert table[interval[0]].tolist() == pytest.approx([0.165, 2.0]) and table["median |delta| (nats)"].tolist() == pytest.approx([0.125, 2.0])
    assert table["share above 0.1 nats"].tolist() == [0.5, 1.0]
    assert tuple(table.loc[1, interval]) == mean_interval(np.array([1.0, 2.0, 3.0]), 3)
    by_passage = rectangles.summary_by_protocol(frame, seed=3, passages=2)  # 0.05 and 0.4 are of one passage, 0.2 and 0.01 of the other
    assert by_passage.loc[0, interval].tolist() == pytest.approx([0.165, 0.105, 0.225])


def test_the_controls_have_no_defect_where_the_model_has_one(tiny: TinyModels):
    single, double = (tiny.conditionals("bert", 8, dtype=dtype) for dtype in ("float32", "float64"))
    states = landscape.random_states(double, 10, seed=1)
    masked = float(defects(double, draw_rectangles(double, states, seed=2)).abs().median())
    folder = str(tiny.folder("gpt2"))
    for control, named in (("left_to_right", "the same model read left to right"), (folder, folder)):
        delta, rounding, name = rectangles.control_defects(control, double, double, states, seed=2, dtype="float64", revision=None)
        assert delta.shape == (10,) and name == named
        assert float(delta.abs().max()) < 1e-6 * masked and 0 <= rounding < 1e-6 * masked
        delta, rounding, name = rectangles.control_defects(control, single, double, states, seed=2, dtype="float32")
        assert float(delta.abs().max()) <= rounding / 10 + 1e-6 * masked and rounding < masked
    with pytest.raises(UserError, match="no alternative"):
        rectangles.control_defects(folder, single, double, states[:1].repeat(3, 1), seed=2)


def test_further_models_are_judged_by_the_rule_on_their_own_intervals(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch):
    passages = load_passages()[::14]
    assert len(passages) == 8
    for module in (rectangles, starts):
        monkeypatch.setattr(module, "load_passages", lambda: passages)
    asked = []

    def rule(low: float, high: float, floor: float) -> str:
        asked.append((low, high, floor))
        return f"verdict {len(asked)}"

    names = {name: str(tiny.folder(name)) for name in ("bert", "roberta")}
    verdicts = rectangles.verdicts_of_models(list(names.values()), 6, 20, 3, rule, dtype="float32")
    assert verdicts == {folder: (tiny.load(name).describe()["parameters"], f"verdict {k}") for k, (name, folder) in enumerate(names.items(), start=1)}
    for name, (low, high, floor) in zip(names, asked, strict=True):
        conditionals = tiny.conditionals(name, 6)
        states = rectangles.rectangle_starts(starts.starting_states(conditionals, 8, 3)[0], 20)
        drawn = draw_rectangles(conditionals, states, seed=3)
        delta = defects(conditionals, drawn)
        assert (low, high) == pytest.approx(mean_interval(delta.abs(), 3, np.arange(20) % 8)[1:], rel=1e-5)
        assert floor == rectangles.numerical_floor(conditionals, tiny.conditionals(name, 6, dtype="float64"), drawn, delta, 3).largest < low


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
    assert mixing.coalescence_cell(model, first, second, temperature + 0.1, seed=9, cap=10**5)["times"] != found["times"]
    taken = []
    lagged = mixing.coalescence_cell(model, first, first, temperature, seed=9, cap=60, lag=7, progress=taken.append)
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
        for sites, change_k, change_d, spin_x, spin_y in ((k, 1, 0, 1, 1), (d, 0, 1, -1, 1), (n - k - d, 0, 0, -1, -1)):
            if sites:
                p, q = (expit(2 * (total - spin) / (n * temperature)) for total, spin in ((below, spin_x), (above, spin_y)))
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
    cells = {(n, tau): mixing.curie_weiss_cell(n, tau, pairs, 11, multiple) for n, taus in grid_of.items() for tau in taus}
    for (n, tau), found in cells.items():
        assert found["cap"] == steps_at_scale(n, multiple) == math.ceil(25 * n * math.log(n))
        exact = meeting_probability(n, tau, found["cap"])
        assert stats.binomtest(sum(found["met"]), pairs, exact).pvalue > P_VALUE
    exact = {n: brentq(lambda tau, n=n: meeting_probability(n, tau, steps_at_scale(n, multiple)) - 0.5, 0.3, 1.0, xtol=5e-3) for n in (4, 8, 16)}
    assert 0.3 < exact[4] < exact[8] < exact[16] < 1
    found = mixing.crossings(cells, 0.5, seed=3)
    for n, crossing in found.items():
        taus = grid_of[n]
        direct = crossing_temperature(taus, [sum(cells[n, tau]["met"]) for tau in taus], pairs, 0.5, 3)
        assert crossing == direct and crossing.low <= exact[n] <= crossing.high
    assert found[8].temperature < found[16].temperature
    table = mixing.crossing_table(found)
    assert table["n"].tolist() == [8, 16] and table["tau_star"].tolist() == [found[8].temperature, found[16].temperature]
    assert table["low"].tolist() == [found[8].low, found[16].low] and table["side"].eq("inside").all()
    assert mixing_words.describe_crossings(found) == f"tau*(8) = {found[8].temperature:.2f}; tau*(16) = {found[16].temperature:.2f}"


def test_the_calibration_is_against_the_exact_crossing():
    for n, tau, cap in ((2, 0.7, 9), (5, 0.4, 60), (8, 0.6, 416)):
        assert calibration.meeting_probability(n, tau, cap) == pytest.approx(meeting_probability(n, tau, cap), rel=1e-9)
    assert calibration.meeting_probability(6, 0.5, 0) == 0.0
    by_hand = brentq(lambda tau: meeting_probability(8, tau, steps_at_scale(8, 25)) - 0.3, 0.1, 4.0)
    exact = {8: calibration.exact_crossing(8, 0.3, 25), 16: calibration.exact_crossing(16, 0.3, 0.01)}
    assert exact[8] == pytest.approx(by_hand, abs=5e-3) and exact[16] is None  # a cap of one step
    found = {8: Crossing(by_hand, None, by_hand + 0.1, "inside"), 16: Crossing(0.6, 0.5, 0.7, "inside")}
    table = mixing_words.calibration_table(found, exact)
    assert table["exact value is"].tolist() == ["inside", "no exact crossing"] and math.isnan(table["low"][0])
    inside = [(0.5, 0.4, 0.6), (0.4, 0.4, 0.6), (0.9, 0.4, None), (0.1, None, 0.6), (0.3, 0.4, 0.6), (0.7, 0.4, 0.6), (None, 0.4, 0.6), (7.0, None, None)]
    assert [calibration.is_inside(Crossing(0.5, low, high, "inside"), value) for value, low, high in inside] == [True] * 4 + [False] * 3 + [True]
    outside = {8: Crossing(1.0, 0.9, None, "inside")}
    assert mixing_words.calibration_table(outside, exact)["exact value is"].tolist() == ["outside"]
    assert mixing_words.describe_calibration(found, exact).endswith("inside the 95 % interval at 1 of 2 lengths")


@pytest.mark.slow
def test_the_crossing_of_curie_weiss_is_found_on_the_chapters_own_grid():
    for n in (8, 16, 32):
        cells = {(n, tau): mixing.curie_weiss_cell(n, tau, 60, 20260, 25) for tau in mixing.CALIBRATION_TEMPERATURES}
        exact = brentq(lambda tau, n=n: meeting_probability(n, tau, steps_at_scale(n, 25)) - 0.5, 0.3, 1.2, xtol=1e-3)
        crossing = mixing.crossings(cells, 0.5, seed=20260)[n]
        assert crossing.low <= exact <= crossing.high


def test_a_crossing_off_the_grid_stays_so_in_tables_and_words():
    found = {8: Crossing(None, None, 0.4, "below the grid"), 4: Crossing(0.5, 0.4, 0.6, "inside")}
    table = mixing.crossing_table(found)
    assert table["n"].tolist() == [4, 8] and math.isnan(table["tau_star"][1]) and math.isnan(table["low"][1]) and table["high"][1] == 0.4
    assert mixing_words.describe_crossings(found) == "tau*(4) = 0.50; tau*(8) below the grid"
    assert mixing_words.describe_intervals(found) == "n = 4: [0.4, 0.6]; n = 8: [off the grid, 0.4]"
    assert mixing_words.describe_off_grid(found, "the model") == "No crossing on the grid for the model at n = 8 (below the grid)."
    assert mixing_words.describe_off_grid({4: found[4]}, "the model") == "Every length of the model has its crossing on the grid."
    ratios = {4: 20.0, 8: 30.0}
    half_open = {4: found[4], 8: Crossing(1.0, None, 1.5, "inside")}
    assert mixing_words.describe_ratio_intervals(ratios, half_open) == "n = 4: [17, 25], n = 8: [20, tau*(n) off the grid], 95 %"
    assert mixing_words.describe_ratio_intervals({}, found) is None and mixing_words.describe_exponents({}) is None
    assert mixing_words.describe_ratios({}) == "tau*(n) lies outside the grid at every length"
    assert mixing_words.describe_ratios({8: 271.6, 16: 300.2}) == "proved / observed temperature: 272 (n = 8), 300 (n = 16)"


def test_a_grid_computes_only_what_is_not_stored(tmp_path):
    computed = []

    def compute(n: int, tau: float) -> dict:
        computed.append((n, tau))
        return {"times": [n, tau]}

    def run(points, parameters, fingerprint="a") -> dict:
        computed.clear()
        return mixing.grid(CellStore(tmp_path), "cells", points, parameters, compute, lambda n: f"{fingerprint}-{n}")

    points = [(4, 0.5), (4, 1.0), (8, 0.5)]
    cells = run(points, {"pairs": 3})
    assert computed == points and cells == {(n, tau): {"times": [n, tau]} for n, tau in points}
    assert run(points, {"pairs": 3}) == cells and computed == []
    assert run([*points, (8, 1)], {"pairs": 3}) == {**cells, (8, 1): {"times": [8, 1]}} and computed == [(8, 1)]
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
        path = states_of(states[chain].numpy(), record.sites[:, chain].numpy(), record.tokens[:, chain].numpy())[[0, 10, 20, 25]]
        vectors = letters([conditionals.decode(row) for row in path])
        assert found["drift"][chain] == pytest.approx(1 - vectors @ vectors[0], abs=ROUNDING)
    assert np.max(found["drift"]) > 0.05


def test_the_unrelated_level_is_the_mean_over_pairs_of_topics(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 12)
    level, error = mixing.unrelated(conditionals, letters)
    passages = load_passages()
    vectors = letters([conditionals.decode(conditionals.encode(passage.text)[:12]) for passage in passages])
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
    assert table["pairs"].tolist() == [2, 4, 4] and table["met"].tolist() == [2, 1, 4] and table["cap"].tolist() == [50, 500, 500]
    assert table["median_steps"].iloc[[0, 2]].tolist() == [7, 200] and math.isnan(table["median_steps"][1]) and table["median"][1] == "> 500"
    assert mixing.censored_share(table) == pytest.approx(3 / 6)
    wide = mixing_words.pivot_medians(table)
    assert wide.columns.tolist() == ["temperature", "n = 4 (cap 50)", "n = 8 (cap 500)"] and wide["temperature"].tolist() == [0.5, 1.0]
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
    below = stats.binom.sf(size // 2, size, np.arange(size + 1) / size)  # the median of a resample is among the k smallest
    spread, unit = exact_spread(np.log(times), np.diff(below))
    assert found[0] == pytest.approx(math.log(times[size // 2]))
    assert abs(found[1] - spread) < SIGMAS * unit / math.sqrt(resamples)
    few = cell([*times[:13].tolist(), *[cap] * 2], [True] * 13 + [False] * 2, cap)
    spread, unit = exact_spread(np.log([*times[:13], *[cap] * 2]), np.diff(below))
    assert abs(mixing.median_logs(few, seed=2)[1] - spread) < SIGMAS * unit / math.sqrt(resamples)
    censored = cell([*times[:8].tolist(), *[cap] * 7], [True] * 8 + [False] * 7, cap)
    log, error = mixing.median_logs(censored, seed=2)
    assert log == pytest.approx(math.log(times[7])) and math.isnan(error)  # many resamples have their median beyond the cap
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
    assert log == pytest.approx(math.log(100)) and math.isnan(error)  # a third of the resamples never reach the level


LENGTHS = np.array([4, 8, 16, 32, 64, 128, 256])
LAWS = {"n log n": np.log(LENGTHS) + np.log(np.log(LENGTHS)), "n": np.log(LENGTHS), "n^2": 2 * np.log(LENGTHS)}


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
    assert table.index.tolist() == ["n log n", "n", "n^2", "n^a"] and table["freedom"].iloc[:3].tolist() == [5, 5, 5]
    n, log_t, error = np.log(LENGTHS[:6]), logs[:6], errors[:6]
    for law, offset in LAWS.items():
        constant = np.average(log_t - offset[:6], weights=1 / error**2)
        chi_square = (((log_t - offset[:6] - constant) / error) ** 2).sum()
        assert table.loc[law, "constant"] == pytest.approx(math.exp(constant)) and table.loc[law, "chi_square"] == pytest.approx(chi_square)
        assert table.loc[law, "p_value"] == pytest.approx(stats.chi2.sf(chi_square, 5))
    slope, intercept = np.polyfit(n, log_t, 1, w=1 / error)
    assert table.loc["n^a", "exponent"] == pytest.approx(slope) and table.loc["n^a", "constant"] == pytest.approx(math.exp(intercept))
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
        (n, 1.5): {"times": grid_of_times, "drift": [[1 - math.exp(-t / (rate * n)) for t in grid_of_times] for rate in (0.9, 1.0, 1.1)]} for n in (4, 8)
    }
    levels = {4: (0.5, 0.01), 8: (0.6, 0.01)}
    points = mixing.clock_points(coalescing, drifting, levels, seed=3)
    assert list(zip(points["clock"], points["n"], strict=True)) == [("coalescence", n) for n in (4, 8, 16, 32, 64)] + [("semantic", 4), ("semantic", 8)]
    for row in points.iloc[:4].itertuples():
        assert (row.log, row.error) == mixing.median_logs(coalescing[row.n, 1.5], 3) and row.error > 0
        assert row.low == pytest.approx(row.time * math.exp(-2 * row.error)) and row.high == pytest.approx(row.time * math.exp(2 * row.error))
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
    assert mixing_words.describe_exponents(laws) == f"free exponent: coalescence [{power['exponent_low']:.2f}, {power['exponent_high']:.2f}], 95 %"
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
        met = [sum(seen and time <= limit for time, seen in zip(cells[n, tau]["times"], cells[n, tau]["met"], strict=True)) for tau in taus]
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
    variations = [mixing.Variation("", "as above", first), *(mixing.Variation(varied, varied, found) for varied, found in others)]
    assert mixing_words.describe_variations(variations) == (
        "The boundary moves from the first row with the share by -0.20 to +0.20, with the cap by +0.00 to +0.10, with the coupling by an unknown amount, "
        "where both cross on the grid (5 of 7 readings); 2 of the 7 have an interval apart from the first row's."
    )
    assert mixing_words.describe_variations(variations[:2]).endswith("(2 of 2 readings); 1 of the 2 has an interval apart from the first row's.")


def test_a_shortened_cell_is_the_run_with_the_lower_cap():
    model = RandomJoint(4, 2, 3)
    first = torch.zeros(60, 4, dtype=torch.int64)
    long, short = (mixing.coalescence_cell(model, first, 1 - first, 0.7, 4, cap) for cap in (200, 12))
    assert mixing._shortened(long, 12) == short and 0 < sum(short["met"]) < 60


def test_the_lag_table_prints_the_lag_bound():
    model, n, lag, pairs = RandomJoint(4, 3, 2), 4, 8, 40
    first = model.states()[philox(1).integers(81, size=pairs)]
    second = model.states()[philox(2).integers(81, size=pairs)]
    cells = {(n, tau): mixing.coalescence_cell(model, first, second, tau, 3, 2000, lag=lag) for tau in (0.5, 2.0)}
    cells[n, 0.3] = cell([2000] + [lag + 1] * 4, [False] + [True] * 4, 2000, lag)
    table = mixing_words.lag_table(cells, n)
    assert table["temperature"].tolist() == [0.3, 0.5, 2.0] and table["pairs"].tolist() == [5, pairs, pairs] and table["censored pairs"].tolist() == [1, 0, 0]
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
    paths = [states_of(states[k].numpy(), record.sites[:, k].numpy(), record.tokens[:, k].numpy()) for k in range(3)]
    by_hand = [longest_by_hand(path, 1) for path in paths]
    assert mixing.longest_of_each(holding).tolist() == [length if length >= 5 else 0 for length in by_hand]
    assert all(stays == sorted(stays, reverse=True) and len(stays) <= 5 and min(stays, default=5) >= 5 for stays in holding["stays"])
    contexts = {(int(site), *np.delete(path[t], int(site))) for k, path in enumerate(paths) for t, site in enumerate(record.sites[:, k])}
    assert holding["rows"] == len(contexts) < 750
    found = [longest_stays(states[k].numpy(), record.sites[:, k].numpy(), record.tokens[:, k].numpy(), 1, minimum=5, top=5) for k in range(3)]
    assert holding["cut"] == [[stay.censored for stay in stays] for stays in found]
    assert mixing.longest_of_each({"stays": [[9, 3], [], [4]]}).tolist() == [9, 0, 4]
    assert mixing_words.describe_longest({"stays": [[1500, 3], [4]], "cut": [[True, False], [False]]}, 4) == "4 to > 1,500"
    assert mixing_words.describe_longest({"stays": [[9, 3], []], "cut": [[False, True], []]}, 3) == "< 3 to 9"


# Precision


def test_the_cost_of_precision_is_the_total_variation_of_one_step(tiny: TinyModels):
    first, second = RandomJoint(3, 4, 1), RandomJoint(3, 4, 2)
    states = first.states()[::7]
    table = precision.precision_cost(first, second, states, [0.5, 2.0])
    for row in table.itertuples():
        distances = []
        for state, site in itertools.product(states, range(3)):
            p, q = (torch.softmax(model.logits(state[None], torch.tensor([site]))[0] / row.temperature, dim=0) for model in (first, second))
            distances.append(0.5 * float((p - q).abs().sum()))
        assert row._2 == pytest.approx(np.mean(distances), rel=ROUNDING) and row._3 == pytest.approx(max(distances), rel=ROUNDING)
    assert precision.precision_cost(first, first, states, [0.5, 2.0])[["mean TV of one step", "largest seen"]].eq(0).all(axis=None)
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
    assert table["chains"].eq(3).all() and table["chains that part"].eq(0).all() and table["first at step"].isna().all()


def test_divergence_says_when_and_how_many_part():
    model, other = RandomJoint(4, 3, 1), RandomJoint(4, 3, 2)
    states, steps = model.states()[:6], 12
    table = precision.divergence({"one": model, "two": other}, states, 2.0, steps, seed=5).set_index("compared with")
    runs = [plain.walk(m, plain.initial_state(m, states, 2.0), RandomStream(5, range(6)), 0, steps)[1].tokens for m in (model, other)]
    parted = {step for step in range(steps) if not torch.equal(runs[0][step], runs[1][step])}
    assert table.loc["two", "first at step"] == min(parted)
    assert table.loc["two", "chains that part"] == sum(not torch.equal(runs[0][:, k], runs[1][:, k]) for k in range(6)) > 0
    assert table.loc["one, each chain alone", "chains that part"] == table.loc["one, event-driven", "chains that part"] == 0
    alone = precision.divergence({"one": Lonely(model, other)}, states, 2.0, steps, seed=5).set_index("compared with")
    assert alone.loc["one, each chain alone"].tolist() == table.loc["two"].tolist()


# Landscape: runs


COLD = 0.45


@pytest.fixture(scope="module")
def cold(tiny: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> tuple[MaskedLanguageModel, xarray.Dataset]:
    """Five chains of 300 steps on a tiny model in float64."""
    conditionals = tiny.conditionals("bert", 5, dtype="float64")
    states, _ = starts.starting_states(conditionals, 5, 3)
    return conditionals, landscape.run(tmp_path_factory.mktemp("cold"), conditionals, states, COLD, 300, 3, {"model": "tiny"})


def path_of(dataset: xarray.Dataset, chain: int) -> np.ndarray:
    return states_of(dataset["initial"].values[chain], dataset["site"].values[:, chain], dataset["token"].values[:, chain])


def test_a_run_is_the_plain_chain_of_its_cell(cold):
    conditionals, dataset = cold
    assert dataset.sizes["step"] == 300 and dataset.sizes["chain"] == 5 and '"model": "tiny"' in dataset.attrs["run"]
    states = torch.from_numpy(dataset["initial"].values.astype(np.int64))
    assert torch.equal(states, starts.starting_states(conditionals, 5, 3)[0])
    stream = RandomStream(3, starts.cell_chains(5, COLD, 5))
    _, record = plain.walk(conditionals, plain.initial_state(conditionals, states, COLD), stream, 0, 300)
    assert np.array_equal(dataset["site"].values, record.sites) and np.array_equal(dataset["token"].values, record.tokens)


def test_runs_are_found_again_by_what_decides_them(tmp_path):
    model, start = Counting(RandomJoint(4, 3, 1)), torch.zeros(2, 4, dtype=torch.int64)

    def run(temperature: float = 1.0, steps: int = 30, seed: int = 1, starts: Tensor = start) -> tuple[xarray.Dataset, int]:
        model.reset()
        return landscape.run(tmp_path, model, starts, temperature, steps, seed, {}), model.rows

    first, rows = run()
    again, none = run()
    assert rows > 0 and none == 0 and first.identical(again)
    shorter, none = run(steps=20)
    assert none == 0 and np.array_equal(shorter["token"], first["token"][:20])
    longer, _ = run(steps=40)
    assert longer.sizes["step"] == 40 and np.array_equal(longer["token"][:30], first["token"])
    assert len(list(tmp_path.iterdir())) == 1
    for other in (run(temperature=1.1), run(seed=2), run(starts=start + 1)):
        assert other[1] > 0 and not np.array_equal(other[0]["token"], first["token"])
    assert len(list(tmp_path.iterdir())) == 4


def test_trajectories_are_decoded_and_embedded_in_place(cold):
    conditionals, dataset = cold
    path = landscape.trajectories(dataset, conditionals, 50, letters)
    assert path.times.tolist() == [0, 50, 100, 150, 200, 250, 300] and path.states.shape == (7, 5, 5)
    for chain in range(5):
        states = path_of(dataset, chain)[::50]
        assert np.array_equal(path.states[:, chain], states)
        assert path.texts[chain] == [conditionals.decode(row) for row in states]
        assert path.embeddings[chain] == pytest.approx(letters(path.texts[chain]))
        assert landscape.hamming_to_start(path)[chain].tolist() == [int((row != states[0]).sum()) for row in states]
        assert landscape.changes(path)[chain].tolist() == [int((after != before).sum()) for before, after in itertools.pairwise(states)]
    assert landscape.changes(path).any()


def test_stays_are_those_of_the_chain_and_their_centres_are_described_exactly(cold):
    conditionals, dataset = cold
    radius, minimum, top = 1, 8, 2
    table = landscape.stay_table(dataset, conditionals, COLD, radius, minimum, top)
    assert len(table) and table["length"].is_monotonic_decreasing and table["length"].min() >= minimum
    assert table.groupby("chain").size().max() <= top
    for chain in range(5):
        states = path_of(dataset, chain)
        part = table[table["chain"] == chain]
        longest = longest_by_hand(states, radius)
        assert part["length"].max() == longest if longest >= minimum else part.empty
        every = longest_stays(states[0], dataset["site"].values[:, chain], dataset["token"].values[:, chain], radius, minimum=5, top=None)
        typical = np.median([stay.length for stay in every])
        for row in part.itertuples():
            (stay,) = [stay for stay in every if stay.start == row.start]
            assert (np.abs(states[stay.start : stay.end] != np.array(stay.centre)).sum(axis=1) <= radius).all()
            assert row.censored == stay.censored == (stay.end == 300)
            assert row.text == conditionals.decode(stay.centre) and row.ratio == pytest.approx(row.length / typical)
            laws = laws_by_hand(conditionals, stay.centre)
            own = laws[np.arange(5), stay.centre]
            laws[np.arange(5), stay.centre] = 0
            margins = np.log(own) - np.log(laws.max(axis=1))
            assert row.local_margin == pytest.approx(margins.min(), abs=ROUNDING) and row.argmax_fraction == (margins >= 0).mean()
            assert row.escape == pytest.approx(escape_by_hand(conditionals, stay.centre, COLD), rel=1e-6)
            assert row.predicted == pytest.approx(1 / row.escape)
            assert row.kind == ("perfect" if (margins >= 0).all() else "approximate")
    nothing = landscape.stay_table(dataset, conditionals, COLD, radius, 301, top)
    assert nothing.empty and nothing.columns.tolist() == table.columns.tolist()


def test_first_dwells_have_their_exact_escapes_and_are_chosen_by_order(cold):
    conditionals, dataset = cold
    test, table = landscape.first_dwells_test(dataset, conditionals, COLD, dwells=4)
    rows = []
    for chain in range(5):
        states = path_of(dataset, chain)
        start = 0
        for _ in range(4):
            left = next((t for t in range(start + 1, len(states)) if (states[t] != states[start]).any()), None)
            rows.append(((left or len(states) - 1) - start, escape_by_hand(conditionals, states[start], COLD), left is None))
            if left is None:
                break
            start = left
    assert table["length"].tolist() == [row[0] for row in rows] and table["censored"].tolist() == [row[2] for row in rows]
    assert table["escape"].tolist() == pytest.approx([row[1] for row in rows], rel=1e-6)
    assert test.escapes == sum(not row[2] for row in rows) and test.expected == pytest.approx(sum(length * escape for length, escape, _ in rows), rel=1e-6)


def test_first_dwells_of_right_chains_pass_and_of_a_wrong_temperature_fail():
    model, temperature, groups, chains, steps = RandomJoint(4, 3, 8), 0.5, 60, 12, 120
    start = model.states()[philox(9).integers(81, size=groups * chains)]
    stream = RandomStream(17, range(groups * chains))
    _, record = plain.walk(model, plain.initial_state(model, start, temperature), stream, 0, steps)
    dataset = xarray.Dataset(
        {
            "initial": (("chain", "position"), start.numpy()),
            "site": (("step", "chain"), record.sites.numpy()),
            "token": (("step", "chain"), record.tokens.numpy()),
        }
    )
    z = [landscape.first_dwells_test(dataset.isel(chain=slice(k * chains, (k + 1) * chains)), model, temperature, 6)[0].z for k in range(groups)]
    assert abs(np.sum(z)) < SIGMAS * math.sqrt(groups)
    assert stats.chi2.cdf(np.square(z).sum(), groups) > P_VALUE and stats.chi2.sf(np.square(z).sum(), groups) > P_VALUE
    everything = landscape.first_dwells_test(dataset, model, 1.2 * temperature, 6)[0]
    assert everything.p_value < P_VALUE and everything.z < 0


# Landscape: drift towards "!"


@pytest.mark.parametrize(
    ("dtype", "accuracy"),
    [
        ("float32", 4 * HEAD_TOLERANCE),  # two logits, at a temperature of 0.7
        ("float64", ROUNDING),
    ],
)
def test_exclamation_drift_is_that_of_every_site_enumerated(tiny: TinyModels, dtype: str, accuracy: float):
    conditionals = tiny.conditionals("bert", 5, dtype=dtype)
    mark = conditionals.tokenizer.convert_tokens_to_ids("!")
    states = landscape.random_states(conditionals, 3, seed=6)
    assert not (states == mark).any()
    levels, temperatures = (0, 2, 5), (0.7, 1.5)
    table = landscape.exclamation_drift(conditionals, states, levels, temperatures, seed=4, batch=7)
    assert len(table) == len(levels) * len(temperatures) * len(states)
    for row in table.itertuples():
        matches = 0
        for places in itertools.combinations(range(5), row.level):
            state = states[row.state].clone()
            state[list(places)] = mark
            laws = laws_by_hand(conditionals, state, row.temperature)
            others = np.delete(laws, mark, axis=1).sum(axis=1)
            up = sum(laws[site, mark] for site in range(5) if site not in places) / 5
            down = sum(others[site] for site in places) / 5
            matches += row.up == pytest.approx(up, rel=accuracy) and row.down == pytest.approx(down, rel=accuracy)
        assert matches == 1
        assert row.ratio == (pytest.approx(row.up / row.down) if row.down else math.inf)
    assert (table[table["level"] == 5]["up"] == 0).all() and (table[table["level"] == 0]["down"] == 0).all()
    again = landscape.exclamation_drift(conditionals, states, levels, temperatures, seed=4)
    assert again["up"].tolist() == pytest.approx(table["up"].tolist(), rel=accuracy)
    places = [landscape.exclamation_drift(conditionals, states, (2,), (1.0,), seed=seed)["up"].tolist() for seed in range(4)]
    assert len({row[0] for row in places}) > 1


def test_marks_that_were_there_are_counted_and_an_even_race_has_ratio_one(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 4)
    mark = conditionals.tokenizer.convert_tokens_to_ids("!")
    states = landscape.random_states(conditionals, 2, seed=6)
    states[1] = mark
    before = states.clone()
    table = landscape.exclamation_drift(conditionals, states, (0, 1), (1.0,), seed=1)
    assert table["level"].tolist() == [0, 4, 1, 4] and torch.equal(states, before)

    def certain(logit: float) -> pd.DataFrame:
        class Certain(Counting):
            def logits(self, states: Tensor, sites: Tensor) -> Tensor:
                rows = torch.zeros(len(sites), conditionals.vocabulary)
                rows[:, mark] = logit
                return rows

        return landscape.exclamation_drift(Certain(conditionals), before, (0, 2), (1.0,), seed=1)

    always, never = certain(1e4), certain(-1e4)
    assert always[["level", "up", "down", "ratio"]].to_numpy().tolist() == [[0, 1, 0, math.inf], [4, 0, 0, 1], [2, 0.5, 0, math.inf], [4, 0, 0, 1]]
    assert never[["level", "up", "down", "ratio"]].to_numpy().tolist() == [[0, 0, 0, 1], [4, 0, 1, 0], [2, 0, 0.5, 0], [4, 0, 1, 0]]


def test_a_drift_in_words():
    assert landscape_words.describe_drift([], math.nan, 0.5) == 'at no level do all sampled states drift towards more "!"'
    assert landscape_words.describe_drift([4], 1.5, 0.5) == "level N = 4 at tau = 0.5, worst ratio r = 1.5, r^(w+1) = r^1 = 1.5"
    assert landscape_words.describe_drift([4, 5, 6], 2.0, 1.0) == "levels N = 4 to 6 at tau = 1, worst ratio r = 2, r^(w+1) = r^3 = 8"
    assert landscape_words.describe_drift([1, 2], 1e200, 0.1).endswith("r^2 = inf")


# Landscape: identity


def test_random_states_and_shuffles(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 10)
    states = landscape.random_states(conditionals, 400, seed=1)
    assert states.shape == (400, 10) and not np.isin(states.numpy(), conditionals.barred).any()
    counts = np.bincount(states.flatten().numpy(), minlength=conditionals.vocabulary)[theory.allowed_tokens(conditionals).numpy()]
    assert stats.chisquare(counts).pvalue > P_VALUE
    mixed = landscape.shuffled(conditionals, states, seed=2)
    assert torch.equal(mixed.sort(dim=1).values, states.sort(dim=1).values) and not torch.equal(mixed, states)
    assert torch.equal(landscape.shuffled(conditionals, states, seed=2), mixed) and not torch.equal(landscape.shuffled(conditionals, states, seed=3), mixed)
    assert torch.equal(landscape.random_states(conditionals, 400, seed=1), states)


def test_likelihoods_of_starts_ends_and_shuffled_ends(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 6, dtype="float64")
    first, second, third = (landscape.random_states(conditionals, 3, seed=seed) for seed in (1, 2, 3))

    def by_hand(states: Tensor) -> list[float]:
        return [float(np.log(laws_by_hand(conditionals, state)[np.arange(6), state.numpy()]).mean()) for state in states]

    assert landscape.mean_log_likelihood(conditionals, first, batch=4).tolist() == pytest.approx(by_hand(first), rel=ROUNDING)
    table = landscape.likelihoods(conditionals, first, {1.0: third.numpy().astype(np.int32), 0.5: second.numpy().astype(np.int32)}, seed=4)
    assert table["temperature"].tolist() == [0.5] * 9 + [1.0] * 9 and table["chain"].tolist() == [0, 1, 2] * 6
    for temperature, ends in ((0.5, second), (1.0, third)):
        part = table[table["temperature"] == temperature].groupby("texts")["value"].apply(list)
        assert part["starts"] == pytest.approx(by_hand(first), rel=ROUNDING) and part["ends"] == pytest.approx(by_hand(ends), rel=ROUNDING)
        assert part["ends, shuffled"] == pytest.approx(by_hand(landscape.shuffled(conditionals, ends, 4)), rel=ROUNDING)


def likelihood_frame(gains: dict[float, list[float]]) -> pd.DataFrame:
    parts = []
    for temperature, gain in gains.items():
        for kind, values in (("starts", [-2.0] * len(gain)), ("ends", gain), ("ends, shuffled", [0.0] * len(gain))):
            parts.append(pd.DataFrame({"temperature": temperature, "texts": kind, "chain": range(len(gain)), "value": values}))
    return pd.concat(parts, ignore_index=True)


def test_identity_is_lost_or_kept_by_two_standard_errors_and_coherence_is_paired():
    generator = philox(12)
    late = generator.normal(0.8, 0.1, size=(10, 2))
    mean, error = late.mean(axis=1).mean(), late.mean(axis=1).std(ddof=1) / math.sqrt(10)
    record = np.concatenate([np.zeros((10, 18)), late], axis=1)
    gains = generator.normal(1.0, 1.0, size=10)
    width = gains.std(ddof=1) / math.sqrt(10)
    frame = likelihood_frame({0.5: (gains - gains.mean() + 2.01 * width).tolist(), 1.0: (gains - gains.mean() + 1.99 * width).tolist()})
    assert landscape.late_distance(record) == pytest.approx((mean, error))
    drifts, share = {0.5: record, 1.0: record}, landscape.IDENTITY_SHARE
    for level_error in (0.0, 0.05):
        reach = 2 * math.hypot(error, share * level_error)
        for late_level, lost, kept in (
            (mean - 1.001 * reach, True, False),
            (mean - 0.999 * reach, False, False),
            (mean + 0.999 * reach, False, False),
            (mean + 1.001 * reach, False, True),
        ):
            reached, below, coherent = landscape.identity(drifts, late_level / share, level_error, frame)
            assert reached == {0.5: lost, 1.0: lost} and below == {0.5: kept, 1.0: kept} and coherent == {0.5: True, 1.0: False}
    table = landscape_words.identity_table({0.5: record[:, -3:], 1.0: record[:, -1:]}, frame)
    assert table["τ"].tolist() == [0.5, 1.0]
    assert table["distance to the start"].tolist() == pytest.approx([late[:, 1].mean()] * 2)
    assert table["its standard error"].tolist() == pytest.approx([late[:, 1].std(ddof=1) / math.sqrt(10)] * 2)
    assert table["starts (nats per token)"].tolist() == [-2.0, -2.0] and table["ends, shuffled (nats per token)"].tolist() == [0.0, 0.0]
    assert table["ends (nats per token)"].tolist() == pytest.approx([2.01 * width, 1.99 * width])
    words = landscape_words.describe_identity({1.0: record, 0.5: np.full((2, 5), 0.25)}, 0.875)
    assert (
        words
        == f"mean distance to the start, last tenth: 0.25 ± 0.00 (tau = 0.5), {mean:.2f} ± {2 * error:.2f} (tau = 1); unrelated passages 0.88, 0.9 of that 0.79"
    )


# Landscape: stays in words


def stays_frame() -> pd.DataFrame:
    frame = pd.DataFrame({"temperature": [0.5, 0.5, 0.5, 0.8], "length": [120, 400, 150, 130], "kind": ["perfect", "approximate", "perfect", "perfect"]})
    frame = frame.assign(ratio=[12.0, 20.0, 5.0, 11.0], censored=[False, True, False, False])
    return frame.assign(argmax_fraction=1.0, local_margin=0.5, predicted=99.0, text=["a", "b", "c", "d"], chain=0)


def test_stays_are_listed_and_counted():
    best = landscape_words.longest_for_reading(stays_frame(), top=2)
    assert (
        best["stay (steps)"].tolist() == [">400", "150", "130"]
        and best["τ"].tolist() == [0.5, 0.5, 0.8]
        and best["text of the centre"].tolist() == ["b", "c", "d"]
    )
    assert best["times the median stay of its chain"].tolist() == [20, 5, 11] and best["kind"].tolist() == ["approximate", "perfect", "perfect"]
    words = landscape_words.describe_stays(stays_frame(), steps=3000, chains=14, radius=2, shortest=100)
    assert "at least 100 steps within Hamming distance 2" in words and "end at 3,000 steps" in words
    assert "τ = 0.5, 2 perfect and 1 approximate, the longest >400 steps; at τ = 0.8, 1 perfect and 0 approximate, the longest 130 steps" in words
    counted = landscape_words.count_stays(stays_frame())  # the stay of 150 steps is no trap: only five times the median
    assert counted.startswith("2 perfect and 1 approximate stays of at least 100 steps and 10 times") and counted.endswith("longest stay of all >400 steps")
    nothing = stays_frame().iloc[:0]
    assert landscape_words.describe_stays(nothing, 3000, 14, 2, 100).startswith("No stay of at least 100 steps")
    assert landscape_words.count_stays(nothing) == "no stay of at least the shortest length"


# Landscape: topics and politics


def by_words(texts: list[str]) -> np.ndarray:
    """An embedder that tells nothing of topics: a random direction for each bag of letters, so a shuffle stands where its passage does."""
    vectors = np.array([philox(seed_of("".join(sorted(text.replace(" ", "").replace("#", ""))))).normal(size=200) for text in texts])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_a_topic_study_scores_no_text_by_its_own_passage(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 16)
    passages = load_passages()
    states = starts.passage_states(conditionals, passages)
    study = landscape.topic_study(conditionals, states, passages, by_words, seed=3)
    topics, half = sorted({passage.topic for passage in passages}), len(passages) // 2
    assert study.scorer.classes == (*topics, NONE_OF_THESE)
    assert study.passage_scores.shape == (2 * half, len(topics) + 1) and study.shuffled_scores.shape == (half, len(topics) + 1)
    assert study.passage_scores.sum(axis=1) == pytest.approx(1, abs=ROUNDING) and study.shuffled_scores.sum(axis=1) == pytest.approx(1, abs=ROUNDING)

    mixed = by_words([conditionals.decode(row) for row in landscape.shuffled(conditionals, states, 3)])
    words = by_words([conditionals.decode(row) for row in states])
    noise = by_words([conditionals.decode(row) for row in landscape.random_states(conditionals, half, 3)])
    assert np.allclose(mixed, words)
    direct = TopicScorer().fit(words, [passage.topic for passage in passages], np.concatenate([mixed[::2], noise]))
    assert study.scorer.predict_proba(words) == pytest.approx(direct.predict_proba(words), abs=1e-6)

    def advantage(scores: np.ndarray, owners: list[Passage]) -> float:
        """How far the true topic is scored above the other topics, in standard errors."""
        own = np.array([[passage.topic == topic for topic in topics] for passage in owners])
        part = scores[:, :-1]
        gain = part[own] - (part * ~own).sum(axis=1) / (len(topics) - 1)
        return float(gain.mean() / (gain.std(ddof=1) / math.sqrt(len(gain))))

    for scores, owners, vectors in ((study.shuffled_scores, passages[1::2], mixed[1::2]), (study.passage_scores[1::2], passages[1::2], words[1::2])):
        assert advantage(scores, owners) < SIGMAS < advantage(study.scorer.predict_proba(vectors), owners)
    report = study.held_out.set_index("label")
    assert report.loc[topics, "texts"].tolist() == [2 * half // len(topics)] * len(topics)
    assert report.loc[NONE_OF_THESE, "texts"] == report.loc[NONE_OF_THESE, "passages"] == 2 * half
    assert report.loc["all", "texts"] == 4 * half and report.loc["all", "passages"] == 3 * half  # a shuffle belongs to its passage
    named = study.passage_scores.argmax(axis=1)
    assert [int(report.loc[topic, "correct"]) for topic in topics] == [
        sum(named[k] == code for k, passage in enumerate(passages) if passage.topic == topic) for code, topic in enumerate(topics)
    ]


@pytest.fixture(scope="module")
def separable() -> landscape.TopicStudy:
    """A scorer of politics, food and nothing on three axes, with scores of eight shuffles."""
    corners = np.repeat(np.eye(3), 6, axis=0)
    scorer = TopicScorer(1000.0).fit(corners[:12], ["politics"] * 6 + ["food"] * 6, corners[12:])
    column = scorer.classes.index("politics")
    shuffled, ordered = np.zeros((8, 3)), np.zeros((16, 3))
    shuffled[:, column] = [0.9, 0.1, 0.8, 0.2, 0.9, 0.1, 0.7, 0.9]
    ordered[[0, 1, 8], column] = 0.9  # a passage of politics, and two of food that read like it
    return landscape.TopicStudy(scorer, pd.DataFrame(), ordered, shuffled)


def test_accuracy_along_chains_is_read_at_the_nearest_record(separable):
    politics, food, nothing = np.eye(3)
    embeddings = np.array([[politics, politics, food], [food, nothing, nothing], [politics, politics, politics]])
    path = landscape.Trajectories(np.array([0, 100, 200]), np.zeros((3, 3, 2), dtype=np.int32), [[""] * 3] * 3, embeddings)
    table = landscape.accuracy_along(separable, path, ["politics", "food", "politics"], [0, 120, 999])
    assert table["steps"].tolist() == [0, 100, 200] and table["texts"].eq(3).all()
    assert table["topic of the start named (share)"].tolist() == pytest.approx([1, 2 / 3, 1 / 3])
    assert table["none of these named (share)"].tolist() == pytest.approx([0, 1 / 3, 1 / 3])
    assert (table["95 % from"][1], table["95 % to"][1]) == wilson_interval(2, 3)


def test_nulls_leave_political_passages_out(separable):
    topics = ["politics", "food"] * 4 + ["food", "politics"] * 4  # shuffles 1::2 are of food four times, then of politics
    passages = [Passage(str(k), topic, "?", "") for k, topic in enumerate(topics)]
    nulls = landscape.politics_nulls(separable, passages, threshold=0.5)
    assert nulls == {"shuffled passages": (0.5, *wilson_interval(2, 4)), "other topics": (2 / 8, *wilson_interval(2, 8))}
    words = landscape_words.describe_nulls(nulls)
    low, high = wilson_interval(2, 4)
    assert f"shuffled passages 50.0% (95 % interval {low:.1%} to {high:.1%}); other topics 25.0%" in words
    assert landscape_words.describe_null_intervals(nulls).startswith(f"null, shuffled passages: [{low:.1%}, {high:.1%}]; null, other topics: [")


def test_visits_count_chains_from_other_topics_with_a_lower_exit():
    scores = {
        1.0: np.array([[0.1, 0.9, 0.1, 0.9], [0.9, 0.9, 0.9, 0.9], [0.1, 0.6, 0.3, 0.6]]),
        0.5: np.array([[0.1, 0.1, 0.1, 0.1], [0.9, 0.9, 0.9, 0.9], [0.1, 0.9, 0.2, 0.1]]),
    }
    topics = ["food", "politics", "science"]
    pooled = landscape.pooled_visits(scores, topics, 0.5)
    assert pooled["temperature"].tolist() == [0.5, 0.5, 1.0, 1.0]
    assert pooled["entries"].tolist() == [0, 1, 2, 1]  # 0.3 is above the exit at 0.25, so the last chain never leaves
    assert pooled["returns"].tolist() == [0, 0, 1, 0] and pooled["ends_inside"].tolist() == [False, False, True, True]
    assert pooled["share"].tolist() == [0, 0.25, 0.5, 0.5] and pooled["passage"].tolist() == [0, 2, 0, 2]
    direct = recurrence(scores[1.0][[0, 2]], 0.5, 0.25)
    pd.testing.assert_frame_equal(pooled.iloc[2:][direct.columns].reset_index(drop=True), direct)
    table = landscape_words.politics_visits(scores, topics, 0.5)
    assert table["τ"].tolist() == [0.5, 1.0] and table["chains from other topics"].tolist() == [2, 2]
    assert table["entries a chain"].tolist() == [0.5, 1.5] and table["returns a chain"].tolist() == [0, 0.5]
    assert table["chains that visit (share)"].tolist() == [0.5, 1.0] and table["chains that end above it (share)"].tolist() == [0, 1]
    assert table["time above the threshold (share)"].tolist() == [0.125, 0.5]
    assert landscape_words.describe_visits(pooled) == "75% of chains from other topics visit, 25% return, 50% end there; share of time 31.2%"
    share = landscape.share_of_time(pooled, seed=1)
    assert share == (0.3125, 0.25, 0.375)  # passages, not chains, are resampled: their means are 0.25 and 0.375
    assert landscape_words.describe_share(share) == "share of time 31.2% (95 % interval 25.0% to 37.5%)"


def test_every_public_function_is_used_here():
    """A study without a test is one nobody checked."""
    text = Path(__file__).read_text(encoding="utf-8")
    named = {module: module.__name__.rpartition(".")[2] for module in (starts, theory, rectangles, mixing, precision, calibration, landscape)}
    named |= {theory_words: "theory_words", mixing_words: "mixing_words", landscape_words: "landscape_words"}
    for module, name_here in named.items():
        public = [
            name for name, value in vars(module).items() if callable(value) and not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        ]
        missing = [name for name in public if f"{name_here}.{name}" not in text and name != "Floor"]
        assert public and not missing, missing

"""Where the chapters' chains start; and that no study goes untested."""

from __future__ import annotations

import itertools

import pandas as pd
import pytest
import torch
from tiny_models import TinyModels

from glauber_mlm.chapters.mixing_times import study as mixing
from glauber_mlm.errors import UserError
from glauber_mlm.passages import Passage, load_passages
from glauber_mlm.randomness import RandomStream
from glauber_mlm.text import starts

pytest_plugins = ("tiny_fixtures",)


def test_starting_states_are_the_first_tokens_of_distinct_passages_balanced_over_topics(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 20)
    states, passages = starts.starting_states(conditionals, 14, seed=3)
    assert states.shape == (14, 20) and states.dtype == torch.int64
    by_hand = [
        [
            token
            for token in conditionals.tokenizer(passage.text, add_special_tokens=False)["input_ids"]
            if token not in conditionals.barred
        ][:20]
        for passage in passages
    ]
    assert states.tolist() == by_hand
    assert len({passage.id for passage in passages}) == 14
    assert all(first.topic != second.topic for first, second in itertools.pairwise(passages))
    counts = pd.Series([passage.topic for passage in passages]).value_counts()
    assert counts.max() - counts.min() <= 1 and len(counts) == len(
        {passage.topic for passage in load_passages()}
    )
    again, same = starts.starting_states(conditionals, 14, seed=3)
    assert torch.equal(again, states) and same == passages
    assert starts.starting_states(conditionals, 14, seed=4)[1] != passages


def test_starting_pairs_differ_in_topic_and_use_each_passage_once(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 30)
    owner = {
        tuple(row): passage
        for row, passage in zip(
            starts.passage_states(conditionals, load_passages()).tolist(), load_passages(), strict=True
        )
    }
    assert len(owner) == len(load_passages())
    first, second = starts.starting_pairs(conditionals, len(owner) // 2, seed=5)
    one, other = ([owner[tuple(row)] for row in side.tolist()] for side in (first, second))
    assert all(a.topic != b.topic for a, b in zip(one, other, strict=True))
    assert {passage.id for passage in one + other} == {passage.id for passage in load_passages()}
    again = starts.starting_pairs(conditionals, len(owner) // 2, seed=5)
    assert torch.equal(again[0], first) and torch.equal(again[1], second)
    assert not torch.equal(starts.starting_pairs(conditionals, len(owner) // 2, seed=6)[0], first)


def test_too_many_starts_and_too_short_passages_are_refused(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
):
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
    cells = [
        starts.cell_chains(length, temperature, 4096)
        for length in range(2, 130)
        for temperature in temperatures
    ]
    ordered = sorted(cells, key=lambda chains: chains.start)
    assert all(before.stop <= after.start for before, after in itertools.pairwise(ordered))
    assert ordered[-1].stop < 2**64
    numbers = [
        chain
        for length in (4, 8)
        for temperature in (1.0, 1.2)
        for chain in starts.cell_chains(length, temperature, 5)
    ]
    blocks = RandomStream(1, numbers).blocks(0, 2)
    assert len(set(blocks.flatten().tolist())) == blocks.numel()
    assert list(starts.cell_chains(8, 1.2, 10))[:3] == list(starts.cell_chains(8, 1.2, 3))

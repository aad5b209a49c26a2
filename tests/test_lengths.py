"""Chains of different lengths, bucketed and never padded."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import TinyModels

from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.conditionals.solvable import CurieWeiss, RandomJoint
from glauber_mlm.errors import UserError
from glauber_mlm.kernels import plain
from glauber_mlm.randomness import RandomStream
from glauber_mlm.runs.lengths import bucket_by_length, run_lengths

pytest_plugins = ("tiny_fixtures",)

SEQUENCES = [[0, 1, 2], [3, 3, 3, 3, 3], [1, 0, 1], [2], [0, 1, 2, 3, 0]]
TEMPERATURES = [0.5, 1.0, 0.0, 2.0, 0.7]


def model(length: int) -> RandomJoint:
    return RandomJoint(length, 4, seed=1)


@given(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), max_size=12))
@settings(deadline=None)
def test_every_sequence_is_in_the_bucket_of_its_length_and_in_no_other(sequences: list[list[int]]):
    buckets = bucket_by_length(sequences)
    assert list(buckets) == sorted({len(sequence) for sequence in sequences})
    found = {
        place: row
        for bucket in buckets.values()
        for place, row in zip(bucket.places, bucket.tokens.tolist(), strict=True)
    }
    assert [found[place] for place in range(len(sequences))] == sequences
    assert sum(len(bucket.places) for bucket in buckets.values()) == len(sequences)
    assert all(
        bucket.tokens.dtype == torch.int64 and bucket.tokens.shape[1] == length
        for length, bucket in buckets.items()
    )


@pytest.mark.parametrize("kernel", ["plain", "event"])
def test_a_chain_is_the_same_among_other_lengths_and_alone(tmp_path, kernel: str):
    runs = run_lengths(
        tmp_path, model, SEQUENCES, TEMPERATURES, seed=5, steps=60, kernel=kernel, progress=False
    )
    assert list(runs) == [1, 3, 5] and sorted(path.name for path in tmp_path.iterdir()) == [
        "length-001",
        "length-003",
        "length-005",
    ]
    for place, (sequence, temperature) in enumerate(zip(SEQUENCES, TEMPERATURES, strict=True)):
        alone = model(len(sequence))
        _, record = plain.walk(
            alone,
            plain.initial_state(alone, torch.tensor([sequence]), temperature),
            RandomStream(5, [place]),
            0,
            60,
        )
        run = runs[len(sequence)]
        column = run["chain_number"].values.tolist().index(str(place))
        assert np.array_equal(run["initial"][column], sequence)
        assert np.array_equal(run["site"][:, column], record.sites[:, 0]) and np.array_equal(
            run["token"][:, column], record.tokens[:, 0]
        )


def test_one_temperature_serves_all_and_a_second_call_computes_nothing(tmp_path):
    first = run_lengths(tmp_path, model, SEQUENCES, 0.5, seed=5, steps=20, progress=False)
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("chunk-*")}
    again = run_lengths(tmp_path, model, SEQUENCES, [0.5] * 5, seed=5, steps=20, progress=False)
    assert all(first[length].equals(again[length]) for length in first)
    assert stamps and {path: path.stat().st_mtime_ns for path in tmp_path.rglob("chunk-*")} == stamps


def test_a_masked_language_model_is_asked_at_each_length_without_padding(
    tiny: TinyModels, tmp_path, monkeypatch: pytest.MonkeyPatch
):
    loaded, asked = tiny.load("bert", "float32"), set()
    inputs = MaskedLanguageModel._inputs

    def recorded(self: MaskedLanguageModel, states: torch.Tensor, sites: torch.Tensor) -> torch.Tensor:
        ids = inputs(self, states, sites)
        asked.add(ids.shape[1])
        return ids

    monkeypatch.setattr(MaskedLanguageModel, "_inputs", recorded)
    conditionals = loaded.conditionals(4)
    allowed = np.setdiff1d(np.arange(conditionals.vocabulary), conditionals.barred).tolist()
    runs = run_lengths(
        tmp_path, loaded.conditionals, [allowed[:4], allowed[:7]], 1.0, seed=1, steps=5, progress=False
    )
    assert [run.sizes["position"] for run in runs.values()] == [4, 7]
    assert asked == {6, 9}  # [CLS], the sequence, [SEP], and nothing else


@pytest.mark.parametrize(
    ("sequences", "temperature", "options", "message"),
    [
        ([], 1.0, {}, "no starting sequences"),
        ([[1], []], 1.0, {}, "sequence 1 has 0 members; give a list of at least 1"),
        ([[1.5]], 1.0, {}, r"sequence 0\[0\] is 1.5; give a whole number"),
        ([[True]], 1.0, {}, r"sequence 0\[0\] is True; give a whole number"),
        ([[1, True]], 1.0, {}, r"sequence 0\[1\] is True; give a whole number"),
        ([torch.ones(2)], 1.0, {}, r"sequence 0\[0\] is 1.0; give a whole number"),
        ([[2**70]], 1.0, {}, r"sequence 0\[0\] is 1180591620717411303424; give a whole number"),
        ([[-1]], 1.0, {}, r"sequence 0\[0\] is -1; give a whole number"),
        ([[3], {1: 2}], 1.0, {}, "sequence 1 is {1: 2}; give a list"),
        ("12", 1.0, {}, "sequences is '12'; give a list"),
        ([[[1]]], 1.0, {}, r"sequence 0\[0\] is \[1\]; give a whole number"),
        ([[1], "a text"], 1.0, {}, "sequence 1 is 'a text'; .* encode texts first"),
        ([["a", "text"]], 1.0, {}, "encode texts first"),
        ([[1, [2, 3]]], 1.0, {}, r"sequence 0\[1\] is \[2, 3\]"),
        ([[1], [2]], [1.0] * 3, {}, "temperature"),
        ([[1], [2]], -1.0, {}, "temperature"),
        ([[1], [2, 9]], 1.0, {}, "token id"),
        ([[1]], 1.0, {"chains": [3]}, "leave out `chains`"),
        ([[1]], "1.0", {}, "temperature '1.0' is refused"),
        ([[1]], 1j, {}, "temperature 1j is refused"),
        ([[1]], 1.0, {"chunk_steps": 2.5}, "chunk_steps is 2.5; give a whole number"),
        ([[1]], 1.0, {"kernel": "plian"}, "kernel is 'plian'; did you mean 'plain'"),
        ([[1]], 1.0, {"cache_bytes": 1.5}, "cache_bytes is 1.5; give a whole number"),
        ([[1]], 1.0, {"model": {"made": {1, 2}}}, "give a dict that can be written as JSON"),
        ([[1]], 1.0, {"read": "yes"}, "read is 'yes'; give True or False"),
    ],
)
def test_bad_sequences_are_refused_in_one_line(tmp_path, sequences, temperature, options, message: str):
    with pytest.raises(UserError, match=message) as caught:
        run_lengths(tmp_path, model, sequences, temperature, seed=1, steps=5, progress=False, **options)
    assert "\n" not in str(caught.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        *(("steps", value) for value in (10.5, "10", True, None, 0, 2**31)),
        *(("seed", value) for value in (7.9, "7", True, None, -1, 2**64, 1.8e19)),
    ],
)
def test_steps_and_seeds_are_whole_numbers_in_range(tmp_path, argument, value):
    options = {"steps": 5, "seed": 1} | {argument: value}
    with pytest.raises(UserError, match=f"{argument} is .*; give a whole number"):
        run_lengths(tmp_path, model, [[1]], 1.0, progress=False, **options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("conditionals_at", "message"),
    [
        (None, "conditionals_at is None; give a Callable"),
        (model(2), "conditionals_at is .*; give a Callable"),
        (lambda length: None, r"conditionals_at\(1\) is None"),
        (lambda length: CurieWeiss(length + 1), "this model takes"),
    ],
)
def test_what_gives_no_conditionals_is_refused(tmp_path, conditionals_at, message):
    with pytest.raises(UserError, match=message):
        run_lengths(tmp_path, conditionals_at, [[1], [1, 0]], 1.0, seed=1, steps=5, progress=False)
    assert not list(tmp_path.iterdir())


def test_a_later_length_that_cannot_be_written_stops_the_first(tmp_path):
    (tmp_path / "length-003").write_text("")
    with pytest.raises(UserError, match="length-003 is a file"):
        run_lengths(tmp_path, model, [[1], [1, 2, 3]], 1.0, seed=1, steps=5, progress=False)
    assert [path.name for path in tmp_path.iterdir()] == ["length-003"]


def test_sequences_may_come_one_by_one(tmp_path):
    sequences = [[1], [2, 3], [3]]
    kept = run_lengths(tmp_path / "list", model, sequences, 1.0, seed=1, steps=5, progress=False)
    drawn = run_lengths(tmp_path / "drawn", model, iter(sequences), 1.0, seed=1, steps=5, progress=False)
    assert list(kept) == list(drawn) and all(kept[length].identical(drawn[length]) for length in kept)


def test_the_readme_example_runs(tmp_path, monkeypatch: pytest.MonkeyPatch, capsys):
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(example, names)
    lengths = [len(sequence) for sequence in names["sequences"]]
    assert capsys.readouterr().out.splitlines() == [
        f"{n} {{'step': 200, 'chain': 1, 'position': {n}}}" for n in lengths
    ]
    for number, run in enumerate(names["runs"].values()):
        assert run["chain_number"].values.tolist() == [str(number)]
        assert len(np.unique(run["token"])) > 5  # the chain moves

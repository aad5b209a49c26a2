"""What readings and studies once took for something else, let pass, or broke on: refused in one line each."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from entries_readings import begun, bert, by_protocol, cell_with, drawn, fewer, path, record, scoring, short

from glauber_mlm.chapters.mixing_times import precision
from glauber_mlm.chapters.mixing_times import study as mixing
from glauber_mlm.chapters.rectangle_test import study as rectangles
from glauber_mlm.chapters.semantic_traps import study as landscape
from glauber_mlm.chapters.theory_checks import study as theory
from glauber_mlm.conditionals import Restricted
from glauber_mlm.conditionals.solvable import CurieWeiss
from glauber_mlm.errors import UserError
from glauber_mlm.exact import finite_chain
from glauber_mlm.inputs import generator
from glauber_mlm.readings import influence, margins, rectangle, stays
from glauber_mlm.statistics import bootstrap, scaling
from glauber_mlm.text import semantics
from glauber_mlm.text.topics import TopicScorer

Call = Callable[[], Any]
CHAIN = {"initial": [0, 0], "sites": [0, 1], "tokens": [1, 1], "radius": 1}
HALVES = np.full((2, 2), 0.5)

COERCED: list[tuple[Call, str]] = [
    (lambda: scaling.crossing_temperature([1.0, 2.0], [0.9, 3.9], 4), r"met_counts is .* whole numbers"),
    (lambda: scaling.crossing_temperature([1.0, 2.0], [0, 4], 4.9), "pairs is 4.9; .* whole numbers"),
    (lambda: stays.longest_stays(**CHAIN | {"sites": [0.5, 1.9]}), r"sites is .* whole numbers"),
    (lambda: stays.longest_stays(**CHAIN | {"tokens": ["1", "1"]}), r"tokens is .* whole numbers"),
    (lambda: stays.dwell_test([2.7, 3.0], [0.5, 0.4], [False, True]), "lengths is .* whole numbers"),
    (
        lambda: landscape.likelihoods(bert(), begun(), {1.0: begun().numpy() + 0.9}, 1),
        r"ends\[1.0\] is .* whole numbers",
    ),
    (
        lambda: rectangles.numerical_floor(bert(), bert(), drawn(), torch.zeros(2, dtype=torch.int64), 1),
        "reference is .* give the 2 defects .* float64",
    ),
    (
        lambda: theory.restricted_chain(
            Restricted(CurieWeiss(3), [0]), torch.zeros(3, 1, dtype=torch.int64), [1.0]
        ),
        r"states have shape \(1, 3, 1\)",
    ),
    (
        lambda: influence.logit_oscillation_bound(bert().model, theory.allowed_tokens(bert()).long()),
        "allowed is .* give a tensor of bool",
    ),
    (
        lambda: TopicScorer().fit(np.eye(3), [1, 2, 3], np.eye(3)),
        r"labels\[0\] is 1; give a text",
    ),
    (lambda: mixing.grid_table(cell_with(met=[0.7, 0.0])), r"'met'\] is .* True and False"),
    (lambda: bootstrap.mean_interval([True, False]), "values is .* numbers"),
]

MISSPELT: list[tuple[Call, str]] = [
    (
        lambda: mixing.model_cell(bert(), 9.0, 2, 1, 5, coupling="comon"),
        "coupling is 'comon'; did you mean 'common'",
    ),
    (
        lambda: rectangles.defects_by_protocol(bert(), begun(), 1, ["conditional", "tops"]),
        "alternatives is 'tops'; did you mean 'top'",
    ),
    (
        lambda: rectangle.draw_rectangles(CurieWeiss(3), short(), seed=1, alternatives="unifrom"),
        "alternatives is 'unifrom'; did you mean 'uniform'",
    ),
    (
        lambda: scaling.crossing_temperature([1.0, 2.0], [0, 4], 4, between="brackets"),
        "between is 'brackets'; did you mean 'bracket'",
    ),
    (
        lambda: rectangles.control_defects("left_to_rihgt", bert(), bert(), begun(), 1),
        "control is 'left_to_rihgt'; did you mean 'left_to_right'",
    ),
    (lambda: scoring().scorer.score(np.ones(27), "politcs"), "topic is 'politcs'; did you mean 'politics'"),
    (
        lambda: rectangles.defects_by_protocol(bert(), begun(), 1, ["top", "top"]),
        "give each way to draw alternatives once",
    ),
]

BROKE: list[tuple[Call, str]] = [
    (lambda: rectangles.rectangle_starts(torch.zeros(0, 8, dtype=torch.int64), 3), "states is .* token ids"),
    (
        lambda: rectangle.draw_rectangles(CurieWeiss(3), short()[:0], seed=1),
        "there are none; give at least one",
    ),
    (lambda: rectangle.defects(bert(), drawn().take(slice(0, 0))), "there are none; give at least one"),
    (lambda: rectangle.defects(CurieWeiss(3), drawn()), r"states have shape \(2, 8\)"),
    (lambda: margins.local_view(CurieWeiss(3), short()[:0], [1.0]), "there are none; give at least one"),
    (
        lambda: influence.sample_influence(CurieWeiss(3), short()[:0], [1.0], seed=1),
        "there are none; give at least",
    ),
    (
        lambda: margins.escape_bound(np.ones(3), np.ones(2), 9),
        r"margin \(3,\) and temperature \(2,\) do not go",
    ),
    (lambda: margins.escape_bound(1.0, 0.0, 9), "a value of temperature is 0.0; .* above 0"),
    (
        lambda: semantics.cosine_distance(np.ones((2, 3)), np.ones((3, 3))),
        r"\(2, 3\) and b \(3, 3\) do not go",
    ),
    (lambda: semantics.pca_plane([[np.nan, 1.0]] * 3), "a value of reference is nan"),
    (lambda: finite_chain.mixing_time(HALVES, [1.0]), "mu is .* 2 probabilities"),
    (lambda: finite_chain.mixing_time("x", [0.5, 0.5]), "P is 'x'; .* 2 axes"),
    (lambda: mixing.grid_table({(3, 1.0): {"times": [1]}}), r"cells\[\(3, 1.0\)\] is .* times, met, cap"),
    (lambda: mixing.median_logs(cell_with(times=[1])[3, 1.0], 1), "1 times and 2 outcomes"),
    (
        lambda: mixing.clock_points({}, {(3, 1.0): {"times": [0, 1], "drift": [[0, 1]]}}, {}, 1),
        "lacks the length 3",
    ),
    (lambda: mixing.grid(None, "x", [], {}, dict, str), "store is None; give a CellStore"),
    (lambda: mixing.law_tests([4, 8, 16], [1.0, 2.0], [0.1] * 3), "3 lengths, 2 times and 3 errors"),
    (lambda: precision.precision_cost(bert(), bert(7), begun(), [1.0]), "other lengths or vocabularies"),
    (lambda: precision.divergence({}, begun(), 1.0, 2, 1), "models is {}; .* at least 1 entries"),
    (lambda: landscape.trajectories(record(), bert(), 10, fewer), "20 vectors for 21 texts"),
    (lambda: landscape.trajectories(record(), CurieWeiss(8), 10, fewer), "whose states are no texts"),
    (
        lambda: landscape.accuracy_along(scoring(), path(), ["food"], [10]),
        "1 topics and 3 chains do not go together",
    ),
    (lambda: landscape.pooled_visits({1.0: HALVES}, ["politics"] * 2, 0.5), "every chain starts in politics"),
    (lambda: rectangles.summary_by_protocol(by_protocol().drop(columns="delta"), 1), "lacks delta"),
    (lambda: scoring().scorer.predict(np.ones((2, 3))), "3 dimensions; this scorer was trained on 27"),
]


@pytest.mark.parametrize(("call", "message"), COERCED)
def test_nothing_is_turned_into_what_fits(call: Call, message: str):
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize(("call", "message"), MISSPELT)
def test_a_word_that_means_nothing_is_refused(call: Call, message: str):
    with pytest.raises(UserError, match=message):
        call()


@pytest.mark.parametrize(("call", "message"), BROKE)
def test_what_broke_deep_inside_is_refused_at_the_door(call: Call, message: str):
    with pytest.raises(UserError, match=message) as refused:
        call()
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 400


def test_large_seeds_are_not_rounded():
    largest = 2**64 - 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # numpy warns where it casts a float beyond its range
        draws = [generator(seed, 2**34).integers(2**62) for seed in (largest, largest - 1, 2**63, 2**63 + 1)]
        intervals = {bootstrap.mean_interval(np.arange(50) ** 2, seed) for seed in (largest, largest - 1)}
    assert len(set(draws)) == 4 and len(intervals) == 2
    assert generator(7, 2**34).random() == np.random.Generator(np.random.Philox(key=[7, 2**34])).random()


def test_a_tokenizer_without_an_exclamation_mark_is_refused():
    class Without:
        """Conditionals of a tokenizer in which "!" is unknown."""

        def __init__(self) -> None:
            self.tokenizer = self

        def convert_tokens_to_ids(self, token: str) -> int:
            return bert().barred[0]

        def __getattr__(self, name: str) -> Any:
            return getattr(bert(), name)

    with pytest.raises(UserError, match='no token "!" of its own'):
        landscape.exclamation_drift(Without(), begun(), [1], [1.0], 1)

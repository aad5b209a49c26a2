"""Entry points of the readings and of the chapters' studies."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray
from bad_values import TEMPERATURE, Entry, Kind, choice, listed, number, whole, word
from by_hand import letters
from entries_engine import OBJECTS, SEED, STATES
from entries_models import bert, tiny

from glauber_mlm.chapters.mixing_times import precision
from glauber_mlm.chapters.mixing_times import study as mixing
from glauber_mlm.chapters.rectangle_test import study as rectangles
from glauber_mlm.chapters.semantic_traps import study as landscape
from glauber_mlm.chapters.theory_checks import study as theory
from glauber_mlm.conditionals import Restricted
from glauber_mlm.conditionals.solvable import CurieWeiss
from glauber_mlm.exact import curie_weiss as calibration
from glauber_mlm.passages import load_passages
from glauber_mlm.readings import influence, margins, rectangle, stays
from glauber_mlm.runs.cells import CellStore
from glauber_mlm.statistics import bootstrap, scaling, survival
from glauber_mlm.text import semantics, starts, topics

VECTOR = Kind(
    (
        None,
        "x",
        3,
        True,
        [],
        {},
        [math.nan],
        [math.inf],
        [True],
        ["a"],
        [None],
        [1j],
        [[1.0]],
        [[1.0], [1.0, 2.0]],
        object(),
    )
)
MATRIX = Kind(
    (
        None,
        "x",
        3,
        True,
        {},
        [],
        [[]],
        [[math.nan] * 4] * 4,
        [[True]],
        [1.0],
        ["a"],
        [["a"]],
        [[None]],
        [[1.0], [1.0, 2.0]],
        [[1j, 1j]],
        object(),
    )
)
NUMBERS = Kind(
    (
        None,
        "x",
        True,
        {},
        [],
        math.nan,
        math.inf,
        [math.nan],
        ["a"],
        [None],
        [1j],
        [[1.0], [1.0, 2.0]],
        object(),
    )
)
WHOLES = VECTOR.also([0.0, 1.0], [0.5, 1], [-1, 0], ["0", "1"], np.zeros(2))
MASK = Kind((None, "x", 3, True, {}, [], [math.nan], ["a"], [None], [0.5, 0.5], [2, 2], [[True]], object()))
LEVEL = number(0, 1, -0.5, 1.5)
TENSOR = Kind(
    (
        None,
        3,
        "x",
        True,
        [[0, 1]],
        np.zeros((2, 8), dtype=np.int64),
        object(),
        torch.zeros(2, 8),
        torch.ones(2, 8, dtype=torch.bool),
        torch.zeros(0, 8, dtype=torch.int64),
        torch.zeros(2, 1, 8, dtype=torch.int64),
        torch.tensor(3),
    )
)
# Of the tiny model, whose states have 8 tokens.
STARTS = TENSOR.also(
    torch.zeros(2, 7, dtype=torch.int64),
    torch.zeros(8, dtype=torch.int64),
    torch.full((2, 8), -1),
    torch.full((2, 8), 10**6),
)
STATE = TENSOR.also(
    torch.zeros(1, 8, dtype=torch.int64), torch.zeros(7, dtype=torch.int64), torch.full((8,), 10**6)
)
TEXT_MODEL = Kind((*OBJECTS.bad, CurieWeiss(8)))
DICT = Kind((None, 3, "x", True, [], object()))
CALLED = Kind((None, 3, "x", True, [], {}))
FRAME = Kind((None, 3, "x", [], {}, object(), pd.DataFrame(), pd.DataFrame({"a": [1]})))
TEMPERATURES = listed(-1.0, True, "1", None, math.nan, math.inf, [1.0], 1j)
POSITIVE = listed(0, -1.0, True, "1", None, math.nan, math.inf, [1.0], 1j)
BATCH = whole(1)
passages = cache(load_passages)
LABELS = listed(3, None, True, [], least=0)
PASSAGES = Kind((None, 3, "x", [], [None], ["text"], [3], passages()[:1]))


def fewer(texts: list[str]) -> np.ndarray:
    """An embedder that leaves out a text."""
    return letters(texts)[1:]


EMBEDDER = Kind(
    (*CALLED.bad, len, str, fewer, lambda texts: letters(texts)[0], lambda texts: [math.nan] * len(texts))
)


def cell_with(**changes: Any) -> dict[tuple[int, float], dict[str, Any]]:
    """One cell of coalescence, spoilt."""
    return {(3, 1.0): {"times": [1, 2], "met": [True, False], "cap": 2} | changes}


SPOILT = (
    {3: {}},
    {(3, 1.0): {}},
    {(3, 1.0): None},
    {("3", 1.0): cell_with()[3, 1.0]},
    {(3, -1.0): cell_with()[3, 1.0]},
    cell_with(times=[]),
    cell_with(times=[1]),
    cell_with(times=["1", "2"]),
    cell_with(times=[1, math.nan]),
    cell_with(met=[2, 0]),
    cell_with(met="no"),
    cell_with(cap=2.5),
)
CELLS = DICT.also({}, *SPOILT)
TEMPERATURE_KEYED = DICT.also(
    {}, {"1": np.ones((2, 5))}, {1.0: None}, {1.0: "x"}, {1.0: np.full((2, 5), math.nan)}
)


@cache
def corpus() -> torch.Tensor:
    return starts.passage_states(bert(), passages())


@cache
def record() -> xarray.Dataset:
    return landscape.run(Path(tempfile.mkdtemp()), bert(), begun(3), 0.6, 60, 3, {"model": "tiny"})


@cache
def path() -> landscape.Trajectories:
    return landscape.trajectories(record(), bert(), 10, letters)


@cache
def scoring() -> landscape.TopicStudy:
    return landscape.topic_study(bert(), corpus(), passages(), letters, 1)


@cache
def begun(count: int = 2) -> torch.Tensor:
    return starts.starting_states(bert(), count, 1)[0]


@cache
def drawn() -> rectangle.Rectangles:
    return rectangle.draw_rectangles(bert(), begun(), seed=1)


@cache
def by_protocol() -> pd.DataFrame:
    return rectangles.defects_by_protocol(bert(), begun(), 1)


@cache
def cells() -> dict[tuple[int, float], dict[str, Any]]:
    return {(n, tau): mixing.curie_weiss_cell(n, tau, 4, 1, 5.0) for n in (3, 4, 5) for tau in (0.5, 2.0)}


def drifting() -> dict[str, Any]:
    return {"times": [0, 4, 8], "drift": [[0.0, 0.5, 0.9], [0.0, 0.4, 0.8]]}


@cache
def likelihood() -> pd.DataFrame:
    return landscape.likelihoods(bert(), begun(), {1.0: begun().numpy()}, 1)


def short() -> torch.Tensor:
    return torch.zeros(1, 3, dtype=torch.int64)


DATASET = Kind((*FRAME.bad, xarray.Dataset(), xarray.Dataset({"site": 1})))
READINGS = [
    Entry(
        "glauber_mlm.statistics.bootstrap.mean_interval",
        bootstrap.mean_interval,
        lambda: {"values": [1.0, 2.0]},
        {
            "values": VECTOR.also([math.nan, 1.0]),
            "seed": SEED,
            "level": LEVEL,
            "resamples": whole(1),
            "groups": Kind(
                ([1], [[1, 2]], "x", 3, [math.nan, 1.0], [None, "a"], [[1], [1, 2]], [True, False])
            ),
        },
        {"values": (np.ones(2), (1, 2), torch.ones(2))},
    ),
    Entry(
        "glauber_mlm.readings.influence.sample_influence",
        influence.sample_influence,
        lambda: {"conditionals": CurieWeiss(3), "states": short(), "temperatures": [1.0], "seed": 1},
        {
            "conditionals": OBJECTS,
            "states": STATES,
            "temperatures": TEMPERATURES,
            "seed": SEED,
            "batch": BATCH,
        },
    ),
    Entry(
        "glauber_mlm.readings.influence.logit_oscillation_bound",
        influence.logit_oscillation_bound,
        lambda: {"model": tiny().load("bert").model, "allowed": theory.allowed_tokens(bert())},
        {
            "model": OBJECTS,
            "allowed": MASK.also([True], torch.ones(3, dtype=torch.bool), torch.zeros(500, dtype=torch.bool)),
            "block": whole(1),
        },
    ),
    Entry(
        "glauber_mlm.readings.influence.contraction_temperature",
        influence.contraction_temperature,
        lambda: {"oscillation": 10.0, "sites": 4},
        {"oscillation": number(-1.0), "sites": whole(3)},
    ),
    Entry(
        "glauber_mlm.readings.margins.local_view",
        margins.local_view,
        lambda: {"conditionals": CurieWeiss(3), "states": short(), "temperatures": [1.0]},
        {"conditionals": OBJECTS, "states": STATES, "temperatures": TEMPERATURES, "batch": BATCH},
    ),
    Entry(
        "glauber_mlm.readings.margins.escape_bound",
        margins.escape_bound,
        lambda: {"margin": 1.0, "temperature": 0.5, "tokens": 20},
        {
            "margin": NUMBERS.also("1.0", [[1.0, 2.0], [3.0]]),
            "temperature": NUMBERS.also(0, -1.0, [0.5, 0.0]),
            "tokens": whole(1),
        },
        {"margin": (-1.0, 2, np.ones((2, 3)), torch.ones(3)), "temperature": (1, np.float32(0.5))},
    ),
    Entry(
        "glauber_mlm.readings.rectangle.draw_rectangles",
        rectangle.draw_rectangles,
        lambda: {"conditionals": CurieWeiss(3), "states": short(), "seed": 1},
        {
            "conditionals": OBJECTS,
            "states": STATES,
            "seed": SEED,
            "alternatives": choice("conditional", "top", "uniform"),
            "batch": BATCH,
        },
    ),
    Entry(
        "glauber_mlm.readings.rectangle.defects",
        rectangle.defects,
        lambda: {"conditionals": bert(), "rectangles": drawn()},
        {
            "conditionals": OBJECTS.also(CurieWeiss(8), CurieWeiss(3)),
            "rectangles": OBJECTS.also(
                replace(drawn(), i=drawn().i + 8),
                replace(drawn(), j=drawn().j - 8),
                replace(drawn(), a_new=drawn().a_new[:1]),
                replace(drawn(), b_new=drawn().b_new.float()),
                replace(drawn(), b_new=None),
                replace(drawn(), states=drawn().states.float()),
                drawn().take(slice(0, 0)),
            ),
            "batch": BATCH,
        },
    ),
    Entry(
        "glauber_mlm.text.semantics.drift",
        semantics.drift,
        lambda: {"embeddings": np.ones((1, 2, 3))},
        {
            "embeddings": NUMBERS.also(
                [1.0],
                [[1.0]],
                np.zeros((1, 2, 3)),
                np.full((1, 2, 3), math.nan),
                np.ones((0, 2, 3)),
                np.ones((1, 0, 3)),
            )
        },
    ),
    Entry(
        "glauber_mlm.text.semantics.unrelated_level",
        semantics.unrelated_level,
        lambda: {"embeddings": np.eye(4), "labels": ["a", "a", "b", "b"]},
        {"embeddings": MATRIX.also(np.zeros((4, 4))), "labels": LABELS.also(["a"], ["a"] * 4)},
    ),
    Entry(
        "glauber_mlm.text.semantics.pca_plane",
        semantics.pca_plane,
        lambda: {"reference": np.eye(4)},
        {"reference": MATRIX.also(np.ones((2, 4)))},
    ),
    Entry(
        "glauber_mlm.text.semantics.semantic_hitting_time",
        semantics.semantic_hitting_time,
        lambda: {"drifts": [[0.0, 1.0]], "times": [0, 1], "level": 0.5},
        {
            "drifts": MATRIX,
            "times": VECTOR.also([0], [1, 0]),
            "level": number(),
            "seed": SEED,
            "level_error": number(-1.0),
            "resamples": whole(1),
            "confidence": LEVEL,
        },
    ),
    Entry(
        "glauber_mlm.text.semantics.recurrence",
        semantics.recurrence,
        lambda: {"scores": [[0.0, 1.0]], "threshold": 0.5},
        {
            "scores": MATRIX,
            "threshold": number(),
            "exit_threshold": number(0.9).but(None),
            "tail": number(0, -1.0, 1.5),
        },
    ),
    Entry(
        "glauber_mlm.statistics.survival.wilson_interval",
        survival.wilson_interval,
        lambda: {"successes": 1, "number": 3},
        {"successes": whole(0, 3), "number": whole(1), "level": LEVEL},
    ),
    Entry(
        "glauber_mlm.statistics.survival.kaplan_meier",
        survival.kaplan_meier,
        lambda: {"times": [1, 2], "met": [True, False]},
        {"times": VECTOR.also([math.nan, 1.0], [-1, 2]), "met": MASK.also([True]), "level": LEVEL},
        {"met": ([1, 0], np.array([True, True]))},
    ),
    Entry(
        "glauber_mlm.statistics.survival.lag_bound",
        survival.lag_bound,
        lambda: {"meeting_times": [5, 9], "lag": 2, "times": [0, 4], "censored": [False, False]},
        {"meeting_times": VECTOR, "lag": whole(1), "times": NUMBERS.also([-1]), "censored": MASK},
    ),
    Entry(
        "glauber_mlm.statistics.scaling.crossing_temperature",
        scaling.crossing_temperature,
        lambda: {"temperatures": [1.0, 2.0], "met_counts": [0, 4], "pairs": 4},
        {
            "temperatures": VECTOR.also([1.0], [1.0, 1.0]),
            "met_counts": WHOLES.also([0, 5], [-1, 4]),
            "pairs": Kind(
                (None, "x", True, 4.0, 0, -1, [], [4], [4, 4, 4], [math.nan, 4], [4.5, 4], [[4], [4]])
            ).but([4]),
            "level": LEVEL,
            "seed": SEED,
            "between": choice("bracket", "linear"),
            "resamples": whole(1),
            "confidence": LEVEL,
        },
    ),
    Entry(
        "glauber_mlm.statistics.scaling.fit_scaling",
        scaling.fit_scaling,
        lambda: {"n": [4, 8, 16], "medians": [10.0, 30.0, 80.0]},
        {
            "n": VECTOR.also([1, 2, 4], [4, 4, 4]),
            "medians": listed(math.nan, "1").also(
                [1.0, 2.0],
                [1.0, None, 2.0],
                [1.0, -1.0, 2.0],
                [1.0, "2.0", 3.0],
                [1.0, math.inf, 2.0],
                [True, 2.0, 3.0],
            ),
            "weights": VECTOR.but(None).also([1.0, 1.0], [1.0, 0.0, 1.0]),
            "level": LEVEL,
        },
    ),
    Entry(
        "glauber_mlm.readings.stays.longest_stays",
        stays.longest_stays,
        lambda: {"initial": [0, 0], "sites": [0, 1], "tokens": [1, 1], "radius": 1},
        {
            "initial": WHOLES.but([-1, 0]),
            "sites": WHOLES.also([0, 2], [0], [0, 1, 1]),
            "tokens": WHOLES.but([-1, 0]).also([1]),
            "radius": whole(0, 2),
            "minimum": whole(1),
            "top": whole(0).but(None),
        },
    ),
    Entry(
        "glauber_mlm.readings.stays.dwell_test",
        stays.dwell_test,
        lambda: {"lengths": [2, 3], "escapes": [0.5, 0.4], "censored": [False, True]},
        {
            "lengths": WHOLES.also([0, 1]),
            "escapes": VECTOR.also([2.0, 0.5], [math.nan, 0.5]),
            "censored": MASK,
        },
    ),
    Entry(
        "glauber_mlm.text.topics.TopicScorer",
        topics.TopicScorer,
        lambda: {"strength": 1.0},
        {"strength": number(0, -1.0)},
    ),
]
STUDIES = [
    Entry(
        "glauber_mlm.exact.curie_weiss.exact_crossing",
        calibration.exact_crossing,
        lambda: {"length": 3, "level": 0.5, "multiple": 5.0},
        {"length": whole(1, 1024).also(10**9), "level": LEVEL, "multiple": number(0, -1.0)},
    ),
    Entry(
        "glauber_mlm.exact.curie_weiss.is_inside",
        calibration.is_inside,
        lambda: {"crossing": scaling.Crossing(1.0, 0.5, 1.5, "inside"), "exact": 1.0},
        {"crossing": OBJECTS, "exact": number().but(None)},
    ),
    Entry(
        "glauber_mlm.chapters.theory_checks.study.allowed_tokens",
        theory.allowed_tokens,
        lambda: {"conditionals": bert()},
        {"conditionals": TEXT_MODEL},
    ),
    Entry(
        "glauber_mlm.chapters.theory_checks.study.descend",
        theory.descend,
        lambda: {"conditionals": CurieWeiss(3), "states": short(), "sweeps": 1, "seed": 1},
        {"conditionals": OBJECTS, "states": STATES, "sweeps": whole(0), "seed": SEED},
    ),
    Entry(
        "glauber_mlm.chapters.theory_checks.study.restrict_to_likely",
        theory.restrict_to_likely,
        lambda: {"conditionals": bert(), "state": begun()[0], "free": 2, "tokens": 2, "seed": 1},
        {
            "conditionals": OBJECTS,
            "state": STATE,
            "free": whole(2, 8),
            "tokens": whole(2, 10**4),
            "seed": SEED,
        },
    ),
    Entry(
        "glauber_mlm.chapters.theory_checks.study.restricted_chain",
        theory.restricted_chain,
        lambda: {"restricted": Restricted(CurieWeiss(3), [0, 1]), "base": short()[0], "temperatures": [1.0]},
        {
            "restricted": OBJECTS.also(CurieWeiss(3)),
            "base": STATE.also(torch.tensor([0, 0, 2])),
            "temperatures": POSITIVE,
        },
    ),
    Entry(
        "glauber_mlm.chapters.rectangle_test.study.rectangle_starts",
        rectangles.rectangle_starts,
        lambda: {"states": begun(), "count": 3},
        {"states": TENSOR, "count": whole(1)},
    ),
    Entry(
        "glauber_mlm.chapters.rectangle_test.study.numerical_floor",
        rectangles.numerical_floor,
        lambda: {
            "conditionals": bert(),
            "double": bert(),
            "rectangles": drawn(),
            "reference": rectangle.defects(bert(), drawn()),
            "seed": 1,
        },
        {
            "conditionals": OBJECTS.also(CurieWeiss(8)),
            "double": OBJECTS.also(CurieWeiss(8)),
            "rectangles": OBJECTS,
            "reference": TENSOR.also(
                torch.zeros(3, dtype=torch.float64), torch.zeros(2), torch.zeros(2, dtype=torch.int64)
            ),
            "seed": SEED,
        },
    ),
    Entry(
        "glauber_mlm.chapters.rectangle_test.study.defects_by_protocol",
        rectangles.defects_by_protocol,
        lambda: {"conditionals": bert(), "starts": begun(), "seed": 1},
        {
            "conditionals": OBJECTS.also(CurieWeiss(8)),
            "starts": STARTS,
            "seed": SEED,
            "protocols": listed("tops", "Top", "conditionals", 3, None, "", ["top"]).also(["top", "top"]),
        },
    ),
    Entry(
        "glauber_mlm.chapters.rectangle_test.study.summary_by_protocol",
        rectangles.summary_by_protocol,
        lambda: {"frame": by_protocol(), "seed": 1},
        {"frame": FRAME, "seed": SEED, "passages": whole(1).but(None)},
    ),
    Entry(
        "glauber_mlm.chapters.rectangle_test.study.control_defects",
        rectangles.control_defects,
        lambda: {
            "control": "left_to_right",
            "conditionals": bert(),
            "double": bert(),
            "starts": begun(),
            "seed": 1,
        },
        {
            "control": word().also("left_to_rihgt", "Left_to_right", "left-to-right", "left_to_right "),
            "conditionals": TEXT_MODEL,
            "double": TEXT_MODEL,
            "starts": STARTS,
            "seed": SEED,
        },
    ),
    Entry(
        "glauber_mlm.chapters.rectangle_test.study.verdicts_of_models",
        rectangles.verdicts_of_models,
        lambda: {"names": [], "length": 8, "count": 4, "seed": 1, "rule": lambda *_: "agrees"},
        {
            "names": listed(3, None, "", "embeded", least=0),
            "length": whole(2),
            "count": whole(2),
            "seed": SEED,
            "rule": CALLED,
        },
    ),
    Entry(
        "glauber_mlm.chapters.mixing_times.precision.precision_cost",
        precision.precision_cost,
        lambda: {"low": bert(), "high": bert(), "states": begun(), "temperatures": [1.0]},
        {
            "low": OBJECTS.also(CurieWeiss(3), CurieWeiss(8)),
            "high": OBJECTS.also(CurieWeiss(3), CurieWeiss(8), bert(7)),
            "states": STARTS,
            "temperatures": TEMPERATURES,
        },
    ),
    Entry(
        "glauber_mlm.chapters.mixing_times.precision.divergence",
        precision.divergence,
        lambda: {
            "models": {"a": bert(), "b": bert()},
            "states": begun(),
            "temperature": 1.0,
            "steps": 2,
            "seed": 1,
        },
        {
            "models": DICT.also({}, {"a": None}, {1: bert()}, {"a": CurieWeiss(3)}),
            "states": STARTS,
            "temperature": TEMPERATURE,
            "steps": whole(1),
            "seed": SEED,
        },
    ),
    Entry(
        "glauber_mlm.chapters.mixing_times.study.curie_weiss_cell",
        mixing.curie_weiss_cell,
        lambda: {"length": 3, "temperature": 1.0, "pairs": 2, "seed": 1, "multiple": 2.0},
        {
            "length": whole(1),
            "temperature": number(-1.0),
            "pairs": whole(1),
            "seed": SEED,
            "multiple": number(0, -1.0),
        },
    ),
    Entry(
        "glauber_mlm.chapters.mixing_times.study.model_cell",
        mixing.model_cell,
        lambda: {"conditionals": bert(), "temperature": 9.0, "pairs": 2, "seed": 1, "cap": 5},
        {
            "conditionals": TEXT_MODEL,
            "temperature": number(-1.0),
            "pairs": whole(1, 56),
            "seed": SEED,
            "cap": whole(1),
            "lag": whole(0),
            "coupling": choice("maximal", "common"),
        },
    ),
    Entry(
        "glauber_mlm.chapters.mixing_times.study.drift_cell",
        mixing.drift_cell,
        lambda: {
            "conditionals": bert(),
            "temperature": 1.0,
            "chains": 2,
            "steps": 4,
            "every": 2,
            "seed": 1,
            "embed": letters,
        },
        {
            "conditionals": TEXT_MODEL,
            "temperature": number(-1.0),
            "chains": whole(1, 112),
            "steps": whole(1),
            "every": whole(1),
            "seed": SEED,
            "embed": EMBEDDER,
        },
    ),
    Entry(
        "glauber_mlm.chapters.mixing_times.study.holding_cell",
        mixing.holding_cell,
        lambda: {
            "conditionals": bert(),
            "temperature": 0.5,
            "chains": 2,
            "steps": 10,
            "radius": 1,
            "seed": 1,
        },
        {
            "conditionals": TEXT_MODEL,
            "temperature": number(-1.0),
            "chains": whole(1, 112),
            "steps": whole(1),
            "radius": whole(0, 8),
            "seed": SEED,
        },
    ),
    Entry(
        "glauber_mlm.chapters.mixing_times.study.grid",
        mixing.grid,
        lambda: {
            "store": CellStore(Path(tempfile.mkdtemp())),
            "name": "x",
            "points": [(3, 1.0)],
            "parameters": {},
            "compute": lambda n, tau: {"a": 1},
            "fingerprint": str,
        },
        {
            "store": OBJECTS,
            "name": word(),
            "points": Kind(
                (
                    None,
                    3,
                    "x",
                    {},
                    [3],
                    ["ab"],
                    [(3,)],
                    [(3, 1.0, 2)],
                    [(3.5, 1.0)],
                    [(3, "1")],
                    [(True, 1.0)],
                )
            ),
            "parameters": DICT.also({1: 2}, {"a": object()}, {"a": 1j}),
            "compute": CALLED,
            "fingerprint": CALLED.also(lambda n: n, lambda n: ""),
        },
    ),
    *(
        Entry(f"glauber_mlm.chapters.mixing_times.study.{function.__name__}", function, good, kinds)
        for function, good, kinds in (
            (mixing.grid_table, lambda: {"cells": cells()}, {"cells": CELLS}),
            (
                mixing.crossings,
                lambda: {"cells": cells(), "level": 0.5, "seed": 1},
                {"cells": CELLS, "level": LEVEL, "seed": SEED},
            ),
            (
                mixing.crossing_table,
                lambda: {"found": mixing.crossings(cells(), 0.5, 1)},
                {
                    "found": DICT.also(
                        {}, {3: None}, {"3": scaling.Crossing(1.0, 0.5, 1.5, "inside")}, {3: 1.0}
                    )
                },
            ),
            (mixing.censored_share, lambda: {"table": mixing.grid_table(cells())}, {"table": FRAME}),
            (
                mixing.vary_apparatus,
                lambda: {"cells": cells(), "common": cells(), "multiple": 5.0, "level": 0.5, "seed": 1},
                {"cells": CELLS, "common": CELLS, "multiple": number(0, -1.0), "level": LEVEL, "seed": SEED},
            ),
            (
                mixing.clock_points,
                lambda: {
                    "coalescing": cells(),
                    "drifting": {(3, 1.0): drifting()},
                    "levels": {3: (0.5, 0.01)},
                    "seed": 1,
                },
                {
                    "coalescing": DICT.also(*SPOILT),
                    "drifting": DICT.also(
                        {(3, 1.0): {}},
                        {(5, 1.0): drifting()},
                        {(3, 1.0): drifting() | {"times": [0, 4]}},
                        {(3, 1.0): drifting() | {"drift": [[0.0, 0.5, math.nan]]}},
                        {(3, 1.0): {"times": [0], "drift": [[0.0]]}},
                    ),
                    "levels": DICT.also(
                        {}, {3: 0.5}, {3: (0.5, -0.1)}, {3: (math.nan, 0.1)}, {3: ("0.5", 0.1)}
                    ),
                    "seed": SEED,
                },
            ),
            (
                mixing.laws_by_clock,
                lambda: {"points": mixing.clock_points(cells(), {}, {}, 1)},
                {"points": FRAME},
            ),
            (
                mixing.longest_of_each,
                lambda: {"holding": {"stays": [[3], []]}},
                {
                    "holding": DICT.also(
                        {},
                        {"stays": None},
                        {"stays": []},
                        {"stays": [3]},
                        {"stays": [["3"]]},
                        {"stays": [[-1]]},
                    )
                },
            ),
            (
                mixing.unrelated,
                lambda: {"conditionals": bert(), "embed": letters},
                {"conditionals": TEXT_MODEL, "embed": EMBEDDER},
            ),
        )
    ),
    *(
        Entry(f"glauber_mlm.chapters.semantic_traps.study.{function.__name__}", function, good, kinds)
        for function, good, kinds in (
            (
                landscape.run,
                lambda: {
                    "results": Path(tempfile.mkdtemp()),
                    "conditionals": bert(),
                    "starts": begun(),
                    "temperature": 1.0,
                    "steps": 2,
                    "seed": 1,
                    "model": {},
                },
                {
                    "results": Kind((Path(__file__), Path(__file__) / "below", None, 3, "", "a\0b")),
                    "conditionals": OBJECTS,
                    "starts": STARTS,
                    "temperature": number(-1.0),
                    "steps": whole(1),
                    "seed": SEED,
                    "model": DICT.also({"a": {1}}),
                },
            ),
            (
                landscape.trajectories,
                lambda: {"dataset": record(), "conditionals": bert(), "every": 10, "embed": letters},
                {
                    "dataset": DATASET,
                    "conditionals": TEXT_MODEL,
                    "every": whole(1),
                    "embed": EMBEDDER,
                },
            ),
            (
                landscape.topic_study,
                lambda: {
                    "conditionals": bert(),
                    "states": corpus(),
                    "passages": passages(),
                    "embed": letters,
                    "seed": 1,
                },
                {
                    "conditionals": TEXT_MODEL,
                    "states": STARTS,
                    "passages": PASSAGES,
                    "embed": EMBEDDER,
                    "seed": SEED,
                },
            ),
            (
                landscape.stay_table,
                lambda: {
                    "dataset": record(),
                    "conditionals": bert(),
                    "temperature": 0.6,
                    "radius": 1,
                    "minimum": 2,
                    "top": 2,
                },
                {
                    "dataset": DATASET,
                    "conditionals": TEXT_MODEL,
                    "temperature": number(-1.0),
                    "radius": whole(0, 8),
                    "minimum": whole(1),
                    "top": whole(1),
                },
            ),
            (
                landscape.first_dwells_test,
                lambda: {"dataset": record(), "conditionals": bert(), "temperature": 0.6, "dwells": 2},
                {
                    "dataset": DATASET,
                    "conditionals": OBJECTS.also(CurieWeiss(8)),
                    "temperature": number(-1.0),
                    "dwells": whole(1),
                },
            ),
            (
                landscape.exclamation_drift,
                lambda: {
                    "conditionals": bert(),
                    "states": begun(),
                    "levels": [1, 2],
                    "temperatures": [1.0],
                    "seed": 1,
                },
                {
                    "conditionals": TEXT_MODEL,
                    "states": STARTS,
                    "levels": listed(-1, 0.5, True, "1", None, 9, [1]),
                    "temperatures": POSITIVE,
                    "seed": SEED,
                    "batch": BATCH,
                },
            ),
            (landscape.hamming_to_start, lambda: {"path": path()}, {"path": OBJECTS}),
            (landscape.changes, lambda: {"path": path()}, {"path": OBJECTS}),
            (
                landscape.likelihoods,
                lambda: {
                    "conditionals": bert(),
                    "starts": begun(),
                    "ends": {1.0: begun().numpy()},
                    "seed": 1,
                },
                {
                    "conditionals": OBJECTS.also(CurieWeiss(8)),
                    "starts": STARTS,
                    "ends": TEMPERATURE_KEYED.also(
                        {1.0: begun().numpy() + 0.9},
                        {1.0: begun().numpy()[:, :7]},
                        {1.0: begun().numpy()[:0]},
                        {1.0: begun().numpy() + 10**6},
                        {1.0: begun().numpy() > 0},
                    ),
                    "seed": SEED,
                },
            ),
            (
                landscape.identity,
                lambda: {
                    "drifts": {1.0: np.ones((2, 5))},
                    "level": 0.5,
                    "level_error": 0.1,
                    "likelihood": likelihood(),
                },
                {
                    "drifts": TEMPERATURE_KEYED.also(
                        {1.0: np.ones((1, 5))}, {1.0: np.ones(5)}, {2.0: np.ones((2, 5))}
                    ),
                    "level": number(),
                    "level_error": number(-1.0),
                    "likelihood": FRAME,
                },
            ),
            (
                landscape.accuracy_along,
                lambda: {
                    "scoring": scoring(),
                    "path": path(),
                    "topics": ["politics", "food", "sports"],
                    "times": [10],
                },
                {
                    "scoring": OBJECTS,
                    "path": OBJECTS,
                    "topics": listed(3, None, "").also(["food"], ["food"] * 4),
                    "times": listed(-1, True, "1", None, 10.5, math.nan, [10]),
                },
            ),
            (
                landscape.politics_nulls,
                lambda: {"scoring": scoring(), "passages": passages(), "threshold": 0.5},
                {"scoring": OBJECTS, "passages": PASSAGES, "threshold": number()},
            ),
            (
                landscape.pooled_visits,
                lambda: {"scores": {1.0: np.ones((2, 5))}, "topics": ["food", "sports"], "threshold": 0.5},
                {
                    "scores": TEMPERATURE_KEYED.also({1.0: np.ones(2)}, {1.0: np.ones((3, 5))}),
                    "topics": listed(3, None, "").also(["food"], ["politics"] * 2),
                    "threshold": number(),
                },
            ),
            (
                landscape.share_of_time,
                lambda: {
                    "pooled": landscape.pooled_visits({1.0: np.ones((2, 5))}, ["food", "sports"], 0.5),
                    "seed": 1,
                },
                {"pooled": FRAME, "seed": SEED},
            ),
        )
    ),
]
ENTRIES = READINGS + STUDIES

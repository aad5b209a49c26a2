"""Entry points of the engine: randomness, conditionals, kernels, runs."""

from __future__ import annotations

import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray
from bad_values import NO_LISTS, TEMPERATURE, Entry, Kind, choice, listed, number, whole, word

from glauber_mlm.conditionals import Restricted
from glauber_mlm.conditionals.solvable import (
    CurieWeiss,
    DefectTable,
    Ising,
    Potts,
    ProductMeasure,
    RandomJoint,
)
from glauber_mlm.conditionals.stubs import Counting, Faulty, MaskLover, PlantedMargins, RareToken
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.coupled import coalescence, steps_at_scale
from glauber_mlm.kernels.event import EventDriven
from glauber_mlm.kernels.sampling import check_temperatures
from glauber_mlm.randomness import RandomStream
from glauber_mlm.runs.cells import CellStore
from glauber_mlm.runs.chains import diagnostics, read_chains, run_chains, states_along, to_arviz
from glauber_mlm.runs.lengths import bucket_by_length, run_lengths

LARGEST = 2**64 - 1
KEPT = tempfile.TemporaryDirectory()  # until the interpreter ends
MOST = 2**31 - 1
SIZE = 2**20
SEED = whole(0, LARGEST).also(1.8e19, 7.9)
TAU = TEMPERATURE.also(1e39, [1.0, 1e39], np.array(["1"]), torch.ones(1, dtype=torch.bool))
CHAINS = listed(0.5, True, "1", None, math.nan, -1, 2**64, [1], least=0)
OBJECTS = Kind((None, 3, "x", [], {}, object(), CurieWeiss))
DEVICE = Kind((None, 3, "gpu", "cuda:9", "", [], "mps", "hpu", True))
DTYPE = Kind((None, "float32", 3, torch.bfloat16, torch.int64, np.float32))
CALL = Kind((None, 3, "x", [], {}, object()))
COUPLED = number(1e101, -1e101)
FLAG = Kind((None, 0, 1, "yes", "", [], 1.0))
STATES = Kind(
    (
        None,
        "01",
        3,
        [[0, 1, 0]],
        [["a", "b", "c"]],
        torch.zeros(2, 3),
        torch.zeros(2, 3, dtype=torch.bool),
        torch.zeros(3, dtype=torch.int64),
        torch.zeros(2, 4, dtype=torch.int64),
        torch.full((2, 3), 2),
        torch.full((2, 3), -1),
        torch.zeros(2, 3, dtype=torch.int32),
        np.zeros((2, 3), dtype=np.int64),
    )
)
FOLDER = Kind(
    (
        None,
        3,
        "",
        " ",
        [],
        True,
        math.nan,
        "a\0b",
        b"runs",
        "x" * 300,
        Path(__file__),
        Path(__file__) / "below",
    )
)
SERIES = Kind(
    (
        None,
        3,
        "x",
        [],
        {},
        {"x": [1, 2]},
        {"x": "y"},
        {"x": [["a"]]},
        {"x": np.ones((0, 10))},
        {"x": np.ones((4, 0))},
        {"x": np.ones((4, 10)), "y": np.ones((4, 20))},
        {"x": np.ones((4, 10), dtype=complex)},
        {3: np.ones((4, 10))},
        {"x": None},
    )
)
STREAM = OBJECTS.also(RandomStream(0, [0]), RandomStream(0, [0, 1, 2]))
CHAIN_STATE = Kind((None, 3, "x", [], torch.zeros(2, 3, dtype=torch.int64)))
RECORD = Kind(("x", 3, [], {"a": {1}}, {"a": math.nan}, {"a": object()}, {"a": 1j}, {"a": b"x"}, {(1, 2): 3}))


SEQUENCES = listed(
    0.5, "text", None, [], [0.5], [True], [0, True], ["a"], [[1]], [-1], [2**31], [2**70], 3, {0: 1}, least=0
)


def folder() -> Path:
    return Path(KEPT.name)


@cache
def finished() -> Path:
    path = folder() / "finished"
    run_chains(path, CurieWeiss(3), states(), 1.0, seed=1, steps=4, progress=False)
    return path


def states(value: int = 0, count: int = 2) -> torch.Tensor:
    return torch.full((count, 3), value, dtype=torch.int64)


def pair() -> dict[str, Any]:
    return {
        "conditionals": CurieWeiss(3),
        "first": states(0),
        "second": states(1),
        "temperature": 1.0,
        "stream": RandomStream(0, [0, 1]),
        "cap": 20,
    }


def run() -> dict[str, Any]:
    return {
        "folder": Path(tempfile.mkdtemp(dir=folder())) / "run",
        "conditionals": CurieWeiss(3),
        "tokens": states(),
        "temperature": 1.0,
        "seed": 1,
        "steps": 3,
        "progress": False,
    }


def lengths() -> dict[str, Any]:
    return {
        "folder": Path(tempfile.mkdtemp(dir=folder())) / "runs",
        "conditionals_at": CurieWeiss,
        "sequences": [[0, 1], [1, 0, 1]],
        "temperature": 1.0,
        "seed": 1,
        "steps": 2,
        "progress": False,
    }


def begun() -> dict[str, Any]:
    return {"conditionals": CurieWeiss(3), "tokens": states(), "temperature": 1.0}


def walked() -> dict[str, Any]:
    return {
        "conditionals": CurieWeiss(3),
        "state": plain.initial_state(CurieWeiss(3), states(), 1.0),
        "stream": RandomStream(0, [0, 1]),
        "first_step": 0,
        "steps": 2,
    }


WALKED = {
    "conditionals": OBJECTS.also(CurieWeiss(4)),
    "state": CHAIN_STATE,
    "stream": STREAM,
    "first_step": whole(0, LARGEST),
    "steps": whole(0, MOST),
}


def event_walk(conditionals: Any, **given: Any) -> Any:
    return EventDriven(conditionals).walk(**given)


def planted() -> dict[str, Any]:
    return {"length": 3, "vocabulary": 5, "margin": 1.0, "patterns": torch.zeros(1, 3, dtype=torch.int64)}


PREFIX = "glauber_mlm"
ENTRIES = [
    Entry(
        f"{PREFIX}.randomness.RandomStream",
        RandomStream,
        lambda: {"seed": 1, "chains": [0, 1]},
        {"seed": SEED, "chains": CHAINS},
        {
            "seed": (np.int64(3), np.uint64(LARGEST)),
            "chains": ((), (1, 2), range(3), np.arange(2), torch.arange(2)),
        },
    ),
    Entry(
        f"{PREFIX}.randomness.RandomStream.blocks",
        lambda **given: RandomStream(0, [1]).blocks(**given),
        lambda: {"first_step": 0, "steps": 2},
        {"first_step": whole(0, LARGEST), "steps": whole(0, MOST), "device": DEVICE},
        {"first_step": (np.int64(3),), "device": (torch.device("cpu"),)},
    ),
    Entry(
        f"{PREFIX}.randomness.RandomStream.subset",
        lambda **given: RandomStream(0, [4, 5]).subset(**given),
        lambda: {"rows": [1]},
        {"rows": listed(0.5, True, "1", None, -1, 2, [0], least=0).also([0, 0])},
        {"rows": ((1, 0), np.array([1]), [])},
    ),
    Entry(
        f"{PREFIX}.conditionals.Restricted",
        Restricted,
        lambda: {"conditionals": CurieWeiss(3), "free_sites": [0, 2], "allowed": [[0], [0, 1]]},
        {
            "conditionals": OBJECTS,
            "free_sites": listed(0.5, 2.5, True, "0", None, -1, 3, [0]).but(None),
            "allowed": Kind(
                (
                    *NO_LISTS,
                    [[0]],
                    [[0], []],
                    [[0.9], [1]],
                    [[0], [True]],
                    [[0], "1"],
                    [[0], [2]],
                    [0, 1],
                    [None, None],
                )
            ),
        },
        {"free_sites": ((0, 2), np.array([0, 2]))},
    ),
    *(
        Entry(f"{PREFIX}.conditionals.solvable.{model.__name__}", model, good, kinds)
        for model, good, kinds in (
            (CurieWeiss, lambda: {"length": 3}, {"length": whole(1, SIZE), "device": DEVICE}),
            (
                Ising,
                lambda: {"shape": "cycle", "size": 3},
                {
                    "shape": choice("cycle", "torus"),
                    "size": whole(2, SIZE),
                    "coupling": COUPLED,
                    "field": COUPLED,
                    "device": DEVICE,
                },
            ),
            (
                Potts,
                lambda: {"length": 3, "colours": 3},
                {
                    "length": whole(2, SIZE),
                    "colours": whole(2, SIZE),
                    "coupling": COUPLED,
                    "device": DEVICE,
                },
            ),
            (
                ProductMeasure,
                lambda: {"logits": torch.zeros(2, 3)},
                {
                    "logits": Kind(
                        (
                            None,
                            "x",
                            3,
                            [1.0],
                            [[1.0], [1.0, 2.0]],
                            [["a"]],
                            torch.full((2, 3), math.nan),
                            torch.full((2, 3), 1e101, dtype=torch.float64),
                            torch.zeros(0, 3),
                            torch.zeros(2, 1),
                            [[True, False]],
                        )
                    ),
                    "device": DEVICE,
                },
            ),
            (
                RandomJoint,
                lambda: {"length": 2, "vocabulary": 3, "seed": 1},
                {"length": whole(1, 12), "vocabulary": whole(2, 2**10), "seed": SEED, "device": DEVICE},
            ),
            (DefectTable, lambda: {"defect": 0.5}, {"defect": COUPLED, "device": DEVICE}),
        )
    ),
    Entry(
        f"{PREFIX}.conditionals.solvable.CurieWeiss.magnetisation_chain",
        lambda length, temperature: CurieWeiss(length).magnetisation_chain(temperature),
        lambda: {"length": 3, "temperature": 1.0},
        {"length": whole(1, 2**12), "temperature": number(0, -1.0, 1e-300, 1e39)},
    ),
    Entry(
        f"{PREFIX}.conditionals.solvable.CurieWeiss.log_mu",
        lambda length, temperature: CurieWeiss(length).log_mu(temperature),
        lambda: {"length": 3, "temperature": 1.0},
        {"length": whole(1, 20), "temperature": number(0, -1.0, 1e-300, 1e39)},
    ),
    Entry(
        f"{PREFIX}.conditionals.stubs.Counting",
        Counting,
        lambda: {"conditionals": CurieWeiss(3)},
        {"conditionals": OBJECTS},
    ),
    Entry(
        f"{PREFIX}.conditionals.stubs.Faulty",
        Faulty,
        lambda: {"conditionals": CurieWeiss(3), "chain_row": 0, "site": 1},
        {
            "conditionals": OBJECTS,
            "chain_row": whole(0).but(None),
            "site": whole(0).but(None),
            "value": Kind((None, "nan", [], {}, 1j)),
            "call": whole(0),
            "token": whole(0, 1).but(None),
        },
        {"chain_row": (None,), "site": (None,), "token": (None,), "value": (math.nan, -math.inf, 0)},
    ),
    Entry(
        f"{PREFIX}.conditionals.stubs.MaskLover",
        MaskLover,
        lambda: {"length": 2, "vocabulary": 5, "favourites": [1]},
        {
            "length": whole(1, SIZE),
            "vocabulary": whole(2, SIZE),
            "favourites": listed(0.5, True, 5, -1, "1", None, least=0),
            "dtype": DTYPE,
            "device": DEVICE,
        },
    ),
    Entry(
        f"{PREFIX}.conditionals.stubs.RareToken",
        RareToken,
        lambda: {"length": 2, "vocabulary": 5, "token": 1},
        {
            "length": whole(1, SIZE),
            "vocabulary": whole(2, SIZE),
            "token": whole(0, 4),
            "probability": number(0.0, 1.0, -0.5),
            "dtype": DTYPE,
            "device": DEVICE,
        },
    ),
    Entry(
        f"{PREFIX}.conditionals.stubs.PlantedMargins",
        PlantedMargins,
        planted,
        {
            "length": whole(1, SIZE),
            "vocabulary": whole(2, SIZE),
            "margin": number(0, -1.0, 1e39, 1e-60),
            "patterns": Kind(
                (
                    None,
                    "x",
                    torch.zeros(1, 3),
                    torch.zeros(1, 3, dtype=torch.bool),
                    torch.zeros(1, 4, dtype=torch.int64),
                    torch.zeros(0, 3, dtype=torch.int64),
                    torch.zeros(2, 3, dtype=torch.int64),
                    [["a"]],
                    torch.full((1, 3), 5),
                )
            ),
            "seed": SEED,
            "dtype": DTYPE,
            "device": DEVICE,
        },
    ),
    Entry(
        f"{PREFIX}.kernels.sampling.check_temperatures",
        check_temperatures,
        lambda: {"temperature": 1.0, "count": 3},
        {"temperature": TAU, "count": whole(0)},
        {
            "temperature": (
                0,
                1,
                np.float32(0.5),
                [0.5, 1, 2],
                (1.0, 1.0, 1.0),
                np.ones(3),
                torch.ones(3),
                torch.tensor(1.0),
            )
        },
    ),
    Entry(
        f"{PREFIX}.kernels.plain.initial_state",
        plain.initial_state,
        begun,
        {"conditionals": OBJECTS, "tokens": STATES, "temperature": TAU},
    ),
    Entry(f"{PREFIX}.kernels.plain.walk", plain.walk, walked, WALKED),
    Entry(f"{PREFIX}.kernels.event.EventDriven.walk", event_walk, walked, WALKED),
    Entry(
        f"{PREFIX}.kernels.event.EventDriven",
        EventDriven,
        lambda: {"conditionals": CurieWeiss(3)},
        {"conditionals": OBJECTS, "cache_bytes": whole(0), "batch_rows": whole(1)},
        {"cache_bytes": (0, np.int64(10))},
    ),
    Entry(
        f"{PREFIX}.kernels.coupled.steps_at_scale",
        steps_at_scale,
        lambda: {"sites": 8, "multiple": 25.0},
        {"sites": whole(1, MOST).also(10**400), "multiple": number(0, -1.0, 1e308)},
        {"multiple": (25, np.float64(2.5))},
    ),
    Entry(
        f"{PREFIX}.kernels.coupled.coalescence",
        coalescence,
        pair,
        {
            "conditionals": OBJECTS,
            "first": STATES,
            "second": STATES,
            "temperature": TAU,
            "stream": STREAM,
            "cap": whole(1, 2**63 - 1),
            "lag": whole(0).also(20),
            "coupling": choice("maximal", "common"),
            "check_every": whole(1).but(None),
            "progress": CALL.but(None),
        },
        {"cap": (np.int32(20),), "lag": (0, np.int64(2))},
    ),
    Entry(
        f"{PREFIX}.runs.chains.run_chains",
        run_chains,
        run,
        {
            "folder": FOLDER,
            "conditionals": OBJECTS,
            "tokens": STATES.also(torch.zeros(0, 3, dtype=torch.int64)),
            "temperature": TAU,
            "seed": SEED,
            "steps": whole(1, MOST),
            "chains": CHAINS.but(None).also([0], [0, 0]),
            "chunk_steps": whole(1, MOST),
            "kernel": choice("plain", "event"),
            "cache_bytes": whole(0),
            "model": RECORD,
            "progress": FLAG,
            "read": FLAG,
        },
        {"model": ({"a": (1, 2)}, None), "folder": (str(folder() / "as-text"),)},
    ),
    Entry(
        f"{PREFIX}.runs.chains.read_chains",
        read_chains,
        lambda: {"folder": finished()},
        {"folder": FOLDER, "steps": whole(1, 4).but(None)},
    ),
    Entry(
        f"{PREFIX}.runs.chains.states_along",
        lambda **given: list(states_along(**given)),
        lambda: {"dataset": read_chains(finished()), "every": 2},
        {
            "dataset": Kind((None, 3, "x", [], {}, xarray.DataArray([1]), xarray.Dataset({"site": 1}))),
            "every": whole(1),
        },
    ),
    Entry(
        f"{PREFIX}.runs.chains.diagnostics",
        diagnostics,
        lambda: {"observables": {"x": np.arange(40.0).reshape(4, 10) % 7}},
        {"observables": SERIES},
    ),
    Entry(
        f"{PREFIX}.runs.chains.to_arviz",
        to_arviz,
        lambda: {"observables": {"x": np.arange(40.0).reshape(4, 10) % 7}},
        {"observables": SERIES},
    ),
    Entry(
        f"{PREFIX}.runs.lengths.bucket_by_length",
        bucket_by_length,
        lambda: {"sequences": [[0, 1]]},
        {"sequences": SEQUENCES},
        {"sequences": ([(0, 1), np.array([1]), torch.tensor([2, 3])], np.zeros((2, 3), dtype=int), [])},
    ),
    Entry(
        f"{PREFIX}.runs.lengths.run_lengths",
        run_lengths,
        lengths,
        {
            "folder": FOLDER,
            "conditionals_at": CALL.also(CurieWeiss(3), lambda length: None, lambda length: CurieWeiss(5)),
            "sequences": SEQUENCES.also([], [[2]]),
            "temperature": TAU,
            "seed": SEED,
            "steps": whole(1, MOST),
            "chunk_steps": whole(1, MOST),
            "kernel": choice("plain", "event"),
            "cache_bytes": whole(0),
            "model": RECORD,
            "progress": FLAG,
            "read": FLAG,
            "chains": Kind(([0, 1], None)),
        },
        {"sequences": (((0, 1), np.array([1])),), "temperature": ([1.0, 0.5],)},
    ),
    Entry(
        f"{PREFIX}.runs.cells.CellStore",
        CellStore,
        lambda: {"folder": folder() / "cells"},
        {"folder": FOLDER},
        {"folder": (str(folder() / "cells"),)},
    ),
    Entry(
        f"{PREFIX}.runs.cells.CellStore.result",
        lambda **given: CellStore(folder() / "cells").result(**given),
        lambda: {"name": "x", "parameters": {"a": 1}, "compute": lambda: {"y": 2}, "fingerprint": "f"},
        {
            "name": word(),
            "parameters": Kind(
                (
                    None,
                    3,
                    "x",
                    [],
                    {"a": {1}},
                    {"a": object()},
                    {"a": 1j},
                    {"a": b"x"},
                    {"a": 10**5000},
                    {1: 2},
                )
            ),
            "compute": CALL.also(lambda: None, lambda: [1], lambda: {"a": {1}}),
            "fingerprint": word(),
        },
        {"parameters": ({"a": math.nan}, {"a": np.arange(3)}, {"a": (1, 2)})},
    ),
]

"""Grid cells: reuse by content, whole or not at all, computed once."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock, Timeout
from hypothesis import given, settings
from hypothesis import strategies as st

import glauber_mlm
from glauber_mlm.errors import UserError
from glauber_mlm.runs import cells
from glauber_mlm.runs.cells import CellStore, decode, encode

SOURCES = Path(glauber_mlm.__file__).parents[1]


class Counted:
    """A computation that counts its calls."""

    def __init__(self, result: dict | None = None) -> None:
        self.calls = 0
        self.value = {"x": 1.5} if result is None else result

    def __call__(self) -> dict:
        self.calls += 1
        return self.value


def test_a_stored_cell_is_not_computed_again(tmp_path):
    compute = Counted()
    for _ in range(2):
        assert CellStore(tmp_path).result("a", {"n": 4, "tau": 0.5}, compute, fingerprint="f") == {"x": 1.5}
    assert compute.calls == 1


@pytest.mark.parametrize(
    ("name", "parameters", "fingerprint"),
    [
        ("b", {"n": 4}, "f"),
        ("a", {"n": 5}, "f"),
        ("a", {"n": 4.0}, "f"),
        ("a", {"n": 4, "k": None}, "f"),
        ("a", {"n": 4}, "g"),
    ],
)
def test_every_part_of_the_key_matters(tmp_path, name, parameters, fingerprint):
    store, compute = CellStore(tmp_path), Counted()
    store.result("a", {"n": 4}, compute, fingerprint="f")
    store.result(name, parameters, compute, fingerprint=fingerprint)
    assert compute.calls == 2


def test_the_order_of_parameters_does_not_matter(tmp_path):
    store, compute = CellStore(tmp_path), Counted()
    store.result("a", {"n": 4, "tau": 1.0}, compute, fingerprint="f")
    store.result("a", {"tau": 1.0, "n": 4}, compute, fingerprint="f")
    assert compute.calls == 1


def test_another_engine_computes_anew(tmp_path, monkeypatch):
    compute = Counted()
    CellStore(tmp_path).result("a", {}, compute, fingerprint="f")
    monkeypatch.setattr(cells, "engine_digest", lambda: "0.0.0+other")
    CellStore(tmp_path).result("a", {}, compute, fingerprint="f")
    assert compute.calls == 2


def test_the_engine_digest_names_the_version_and_follows_the_sources():
    assert cells.engine_digest().startswith(f"{glauber_mlm.__version__}+")
    assert (SOURCES / "glauber_mlm" / "runs" / "cells.py").is_file()
    covered = {file.relative_to(SOURCES / "glauber_mlm").as_posix() for file in cells.engine_files()}
    assert {"runs/cells.py", "chapters/mixing_times/study.py", "data/passages.jsonl"} <= covered
    of_chapters = {name.split("/")[-1] for name in covered if name.startswith("chapters/")}
    assert not of_chapters & {"figures.py", "words.py", "claims.py", "parameters.py", "ledger.py", "show.py"}


def tear(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def alter(path: Path) -> None:
    path.write_text(path.read_text().replace("1.5", "2.5"))


def swap(path: Path) -> None:
    store = CellStore(path.parent)
    store.result("other", {}, Counted({"x": 9}), fingerprint="f")
    os.replace(store.path("other", {}, fingerprint="f"), path)


def empty(path: Path) -> None:
    path.write_text("")


def not_a_cell(path: Path) -> None:
    path.write_text("[1, 2]")


@pytest.mark.parametrize("damage", [tear, alter, swap, empty, not_a_cell])
def test_a_damaged_file_is_computed_anew(tmp_path, damage):
    store, compute = CellStore(tmp_path), Counted()
    store.result("a", {}, compute, fingerprint="f")
    damage(store.path("a", {}, fingerprint="f"))
    assert store.result("a", {}, compute, fingerprint="f") == {"x": 1.5}
    assert compute.calls == 2
    store.result("a", {}, compute, fingerprint="f")
    assert compute.calls == 2


def test_a_failed_computation_stores_nothing(tmp_path):
    def fail() -> dict:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        CellStore(tmp_path).result("a", {}, fail, fingerprint="f")
    assert not list(tmp_path.glob("*.json"))
    assert CellStore(tmp_path).result("a", {}, Counted(), fingerprint="f") == {"x": 1.5}


def test_first_and_later_results_are_the_same(tmp_path):
    value = {
        "rows": np.array([[1.0, np.nan], [-np.inf, np.float64(0.1)]]),
        "count": np.int64(3),
        "pair": (True, None),
        "small": np.float32(0.1),
        "zero": -0.0,
    }
    first, second = (CellStore(tmp_path).result("a", {}, Counted(value), fingerprint="f") for _ in range(2))
    assert repr(first) == repr(second)
    assert (
        first["rows"][0][0] == 1.0
        and math.isnan(first["rows"][0][1])
        and first["rows"][1] == [-math.inf, 0.1]
    )
    assert (
        type(first["count"]) is int
        and first["pair"] == [True, None]
        and first["small"] == float(np.float32(0.1))
    )
    assert math.copysign(1, first["zero"]) == -1
    written = json.loads(CellStore(tmp_path).path("a", {}, fingerprint="f").read_text())
    assert written["result"]["rows"][0][1] == {"__float__": "NaN"}


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.text(),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text() | st.floats(), st.lists, max_leaves=5
        ),
        max_size=4,
    ).filter(lambda d: "__float__" not in d)
)
def test_values_survive_the_file(value):
    assert repr(decode(json.loads(json.dumps(encode(value), allow_nan=False)))) == repr(value)


@pytest.mark.parametrize("value", [{1: 2}, {"__float__": 1}, {"z": 1j}, {"o": object()}, {"s": {1, 2}}])
def test_values_without_a_form_are_refused(value):
    with pytest.raises(UserError, match="a cell"):
        encode(value)


HOLDING_ITSELF: dict = {}
HOLDING_ITSELF["itself"] = HOLDING_ITSELF


@pytest.mark.parametrize(
    "change, message",
    [
        ({"name": ""}, "name is ''; give a text that is not empty"),
        ({"name": 3}, "name is 3; give a text"),
        ({"name": None}, "name is None; give a text"),
        ({"fingerprint": None}, "fingerprint is None; give a text"),
        ({"fingerprint": b"f"}, "fingerprint is b'f'; give a text"),
        ({"parameters": None}, "parameters is None; give a dict"),
        ({"parameters": [("a", 1)]}, "parameters is .*; give a dict"),
        ({"parameters": {"a": {1, 2}}}, "parameters: a cell cannot hold a set"),
        ({"parameters": {"a": object()}}, "parameters: a cell cannot hold a object"),
        ({"parameters": {"a": np.datetime64("2026-01-01")}}, "parameters: a cell cannot hold a date"),
        ({"parameters": {1: 2}}, "parameters: a cell's dict has the key 1"),
        ({"parameters": {"a": 10**5000}}, "parameters cannot be written as JSON"),
        ({"parameters": HOLDING_ITSELF}, "parameters cannot be written as JSON"),
        ({"compute": {"x": 1}}, "compute is {'x': 1}; give a Callable"),
    ],
)
def test_what_no_cell_can_hold_is_refused_before_it_is_computed(tmp_path, change, message):
    compute = Counted()
    given = {"name": "a", "parameters": {}, "compute": compute, "fingerprint": "f"} | change
    with pytest.raises(UserError, match=message) as caught:
        CellStore(tmp_path).result(**given)
    assert "\n" not in str(caught.value) and compute.calls == 0 and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "result, message",
    [
        ([1], r"the result of 'a' is \[1\]; give a dict"),
        ({"x": 1j}, "the result of 'a': a cell cannot hold a complex"),
    ],
)
def test_a_result_that_no_cell_can_hold_is_told_and_not_stored(tmp_path, result, message):
    with pytest.raises(UserError, match=message):
        CellStore(tmp_path).result("a", {}, lambda: result, fingerprint="f")
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("bad", [None, 3, "", "a\0b", "x" * 300, Path(__file__), Path(__file__) / "below"])
def test_a_folder_that_cannot_be_is_refused_at_once(bad):
    with pytest.raises(UserError, match="folder|write"):
        CellStore(bad)


def start(script: str, *arguments: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


GRID = """
    import sys, time
    from glauber_mlm.runs.cells import CellStore
    store = CellStore(sys.argv[1])
    for cell in range(5):
        def compute():
            if cell == int(sys.argv[2]):
                print("stuck", flush=True)
                time.sleep(600)
            print("computed", cell, flush=True)
            return {"cell": cell}
        assert store.result("grid", {"cell": cell}, compute, fingerprint="f") == {"cell": cell}
"""


def test_a_grid_killed_after_three_cells_computes_two(tmp_path):
    with start(GRID, str(tmp_path), "3") as process:
        for line in process.stdout:
            if line == "stuck\n":
                process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    with start(GRID, str(tmp_path), "-1") as process:
        output = process.stdout.read()
    assert process.returncode == 0
    assert output.split("\n")[:-1] == ["computed 3", "computed 4"]


def test_a_finished_cell_leaves_no_lock_and_no_half_written_file(tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(cells, "FileLock", lambda path: taken.append(FileLock(path)) or taken[-1])
    store = CellStore(tmp_path)
    path = store.path("cell", {}, fingerprint="law")
    leftover = path.with_name(f".{path.name}.killed.json")
    leftover.write_text("{")

    def compute():
        with pytest.raises(Timeout):
            FileLock(path.with_suffix(".lock")).acquire(timeout=0)
        return {"value": 1}

    store.result("cell", {}, compute, fingerprint="law")
    assert len(taken) == 1 and not taken[0].is_locked and not leftover.exists()


def test_two_runs_at_once_compute_each_cell_once(tmp_path):
    processes = [start(GRID, str(tmp_path), "-1") for _ in range(2)]
    lines = [line for process in processes for line in process.communicate()[0].splitlines()]
    assert [process.returncode for process in processes] == [0, 0]
    assert sorted(lines) == [f"computed {cell}" for cell in range(5)]

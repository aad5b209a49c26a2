"""A chapter opened from a notebook's namespace."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from glauber_mlm import __version__
from glauber_mlm.chapters.base.chapter import open_chapter, results_folder
from glauber_mlm.chapters.base.claims import Verdict
from glauber_mlm.errors import UserError


@pytest.fixture
def root(tmp_path, monkeypatch):
    (tmp_path / "_toc.yml").touch()
    (tmp_path / "book").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def namespace(**names) -> dict:
    """What a fresh kernel holds after the parameters cell."""
    of_ipython = {
        "In": [],
        "Out": {},
        "get_ipython": print,
        "exit": object(),
        "quit": object(),
        "open": open,
        "__name__": "__main__",
        "_i1": "",
        "_": 1,
    }
    return {**of_ipython, "os": os, "open_chapter": open_chapter, "Verdict": Verdict, "seed": 7, **names}


def test_parameters_results_and_finish(root):
    chapter = open_chapter("rectangle_test", namespace(length=4, output="_build/smoke/results"))
    assert (chapter.parameters.seed, chapter.parameters.length, chapter.parameters.dtype) == (7, 4, "float32")
    assert (
        chapter.results == root / "_build" / "smoke" / "results" / "rectangle_test"
        and chapter.results.is_dir()
    )
    chapter.headline("mean", np.float64(0.5))
    chapter.headline("floor", math.nan)
    chapter.ledger.record("R1", ours="0.5", verdict=Verdict.UNDECIDED)
    assert chapter.cells.result("cell", {}, lambda: {"x": 1}, fingerprint="f") == {"x": 1}
    chapter.finish()
    written = json.loads((root / "_build" / "smoke" / "results" / "rectangle_test.json").read_text())
    assert written["headlines"] == {"mean": 0.5, "floor": {"__float__": "NaN"}}
    assert written["parameters"]["seed"] == 7 and "output" not in written["parameters"]
    assert written["versions"]["glauber-mlm"] == __version__ and "torch" in written["versions"]
    assert sorted(path.name for path in chapter.output.iterdir()) == [
        "cells",
        "ledger",
        "rectangle_test",
        "rectangle_test.json",
    ]


@pytest.mark.parametrize("folder", [".", "book"])
def test_the_default_results_folder_is_the_same_from_everywhere(root, folder, monkeypatch):
    monkeypatch.chdir(root / folder)
    assert open_chapter("rectangle_test", namespace()).output == root / "_build" / "manual" / "results"


def test_results_outside_a_repository(tmp_path):
    assert results_folder("", tmp_path) == tmp_path / "_build" / "manual" / "results"
    assert results_folder("/elsewhere", tmp_path).as_posix() == "/elsewhere"


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        ({"sed": 8}, "unknown parameter 'sed' of chapter rectangle_test; did you mean 'seed'?"),
        (
            {"length": 1},
            "parameter 'length' of chapter rectangle_test: input should be greater than or equal to 2, not 1",
        ),
        (
            {"seed": "8"},
            "parameter 'seed' of chapter rectangle_test: input should be a valid integer, not '8'",
        ),
    ],
)
def test_bad_parameters_are_one_line_in_the_notebook(root, extra, expected):
    with pytest.raises(UserError) as caught:
        open_chapter("rectangle_test", namespace(**extra))
    (line,) = caught.value._render_traceback_()
    assert line.startswith(f"UserError: {expected}") and "\n" not in line
    assert not (root / "_build").exists()


def test_an_unknown_chapter_is_refused(root):
    with pytest.raises(UserError, match="did you mean 'rectangle_test'"):
        open_chapter("rectangle_tests", namespace())


def test_a_notebook_may_open_its_chapter_again(root):
    names = namespace()
    names["chapter"] = open_chapter("rectangle_test", names)
    names.update(frame=[1, 2], seed=8)
    assert open_chapter("rectangle_test", names).parameters.seed == 8


def test_opening_forgets_earlier_records_of_the_chapter(root):
    open_chapter("rectangle_test", namespace()).ledger.record("R1", "x", Verdict.AGREES)
    frame = open_chapter("rectangle_test", namespace()).ledger.frame()
    assert set(frame["verdict"]) == {"not run"}


def test_a_headline_has_one_value(root):
    chapter = open_chapter("rectangle_test", namespace())
    chapter.headline("x", 1)
    with pytest.raises(UserError, match="was given before"):
        chapter.headline("x", 2)


def test_opening_a_chapter_loads_no_model_library():
    code = "import sys, glauber_mlm.chapters.base.chapter; print([m for m in ('torch', 'transformers', 'papermill', 'sphinx') if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    assert result.stdout == "[]\n"

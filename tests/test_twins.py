"""The chapters in `book/`: script and twin agree, outputs are fresh, parameters are the declared ones."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from glauber_mlm.chapters.base.parameters import CHAPTERS, chapter_spec
from glauber_mlm.publishing.pairing import differences, read_script

BOOK = Path(__file__).parents[1] / "book"
SCRIPTS = sorted(BOOK.glob("*.py"))


def test_the_scripts_are_the_chapters():
    assert [script.stem for script in SCRIPTS] == [spec.stem for spec in CHAPTERS.values()]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_script_and_twin_agree_and_outputs_are_fresh(script):
    assert differences(script) == []


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_the_parameters_cell_holds_the_declared_defaults(script):
    """Plain `papermill` and JupyterLab see only this cell; a declared name that it lacks could not be set by either."""
    (cell,) = (cell for cell in read_script(script).cells if "parameters" in cell.metadata.get("tags", []))
    assignments = ast.parse(cell.source).body
    assert all(isinstance(line, ast.Assign) and len(line.targets) == 1 for line in assignments)
    assert {line.targets[0].id: ast.literal_eval(line.value) for line in assignments} == chapter_spec(
        script.stem
    ).parameters_class().model_dump()

"""Every public entry point refuses every bad value of its parameters in one line of the package's own error.

The table is in `entries_*.py`, one file for each part of the package; the values are in `bad_values.py`.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bad_values import Entry
from hypothesis import given, settings

from glauber_mlm.errors import UserError

HERE = Path(__file__).parent
ROOT = HERE.parent
ENTRIES: list[Entry] = [
    entry
    for path in sorted(HERE.glob("entries_*.py"))
    for entry in importlib.import_module(path.stem).ENTRIES
]
PARAMETERS = [
    pytest.param(entry, name, id=f"{entry.name}-{name}") for entry in ENTRIES for name in entry.kinds
]
DRAWN = [
    pytest.param(entry, name, id=f"{entry.name}-{name}")
    for entry in ENTRIES
    for name, kind in entry.kinds.items()
    if kind.more is not None
]
# Called by chapters with what the engine returned, never with a value that a user typed.
FED_BY_THE_ENGINE = re.compile(r"glauber_mlm\.chapters\.(base\.(rules|show)|\w+\.(figures|words))\.")


def fault(entry: Entry, name: str, value: Any) -> str | None:
    """What is wrong with the answer to one bad value; None if it is refused in one line."""
    try:
        entry.call(**{**entry.good(), name: value})
    except UserError as error:
        text = str(error)
        return None if "\n" not in text and 10 < len(text) < 700 else f"{name}={value!r}: message {text!r}"
    except Exception as error:
        return f"{name}={value!r}: {type(error).__name__}: {error}"
    return f"{name}={value!r}: accepted"


@pytest.mark.parametrize(("entry", "name"), PARAMETERS)
def test_bad_values_are_refused_in_one_line(entry: Entry, name: str):
    assert [found for value in entry.kinds[name].bad if (found := fault(entry, name, value))] == []


@pytest.mark.parametrize(("entry", "name"), DRAWN)
def test_values_that_hypothesis_finds_are_refused(entry: Entry, name: str):
    @settings(max_examples=15)
    @given(value=entry.kinds[name].more)
    def check(value: Any) -> None:
        assert fault(entry, name, value) is None

    check()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_arguments_beside_the_bad_one_work(entry: Entry):
    entry.call(**entry.good())


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.accepts], ids=lambda entry: entry.name)
def test_documented_conversions_are_made(entry: Entry):
    for name, values in entry.accepts.items():
        for value in values:
            entry.call(**{**entry.good(), name: value})


def called(source: str) -> Iterator[str]:
    """Full names of what a source calls of the package."""
    tree, known = ast.parse(source), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("glauber_mlm"):
            known |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            first, _, rest = name.partition(".")
            if first in known and rest.count(".") == 0:
                yield f"{known[first]}.{rest}".rstrip(".")


def used_in_public() -> set[str]:
    """Functions and classes of the package that the README and the chapters call."""
    sources = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    sources += [path.read_text(encoding="utf-8") for path in sorted((ROOT / "book").glob("*.py"))]
    return {name for source in sources for name in called(source)}


def test_the_table_covers_what_readme_and_chapters_call():
    covered = {entry.name for entry in ENTRIES}
    assert sorted(name for name in used_in_public() - covered if not FED_BY_THE_ENGINE.match(name)) == []


def test_a_call_in_a_chapter_is_found():
    source = "from glauber_mlm import models\nfrom glauber_mlm.chapters.mixing_times import study\nx = [study.grid(1) for _ in models.load('a').conditionals(3)]"
    assert set(called(source)) == {"glauber_mlm.chapters.mixing_times.study.grid", "glauber_mlm.models.load"}

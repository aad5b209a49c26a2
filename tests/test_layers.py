"""Imports flow one way, and what finished cells rest on is part of their key."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import glauber_mlm
from glauber_mlm.runs.cells import engine_files

PACKAGE = Path(glauber_mlm.__file__).parent
# From the bottom up; modules of one line may not import each other, but for what is inside one folder.
LAYERS = (
    ("errors",),
    ("checks",),
    ("atomic", "randomness", "conditionals", "embedded", "layout", "passages", "domains"),
    ("pretrained",),
    ("kernels", "models", "training"),
    ("inputs",),
    ("runs", "statistics"),
    ("exact", "text"),
    ("readings",),
    ("chapters",),
    ("bench", "publishing"),
    ("cli",),
)
HEIGHT = {name: height for height, names in enumerate(LAYERS) for name in names}


def imported(source: str) -> Iterator[str]:
    """Top-level modules of the package that a source imports, wherever the import stands."""
    for node in ast.walk(ast.parse(source)):
        modules: list[str] = []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            modules = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "glauber_mlm"
                else [node.module]
            )
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        yield from (
            module.split(".")[1]
            for module in modules
            if module.startswith("glauber_mlm.") and not module.endswith(".__version__")
        )


def upward(name: str, source: str) -> list[str]:
    """Imports of a module of `name` that do not go down."""
    return [
        f"{name} imports {other}"
        for other in imported(source)
        if other != name and HEIGHT[other] >= HEIGHT[name]
    ]


def sources() -> list[tuple[str, str]]:
    return [
        (path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    ]


def test_imports_flow_one_way():
    found = {name for name, _ in sources()} - {"__init__"}
    assert found == set(HEIGHT)
    assert [fault for name, source in sources() if name in HEIGHT for fault in upward(name, source)] == []


@pytest.mark.parametrize(
    "source",
    [
        "from glauber_mlm.chapters.mixing_times import study",
        "from glauber_mlm import chapters",
        "import glauber_mlm.chapters.base.rules",
        "def f():\n    import glauber_mlm.cli",
    ],
)
def test_an_import_that_goes_up_is_found(source: str):
    assert len(upward("readings", source)) == 1


def test_finished_cells_know_all_that_their_numbers_rest_on():
    covered = {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in engine_files()}
    below: dict[str, set[str]] = {}
    for name, source in sources():
        below.setdefault(name, set()).update(imported(source))
    beneath, waiting = set(), ["chapters"]
    while waiting:
        name = waiting.pop()
        beneath.add(name)
        waiting += below[name] - beneath
    assert beneath - {"errors", "atomic", "checks", "layout"} <= covered

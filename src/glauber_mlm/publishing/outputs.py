"""What is kept of the outputs of an executed notebook.

Kept is what a reader looks at: text, tables, figures. Dropped is what belongs to one run on one machine: the standard
error stream with its progress bars, widgets, execution counts, addresses of objects, the way in which printed
text happened to be cut into messages.
"""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from glauber_mlm.errors import UserError

INJECTED_TAG = "injected-parameters"
_WIDGET = "application/vnd.jupyter.widget-view+json"
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]+")
_OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n)")


def read_notebook(path: Path, remedy: str) -> NotebookNode:
    """Read a notebook.

    Parameters
    ----------
    path : Path
    remedy : str
        What to do if it is damaged.

    Raises
    ------
    UserError
        If the file is missing, torn, of another kind, or not as notebooks of version 4 are.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
    except (
        OSError,
        ValueError,
        AttributeError,
        KeyError,
        TypeError,
        RecursionError,
        nbformat.ValidationError,
    ) as error:
        reason = getattr(error, "message", None) or str(error)
        raise UserError(f"{path} is not a notebook ({reason:.200}); {remedy}") from error
    return notebook


def _steady(text: str) -> str:
    """Text without object addresses and without what a carriage return overwrote."""
    return _ADDRESS.sub("at 0x...", _OVERWRITTEN.sub("", text.replace("\r\n", "\n")))


def clean_outputs(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Return new outputs without what is volatile; errors are kept."""
    kept: list[NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream":
            if output.name == "stderr":
                continue
            if kept and kept[-1].output_type == "stream":
                kept[-1].text += output.text
            else:
                kept.append(NotebookNode(output_type="stream", name=output.name, text=output.text))
        elif output.output_type == "error":
            kept.append(NotebookNode(output))
        elif _WIDGET not in output.data:
            data = {
                kind: _steady(value) if kind == "text/plain" else value for kind, value in output.data.items()
            }
            clean = NotebookNode(
                output_type=output.output_type,
                data=NotebookNode(data),
                metadata=NotebookNode(output.get("metadata", {})),
            )
            if output.output_type == "execute_result":
                clean.execution_count = None
            kept.append(clean)
    for output in kept:
        if output.output_type == "stream":
            output.text = _steady(output.text)
    return [output for output in kept if output.output_type != "stream" or output.text]


def is_injected(cell: NotebookNode) -> bool:
    """Whether papermill put the cell into the notebook."""
    return INJECTED_TAG in cell.metadata.get("tags", [])


def errors(notebook: NotebookNode) -> list[tuple[int, str]]:
    """Cells (counted from 1) that hold an error, with its name and first line."""
    found = []
    for number, cell in enumerate(notebook.cells, start=1):
        for output in cell.get("outputs", []):
            if output.output_type == "error":
                value = output.evalue.strip().splitlines()
                found.append((number, f"{output.ename}: {value[0]}" if value else output.ename))
    return found

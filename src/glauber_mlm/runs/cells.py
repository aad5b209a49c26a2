"""Finished cells of a grid, found again by their content.

A cell is one computation with a name, parameters and the fingerprint of the law that it samples. Its result is
kept as JSON under a key made of these and of a digest of the engine's own sources, so that a run cut off in the
middle of a grid computes only what is missing, and a change of the engine computes everything anew.

Values may be None, bool, int, float, str, lists, and dicts with string keys. Tuples and numpy arrays come back as
(nested) lists, numpy scalars as Python numbers. Finite floats are written with `repr` and come back bit for bit. JSON has no
NaN and no infinity: they are written as `{"__float__": "NaN"}`, `"Infinity"` or `"-Infinity"` in that form.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from glauber_mlm import __version__
from glauber_mlm.atomic import output_folder, write_text, writing
from glauber_mlm.checks import a_word, an_instance, checked, shown
from glauber_mlm.errors import UserError

_PACKAGE = Path(__file__).resolve().parents[1]
FLOAT_TAG = "__float__"
ENGINE_SOURCES = (
    "randomness.py",
    "conditionals",
    "kernels",
    "runs",
    "inputs.py",
    "exact",
    "statistics",
    "readings",
    "text",
    "chapters",
    "passages.py",
    "data/passages.jsonl",
    "domains.py",
    "data/domains.jsonl",
    "models.py",
    "embedded.py",
    "pretrained",
)
_NO_NUMBERS = (
    "base",
    "scoreboard",
    "figures.py",
    "words.py",
    "claims.py",
    "rules.py",
    "parameters.py",
)  # of chapters
_SECONDS_BEFORE_NOTICE = 2.0


def encode(value: Any) -> Any:
    """Turn `value` into plain JSON types; see the module's text for the form.

    Raises
    ------
    UserError
        If a value has no JSON form here (a complex number, an object, a dict key that is not a string or is the
        tag itself).
    """
    if isinstance(value, np.ndarray | np.generic):
        return encode(value.tolist())
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return float(value)
        return {FLOAT_TAG: "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or key == FLOAT_TAG:
                raise UserError(
                    f"a cell's dict has the key {shown(key)}; keys are strings other than {FLOAT_TAG!r}"
                )
        return {key: encode(item) for key, item in value.items()}
    raise UserError(
        f"a cell cannot hold a {type(value).__name__}; give numbers, strings, lists, dicts or numpy arrays"
    )


def decode(value: Any) -> Any:
    """Undo `encode`, up to the types it does not keep apart."""
    if isinstance(value, list):
        return [decode(item) for item in value]
    if isinstance(value, dict):
        if set(value) == {FLOAT_TAG}:
            return float(value[FLOAT_TAG])
        return {key: decode(item) for key, item in value.items()}
    return value


def digest(value: Any) -> str:
    """Sha256 of the canonical JSON of an encoded value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def storable(name: str, value: Any) -> dict:
    """Rule of `checks.checked`: a dict that a cell can hold, encoded.

    Raises
    ------
    UserError
        Also for a dict that holds itself, and for whole numbers too long to be written out.
    """
    if not isinstance(value, dict):
        raise UserError(f"{name} is {shown(value)}; give a dict")
    try:
        encoded = encode(value)
        digest(encoded)
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    except (RecursionError, ValueError) as error:
        raise UserError(f"{name} cannot be written as JSON ({error}); give smaller values") from None
    return encoded


@cache
def engine_digest() -> str:
    """The engine's version and a sha256 over its sources, computed once a process.

    Covered is what decides a number (`engine_files`), not figures, words, claims, notebooks or the command line.
    """
    total = hashlib.sha256()
    for file in engine_files():
        total.update(f"{file.relative_to(_PACKAGE).as_posix()}\0".encode())
        total.update(file.read_bytes())
    return f"{__version__}+{total.hexdigest()}"


def engine_files() -> list[Path]:
    """The files whose change voids finished cells: `ENGINE_SOURCES`, without what of a chapter computes nothing."""
    found = []
    for source in ENGINE_SOURCES:
        path = _PACKAGE / source
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    rooms = _PACKAGE / "chapters"
    return [
        file
        for file in found
        if file.exists() and not (rooms in file.parents and {file.name, file.parent.name} & set(_NO_NUMBERS))
    ]


class CellStore:
    """A folder of finished cells, safe to share between runs at the same time.

    Parameters
    ----------
    folder : Path
        Made when the first cell is stored.
    """

    @checked(folder=output_folder)
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @checked(name=a_word, parameters=storable, fingerprint=a_word)
    def path(self, name: str, parameters: dict, *, fingerprint: str) -> Path:
        """The file in which this cell is or would be kept; arguments and errors as of `result`."""
        return self._file(_identity(name, parameters, fingerprint))

    @checked(name=a_word, parameters=storable, compute=an_instance(Callable), fingerprint=a_word)
    def result(self, name: str, parameters: dict, compute: Callable[[], dict], *, fingerprint: str) -> dict:
        """Return the stored result of a cell, or compute and store it.

        Two runs that want the same cell at once compute it once: the second waits for the first. A file that is
        torn, tampered with or of another cell is computed anew. An exception of `compute` stores nothing.

        Parameters
        ----------
        name : str
            What is computed, for instance "coalescence"; change it when the code of the chapter that computes it changes its meaning.
        parameters : dict
            Everything that decides the result besides the law: sizes, temperatures, seeds, caps.
        compute : callable
            Called without arguments; returns a dict of storable values.
        fingerprint : str
            Of the conditionals; changes when the law changes.

        Returns
        -------
        dict
            As `decode` gives it, whether just computed or read.

        Raises
        ------
        UserError
            If `parameters` or what `compute` returns is no dict of storable values, the name or the
            fingerprint is no text, or the folder cannot be written.
        """
        identity = _identity(name, parameters, fingerprint)
        path = self._file(identity)
        stored = _read(path, identity)
        if stored is None:
            with writing(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
            with _locked(path.with_suffix(".lock"), name):
                for leftover in self.folder.glob(f".{path.name}.*"):  # what a kill left half written
                    leftover.unlink(missing_ok=True)
                stored = _read(path, identity)
                if stored is None:
                    stored = {"identity": identity, "result": storable(f"the result of {name!r}", compute())}
                    # Not sorted: a reader of the file gets the keys of the result in the order in which they were computed.
                    write_text(path, json.dumps({**stored, "sha256": digest(stored)}, allow_nan=False) + "\n")
        return decode(stored["result"])

    def _file(self, identity: dict) -> Path:
        return self.folder / f"{digest(identity)}.json"


def _identity(name: str, parameters: dict, fingerprint: str) -> dict:
    return {
        "name": name,
        "parameters": parameters,
        "fingerprint": fingerprint,
        "engine": engine_digest(),
    }


def _read(path: Path, identity: dict) -> dict | None:
    """Return what `path` holds, without its checksum, or None unless it is whole and belongs to `identity`."""
    try:
        content = json.loads(path.read_bytes())
        claimed = content.pop("sha256")
        whole = (
            claimed == digest(content)
            and content["identity"] == identity
            and isinstance(content["result"], dict)
        )
    except (FileNotFoundError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return content if whole else None


@contextmanager
def _locked(path: Path, name: str) -> Iterator[FileLock]:
    """Hold the lock of a cell; say so if another run holds it. The system frees it when its holder dies."""
    lock = FileLock(path)
    with writing(path):
        try:
            lock.acquire(timeout=_SECONDS_BEFORE_NOTICE)
        except Timeout:
            print(f"waiting for another run that computes the cell {name!r}", file=sys.stderr)
            lock.acquire()
    try:
        yield lock
    finally:
        lock.release()

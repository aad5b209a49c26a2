"""Converted models, kept in the user's cache: a folder is there whole or not at all, whatever kills the process that makes it."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from glauber_mlm.atomic import write_json
from glauber_mlm.errors import UserError
from glauber_mlm.pretrained.wheels import sha256_of

CACHE_VARIABLE = "GLAUBER_MLM_CACHE"
_MANIFEST = "manifest.json"


def cache_folder() -> Path:
    """Where converted models are kept: $GLAUBER_MLM_CACHE, else glauber-mlm in $XDG_CACHE_HOME, else in ~/.cache."""
    given = os.environ.get(CACHE_VARIABLE)
    if given:
        return Path(given).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "glauber-mlm"


def made_once(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the cache, filled by `make` unless an intact one is there.

    Of several processes one makes it and the others wait. A folder in which a file was altered or lost is made anew.

    Parameters
    ----------
    name : str
        Says all that the content depends on.
    make : callable
        Takes an empty folder and puts files into it.

    Raises
    ------
    UserError
        If the cache cannot be written.
    """
    folder = cache_folder() / name
    if not _intact(folder):
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(folder.with_name(f"{name}.lock")):
                if not _intact(folder):
                    _make(folder, make)
        except OSError as error:
            raise UserError(
                f"cannot keep a converted model in {folder.parent} ({error.strerror or error}); set {CACHE_VARIABLE} to a folder "
                "that can be written, with a gigabyte free"
            ) from error
    return folder


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    """Fill a folder beside `folder`, then rename it. Whoever calls holds the lock."""
    for left_over in folder.parent.glob(f"{folder.name}.partial-*"):  # of a process that was killed
        shutil.rmtree(left_over)
    partial = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f"{folder.name}.partial-"))
    try:
        make(partial)
        write_json(partial / _MANIFEST, _digests(partial))
        for path in partial.iterdir():
            _flush(path)
        if folder.exists():
            shutil.rmtree(folder)
        partial.chmod(0o755)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _flush(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def _digests(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the manifest, by name."""
    return {path.name: sha256_of(path) for path in folder.iterdir() if path.name != _MANIFEST}


def _intact(folder: Path) -> bool:
    try:
        return json.loads((folder / _MANIFEST).read_text(encoding="utf-8")) == _digests(folder)
    except (OSError, ValueError):
        return False

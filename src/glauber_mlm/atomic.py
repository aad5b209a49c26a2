"""Writes that are either complete or absent, whatever kills the process; a refused one is told with its path."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from glauber_mlm import checks
from glauber_mlm.errors import UserError

LEAST_FREE = 16 * 2**20  # bytes on the disk of an output before a run begins; a chapter writes a few MB
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
# What numpy says of an array written in part, and shutil of files copied in part: both without a number.
_NO_SPACE = re.compile(
    rf"requested and \d+ written|Not enough free space to write|\[Errno ({'|'.join(map(str, sorted(_FULL)))})\]"
)
_REFUSED = {
    errno.EROFS: "the file system is read-only; choose another place",
    errno.EACCES: "permission is refused; choose another place, or change its permissions",
    errno.EPERM: "permission is refused; choose another place, or change its permissions",
    errno.ENOTDIR: "a part of that path is a file; choose another place",
    errno.EEXIST: "a part of that path is a file; choose another place",
    errno.EISDIR: "it is a folder; choose another place, or remove the folder",
    errno.ENOTEMPTY: "it is a folder; choose another place, or remove the folder",
    errno.ENAMETOOLONG: "its name is too long; choose a shorter one",
    errno.ELOOP: "links in that path lead in a circle; choose another place",
}


def refusal(error: OSError, path: Path | str | None) -> UserError | None:
    """What to tell of a failed write: None if `error` is none that the user can mend.

    Parameters
    ----------
    error : OSError
    path : Path, str or None
        What was to be written; None if nobody knows.
    """
    place = path or "the standard output, or a file that the system did not name"
    if error.errno in _FULL or (error.errno is None and is_full(str(error))):
        return UserError(
            f"cannot write {place}: no space left on its disk; free some and run the same command again, "
            "which goes on from there"
        )
    reason = _REFUSED.get(error.errno)
    return UserError(f"cannot write {place}: {reason}") if reason else None


def is_full(text: str) -> bool:
    """Whether an error's text, as it comes out of another process, tells of a full disk."""
    return _NO_SPACE.search(text) is not None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Tell of a write of `path` that the disk refuses as a UserError that names the path.

    Raises
    ------
    UserError
        For a full or read-only disk, missing permissions, and a path that is a folder or lies in a file.
    """
    try:
        yield
    except OSError as error:
        told = refusal(error, path)
        if told is None:
            raise
        raise told from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; rename it to `path` on success.

    The data is flushed to the disk before the rename, so that after a power cut or a `kill -9`
    the reader finds the old file or the new one, never a torn one. On an exception the temporary
    file is removed and `path` is left as it was.

    Parameters
    ----------
    path : Path
        The file to write. Its folder is made if it is missing.

    Raises
    ------
    UserError
        If the disk refuses; see `writing`.
    """
    path = Path(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=path.suffix)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write `content` to `path`, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8, atomically."""
    write_bytes(path, text.encode("utf-8"))


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, atomically; NaN and infinity are refused."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n")


def output_folder(name: str, value: Any) -> Path:
    """`value` as the path of a folder that a long run may write to; nothing is made.

    Raises
    ------
    UserError
        If it cannot be a folder, refuses files, or its disk has less than `LEAST_FREE` bytes left.
    """
    folder = checks.path(name, value)
    with writing(folder):
        checks.writable_folder(name, folder)
        there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
        free = shutil.disk_usage(there).free
        if any(len(os.fsencode(part)) > os.pathconf(there, "PC_NAME_MAX") for part in folder.parts):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
    if free < LEAST_FREE:
        raise UserError(
            f"{name} {folder}: no space left on its disk ({free / 2**20:.1f} MiB free, at least "
            f"{LEAST_FREE // 2**20} needed); free some or choose another place"
        )
    return folder


def output_file(name: str, value: Any) -> Path:
    """`value` as the path of a file that a long run may write or replace; nothing is made.

    Raises
    ------
    UserError
        If it is a folder, or its folder is none that `output_folder` takes.
    """
    file = checks.path(name, value)
    with writing(file):
        if file.is_dir():
            raise UserError(f"{name} {file} is a folder; give the path of a file")
    output_folder(f"the folder of {name}", file.parent)
    return file

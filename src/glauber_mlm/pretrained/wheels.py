"""Files of installed packages, found by the packages' metadata and checked by SHA-256. Nothing is imported."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from glauber_mlm.errors import UserError
from glauber_mlm.pretrained.registry import Pretrained


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def installed_files(entry: Pretrained) -> list[Path]:
    """The files of `entry`, in its order, as they lie in the installed package.

    Raises
    ------
    UserError
        If the package is absent or of another version, or a file is absent, unreadable or altered; with the command that mends it.
    """
    fault = fault_of(entry)
    if fault:
        raise UserError(f"model {entry.name}: {fault}; run '{entry.command}'")
    found = distribution(entry.project)
    return [Path(str(found.locate_file(file.path))) for file in entry.files]


def fault_of(entry: Pretrained) -> str:
    """What keeps the files of `entry` from being used, in a few words; empty if nothing does."""
    try:
        found = distribution(entry.project)
    except PackageNotFoundError:
        return f"the package {entry.wheel} is not installed"
    if found.version != entry.version:
        return f"version {found.version} of {entry.project} is installed, not {entry.version}"
    for file in entry.files:
        try:
            altered = sha256_of(Path(str(found.locate_file(file.path)))) != file.sha256
        except OSError as error:
            return f"{file.path} of {entry.wheel} cannot be read ({error.strerror})"
        if altered:
            return f"{file.path} is not the file that {entry.wheel} carries (its SHA-256 differs)"
    return ""

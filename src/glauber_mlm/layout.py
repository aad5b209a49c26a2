"""Where things are in a clone of the repository.

Tracked files are `_config.yml`, `_toc.yml` and `book/`. Everything that a run writes is under `_build/<profile>/`.
"""

from __future__ import annotations

import re
from pathlib import Path

from glauber_mlm import checks
from glauber_mlm.errors import UserError

MARK = "_toc.yml"
REFERENCE = "reference"  # the build folder of `glauber-mlm html`; no profile may have this name
_NAME = re.compile(r"[A-Za-z0-9_-]+")


def find_repository_root(start: Path | None = None) -> Path | None:
    """The nearest folder at or above `start` (default: the working directory) that holds `_toc.yml`, or None."""
    start = Path.cwd() if start is None else checks.path("start", start).resolve()
    return next((folder for folder in (start, *start.parents) if (folder / MARK).is_file()), None)


def repository_root(start: Path | None = None) -> Path:
    """Like `find_repository_root`, for commands that make no sense elsewhere.

    Raises
    ------
    UserError
        If there is no such folder.
    """
    root = find_repository_root(start)
    if root is None:
        raise UserError(
            f"no {MARK} in {start or Path.cwd()} or above it; run this inside a clone of the repository"
        )
    return root


def script_path(root: Path, stem: str) -> Path:
    """The py:percent source of a chapter; its `.ipynb` twin lies beside it."""
    return root / "book" / f"{stem}.py"


def build_folder(root: Path, profile: str) -> Path:
    """The folder that a run under `profile` writes to, and nothing else does.

    Raises
    ------
    UserError
        If `profile` is no name: with a slash in it, it would be a folder elsewhere.
    """
    if not isinstance(profile, str) or not _NAME.fullmatch(profile):
        raise UserError(
            f"unknown profile {checks.shown(profile)}; give the name of a profile: letters, digits, _ and - only"
        )
    return root / "_build" / profile


def executed_path(folder: Path, stem: str) -> Path:
    """The executed notebook of a chapter in a build folder."""
    return folder / "notebooks" / f"{stem}.ipynb"


def profile_path(root: Path, profile: str, stem: str) -> Path:
    """The flat YAML file of parameters of a chapter under a profile (what `papermill -f` reads)."""
    return root / "book" / "profiles" / profile / f"{stem}.yaml"


def profiles(root: Path) -> list[str]:
    """Names of the profiles that the repository holds."""
    return sorted(folder.name for folder in (root / "book" / "profiles").glob("*") if folder.is_dir())

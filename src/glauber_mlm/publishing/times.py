"""Run times of chapters: kept beside a run, never inside a notebook, whose outputs must not change with the clock."""

from __future__ import annotations

import json
from pathlib import Path

from glauber_mlm import checks
from glauber_mlm.atomic import write_json
from glauber_mlm.errors import UserError


def times_path(folder: Path) -> Path:
    """Where the run times of a build folder are kept."""
    return checks.path("folder", folder) / "times.json"


def read_times(folder: Path) -> dict[str, float]:
    """Run times in seconds by chapter name; empty if none was run in this build folder.

    Raises
    ------
    UserError
        If the file holds anything else.
    """
    path = times_path(folder)
    try:
        times = json.loads(path.read_text(encoding="utf-8"))
        return {name: checks.number(name, seconds, 0) for name, seconds in times.items()}
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, AttributeError) as error:
        raise UserError(
            f"{path} holds no run times of chapters ({getattr(error, 'strerror', None) or error}); remove it, and each "
            "run will note its time anew"
        ) from error


def note_time(folder: Path, name: str, seconds: float) -> None:
    """Record the run time of a chapter, in seconds to a tenth.

    Raises
    ------
    UserError
        If `seconds` is no finite number from 0 on, or the file there cannot be read or written.
    """
    found = {checks.word("name", name): round(checks.number("seconds", seconds, 0), 1)}
    write_json(times_path(folder), {**read_times(folder), **found})


def format_seconds(seconds: float) -> str:
    """A duration for people: `7.3 s`, `2 min 05 s`.

    Raises
    ------
    UserError
        If `seconds` is no finite number from 0 on.
    """
    seconds = checks.number("seconds", seconds, 0)
    return f"{seconds:.1f} s" if seconds < 60 else "{} min {:02d} s".format(*divmod(round(seconds), 60))

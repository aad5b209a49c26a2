"""Run times of chapters: kept beside a run, never inside a notebook, whose outputs must not change with the clock."""

from __future__ import annotations

import json
from pathlib import Path

from glauber_mlm.atomic import write_json


def read_times(folder: Path) -> dict[str, float]:
    """Run times in seconds by chapter name; empty if none was run in this build folder."""
    try:
        return json.loads((folder / "times.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return {}


def note_time(folder: Path, name: str, seconds: float) -> None:
    """Record the run time of a chapter, in seconds to a tenth."""
    write_json(folder / "times.json", {**read_times(folder), name: round(seconds, 1)})


def format_seconds(seconds: float) -> str:
    """A duration for people: `7.3 s`, `2 min 05 s`."""
    return f"{seconds:.1f} s" if seconds < 60 else "{} min {:02d} s".format(*divmod(round(seconds), 60))

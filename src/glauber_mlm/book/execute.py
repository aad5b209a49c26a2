"""Running chapters: from a script to an executed notebook under `_build/<profile>/`.

A run writes nothing outside its build folder. Parameters are checked before a kernel starts. A chapter that
fails leaves its notebook as far as it came; one that is interrupted can be run again and reuses its finished cells.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import yaml

from glauber_mlm.atomic import write_text
from glauber_mlm.book.layout import (
    build_folder,
    executed_path,
    profile_path,
    profiles,
    repository_root,
    script_path,
)
from glauber_mlm.book.pairing import read_script, store_outputs, twin_path
from glauber_mlm.book.parameters import CHAPTERS, ChapterSpec, chapter_spec, nearest, validate
from glauber_mlm.book.times import format_seconds, note_time, read_times
from glauber_mlm.errors import UserError

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class ChapterFailed(UserError):
    """A chapter's notebook ended in an error."""


def chapter_parameters(
    name: str, profile: str, overrides: Mapping[str, Any], root: Path, folder: Path
) -> dict[str, Any]:
    """The parameters that papermill injects: the profile's file, then `overrides`, then where and under what name it runs.

    Raises
    ------
    UserError
        If the profile is unknown or its file is not a flat mapping, or a parameter is unknown, of a wrong type or out of range.
    """
    spec = chapter_spec(name)
    if profile not in profiles(root):
        raise UserError(
            f"unknown profile {profile!r}{nearest(profile, profiles(root))} profiles: {', '.join(profiles(root)) or 'none'}"
        )
    if "profile" in overrides:
        raise UserError("the parameter 'profile' is given with --profile")
    path = profile_path(root, profile, spec.stem)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (FileNotFoundError, yaml.YAMLError) as error:
        raise UserError(f"cannot read the profile file {path}: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} is not a mapping of parameter names to values")
    merged = {"output": _relative(folder / "results", root), **values, **overrides, "profile": profile}
    validate(spec.name, merged)
    return merged


def run_chapter(
    name: str,
    profile: str = "cpu",
    overrides: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    *,
    root: Path | None = None,
) -> Path:
    """Execute one chapter.

    Parameters
    ----------
    name : str
        Name or stem of the chapter.
    profile : str
        A folder of `book/profiles/`.
    overrides : mapping, optional
        Parameters that differ from the profile's.
    folder : Path, optional
        Build folder; default `_build/<profile>`. Receives `inputs/`, `notebooks/`, `results/`, `logs/` and `times.json`.
    root : Path, optional
        Root of the repository; found from the working directory by default.

    Returns
    -------
    Path
        The executed notebook.

    Raises
    ------
    UserError
        If the parameters are bad (before a kernel starts) or the script cannot be read.
    ChapterFailed
        If the notebook raises; names the chapter, the error and the log.
    KeyboardInterrupt
        If the run was interrupted.
    """
    root = repository_root() if root is None else root
    folder = build_folder(root, profile) if folder is None else Path(folder)
    spec = chapter_spec(name)
    parameters = chapter_parameters(name, profile, overrides or {}, root, folder)
    source = folder / "inputs" / f"{spec.stem}.ipynb"
    write_text(source, nbformat.writes(read_script(script_path(root, spec.stem))) + "\n")
    output = executed_path(folder, spec.stem)
    output.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    _execute(spec, source, output, parameters, root, folder)
    note_time(folder, spec.name, time.monotonic() - started)
    return output


def run_book(profile: str = "cpu", *, root: Path | None = None) -> Path:
    """Execute all chapters in order, the scoreboard last, and build the site; print run times and the site's path.

    Returns
    -------
    Path
        The site's `index.html`.

    Raises
    ------
    UserError
        As `run_chapter`, at the first chapter that fails; or if the site does not build.
    """
    from glauber_mlm.book.site import build_site

    root = repository_root() if root is None else root
    for name in CHAPTERS:
        chapter_parameters(name, profile, {}, root, build_folder(root, profile))
    for number, spec in enumerate(CHAPTERS.values(), start=1):
        print(f"[{number}/{len(CHAPTERS)}] {spec.title}", file=sys.stderr, flush=True)
        run_chapter(spec.name, profile, root=root)
    print("building the site", file=sys.stderr, flush=True)
    page = build_site(profile, root=root)
    times = read_times(build_folder(root, profile))
    for spec in CHAPTERS.values():
        print(f"{spec.title:<20} {format_seconds(times[spec.name])}")
    print(f"{'all chapters':<20} {format_seconds(sum(times[name] for name in CHAPTERS))}")
    print(f"site: {_relative(page, Path.cwd())}")
    return page


def refresh_reference(*, root: Path | None = None) -> dict[Path, bool]:
    """Execute all chapters under the `cpu` profile and, if all succeed, store their outputs in the twins.

    Returns
    -------
    dict of Path to bool
        Whether each twin changed.
    """
    root = repository_root() if root is None else root
    executed = {spec.stem: run_chapter(name, "cpu", root=root) for name, spec in CHAPTERS.items()}
    scripts = {stem: script_path(root, stem) for stem in executed}
    return {
        twin_path(scripts[stem]): store_outputs(scripts[stem], path, "cpu") for stem, path in executed.items()
    }


def _execute(
    spec: ChapterSpec, source: Path, output: Path, parameters: dict[str, Any], root: Path, folder: Path
) -> None:
    import papermill
    from nbclient.exceptions import DeadKernelError

    from glauber_mlm.book.kernel import own_kernel_manager

    log = folder / "logs" / f"{spec.stem}.log"
    log.unlink(missing_ok=True)
    manager = own_kernel_manager(log.with_suffix(".kernel.log"))
    try:
        papermill.execute_notebook(
            str(source),
            str(output),
            parameters=parameters,
            kernel_name="python3",
            language="python",
            cwd=str(root),
            progress_bar={"desc": spec.name, "unit": "cell"},
            kernel_manager_class=manager,
        )
    except papermill.PapermillExecutionError as error:
        write_text(log, _ANSI.sub("", str(error)).strip() + "\n")
        reason = f"{error.ename}: {error.evalue}".strip().splitlines()[0]
        raise ChapterFailed(
            f"chapter {spec.name} failed ({reason}); log: {_relative(log, root)}, notebook so far: {_relative(output, root)}"
        ) from None
    except DeadKernelError as error:
        if manager.stopped:  # by a signal: nbclient then stops the kernel and finds it dead
            raise KeyboardInterrupt from None
        write_text(log, f"{error}\n")
        raise ChapterFailed(
            f"chapter {spec.name} lost its kernel (killed, perhaps for want of memory); log: {_relative(log, root)}"
        ) from None


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)

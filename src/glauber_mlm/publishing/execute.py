"""Running chapters: from a script to an executed notebook under `_build/<profile>/`.

A run writes nothing outside its build folder. Parameters are checked before a kernel starts. A chapter that
fails leaves its notebook as far as it came; one that is interrupted can be run again and reuses its finished cells.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
import yaml

from glauber_mlm import checks
from glauber_mlm.atomic import is_full, output_file, output_folder, refusal, write_text, writing
from glauber_mlm.chapters.base.chapter import results_folder
from glauber_mlm.chapters.base.parameters import CHAPTERS, ChapterSpec, chapter_spec, validate
from glauber_mlm.errors import UserError
from glauber_mlm.layout import (
    build_folder,
    executed_path,
    profile_path,
    profiles,
    repository_root,
    script_path,
)
from glauber_mlm.publishing.pairing import read_script, store_outputs, twin_path
from glauber_mlm.publishing.times import format_seconds, note_time, read_times, times_path

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


class ChapterFailed(UserError):
    """A chapter's notebook ended in an error."""


@dataclass(frozen=True)
class _Run:
    """A run of a chapter in which everything that can be known before a kernel starts was looked at."""

    spec: ChapterSpec
    parameters: dict[str, Any]
    notebook: nbformat.NotebookNode
    root: Path
    folder: Path

    @property
    def source(self) -> Path:
        return self.folder / "inputs" / f"{self.spec.stem}.ipynb"

    @property
    def output(self) -> Path:
        return executed_path(self.folder, self.spec.stem)

    @property
    def log(self) -> Path:
        return self.folder / "logs" / f"{self.spec.stem}.log"

    @property
    def kernel_log(self) -> Path:
        return self.log.with_suffix(".kernel.log")


class _UniqueKeys(yaml.SafeLoader):
    """YAML as papermill reads it, in which no name stands twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = next((key for number, key in enumerate(keys) if key in keys[:number]), None)
        if twice is not None:
            raise yaml.constructor.ConstructorError(None, None, f"{twice!r} stands twice", node.start_mark)
        return super().construct_mapping(node, deep)


def _profile_values(path: Path) -> dict[str, Any]:
    """The parameters in a profile's file."""
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as error:
        raise UserError(
            f"cannot read the profile file {path}: {error}; write one line `name: value` a parameter"
        ) from error
    values = {} if values is None else values
    if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
        raise UserError(
            f"the profile file {path} is not a mapping of parameter names to values; write one line `name: value` a "
            "parameter"
        )
    named = values.get("profile", path.parent.name)
    if named != path.parent.name:
        raise UserError(
            f"the profile file {path} gives the profile {checks.shown(named)}, but lies in the folder of "
            f"{path.parent.name!r}; write that name"
        )
    return values


def chapter_parameters(
    name: str, profile: str, overrides: Mapping[str, Any], root: Path, folder: Path
) -> dict[str, Any]:
    """The parameters that papermill injects: the profile's file, then `overrides`, then where and under what name it runs.

    Raises
    ------
    UserError
        If the profile is unknown or its file is not a flat mapping, or a parameter is unknown, of a wrong type or out of range.
    """
    spec, root, folder = chapter_spec(name), checks.path("root", root), checks.path("folder", folder)
    known = profiles(root)
    if not isinstance(profile, str) or profile not in known:
        raise UserError(
            f"unknown profile {profile!r}{checks.nearest(profile, known)} profiles: {', '.join(known) or 'none'}"
        )
    if not isinstance(overrides, Mapping) or not all(isinstance(key, str) for key in overrides):
        raise UserError(
            f"overrides is {checks.shown(overrides)}; give a mapping of parameter names to values"
        )
    if "profile" in overrides:
        raise UserError("the parameter 'profile' is given with --profile")
    file = profile_path(root, profile, spec.stem)
    values = _profile_values(file)
    given = {"output": _relative(folder / "results", root), **values, **overrides, "profile": profile}
    try:
        validate(spec.name, given)
    except UserError as error:
        raise UserError(f"{error}{_if_at_fault(spec, values, file)}") from None
    return given


def _if_at_fault(spec: ChapterSpec, values: Mapping[str, Any], file: Path) -> str:
    """The name of the profile's file, if its values alone are refused too."""
    try:
        validate(spec.name, values)
    except UserError:
        return f"; see {file}"
    return ""


def _prepared(
    name: str, profile: str, overrides: Mapping[str, Any] | None, root: Path, folder: Path | None = None
) -> _Run:
    """Look at everything that decides whether a run of a chapter can begin and can write what it finds.

    Raises
    ------
    UserError
        For a bad parameter, a script that cannot be read, a device that is not there, and a place that is no folder,
        refuses files or has no space left.
    """
    spec = chapter_spec(name)
    folder = build_folder(root, profile) if folder is None else checks.path("folder", folder)
    parameters = chapter_parameters(name, profile, {} if overrides is None else overrides, root, folder)
    run = _Run(spec, parameters, read_script(script_path(root, spec.stem)), root, folder)
    _check_device(spec, parameters.get("device", "cpu"))
    for file in (run.source, run.output, run.log, run.kernel_log, times_path(folder)):
        output_file("output", file)
    results = results_folder(parameters["output"], root)
    output_file("output", results / f"{spec.name}.json")
    for part in (spec.name, "ledger", "cells"):
        output_folder("output", results / part)
    read_times(folder)
    return run


def _check_device(spec: ChapterSpec, device: str) -> None:
    """Count devices and touch none: a context on a GPU would take its memory from the kernel's."""
    if device == "cpu":
        return
    import torch

    there = torch.cuda.device_count()
    if int(device.partition(":")[2] or 0) >= there:
        last = f"the last one here is 'cuda:{there - 1}'" if there else "torch finds no CUDA device here"
        raise UserError(
            f"parameter 'device' of chapter {spec.name}: {device!r} is not there; {last}, "
            "and 'cpu' always works"
        )


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
        If the parameters are bad, the device is not there, the script cannot be read or the outputs cannot be written
        (all before a kernel starts), or if the disk fills midway.
    ChapterFailed
        If the notebook raises; names the chapter, the error and the log.
    KeyboardInterrupt
        If the run was interrupted.
    """
    run = _prepared(name, profile, overrides, _root(root), folder)
    write_text(run.source, nbformat.writes(run.notebook) + "\n")
    with writing(run.output):
        run.output.parent.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    _execute(run)
    note_time(run.folder, run.spec.name, time.monotonic() - started)
    return run.output


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
    from glauber_mlm.publishing.site import build_site, check_site

    root = _root(root)
    for name in CHAPTERS:
        _prepared(name, profile, {}, root)
    check_site(root, build_folder(root, profile))
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
    root = _root(root)
    scripts = {spec.stem: script_path(root, spec.stem) for spec in CHAPTERS.values()}
    for name, spec in CHAPTERS.items():
        _prepared(name, "cpu", {}, root)
        output_file("the twin", twin_path(scripts[spec.stem]))
    executed = {spec.stem: run_chapter(name, "cpu", root=root) for name, spec in CHAPTERS.items()}
    return {
        twin_path(scripts[stem]): store_outputs(scripts[stem], path, "cpu") for stem, path in executed.items()
    }


def _root(given: Path | None) -> Path:
    return repository_root() if given is None else checks.path("root", given)


def _execute(run: _Run) -> None:
    import papermill
    from nbclient.exceptions import DeadKernelError

    from glauber_mlm.publishing.kernel import own_kernel_manager

    run.log.unlink(missing_ok=True)
    manager = own_kernel_manager(run.kernel_log)
    try:
        papermill.execute_notebook(
            str(run.source),
            str(run.output),
            parameters=run.parameters,
            kernel_name="python3",
            language="python",
            cwd=str(run.root),
            progress_bar={"desc": run.spec.name, "unit": "cell"},
            kernel_manager_class=manager,
        )
    except papermill.PapermillExecutionError as error:
        told = _logged(run, _ANSI.sub("", str(error)).strip())
        raise ChapterFailed(
            f"chapter {run.spec.name} failed ({_reason(error)}); {told}, notebook so far: {_relative(run.output, run.root)}"
        ) from None
    except DeadKernelError as error:
        if manager.stopped:  # by a signal: nbclient then stops the kernel and finds it dead
            raise KeyboardInterrupt from None
        raise ChapterFailed(
            f"chapter {run.spec.name} lost its kernel (killed, perhaps for want of memory); {_logged(run, str(error))}"
        ) from None
    except OSError as error:  # papermill's own writes: the notebook so far, the kernel's connection file
        told = refusal(error, error.filename or run.output)
        if told is None:
            raise
        raise ChapterFailed(f"chapter {run.spec.name} was stopped: {told}") from None
    except RuntimeError as error:
        raise ChapterFailed(
            f"the kernel of chapter {run.spec.name} did not start ({error}); log: {_relative(run.kernel_log, run.root)}"
        ) from None


def _reason(error: Any) -> str:
    """What a notebook's error says: its first line that is not empty, and of a full disk what to do."""
    lines = [line.strip() for line in str(error.evalue).splitlines() if line.strip()]
    if str(error.ename).endswith("Error") and is_full(str(error.evalue)):
        lines = [
            f"{' '.join(lines)}: no space left; free some and run the same command again, which goes on from "
            "there"
        ]
    return ": ".join((error.ename, *lines[:1]))


def _logged(run: _Run, text: str) -> str:
    """Write a run's log; say where it is, or why there is none, which must not hide why the chapter failed."""
    try:
        write_text(run.log, f"{text}\n")
    except UserError as error:
        return f"without a log: {error}"
    return f"log: {_relative(run.log, run.root)}"


def _relative(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)

"""Running chapters: parameters first, one real kernel, and every way in which a run ends."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import nbformat
import papermill
import pytest
from nbclient.exceptions import DeadKernelError
from small_book import fail, succeed, write_book

import glauber_mlm
from glauber_mlm.chapters.base.parameters import CHAPTERS
from glauber_mlm.errors import UserError
from glauber_mlm.publishing import execute, site
from glauber_mlm.publishing.execute import (
    ChapterFailed,
    chapter_parameters,
    refresh_reference,
    run_book,
    run_chapter,
)
from glauber_mlm.publishing.pairing import differences


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A repository of five stand-in chapters and one profile, in which the tests stand."""
    write_book(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tracked(root: Path) -> dict[Path, bytes]:
    return {
        path: path.read_bytes() for path in root.rglob("*") if path.is_file() and "_build" not in path.parts
    }


def executed_by(monkeypatch, effect) -> list[str]:
    """Replace papermill's execution by `effect(source, output, **options)`; return the list of executed stems."""
    ran = []

    def stand_in(source, output, **options):
        ran.append(Path(source).stem)
        effect(source, output, **options)

    monkeypatch.setattr(papermill, "execute_notebook", stand_in)
    return ran


def test_a_chapter_runs_in_this_interpreter_and_writes_to_the_build_folder_only(root, monkeypatch):
    decoy = root / "_build" / "decoy" / "kernels" / "python3" / "kernel.json"
    decoy.parent.mkdir(parents=True)
    decoy.write_text(
        json.dumps(
            {"argv": ["/bin/false", "{connection_file}"], "display_name": "decoy", "language": "python"}
        )
    )
    monkeypatch.setenv("JUPYTER_PATH", str(root / "_build" / "decoy"))
    monkeypatch.setenv(
        "PYTHONPATH",
        os.pathsep.join([str(Path(glauber_mlm.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]),
    )
    before = tracked(root)
    output = run_chapter("rectangle_test", "smoke")
    assert output == root / "_build" / "smoke" / "notebooks" / "02_rectangle_test.ipynb"
    notebook = nbformat.read(output, as_version=4)
    assert notebook.cells[-1].outputs[0].text.strip() == sys.executable
    results = json.loads((root / "_build" / "smoke" / "results" / "rectangle_test.json").read_text())
    assert results["headlines"] == {"seed": 5} and results["parameters"]["profile"] == "smoke"
    assert json.loads((root / "_build" / "smoke" / "times.json").read_text())["rectangle_test"] > 0
    assert tracked(root) == before


def test_parameters_come_from_profile_and_overrides(root):
    folder = root / "_build" / "smoke"
    given = chapter_parameters("rectangle_test", "smoke", {"length": 4}, root, folder)
    assert given == {"output": "_build/smoke/results", "seed": 5, "length": 4, "profile": "smoke"}
    assert (
        chapter_parameters("02_rectangle_test", "smoke", {"seed": 6, "output": "x"}, root, folder)["output"]
        == "x"
    )


@pytest.mark.parametrize(
    ("name", "profile", "overrides", "expected"),
    [
        (
            "rectangle_test",
            "smoke",
            {"sed": 7},
            "unknown parameter 'sed' of chapter rectangle_test; did you mean 'seed'?",
        ),
        ("rectangle_test", "smoke", {"seed": "7"}, "parameter 'seed' of chapter rectangle_test"),
        ("rectangle_test", "smke", {}, "unknown profile 'smke'; did you mean 'smoke'? profiles: cpu, smoke"),
        ("rectangle_test", "smoke", {"profile": "cpu"}, "the parameter 'profile' is given with --profile"),
        ("rectangel", "smoke", {}, "unknown chapter 'rectangel'; did you mean 'rectangle_test'?"),
    ],
)
def test_bad_parameters_are_refused_before_a_kernel_starts(
    root, monkeypatch, name, profile, overrides, expected
):
    ran = executed_by(monkeypatch, succeed)
    with pytest.raises(UserError) as caught:
        run_chapter(name, profile, overrides)
    assert str(caught.value).startswith(expected) and ran == [] and not (root / "_build").exists()


@pytest.mark.parametrize("text", ["- 1", "a: [", None])
def test_a_bad_profile_file_is_told(root, text):
    path = root / "book" / "profiles" / "smoke" / "02_rectangle_test.yaml"
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises(UserError, match=str(path)) as caught:
        chapter_parameters("rectangle_test", "smoke", {}, root, root / "_build" / "smoke")
    assert "\n" not in str(caught.value)


def test_a_failed_chapter_is_named_with_its_log_and_stops_the_book(root, monkeypatch):
    ran = executed_by(
        monkeypatch,
        lambda source, output, **options: (fail if "02" in output else succeed)(source, output, **options),
    )
    with pytest.raises(ChapterFailed) as caught:
        run_book("smoke")
    log = "_build/smoke/logs/02_rectangle_test.log"
    assert str(caught.value).startswith(
        f"chapter rectangle_test failed (ValueError: bad luck); log: {log}, notebook so far: _build/smoke/notebooks/02"
    )
    assert "ValueError: bad luck" in (root / log).read_text() and "\x1b" not in (root / log).read_text()
    assert ran == ["01_theory_checks", "02_rectangle_test"]


def test_a_bad_profile_stops_the_book_before_its_first_chapter(root, monkeypatch):
    ran = executed_by(monkeypatch, succeed)
    (root / "book" / "profiles" / "smoke" / "05_scoreboard.yaml").write_text("sed: 1\n")
    with pytest.raises(UserError, match="unknown parameter 'sed' of chapter scoreboard"):
        run_book("smoke")
    assert ran == []


@pytest.mark.parametrize(("stopped", "expected"), [(True, KeyboardInterrupt), (False, ChapterFailed)])
def test_a_stopped_kernel_is_an_interruption_and_a_dead_one_a_failure(root, monkeypatch, stopped, expected):
    def die(source, output, **options):
        options["kernel_manager_class"].stopped = stopped
        raise DeadKernelError("Kernel died")

    executed_by(monkeypatch, die)
    with pytest.raises(expected):
        run_chapter("rectangle_test", "smoke")
    assert not (root / "_build" / "smoke" / "times.json").exists()


def test_the_book_runs_all_chapters_in_order_and_tells_times_and_site(root, monkeypatch, capsys):
    ran = executed_by(monkeypatch, succeed)
    monkeypatch.setattr(site, "build", lambda root, folder, notebooks, status: folder / "site" / "index.html")
    run_book("smoke")
    assert ran == [spec.stem for spec in CHAPTERS.values()]
    output = capsys.readouterr().out.splitlines()
    assert output[-1] == "site: _build/smoke/site/index.html"
    assert [line.rsplit("  ", 1)[0].strip() for line in output[:-1]] == [
        *(spec.title for spec in CHAPTERS.values()),
        "all chapters",
    ]


def test_the_reference_is_stored_only_if_all_chapters_succeed(root, monkeypatch):
    executed_by(
        monkeypatch,
        lambda source, output, **options: (fail if "05" in output else succeed)(source, output, **options),
    )
    before = tracked(root)
    with pytest.raises(ChapterFailed):
        refresh_reference()
    assert tracked(root) == before
    executed_by(monkeypatch, succeed)
    assert set(refresh_reference().values()) == {True} and set(refresh_reference().values()) == {False}
    assert [differences(script) for script in sorted((root / "book").glob("*.py"))] == [[]] * 5


def test_the_log_of_an_earlier_failure_goes(root, monkeypatch):
    executed_by(monkeypatch, fail)
    with pytest.raises(ChapterFailed):
        run_chapter("rectangle_test", "smoke")
    executed_by(monkeypatch, succeed)
    run_chapter("rectangle_test", "smoke")
    assert not (root / "_build" / "smoke" / "logs" / "02_rectangle_test.log").exists()
    assert execute.read_times(root / "_build" / "smoke").keys() == {"rectangle_test"}

"""What can be known before a run starts is told then; a disk that fills midway is told with its path."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import nbformat
import numpy as np
import papermill
import pytest
import torch
from small_book import HEADER, succeed, write_book
from tiny_corpus import write_news
from tiny_models import BUILDERS, randomise, wordpiece

from glauber_mlm import atomic, bench, cli
from glauber_mlm.chapters.base.chapter import open_chapter
from glauber_mlm.chapters.base.ledger import read_ledger
from glauber_mlm.chapters.base.parameters import CHAPTERS
from glauber_mlm.errors import UserError
from glauber_mlm.publishing import site
from glauber_mlm.publishing.execute import ChapterFailed, refresh_reference, run_book, run_chapter
from glauber_mlm.publishing.times import note_time, read_times
from glauber_mlm.runs.cells import CellStore
from glauber_mlm.training import card, corpus
from glauber_mlm.training import recipe as training
from glauber_mlm.training.recipe import Recipe, train

ROOT = Path(__file__).parents[1]
NAME, STEM = "rectangle_test", "02_rectangle_test"
SMALL = Recipe(steps=4, batch=4, length=16, short_length=9, rank=2, alpha=4, held_out_share=0.3)
CUDA = torch.cuda.device_count()


@contextmanager
def disk(folder: Path, options: str) -> Iterator[Path]:
    """A disk of its own at `folder`, where this machine lets the tests mount one."""
    folder.mkdir(parents=True)
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def enlarge(folder: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of five stand-in chapters, in which the tests stand."""
    folder = write_book(tmp_path / "book of chapters")
    monkeypatch.chdir(folder)
    path = [str(Path(atomic.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    return folder


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The chapters for which a kernel would have been started."""
    started = []

    def start(source: str, output: str, **options: object) -> None:
        started.append(Path(source).stem)
        succeed(source, output, **options)

    monkeypatch.setattr(papermill, "execute_notebook", start)
    return started


def told(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    """The one line that the command line says of bad input."""
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("glauber-mlm: ")]
    assert ended.value.code == 2 and len(lines) == 1
    return lines[0]


def a_file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("a file")
    return path


def a_folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def a_circle(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(path)
    return path


# Places of a run.

SPOILT = {
    "the build folder is a file": ("_build/smoke", a_file),
    "the build folder lies in a file": ("_build", a_file),
    "the folder of inputs is a file": ("_build/smoke/inputs", a_file),
    "the folder of notebooks is a file": ("_build/smoke/notebooks", a_file),
    "the folder of logs is a file": ("_build/smoke/logs", a_file),
    "the results folder is a file": ("_build/smoke/results", a_file),
    "the folder of cells is a file": ("_build/smoke/results/cells", a_file),
    "the ledger is a file": ("_build/smoke/results/ledger", a_file),
    "the chapter's folder is a file": (f"_build/smoke/results/{NAME}", a_file),
    "the chapter's record is a folder": (f"_build/smoke/results/{NAME}.json", a_folder),
    "the notebook is a folder": (f"_build/smoke/notebooks/{STEM}.ipynb", a_folder),
    "the input is a folder": (f"_build/smoke/inputs/{STEM}.ipynb", a_folder),
    "the log is a folder": (f"_build/smoke/logs/{STEM}.log", a_folder),
    "the kernel's log is a folder": (f"_build/smoke/logs/{STEM}.kernel.log", a_folder),
    "the run times are a folder": ("_build/smoke/times.json", a_folder),
    "the results folder is a link to itself": ("_build/smoke/results", a_circle),
}


@pytest.mark.parametrize("label", SPOILT)
def test_a_place_that_cannot_be_written_is_told_before_a_kernel_starts(root, kernels, capsys, label):
    place, spoil = SPOILT[label]
    spoil(root / place)
    line = told(capsys, "run", NAME, "--profile", "smoke")
    assert place in line and kernels == []


@pytest.mark.parametrize("command", ["book", "run"])
def test_an_output_that_is_a_file_is_told_by_its_name(root, kernels, capsys, command):
    a_file(root / "results.txt")
    for spec in CHAPTERS.values():
        (root / "book" / "profiles" / "smoke" / f"{spec.stem}.yaml").write_text("output: results.txt/here\n")
    arguments = (command, NAME) if command == "run" else (command,)
    line = told(capsys, *arguments, "--profile", "smoke")
    assert "results.txt is a file; choose another place" in line and kernels == []


@pytest.mark.parametrize("output", ["x" * 300, "a/" + "b" * 256 + "/c", "a\0b"])
def test_an_output_that_is_no_path_of_this_system_is_told(root, kernels, output):
    with pytest.raises(UserError, match="too long|give a path|should be results folder"):
        run_chapter(NAME, "smoke", {"output": output})
    assert kernels == []


def test_a_read_only_output_is_told(root, kernels, capsys):
    with disk(root / "sealed", "ro,size=64m"):
        line = told(capsys, "run", NAME, "--profile", "smoke", "-p", "output", "sealed/results")
    assert "sealed" in line and "refuses files" in line and kernels == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_an_output_without_permission_is_told(root, kernels, capsys):
    a_folder(root / "sealed").chmod(0o500)
    line = told(capsys, "run", NAME, "--profile", "smoke", "-p", "output", "sealed/results")
    assert "sealed" in line and "refuses files" in line and kernels == []


def test_a_disk_that_is_nearly_full_is_told(root, kernels, capsys):
    with disk(root / "small", "size=1m"):
        line = told(capsys, "run", NAME, "--profile", "smoke", "-p", "output", "small/results")
    assert "small/results" in line and "no space left on its disk (1.0 MiB free, at least 16 needed)" in line
    assert kernels == []


def test_the_free_space_is_that_of_the_disk_of_the_output(root, kernels, monkeypatch):
    asked = []
    usage = shutil.disk_usage
    monkeypatch.setattr(
        atomic.shutil, "disk_usage", lambda path: asked.append(path) or usage(path)._replace(free=2**20)
    )
    with pytest.raises(UserError, match="no space left"):
        run_chapter(NAME, "smoke")
    assert asked == [root] and kernels == []


@pytest.mark.parametrize("device", [f"cuda:{CUDA}", f"cuda:{CUDA + 9}", *([] if CUDA else ["cuda"])])
@pytest.mark.parametrize("command", ["run", "book"])
def test_a_device_that_is_not_there_is_told(root, kernels, capsys, device, command):
    file = root / "book" / "profiles" / "smoke" / f"{STEM}.yaml"
    file.write_text(f"device: {device}\n")
    line = told(capsys, command, *([NAME] if command == "run" else []), "--profile", "smoke")
    assert f"{device!r} is not there" in line and "'cpu' always works" in line and kernels == []


@pytest.mark.parametrize("device", ["cuda:", "cuda:-1", "CUDA", "gpu", "cpu:0", "mps", "cuda:1x"])
def test_what_is_no_device_is_told(root, kernels, device):
    with pytest.raises(UserError, match=f"parameter 'device'.*not {device!r}"):
        run_chapter(NAME, "smoke", {"device": device})
    assert kernels == []


# The whole book.

LATER = {
    "a script is missing": ("book/05_scoreboard.py", Path.unlink),
    "a script is no chapter": ("book/05_scoreboard.py", lambda path: path.write_text("x = 1\n")),
    "a script is no text": ("book/05_scoreboard.py", lambda path: path.write_bytes(b"\xff\xfe\0")),
    "a profile's file is missing": ("book/profiles/cpu/05_scoreboard.yaml", Path.unlink),
    "a profile's file is a folder": (
        "book/profiles/cpu/05_scoreboard.yaml",
        lambda path: (path.unlink(), path.mkdir()),
    ),
    "the configuration is missing": ("_config.yml", Path.unlink),
    "the references are missing": ("book/references.bib", Path.unlink),
    "the site's folder is a file": ("_build/cpu/site", a_file),
    "the staging folder is a file": ("_build/cpu/source", a_file),
    "the last notebook is a folder": ("_build/cpu/notebooks/05_scoreboard.ipynb", a_folder),
}


@pytest.mark.parametrize("label", LATER)
def test_what_would_stop_the_book_late_stops_it_before_its_first_chapter(root, kernels, capsys, label):
    place, spoil = LATER[label]
    spoil(root / place)
    assert place in told(capsys, "book") and kernels == []


def test_a_twin_that_cannot_be_written_is_told_before_its_chapters_run(root, kernels, capsys):
    a_folder(root / "book" / "05_scoreboard.ipynb")
    assert "book/05_scoreboard.ipynb is a folder" in told(capsys, "reference") and kernels == []


def test_mathjax_that_is_missing_is_told_before_the_chapters_run(root, kernels, monkeypatch):
    monkeypatch.setattr(site.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="django-static-mathjax is not installed"):
        run_book("smoke")
    assert kernels == []


# Inside a notebook.


@pytest.mark.parametrize("place", ["results", "results/deep/below"])
def test_a_notebook_opened_by_hand_tells_of_its_output(root, place):
    a_file(root / "results")
    with pytest.raises(UserError, match="results is a file"):
        open_chapter(NAME, {"output": place})


MESSAGE = "a line that says what came, what is allowed and what to do; " * 9 + "and its end"
RAISES = """\
# %% tags=["parameters"]
seed = 1
profile = "cpu"
output = ""

# %%
from glauber_mlm import atomic
from glauber_mlm.chapters.base.chapter import open_chapter
from glauber_mlm.errors import UserError
atomic.LEAST_FREE = 0
chapter = open_chapter("rectangle_test", globals())
{code}
"""


def write_chapter(root: Path, code: str) -> None:
    (root / "book" / f"{STEM}.py").write_text(HEADER + RAISES.format(code=code))


def test_an_error_of_a_notebook_reaches_the_command_line_whole(root, capsys):
    write_chapter(root, f"raise UserError({MESSAGE!r})")
    line = told(capsys, "run", NAME, "--profile", "smoke")
    assert f"chapter {NAME} failed (UserError: {MESSAGE}); log: _build/smoke/logs/{STEM}.log" in line


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("ValueError", "\n\n  bad luck\nand more", "(ValueError: bad luck)"),
        ("ValueError", "", "(ValueError)"),
        ("AssertionError", "  ", "(AssertionError)"),
        ("UserError", MESSAGE, f"(UserError: {MESSAGE})"),
        (
            "OSError",
            "[Errno 28] No space left on device: 'x/y'",
            "(OSError: [Errno 28] No space left on device: 'x/y': no space left; free some and run the same command "
            "again, which goes on from there)",
        ),
        (
            "OSError",
            "3145728 requested and 12784 written",
            "no space left; free some and run the same command again",
        ),
        (
            "OSError",
            "[Errno 122] Disk quota exceeded",
            "no space left; free some and run the same command again",
        ),
    ],
)
def test_an_error_is_told_by_the_first_line_that_says_something(root, monkeypatch, name, value, expected):
    def fail(source: str, output: str, **options: object) -> None:
        raise papermill.PapermillExecutionError(1, 2, "x = 1", name, value, [f"{name}: {value}"])

    monkeypatch.setattr(papermill, "execute_notebook", fail)
    with pytest.raises(ChapterFailed) as caught:
        run_chapter(NAME, "smoke")
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_a_kernel_that_does_not_start_is_told(root, monkeypatch):
    def refuse(source: str, output: str, **options: object) -> None:
        raise RuntimeError("Kernel died before replying to kernel_info")

    monkeypatch.setattr(papermill, "execute_notebook", refuse)
    with pytest.raises(ChapterFailed, match=r"did not start \(Kernel died .*\); log: .*kernel\.log"):
        run_chapter(NAME, "smoke")


# A disk that fills midway.


@pytest.fixture
def no_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the disk had had space enough when the run began."""
    monkeypatch.setattr(atomic, "LEAST_FREE", 0)


BIG = 3 * 2**20
FILLS = {
    "a cell": (
        f'chapter.cells.result("big", {{}}, lambda: {{"x": "x" * {BIG}}}, fingerprint="f")',
        r"failed \(UserError: cannot write .*results/cells/\w+\.json: no space left on its disk",
    ),
    "the notebook": (
        f'print("x" * {BIG})',
        rf"was stopped: cannot write .*notebooks/{STEM}\.ipynb: no space left on its disk",
    ),
}
KEEPS = """\
import os
first = chapter.cells.result("first", {}, lambda: {"process": os.getpid()}, fingerprint="f")
chapter.headline("first", first)
"""


@pytest.mark.parametrize("what", FILLS)
def test_a_disk_that_fills_under_a_chapter_is_told_and_the_run_goes_on(root, no_least, capsys, what):
    code, expected = FILLS[what]
    write_chapter(root, f"{KEEPS}{code}\nchapter.finish()")
    with disk(root / "_build", "size=1m"):
        line = told(capsys, "run", NAME, "--profile", "smoke")
        assert re.search(expected, line) and "the same command again" in line
        (cell,) = (root / "_build" / "smoke" / "results" / "cells").glob("*.json")
        enlarge(root / "_build")
        run_chapter(NAME, "smoke")
        record = json.loads((root / "_build" / "smoke" / "results" / f"{NAME}.json").read_text())
        assert record["headlines"]["first"] == json.loads(cell.read_text())["result"]


def encoder() -> torch.nn.Module:
    return randomise(BUILDERS["bert"]()[0], seed=1)


def trained(news: Path, folder: Path, recipe: Recipe = SMALL, **options: object) -> Path:
    return train(encoder(), wordpiece(), news, folder, recipe, compile_encoder=False, save_every=2, **options)


def test_a_disk_that_fills_under_a_training_is_told_and_the_training_goes_on(tmp_path, no_least, monkeypatch):
    news = write_news(tmp_path / "news.zip")
    whole = trained(news, tmp_path / "whole").read_bytes()
    size = (tmp_path / "whole" / "checkpoint.pt").stat().st_size
    steps = []
    rate_at = training.rate_at
    monkeypatch.setattr(training, "rate_at", lambda step, recipe: steps.append(step) or rate_at(step, recipe))
    with disk(tmp_path / "run", f"size={size * 3 // 2 // 1024}k"):
        with pytest.raises(
            UserError, match=r"cannot write .*run/checkpoint\.pt: no space left.*same command again"
        ):
            trained(news, tmp_path / "run")
        assert sorted(set(steps)) == [0, 1, 2, 3] and (tmp_path / "run" / "checkpoint.pt").stat().st_size
        enlarge(tmp_path / "run")
        steps.clear()
        assert trained(news, tmp_path / "run").read_bytes() == whole and sorted(set(steps)) == [2, 3]


BIG_NOTEBOOK = nbformat.v4.new_notebook(cells=[nbformat.v4.new_raw_cell("x" * BIG)])
WRITERS: dict[str, Callable[[Path], object]] = {
    "text": lambda path: atomic.write_text(path, "x" * BIG),
    "json": lambda path: atomic.write_json(path, ["x" * BIG]),
    "an array": lambda path: in_place(path, lambda file: np.save(file, np.zeros(BIG))),
    "many arrays": lambda path: in_place(path, lambda file: np.savez(file.open("wb"), np.zeros(BIG))),
    "a notebook": lambda path: in_place(path, lambda file: nbformat.write(BIG_NOTEBOOK, file)),
    "a cell": lambda path: CellStore(path.parent).result(
        "big", {}, lambda: {"x": "x" * BIG}, fingerprint="f"
    ),
}


def in_place(path: Path, write: Callable[[Path], object]) -> None:
    with atomic.replacing(path) as temporary:
        write(temporary)


@pytest.mark.parametrize("what", WRITERS)
def test_every_write_to_a_full_disk_is_told_and_leaves_nothing_torn(tmp_path, no_least, what):
    with disk(tmp_path / "small", "size=1m") as folder:
        with pytest.raises(
            UserError, match=r"cannot write .*small/\w+\.\w+: no space left on its disk; free some and run"
        ):
            WRITERS[what](folder / "x.npy")
        assert [path for path in folder.iterdir() if path.suffix != ".lock"] == []


# Each refusal of the system.

REFUSALS = {
    errno.ENOSPC: "no space left on its disk; free some and run the same command again, which goes on from",
    errno.EDQUOT: "no space left on its disk",
    errno.EFBIG: "no space left on its disk",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission is refused",
    errno.EPERM: "permission is refused",
    errno.ENOTDIR: "a part of that path is a file",
    errno.EISDIR: "it is a folder",
    errno.ENAMETOOLONG: "its name is too long",
    errno.ELOOP: "links in that path lead in a circle",
}


@pytest.mark.parametrize("call", ["replace", "fsync"])
@pytest.mark.parametrize("number", REFUSALS, ids=errno.errorcode.get)
def test_a_refusal_of_the_system_is_told_with_the_path(tmp_path, monkeypatch, number, call):
    path = tmp_path / "x.json"
    atomic.write_json(path, 1)

    def refuse(*arguments: object) -> None:
        raise OSError(number, os.strerror(number), "/another/path")

    with monkeypatch.context() as patch:
        patch.setattr(atomic.os, call, refuse)
        with pytest.raises(UserError, match=f"^cannot write {re.escape(str(path))}: {REFUSALS[number]}"):
            atomic.write_json(path, 2)
    assert json.loads(path.read_text()) == 1 and list(tmp_path.iterdir()) == [path]


def test_a_fault_of_the_disk_itself_is_not_told_as_bad_input(tmp_path, monkeypatch):
    def break_down(*arguments: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(atomic.os, "fsync", break_down)
    with pytest.raises(OSError, match="Input/output error"):
        atomic.write_json(tmp_path / "x.json", 1)


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("file/x.json", "is a file"),
        ("file/below/x.json", "is a file"),
        ("folder", "it is a folder"),
        ("y" * 256, "too long"),
    ],
)
def test_places_that_are_none_are_told_by_the_write_itself(tmp_path, place, expected):
    a_file(tmp_path / "file")
    a_folder(tmp_path / "folder")
    with pytest.raises(UserError, match=f"cannot write .*{place[:5]}.*{expected}"):
        atomic.write_text(tmp_path / place, "x")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_a_full_standard_output_is_told():
    program = "from glauber_mlm.cli import main; main(['pair', '--check'])"
    environment = {**os.environ, "PYTHONPATH": str(Path(atomic.__file__).parents[1])}
    for buffering in ("", "1"):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-c", program],
                cwd=ROOT,
                env={**environment, "PYTHONUNBUFFERED": buffering},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert done.returncode == 2 and re.fullmatch(
            "glauber-mlm: cannot write the standard output.*: no space left .*\n", done.stderr
        )


# Measuring and training.


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("folder", "is a folder"),
        ("file/x.json", "is a file"),
        ("z" * 256, "too long"),
        ("a\0b", "give a path"),
    ],
)
def test_an_output_of_the_bench_is_looked_at_before_anything_is_measured(
    tmp_path, monkeypatch, place, expected
):
    a_file(tmp_path / "file")
    a_folder(tmp_path / "folder")
    monkeypatch.setattr(bench.models, "load", lambda *given, **options: pytest.fail("a model was loaded"))
    with pytest.raises(UserError, match=expected):
        bench.run_bench(tmp_path / place, quick=True)


@pytest.mark.parametrize("quick", [1, None, "yes"])
def test_the_bench_is_quick_or_not(tmp_path, quick):
    with pytest.raises(UserError, match="quick is .*; give True or False"):
        bench.run_bench(tmp_path / "x.json", quick)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    folder = tmp_path_factory.mktemp("finished")
    news = write_news(folder / "news.zip")
    trained(news, folder / "run")
    return SimpleNamespace(news=news, run=folder / "run")


def changed(path: Path, **values: object) -> None:
    found = {**json.loads(path.read_text()), **values}
    path.write_text(json.dumps({name: value for name, value in found.items() if value != "left out"}))


RUNS = {
    "a torn checkpoint": ("checkpoint.pt", lambda path: path.write_bytes(path.read_bytes()[:3000])),
    "an empty checkpoint": ("checkpoint.pt", lambda path: path.write_bytes(b"")),
    "a checkpoint of text": ("checkpoint.pt", lambda path: path.write_text("checkpoint")),
    "a checkpoint that is a folder": ("checkpoint.pt", lambda path: (path.unlink(), path.mkdir())),
    "a checkpoint of a tensor": ("checkpoint.pt", lambda path: torch.save(torch.ones(2), path)),
    "a checkpoint of a dict": ("checkpoint.pt", lambda path: torch.save({"step": 1}, path)),
    "a log that is a folder": ("log.json", lambda path: (path.unlink(), path.mkdir())),
    "an adapter that is a folder": ("adapter.safetensors", lambda path: (path.unlink(), path.mkdir())),
}
RECORDS = {
    "a torn record": lambda path: path.write_text(path.read_text()[:50]),
    "an empty record": lambda path: path.write_text(""),
    "a record that is a list": lambda path: path.write_text("[]"),
    "a record that is no text": lambda path: path.write_bytes(b"\xff\xfe"),
    "a record without a recipe": lambda path: changed(path, recipe="left out"),
    "a record of another recipe's names": lambda path: changed(path, recipe={"stepps": 3}),
    "a record of a bad recipe": lambda path: changed(path, recipe={"steps": 0}),
    "a record without a log": lambda path: changed(path, log="left out"),
    "a record with a log of words": lambda path: changed(path, log=["a"]),
    "a record of half a step": lambda path: changed(path, steps_done=0.5),
    "a record whose earlier stage is none": lambda path: changed(path, earlier=3),
}


@pytest.mark.parametrize("label", RUNS)
def test_a_damaged_run_is_told_before_the_corpus_is_read(tmp_path, monkeypatch, finished, label):
    name, spoil = RUNS[label]
    run = Path(shutil.copytree(finished.run, tmp_path / "run"))
    spoil(run / name)
    monkeypatch.setattr(training, "load_packs", lambda *given: pytest.fail("the corpus was read"))
    with pytest.raises(UserError, match=f"run/{name}"):
        trained(finished.news, run)


def test_a_checkpoint_of_another_encoder_is_told(tmp_path, finished):
    run = Path(shutil.copytree(finished.run, tmp_path / "run"))
    saved = torch.load(run / "checkpoint.pt", weights_only=True)
    saved["parameters"] = {name: torch.zeros(3, 3) for name in saved["parameters"]}
    torch.save(saved, run / "checkpoint.pt")
    with pytest.raises(UserError, match=r"checkpoint\.pt does not fit this model .*; remove it and run"):
        trained(finished.news, run)


@pytest.mark.parametrize("label", RECORDS)
def test_a_damaged_record_is_told_wherever_it_is_read(tmp_path, monkeypatch, finished, label):
    run = Path(shutil.copytree(finished.run, tmp_path / "run"))
    RECORDS[label](run / "training.json")
    monkeypatch.setattr(training, "load_packs", lambda *given: pytest.fail("the corpus was read"))
    expected = r"run/training\.json is no record of a training run \(.+\); call 'glauber-mlm train'"
    with pytest.raises(UserError, match=expected):
        trained(finished.news, tmp_path / "next", initial=run)
    with pytest.raises(UserError, match=expected):
        card.finished_training(run)
    assert not (tmp_path / "next").exists()


def test_a_damaged_adapter_to_start_from_is_told(tmp_path, finished):
    run = Path(shutil.copytree(finished.run, tmp_path / "run"))
    (run / "adapter.safetensors").write_bytes(b"torn")
    with pytest.raises(UserError, match=r"run/adapter\.safetensors cannot be read"):
        trained(finished.news, tmp_path / "next", initial=run)


def test_a_loss_that_is_no_number_ends_the_training_and_saves_nothing(tmp_path, finished, monkeypatch):
    monkeypatch.setattr(training, "rate_at", lambda step, recipe: float("nan"))
    with pytest.raises(UserError, match="the loss is no number any more at step 2; choose a smaller --rate"):
        trained(finished.news, tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoint.pt").exists()


def test_one_pack_held_out_is_too_few_for_an_error(tmp_path, finished, monkeypatch):
    load = training.load_packs

    def few(*given: object) -> tuple[corpus.Packs, corpus.Packs]:
        kept, held_out = load(*given)
        return kept, corpus.Packs(held_out.tokens[:1], 1)

    monkeypatch.setattr(training, "load_packs", few)
    with pytest.raises(UserError, match="and 1 held out; at least 6 and 2 are needed"):
        trained(finished.news, tmp_path / "run")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"held_out": 3}', '{"held_out": {}, "training": {}}'])
def test_a_damaged_card_is_told_before_the_model_is_loaded(tmp_path, monkeypatch, capsys, text):
    (tmp_path / "model_card.json").write_text(text)
    monkeypatch.setattr(card, "data_folder", lambda: tmp_path)
    line = told(capsys, "heldout", "--corpus", "missing.whl")
    assert f"{tmp_path}/model_card.json is no model card (" in line and "install the package again" in line


def test_a_place_for_the_card_is_looked_at_before_the_loss_is_computed(
    tmp_path, monkeypatch, capsys, finished
):
    a_folder(tmp_path / "MODEL_CARD.md")
    monkeypatch.setattr(card, "data_folder", lambda: tmp_path)
    line = told(capsys, "ship", str(finished.run), "--corpus", "missing.whl")
    assert "MODEL_CARD.md is a folder" in line


def test_a_folder_for_the_corpus_that_is_a_file_is_told_before_anything_is_fetched(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus.subprocess, "run", lambda *given, **options: pytest.fail("pip was called"))
    with pytest.raises(UserError, match="the corpus folder .*file cannot be a folder"):
        corpus.fetch_corpus(a_file(tmp_path / "file"))


# Files of a book that are damaged.


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "[1]", '{"rectangle_test": "fast"}', '{"rectangle_test": NaN}', '{"a": -1}', "3"]
)
def test_damaged_run_times_are_told_before_a_kernel_starts(root, kernels, capsys, text):
    atomic.write_text(root / "_build" / "smoke" / "times.json", text)
    line = told(capsys, "run", NAME, "--profile", "smoke")
    assert "_build/smoke/times.json holds no run times of chapters" in line and "remove it" in line
    assert kernels == []
    with pytest.raises(UserError, match="holds no run times"):
        note_time(root / "_build" / "smoke", NAME, 1.0)
    assert read_times(root) == {}


TWINS = {
    "empty": "",
    "torn": '{"cells": [',
    "a list": "[]",
    "null": "null",
    "without cells": '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}}',
    "of a version to come": '{"nbformat": 99, "nbformat_minor": 0, "metadata": {}, "cells": []}',
    "of cells that are none": '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [3]}',
    "nested without end": "[" * 100_000,
}


@pytest.mark.parametrize("label", TWINS)
@pytest.mark.parametrize("command", ["pair", "pair --check", "html"])
def test_a_damaged_twin_is_told(root, kernels, capsys, label, command):
    refresh_reference()
    (root / "book" / f"{STEM}.ipynb").write_text(TWINS[label])
    line = told(capsys, *command.split())
    assert f"{STEM}.ipynb is not a notebook (" in line and "; remove it and run `" in line


@pytest.mark.parametrize("stored", [3, "x", [], {}, {"profile": "cpu"}])
def test_a_twin_that_does_not_say_where_its_outputs_come_from_has_none(root, kernels, capsys, stored):
    refresh_reference()
    twin = root / "book" / f"{STEM}.ipynb"
    changed(twin, metadata={**json.loads(twin.read_text())["metadata"], "glauber_mlm": stored})
    assert "holds no outputs; run `make reference`" in told(capsys, "html")
    with pytest.raises(SystemExit) as ended:
        cli.main(["pair", "--check"])
    assert ended.value.code == 1


@pytest.mark.parametrize("label", TWINS)
def test_an_executed_notebook_that_is_torn_is_told(root, kernels, label):
    run_book_without_site()
    (root / "_build" / "smoke" / "notebooks" / f"{STEM}.ipynb").write_text(TWINS[label])
    with pytest.raises(UserError, match=rf"{STEM}\.ipynb is not a notebook \(.*\); run the chapter again"):
        site.build_site("smoke")


def run_book_without_site() -> None:
    for name in CHAPTERS:
        run_chapter(name, "smoke")


PROFILES = {
    "a list": "- 1\n",
    "a word": "seed\n",
    "false": "false\n",
    "an empty list": "[]\n",
    "zero": "0\n",
    "torn": "a: [",
    "a name twice": "seed: 1\nseed: 2\n",
    "a number as a name": "1: 2\n",
    "a list as a name": "[1]: 2\n",
    "a bad value": "seed: 7.5\n",
    "a bad word": "dtype: float3\n",
    "an unknown name": "sed: 7\n",
    "an object": "seed: !!python/object:os.system {}\n",
    "a date that is none": "revision: 2020-99-99\n",
    "another profile's name": "profile: cpu\n",
    "no text": b"\xff\xfe",
}


@pytest.mark.parametrize("label", PROFILES)
def test_a_damaged_profile_is_told_with_its_file(root, kernels, capsys, label):
    file = root / "book" / "profiles" / "smoke" / f"{STEM}.yaml"
    text = PROFILES[label]
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    line = told(capsys, "run", NAME, "--profile", "smoke")
    assert str(file) in line and kernels == []


def test_a_profile_may_name_itself(root, kernels):
    (root / "book" / "profiles" / "smoke" / f"{STEM}.yaml").write_text("profile: smoke\n")
    run_chapter(NAME, "smoke")
    assert kernels == [STEM]


def test_a_value_that_is_given_badly_is_not_blamed_on_the_profile(root, kernels, capsys):
    line = told(capsys, "run", NAME, "--profile", "smoke", "-p", "seed", "7.5")
    assert "not 7.5" in line and ".yaml" not in line


LEDGERS = ["", "{", "[]", "3", '{"claim": "R1"}', b"\xff"]


@pytest.mark.parametrize("text", LEDGERS)
def test_a_damaged_record_of_a_claim_is_told(tmp_path, text):
    file = tmp_path / "ledger" / "R1.json"
    file.parent.mkdir()
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(
        UserError, match=r"ledger/R1\.json is not a record of claim R1 .*; remove it and run chapter"
    ):
        read_ledger(tmp_path)


@pytest.mark.parametrize("field", ["ours", "interval", "note", "model", "profile", "rule", "verdict"])
@pytest.mark.parametrize("value", [3, True, ["agrees"], {"a": 1}, 0.5])
def test_a_record_of_a_claim_holds_text_only(tmp_path, field, value):
    record = dict.fromkeys(("ours", "interval", "note", "model", "profile", "rule"), "x")
    atomic.write_json(tmp_path / "ledger" / "R1.json", {**record, "verdict": "agrees", field: value})
    with pytest.raises(UserError, match="is not a record of claim R1"):
        read_ledger(tmp_path)

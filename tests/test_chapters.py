"""Every chapter runs under the smoke profile, fills its claims, and the strict site builds from what it left."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from glauber_mlm.chapters.base.claims import CLAIMS, Verdict
from glauber_mlm.chapters.base.ledger import read_ledger
from glauber_mlm.chapters.base.parameters import CHAPTERS
from glauber_mlm.publishing.execute import run_book
from glauber_mlm.publishing.outputs import errors

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A copy of the book's sources, executed under the smoke profile and rendered."""
    root = tmp_path_factory.mktemp("clone")
    for name in ("_config.yml", "_toc.yml"):
        shutil.copy(ROOT / name, root / name)
    shutil.copytree(ROOT / "book", root / "book")
    run_book("smoke", root=root)
    return root / "_build" / "smoke"


def headlines(book: Path, chapter: str) -> dict:
    return json.loads((book / "results" / f"{chapter}.json").read_text(encoding="utf-8"))["headlines"]


def test_every_claim_is_recorded_with_a_verdict(book):
    frame = read_ledger(book / "results").set_index("claim")
    assert set(frame.index) == set(CLAIMS)
    not_run = set(frame.index[frame["verdict"] == Verdict.NOT_RUN])
    assert not_run <= {
        "R3",
        "T1",
        "T2",
    }  # one model size; and smoke sizes may hold no contracting case, no positive margin
    assert (frame["profile"].drop(not_run) == "smoke").all()


def test_the_embedded_model_is_incompatible_and_its_left_to_right_reading_is_not(book):
    found = headlines(book, "rectangle_test")
    assert found["low"] > 100 * found["floor"]
    assert found["control"] < 1e-2 * found["mean_abs_delta"]
    assert read_ledger(book / "results").set_index("claim").loc["R1", "verdict"] == Verdict.AGREES


def test_contraction_is_proved_only_far_above_where_chains_run(book):
    assert headlines(book, "theory_checks")["contraction_temperature"] > 20


def test_dwell_times_are_what_the_escape_probabilities_say(book):
    assert abs(headlines(book, "semantic_traps")["dwell_z"]) < 4.5


def test_no_theorem_is_violated(book):
    frame = read_ledger(book / "results").set_index("claim")
    assert Verdict.VIOLATED not in set(frame["verdict"])


def test_the_site_has_every_page_and_the_scoreboard_is_on_it(book):
    for spec in CHAPTERS.values():
        assert (book / "site" / "book" / f"{spec.stem}.html").exists()
        assert errors(nbformat.read(book / "notebooks" / f"{spec.stem}.ipynb", as_version=4)) == []
    page = (book / "site" / "book" / "05_scoreboard.html").read_text(encoding="utf-8")
    assert all(claim.statement.split(":")[0][:40] in page for claim in CLAIMS.values())


def test_plain_papermill_runs_a_chapter_without_our_command(tmp_path):
    parameters = {
        "seed": 7,
        "length": 6,
        "rectangles": 8,
        "control_rectangles": 4,
        "output": str(tmp_path / "results"),
    }
    given = [word for name, value in parameters.items() for word in ("-p", name, str(value))]
    command = [
        sys.executable,
        "-m",
        "papermill",
        "book/02_rectangle_test.ipynb",
        str(tmp_path / "out.ipynb"),
        *given,
    ]
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
    }
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-2000:]
    found = json.loads((tmp_path / "results" / "rectangle_test.json").read_text(encoding="utf-8"))
    assert found["parameters"]["seed"] == 7 and found["headlines"]["mean_abs_delta"] > 0

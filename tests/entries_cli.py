"""What the command line calls of book and training, with a book, a corpus and an encoder that are tiny."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any

import numpy as np
import papermill
import pytest
from bad_values import NO_WORDS, Entry, Kind, choice, number, whole, word
from hypothesis import strategies
from small_book import succeed, write_book
from tiny_corpus import write_news
from tiny_models import BUILDERS, randomise, wordpiece

from glauber_mlm.atomic import output_file, output_folder
from glauber_mlm.chapters.base.chapter import open_chapter
from glauber_mlm.chapters.base.claims import CLAIMS
from glauber_mlm.chapters.base.ledger import Ledger, read_ledger
from glauber_mlm.chapters.base.parameters import validate
from glauber_mlm.chapters.scoreboard.words import ScoreboardTable
from glauber_mlm.layout import build_folder, executed_path, find_repository_root, repository_root
from glauber_mlm.publishing import pairing, site
from glauber_mlm.publishing.execute import chapter_parameters, refresh_reference, run_book, run_chapter
from glauber_mlm.publishing.offline import outside_resources
from glauber_mlm.publishing.status import status_page
from glauber_mlm.publishing.times import format_seconds, note_time, read_times
from glauber_mlm.training import card
from glauber_mlm.training.corpus import load_packs, read_articles
from glauber_mlm.training.heldout import held_out_loss
from glauber_mlm.training.recipe import Recipe, train

PLACE = TemporaryDirectory(prefix="entries_cli_")
TOKENIZER = wordpiece()
SMALL = {
    "steps": 1,
    "batch": 4,
    "length": 16,
    "short_length": 9,
    "rank": 2,
    "alpha": 4,
    "held_out_share": 0.3,
}
HELD_OUT = {"nats": 3.2, "standard_error": 0.01, "packs": 20, "sites": 80, "articles": 2}

PATH = Kind((None, True, 3, 1.5, math.nan, [], ["x"], {}, "", " ", b"x", object(), "a\0b"))
FOLDER = PATH.also("/dev/null/x", "/dev/null", "x" * 300)
FILE = PATH.also("/dev/null/x", "/", "x" * 300)
PROFILE = Kind(
    (*NO_WORDS, "smok", "SMOKE", "smoke ", "../smoke", "smoke/", "."), strategies.text(max_size=12)
)
CHAPTER = choice("rectangle_test", "02_rectangle_test").also("rectangle_test.py")
OVERRIDES = Kind(
    (
        True,
        3,
        "seed",
        [],
        [("seed", 7)],
        {1: 2},
        {"sed": 7},
        {"seed": 7.5},
        {"seed": True},
        {"seed": np.bool_(True)},
        {"seed": "7"},
        {"seed": None},
        {"device": "cuda:99"},
        {"device": "tpu"},
        {"dtype": "float3"},
        {"profile": "cpu"},
        {"output": "/dev/null/x"},
        {"output": "a\0b"},
        object(),
    )
)
KNOWN_LATER = ({"device": "cuda:99"}, {"output": "/dev/null/x"}, {"output": "a\0b"})  # by run_chapter
FLAG = Kind((None, 0, 1, "yes", "", math.nan, [], object()))
SCRIPT = PATH.also("/", "missing.py", "/dev/null")


def place() -> Path:
    """A folder of its own."""
    return Path(mkdtemp(dir=PLACE.name))


@cache
def book() -> Path:
    return write_book(place() / "book")


@cache
def executed() -> Path:
    """The same after a run of the chapters, its twins with outputs."""
    root = write_book(place() / "book")
    with stand_ins():
        run_book("smoke", root=root)
        refresh_reference(root=root)
    return root


@cache
def news() -> Path:
    return write_news(place() / "news.zip")


@cache
def run() -> Path:
    """A finished run of training."""
    return trained(**training_run()).parent


def encoder() -> Any:
    return randomise(BUILDERS["bert"]()[0], seed=1)


@contextmanager
def stand_ins() -> Iterator[None]:
    """No kernel and no Jupyter Book."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(papermill, "execute_notebook", succeed)
        patch.setattr(site, "build", lambda root, folder, notebooks, status: folder / "site" / "index.html")
        yield


def standing_in(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with the stand-ins."""

    def called(**arguments: Any) -> Any:
        with stand_ins():
            return call(**arguments)

    return called


def training_run() -> dict[str, Any]:
    recipe = Recipe(**SMALL)
    return {
        "corpus": news(),
        "folder": place(),
        "recipe": recipe,
        "compile_encoder": False,
        "save_every": 1,
        "initial": None,
        "stop": None,
    }


def trained(**arguments: Any) -> Path:
    return train(encoder(), TOKENIZER, **arguments)


def chapter(**names: Any) -> Any:
    return open_chapter("rectangle_test", {"output": str(place()), **names})


def ledger(**arguments: Any) -> Ledger:
    return Ledger(
        **{
            "results": place(),
            "chapter": "rectangle_test",
            "parameters": validate("rectangle_test", {}),
            **arguments,
        }
    )


ENTRIES = [
    Entry(
        "glauber_mlm.publishing.execute.run_chapter",
        standing_in(run_chapter),
        lambda: {
            "name": "rectangle_test",
            "profile": "smoke",
            "overrides": {"seed": 7},
            "folder": place(),
            "root": book(),
        },
        {
            "name": CHAPTER,
            "profile": PROFILE,
            "overrides": OVERRIDES,
            "folder": FOLDER.but(None),
            "root": PATH.but(None).also("/dev/null"),
        },
        {"overrides": (None, {}, {"seed": 8}), "folder": (None,), "name": ("02_rectangle_test",)},
    ),
    Entry(
        "glauber_mlm.publishing.execute.chapter_parameters",
        chapter_parameters,
        lambda: {
            "name": "rectangle_test",
            "profile": "smoke",
            "overrides": {"seed": 7},
            "root": book(),
            "folder": place(),
        },
        {
            "name": CHAPTER,
            "profile": PROFILE,
            "overrides": OVERRIDES.but(*KNOWN_LATER).also(None),
            "root": PATH,
            "folder": PATH,
        },
    ),
    Entry(
        "glauber_mlm.publishing.execute.run_book",
        standing_in(run_book),
        lambda: {"profile": "smoke", "root": executed()},
        {"profile": PROFILE, "root": PATH.but(None)},
    ),
    Entry(
        "glauber_mlm.publishing.execute.refresh_reference",
        standing_in(refresh_reference),
        lambda: {"root": executed()},
        {"root": PATH.but(None)},
    ),
    Entry(
        "glauber_mlm.publishing.site.build_site",
        standing_in(site.build_site),
        lambda: {"profile": "smoke", "root": executed()},
        {"profile": PROFILE, "root": PATH.but(None)},
    ),
    Entry(
        "glauber_mlm.publishing.site.render_reference",
        standing_in(site.render_reference),
        lambda: {"root": executed()},
        {"root": PATH.but(None)},
    ),
    Entry(
        "glauber_mlm.publishing.status.status_page",
        status_page,
        lambda: {"profile": "smoke", "folder": place(), "engine": "1.0"},
        {"profile": word(), "folder": PATH, "engine": word()},
    ),
    Entry(
        "glauber_mlm.layout.repository_root",
        repository_root,
        lambda: {"start": book()},
        {"start": PATH.but(None).also("/", "/dev/null")},
    ),
    Entry(
        "glauber_mlm.layout.find_repository_root",
        find_repository_root,
        lambda: {"start": book()},
        {"start": PATH.but(None)},
    ),
    Entry(
        "glauber_mlm.layout.build_folder",
        build_folder,
        lambda: {"root": book(), "profile": "smoke"},
        {"profile": Kind((*NO_WORDS, "..", "a/b", "a b", "a\n"))},
    ),
    *(
        Entry(
            f"glauber_mlm.publishing.pairing.{call.__name__}",
            call,
            lambda: {"script": executed() / "book" / "02_rectangle_test.py"},
            {"script": SCRIPT},
        )
        for call in (pairing.refresh, pairing.differences, pairing.read_script)
    ),
    Entry(
        "glauber_mlm.publishing.pairing.twin_path",
        pairing.twin_path,
        lambda: {"script": "a.py"},
        {"script": PATH},
    ),
    Entry(
        "glauber_mlm.publishing.pairing.store_outputs",
        pairing.store_outputs,
        lambda: {
            "script": executed() / "book" / "02_rectangle_test.py",
            "executed": executed_path(executed() / "_build" / "smoke", "02_rectangle_test"),
            "profile": "smoke",
        },
        {"script": SCRIPT, "executed": PATH.also("/", "missing.ipynb", "/dev/null"), "profile": word()},
    ),
    Entry(
        "glauber_mlm.publishing.offline.outside_resources",
        outside_resources,
        lambda: {"site": place()},
        {"site": PATH.also("/dev/null", "missing")},
    ),
    Entry(
        "glauber_mlm.publishing.times.format_seconds",
        format_seconds,
        lambda: {"seconds": 7.3},
        {"seconds": number(-1, -0.1)},
        {"seconds": (7, np.float32(7.5), np.int64(70))},
    ),
    Entry(
        "glauber_mlm.publishing.times.note_time",
        note_time,
        lambda: {"folder": place(), "name": "rectangle_test", "seconds": 7.3},
        {"folder": FOLDER, "name": word(), "seconds": number(-1, -0.1)},
        {"seconds": (7, np.float64(7.5))},
    ),
    Entry(
        "glauber_mlm.publishing.times.read_times", read_times, lambda: {"folder": place()}, {"folder": PATH}
    ),
    Entry(
        "glauber_mlm.chapters.base.ledger.Ledger",
        ledger,
        lambda: {},
        {
            "results": PATH,
            "chapter": choice("rectangle_test"),
            "parameters": Kind((None, {}, {"seed": 1}, "rectangle_test", 3, object())),
        },
    ),
    Entry(
        "glauber_mlm.chapters.base.ledger.Ledger.record",
        lambda **arguments: ledger().record(**arguments),
        lambda: {
            "claim": "R1",
            "ours": "0.7",
            "verdict": "agrees",
            "interval": "95 %: [0.6, 0.8]",
            "note": "one model",
        },
        {
            "claim": choice("R1", *CLAIMS).but(*CLAIMS),
            "ours": word(),
            "verdict": choice("agrees", "disagrees", "undecided", "not run").also("violated"),
            "interval": word().but(None),
            "note": Kind(NO_WORDS).but(""),
        },
        {"interval": (None,), "note": ("",)},
    ),
    Entry(
        "glauber_mlm.chapters.base.chapter.Chapter.headline",
        lambda **arguments: chapter().headline(**arguments),
        lambda: {"name": "mean", "value": 0.5},
        {"name": word(), "value": Kind((1 + 2j, object(), {1: 2}, [object()], {"__float__": 1}))},
        {"value": (None, True, np.float64(0.5), math.nan, "text", [1, (2,)], {"a": 1}, np.arange(3))},
    ),
    Entry(
        "glauber_mlm.chapters.scoreboard.words.ScoreboardTable",
        ScoreboardTable,
        lambda: {"frame": read_ledger(place())},
        {"frame": Kind((None, {}, [], "R1", 3, read_ledger(place()).drop(columns="claim"), object()))},
    ),
    *(
        Entry(
            f"glauber_mlm.atomic.{call.__name__}",
            call,
            lambda end=end: {"name": "output", "value": place() / end},
            {"value": kind},
        )
        for call, end, kind in ((output_folder, "a/b", FOLDER), (output_file, "a/b.json", FILE))
    ),
    Entry(
        "glauber_mlm.training.recipe.Recipe",
        Recipe,
        lambda: {},
        {
            **{name: whole(1) for name in ("steps", "batch", "rank", "alpha")},
            **{name: whole(3) for name in ("length", "short_length")},
            **{
                name: number(-0.1, 1.1, 1e300)
                for name in ("short_share", "rate", "warmup", "weight_decay", "held_out_share")
            },
            **{name: number(-0.1, 0, 0.0, 1.1) for name in ("mask_first", "mask_last")},
            "seed": whole(0, 2**63 - 1),
        },
        {
            "steps": (np.int64(3),),
            "seed": (2**63 - 1,),
            "rate": (1, 0, np.float32(0.5)),
            "mask_last": (1,),
        },
    ),
    Entry(
        "glauber_mlm.training.recipe.train",
        trained,
        training_run,
        {
            "corpus": PATH.also("missing.whl", "/", "/dev/null"),
            "folder": FOLDER,
            "recipe": Kind((None, {}, SMALL, "small", object())).also(
                *(
                    Recipe(**{**SMALL, **wrong})
                    for wrong in (
                        {"length": 10**6},
                        {"rank": 10**6},
                        {"batch": 10**6},
                        {"short_length": 17},
                        {"held_out_share": 0},
                        {"held_out_share": 1},
                    )
                )
            ),
            "compile_encoder": FLAG,
            "save_every": whole(1),
            "initial": PATH.but(None).also("/dev/null", "missing", "/"),
            "stop": whole(1).but(None),
        },
        {"stop": (1, np.int64(9))},
    ),
    Entry(
        "glauber_mlm.training.corpus.load_packs",
        lambda **arguments: load_packs(tokenizer=TOKENIZER, **arguments),
        lambda: {"source": news(), "length": 16, "held_out_share": 0.3},
        {
            "source": PATH.also("missing.whl", "/", "/dev/null"),
            "length": whole(3),
            "held_out_share": number(-0.1, 1.1),
        },
        {"held_out_share": (0, 1)},
    ),
    Entry(
        "glauber_mlm.training.corpus.read_articles",
        read_articles,
        lambda: {"source": news()},
        {"source": PATH.also("missing.whl", "/", "/dev/null")},
        {"source": (str(news()),)},
    ),
    Entry(
        "glauber_mlm.training.heldout.held_out_loss",
        held_out_loss,
        lambda: {"corpus": news(), "adapter": None, "recipe": Recipe(**SMALL)},
        {
            "corpus": PATH.also("missing.whl", "/", "/dev/null"),
            "adapter": PATH.but(None).also("missing"),
            "recipe": Kind(({}, SMALL, "small", object(), Recipe(length=513))),
        },
    ),
    Entry(
        "glauber_mlm.training.card.finished_training",
        card.finished_training,
        lambda: {"run": run(), "folder": place()},
        {"run": PATH.also("/dev/null", "missing", "/"), "folder": FOLDER.but(None)},
    ),
    Entry(
        "glauber_mlm.training.card.ship",
        card.ship,
        lambda: {"run": run(), "held_out": HELD_OUT, "folder": place()},
        {
            "run": PATH.also("/dev/null", "missing", "/"),
            "held_out": Kind(
                (
                    None,
                    {},
                    [],
                    3.2,
                    "3.2",
                    {**HELD_OUT, "nats": math.nan},
                    {**HELD_OUT, "nats": "3.2"},
                    {**HELD_OUT, "sites": 80.0},
                    {**HELD_OUT, "packs": True},
                )
            ),
            "folder": FOLDER.but(None),
        },
    ),
]

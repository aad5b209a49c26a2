"""The command line: what it passes on, how it ends, how little it loads."""

from __future__ import annotations

import dataclasses
import inspect
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import papermill
import pytest
from small_book import write_book

from glauber_mlm import cli, models
from glauber_mlm.errors import UserError
from glauber_mlm.pretrained.registry import PRETRAINED
from glauber_mlm.publishing import execute, pairing
from glauber_mlm.publishing import site as site_module

ROOT = Path(__file__).parents[1]


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    return ended.value.code


def command(*arguments: str) -> list[str]:
    report = "import sys, atexit; atexit.register(lambda: print([m for m in ('torch', 'transformers', 'papermill', 'sphinx') if m in sys.modules]))"
    return [
        sys.executable,
        "-c",
        f"{report}; from glauber_mlm.cli import main; main(sys.argv[1:])",
        *arguments,
    ]


def spawn(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("0.5", 0.5),
        ("1e-3", 1e-3),
        ("-2E3", -2000.0),
        ("[8, 16, 1e-1]", [8, 16, 0.1]),
        ("embedded", "embedded"),
        ("bert-base-uncased", "bert-base-uncased"),
        ("true", True),
        ("null", None),
        ("", ""),
        ("'7'", "7"),
        ("'1e3'", "1e3"),
    ],
)
def test_values_are_yaml(text, value):
    assert cli.read_value(text) == value and type(cli.read_value(text)) is type(value)


def test_a_value_that_is_no_yaml_is_refused():
    with pytest.raises(UserError, match="not a YAML scalar or list"):
        cli.read_value("[8, ")


@pytest.mark.parametrize(
    ("given", "joined"),
    [
        (["run", "x", "-p", "seed", "7", "-p", "tau", "-1"], ["run", "x", "-p", "seed=7", "-p", "tau=-1"]),
        (["run", "-p", "seed=7", "x"], ["run", "-p", "seed=7", "x"]),
        (["run", "-p", "name", "a=b"], ["run", "-p", "name=a=b"]),
        (["run", "-p"], ["run", "-p"]),
        (["run", "-p", "seed"], ["run", "-p", "seed"]),
        (["html"], ["html"]),
    ],
)
def test_pairs_are_joined(given, joined):
    assert cli.join_pairs(given) == joined


def test_run_passes_overrides_on(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    seen = []
    monkeypatch.setattr(
        execute, "run_chapter", lambda *given: seen.append(given) or tmp_path / "_build" / "x.ipynb"
    )
    assert call("run", "rectangle_test", "-p", "seed", "7", "--profile", "smoke", "-p", "model", "a/b") == 0
    assert seen == [("rectangle_test", "smoke", {"seed": 7, "model": "a/b"})]
    assert capsys.readouterr().out == "_build/x.ipynb\n"


def test_bad_input_is_one_line_and_status_2(monkeypatch, capsys):
    def refuse(profile):
        raise UserError("no such thing")

    monkeypatch.setattr(execute, "run_book", refuse)
    assert call("book") == 2
    assert capsys.readouterr().err == "glauber-mlm: no such thing\n"


def test_an_interruption_ends_with_130_and_says_how_to_go_on(monkeypatch, capsys):
    def interrupt(profile):
        raise KeyboardInterrupt

    monkeypatch.setattr(execute, "run_book", interrupt)
    assert call("book") == 130
    assert "run the same command again" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "arguments", [("run",), ("nothing",), ("run", "x", "--bad"), ("run", "x", "-p", "seed")]
)
def test_usage_errors_end_with_2(arguments):
    assert call(*arguments) == 2


RUN = ("run", "rectangle_test", "-p")
TRAIN = ("train", "--corpus", "news.zip", "--out", "run")
REFUSED = [
    (),
    ("run",),
    ("run", "rectangel_test"),
    ("run", ""),
    ("run", "rectangle_test.py"),
    ("run", "../rectangle_test"),
    ("run", "rectangle_test", "mixing_times"),
    ("run", "rectangle_test", "--profil", "cpu"),
    ("run", "rectangle_test", "--profile"),
    ("run", "rectangle_test", "-p"),
    ("run", "rectangle_test", "-p", "seed"),
    *(
        ("run", "rectangle_test", "--profile", name)
        for name in ("cpuu", "", "..", "CPU", "cpu/", "a\nb", "\udcff")
    ),
    (*RUN, "seed", "7.5"),
    (*RUN, "seed", "7.0"),
    (*RUN, "seed", "true"),
    (*RUN, "seed", "null"),
    (*RUN, "seed", ""),
    (*RUN, "seed", "'7'"),
    (*RUN, "seed", "[7]"),
    (*RUN, "seed", "{a: 7}"),
    (*RUN, "seed", "-1"),
    (*RUN, "seed", "010"),
    (*RUN, "seed", "1:30"),
    (*RUN, "seed", "1:30.5"),
    (*RUN, "seed", "1e99"),
    (*RUN, "seed", "9223372036854775808"),
    (*RUN, "seed", ".nan"),
    (*RUN, "seed", "2020-01-01"),
    (*RUN, "seed", "2020-99-99"),
    (*RUN, "seed", "!!python/name:os.system"),
    (*RUN, "seed", "[" * 5000),
    (*RUN, "seed", "1", "-p", "seed", "2"),
    (*RUN, "seed", "1", "-p", "seed=1"),
    (*RUN, "profile", "x"),
    (*RUN, "sed", "7"),
    (*RUN, "Seed", "7"),
    (*RUN, "", "7"),
    (*RUN, "=7"),
    (*RUN, "dtype", "float3"),
    (*RUN, "attention", "eagr"),
    (*RUN, "device", "cuda:99"),
    (*RUN, "device", "gpu"),
    (*RUN, "model", ""),
    (*RUN, "more_models", "bert"),
    (*RUN, "more_models", "[1]"),
    (*RUN, "output", "news.zip"),
    (*RUN, "output", "news.zip/below"),
    (*RUN, "output", "x" * 300),
    ("run", "mixing_times", "-p", "lengths", "[4, 8.5]"),
    ("run", "mixing_times", "-p", "lengths", "[[4, 8]]"),
    ("run", "mixing_times", "-p", "lengths", "[]"),
    ("run", "mixing_times", "-p", "lengths", "48"),
    ("run", "mixing_times", "-p", "lengths", "'48'"),
    ("run", "mixing_times", "-p", "temperatures", "[1.0, .inf]"),
    ("run", "mixing_times", "-p", "temperatures", "[1.0, true]"),
    ("run", "mixing_times", "-p", "level", ".nan"),
    ("book", "--profile", "cpuu"),
    ("book", "--profile", ""),
    ("book", "cpu"),
    ("html", "--profile", "cpu"),
    ("html",),
    ("reference", "now"),
    ("pair", "--chek"),
    ("pair", "--check=yes"),
    ("nothing",),
    ("ruun", "rectangle_test"),
    ("bench", "--output"),
    ("bench", "--output", "."),
    ("bench", "--output", ""),
    ("bench", "--output", "news.zip/x.json"),
    ("bench", "--quick", "yes"),
    *(
        (*TRAIN, name, value)
        for name in ("--steps", "--batch", "--rank", "--alpha", "--save-every", "--stop")
        for value in ("0", "-1", "1.5", "nan", "many", "")
    ),
    *((*TRAIN, name, value) for name in ("--length", "--short-length") for value in ("2", "9.5", "inf")),
    *(
        (*TRAIN, name, value)
        for name in ("--short-share", "--rate", "--warmup", "--weight-decay", "--held-out-share")
        for value in ("nan", "inf", "-inf", "-0.1", "1.1", "much", "true")
    ),
    *(
        (*TRAIN, name, value)
        for name in ("--mask-first", "--mask-last")
        for value in ("nan", "0", "-0.1", "1.1")
    ),
    *((*TRAIN, "--seed", value) for value in ("-1", "0.5", "9223372036854775808")),
    (*TRAIN, "--length", "100000"),
    (*TRAIN, "--rank", "100000"),
    (*TRAIN, "--length", "16", "--short-length", "17"),
    (*TRAIN, "--initial", "missing"),
    (*TRAIN, "--initial", "news.zip"),
    (*TRAIN, "--initial", "."),
    (*TRAIN, "--compiled"),
    ("train", "--corpus", "missing.whl"),
    ("train", "--corpus", "."),
    ("train", "--corpus", "_toc.yml"),
    ("train", "--corpus", ""),
    ("train", "--corpus", "news.zip", "--out", "_toc.yml"),
    ("train", "--corpus", "news.zip", "--out", "_toc.yml/run"),
    ("heldout", "--corpus", "missing.whl"),
    ("heldout", "--corpus", "."),
    ("heldout", "--corpus", "_toc.yml"),
    ("heldout", "news.zip"),
    ("ship",),
    ("ship", "missing"),
    ("ship", "news.zip"),
    ("ship", ".", "--corpus", "missing.whl"),
    ("ship", ""),
]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    """A repository of stand-in chapters, with a corpus that is an archive and nothing else."""
    root = write_book(tmp_path_factory.mktemp("clone") / "book")
    with zipfile.ZipFile(root / "news.zip", "w") as archive:
        archive.writestr("other.txt", "no news")
    return root


@pytest.mark.parametrize(
    "arguments", REFUSED, ids=lambda given: " ".join(given)[:80].encode("ascii", "replace").decode()
)
def test_bad_input_of_every_kind_is_one_line_before_anything_long(clone, monkeypatch, capsys, arguments):
    monkeypatch.chdir(clone)
    monkeypatch.setattr(
        papermill, "execute_notebook", lambda *given, **options: pytest.fail("a kernel started")
    )
    monkeypatch.setattr(models, "load", lambda *given, **options: pytest.fail("a model was loaded"))
    before = sorted(clone.rglob("*"))
    assert call(*arguments) == 2
    told = capsys.readouterr()
    if arguments:  # without a command the help is shown
        assert told.out == "" and told.err.startswith("glauber-mlm: ") and told.err.count("\n") == 1
        assert 20 < len(told.err) < 700 and "Traceback" not in told.err
    else:
        assert "rectangle_test" not in told.err and "Commands" in told.out + told.err
    assert sorted(clone.rglob("*")) == before


def test_help_is_no_error(capsys):
    assert call("--help") == 0 and call("run", "--help") == 0
    assert capsys.readouterr().err == ""


def test_a_misspelt_parameter_is_told_fast_and_without_a_kernel(tmp_path):
    (tmp_path / "_toc.yml").touch()
    profile = tmp_path / "book" / "profiles" / "cpu"
    profile.mkdir(parents=True)
    (profile / "02_rectangle_test.yaml").write_text("length: 16\n")
    result = spawn(tmp_path, "run", "rectangle_test", "-p", "sed", "7")
    assert result.returncode == 2 and result.stdout == "[]\n"
    assert result.stderr.startswith(
        "glauber-mlm: unknown parameter 'sed' of chapter rectangle_test; did you mean 'seed'? allowed: "
    )
    assert not (tmp_path / "_build").exists()


def test_help_loads_no_model_library(tmp_path):
    result = spawn(tmp_path, "--help")
    assert result.returncode == 0 and result.stdout.endswith("[]\n")
    for name in ("run", "book", "html", "reference", "pair", "train", "heldout", "ship", "bench", "models"):
        assert name in result.stdout


def test_the_models_are_listed_without_loading_one(tmp_path):
    result = spawn(tmp_path, "models")
    assert result.returncode == 0 and result.stdout.endswith("[]\n")
    title, *lines = result.stdout.splitlines()[:-1]
    assert title.split("  ")[0] == "name" and "how to get it" in title
    assert [line.split()[0] for line in lines] == ["embedded", *(entry.name for entry in PRETRAINED)]
    for line, entry in zip(lines[1:], PRETRAINED, strict=True):
        assert entry.kind in line and entry.licence in line and line.endswith(entry.command)
        assert f"{entry.parameters:,}" in line and "  yes  " in line


def test_outside_a_clone_a_chapter_is_refused(tmp_path):
    result = spawn(tmp_path, "run", "rectangle_test")
    assert result.returncode == 2 and "inside a clone of the repository" in result.stderr


def test_pair_checks_and_writes(monkeypatch, capsys, tmp_path):
    (tmp_path / "_toc.yml").touch()
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "01_a.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pairing, "differences", lambda script: [f"{script.name} differs"])
    monkeypatch.setattr(pairing, "refresh", lambda script: True)
    assert call("pair", "--check") == 1 and capsys.readouterr().out == "01_a.py differs\n"
    assert call("pair") == 0 and capsys.readouterr().out == "book/01_a.ipynb: written\n"
    monkeypatch.setattr(pairing, "differences", lambda script: [])
    assert call("pair", "--check") == 0 and capsys.readouterr().out == "1 pairs agree\n"


def test_html_and_reference_tell_what_they_wrote(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(site_module, "render_reference", lambda: tmp_path / "site" / "index.html")
    monkeypatch.setattr(
        execute, "refresh_reference", lambda: {tmp_path / "a.ipynb": True, tmp_path / "b.ipynb": False}
    )
    assert call("html") == 0 and call("reference") == 0
    assert capsys.readouterr().out == "site: site/index.html\na.ipynb: refreshed\nb.ipynb: unchanged\n"


def test_train_mirrors_the_recipe(monkeypatch, capsys, tmp_path):
    from glauber_mlm.training import recipe

    options = inspect.signature(cli.train).parameters
    assert {field.name: field.default for field in dataclasses.fields(recipe.Recipe)}.items() <= {
        name: option.default for name, option in options.items()
    }.items()
    embedded = ModuleType("glauber_mlm.embedded")
    embedded.untrained_model, embedded.tokenizer = (lambda: "model"), (lambda: "tokenizer")
    monkeypatch.setitem(sys.modules, "glauber_mlm.embedded", embedded)
    seen = []
    monkeypatch.setattr(
        recipe, "train", lambda *given: seen.append(given) or tmp_path / "adapter.safetensors"
    )
    assert (
        call("train", "--out", str(tmp_path / "run"), "--corpus", "news.zip", "--steps", "7", "--no-compile")
        == 0
    )
    (given,) = seen
    assert given == (
        "model",
        "tokenizer",
        Path("news.zip"),
        tmp_path / "run",
        recipe.Recipe(steps=7),
        False,
        250,
        None,
        None,
    )


RECIPE = {"length": 48, "held_out_share": 0.1}


@pytest.fixture
def training(monkeypatch):
    """The modules of training without their work; what they were asked."""
    recipe, heldout, card, asked = ModuleType("recipe"), ModuleType("heldout"), ModuleType("card"), []
    found = {"nats": 3.2, "standard_error": 0.01, "packs": 5, "sites": 20, "articles": 2}
    recipe.Recipe = dict
    heldout.held_out_loss = lambda corpus, adapter=None, recipe=None: (
        asked.append((corpus, adapter, recipe)) or found
    )
    card.card_numbers = lambda: {"held_out": {"nats": 3.2004}, "training": {"recipe": RECIPE}}
    for name, module in {"recipe": recipe, "heldout": heldout, "card": card}.items():
        monkeypatch.setitem(sys.modules, f"glauber_mlm.training.{name}", module)
        monkeypatch.setattr(f"glauber_mlm.training.{name}", module, raising=False)
    return card, asked


def test_heldout_compares_with_the_card(training, capsys):
    _, asked = training
    assert call("heldout", "--corpus", "news.zip") == 0
    told = capsys.readouterr().out
    assert (
        "3.2000 +- 0.0100 nats" in told
        and "20 sites in 5 packs of 2 articles; the model card states 3.2004" in told
    )
    assert asked == [(Path("news.zip"), None, RECIPE)]


def test_heldout_fails_if_the_card_states_another_loss(training, capsys):
    card, _ = training
    card.card_numbers = lambda: {"held_out": {"nats": 3.21}, "training": {"recipe": RECIPE}}
    assert call("heldout", "--corpus", "news.zip") == 2
    assert "differs from the card's by more than 0.001 nats" in capsys.readouterr().err


def test_ship_evaluates_the_run_on_what_it_held_out(training, capsys, monkeypatch, tmp_path):
    card, asked = training
    shipped = []
    card.finished_training = lambda run: {"recipe": RECIPE}
    card.ship = lambda run, held_out: shipped.append((run, held_out["nats"])) or tmp_path / "MODEL_CARD.md"
    monkeypatch.chdir(tmp_path)
    assert call("ship", "run", "--corpus", "news.zip") == 0
    assert capsys.readouterr().out == "MODEL_CARD.md\n" and shipped == [(Path("run"), 3.2)]
    assert asked == [(Path("news.zip"), Path("run/adapter.safetensors"), RECIPE)]


def test_ship_evaluates_nothing_that_is_unfinished(training, capsys):
    card, asked = training

    def refuse(run):
        raise UserError(f"{run} holds no finished training run")

    card.finished_training = refuse
    assert call("ship", "run", "--corpus", "news.zip") == 2
    assert capsys.readouterr().err == "glauber-mlm: run holds no finished training run\n" and not asked


def test_bench_takes_a_file_and_a_size(monkeypatch):
    bench, seen = ModuleType("bench"), []
    bench.run_bench = lambda *given: seen.append(given)
    monkeypatch.setitem(sys.modules, "glauber_mlm.bench", bench)
    assert call("bench", "--output", "x.json") == 0 and call("bench", "--quick") == 0
    assert seen == [(Path("x.json"), False), (Path("_build/bench.json"), True)]

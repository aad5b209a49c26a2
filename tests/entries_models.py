"""Entry points about models and their starts."""

from __future__ import annotations

import math
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from bad_values import Entry, Kind, choice, listed, number, whole, word
from entries_engine import DEVICE, FLAG, OBJECTS, SEED
from tiny_models import TinyModels

from glauber_mlm import embedded, models
from glauber_mlm.conditionals.causal import CausalCandidates, LeftToRight
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.domains import load_domains
from glauber_mlm.passages import load_passages, pick
from glauber_mlm.pretrained.registry import chains_of
from glauber_mlm.text import alphabets, starts

TEXT = Kind((None, 3, True, [], b"word", math.nan, "", "   "))


@cache
def tiny() -> TinyModels:
    return TinyModels(Path(tempfile.mkdtemp()))


@cache
def bert(length: int = 8) -> MaskedLanguageModel:
    return tiny().conditionals("bert", length)


def model() -> dict[str, Any]:
    loaded = tiny().load("bert")
    return {"model": loaded.model, "tokenizer": loaded.tokenizer, "length": 5}


def candidates() -> dict[str, Any]:
    loaded = tiny().load("gpt2")
    return {"model": loaded.model, "tokenizer": loaded.tokenizer, "candidates": [[1, 2], [3]]}


LENGTH = whole(1, 38)
ENTRIES = [
    Entry(
        "glauber_mlm.models.load",
        models.load,
        lambda: {"name": str(tiny().folder("bert"))},
        {
            "name": word().also("embeded", "Embedded", "embedded ", "./nothing", "a/b/c"),
            "dtype": choice("float32", "float64", "bfloat16").also("float16", "torch.float32", torch.float32),
            "device": DEVICE,
            "attention": choice("eager", "sdpa"),
            "revision": word().but(None),
            "kind": choice("masked", "causal"),
        },
    ),
    Entry(
        "glauber_mlm.models.LoadedModel.conditionals",
        lambda **given: tiny().load("bert").conditionals(**given),
        lambda: {"length": 5},
        {
            "length": LENGTH,
            "extra_barred": listed(0.5, True, "1", None, -1, 10**6, least=0),
            "allow_special": FLAG,
        },
        {"length": (np.int64(5),), "extra_barred": ([], (50,), np.array([50]))},
    ),
    Entry(
        "glauber_mlm.conditionals.masked_lm.MaskedLanguageModel",
        MaskedLanguageModel,
        model,
        {
            "length": LENGTH,
            "frame": Kind((3, "x", [], (1, 2))),
            "extra_barred": listed(0.5, True, "1", least=0),
            "allow_special": FLAG,
        },
    ),
    Entry(
        "glauber_mlm.conditionals.masked_lm.MaskedLanguageModel.encode",
        lambda **given: bert().encode(**given),
        lambda: {"text": "the game"},
        {
            "text": TEXT.also("the [MASK] game", "the game [SEP]", "🙂", "日本", "x" * 5000),
            "unknown": choice("refuse", "drop"),
        },
    ),
    Entry(
        "glauber_mlm.conditionals.masked_lm.MaskedLanguageModel.decode",
        lambda **given: bert().decode(**given),
        lambda: {"tokens": [50, 51]},
        {"tokens": listed(0.5, True, "1", None, math.nan, [1], least=0)},
        {"tokens": ((50,), np.array([50]), torch.tensor([50]))},
    ),
    Entry(
        "glauber_mlm.conditionals.causal.CausalCandidates",
        CausalCandidates,
        candidates,
        {"candidates": listed([0.9], [True], "1", None, [], [-1], [10**6], 3)},
    ),
    Entry(
        "glauber_mlm.conditionals.causal.LeftToRight",
        LeftToRight,
        lambda: {"conditionals": bert()},
        {"conditionals": OBJECTS},
    ),
    Entry(
        "glauber_mlm.passages.load_passages",
        load_passages,
        lambda: {"topics": ["politics"]},
        {"topics": Kind((3, True, 1.5, [3], [None], ["politic"], "politic", [["politics"]]))},
    ),
    Entry(
        "glauber_mlm.passages.pick",
        pick,
        lambda: {"passages": load_passages(), "count": 2, "seed": 1},
        {"passages": Kind((None, 3, "x", True)), "count": whole(0, 112), "seed": SEED},
    ),
    Entry(
        "glauber_mlm.text.starts.passage_states",
        starts.passage_states,
        lambda: {"conditionals": bert(), "passages": load_passages()[:2]},
        {"passages": Kind((None, 3, "x", True, ["the game"], [None]))},
    ),
    Entry(
        "glauber_mlm.text.starts.starting_states",
        starts.starting_states,
        lambda: {"conditionals": bert(), "count": 2, "seed": 1},
        {"count": whole(0, 112), "seed": SEED},
    ),
    Entry(
        "glauber_mlm.text.starts.starting_pairs",
        starts.starting_pairs,
        lambda: {"conditionals": bert(), "pairs": 2, "seed": 1},
        {"pairs": whole(1, 56), "seed": SEED},
    ),
    Entry(
        "glauber_mlm.text.starts.cell_chains",
        starts.cell_chains,
        lambda: {"length": 8, "temperature": 1.0, "count": 3},
        {"length": whole(1), "temperature": number(-1.0, 1e9), "count": whole(0, 4096)},
    ),
    Entry(
        "glauber_mlm.embedded.embed_texts",
        embedded.embed_texts,
        lambda: {"texts": ["the game"]},
        {"texts": listed(3, None, True, "", [], b"x")},
    ),
    Entry(
        "glauber_mlm.embedded.load_embedder",
        embedded.load_embedder,
        lambda: {"folder": embedded.encoder_folder()},
        {"folder": Kind((None, 3, "", [], Path("nowhere"), Path(__file__)))},
    ),
    Entry(
        "glauber_mlm.models.passage_digest",
        models.passage_digest,
        lambda: {"texts": ["a"]},
        {"texts": listed(3, None, True, least=0)},
    ),
    Entry(
        "glauber_mlm.text.alphabets.starts_for",
        alphabets.starts_for,
        lambda: {"conditionals": bert(), "count": 2, "seed": 1},
        {"count": whole(1), "seed": SEED, "chains": word()},
    ),
    Entry(
        "glauber_mlm.domains.load_domains",
        load_domains,
        lambda: {"chains": "HK"},
        {"chains": word().also("X", "HX", "hk")},
    ),
    Entry(
        "glauber_mlm.pretrained.registry.chains_of",
        chains_of,
        lambda: {"name": "antiberty"},
        {},
    ),
]

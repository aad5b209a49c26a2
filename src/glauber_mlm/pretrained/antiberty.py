"""AntiBERTy: a BERT of 8 layers trained on 558 million antibody sequences, with three classifiers that are left out here."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import BertConfig, BertForMaskedLM

from glauber_mlm.pretrained.residues import residue_tokenizer

CLASSIFIERS = ("cls.species.", "cls.chain.", "cls.graft.")
_SIZES = (
    "hidden_act",
    "hidden_size",
    "intermediate_size",
    "layer_norm_eps",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_layers",
    "pad_token_id",
    "type_vocab_size",
    "vocab_size",
)


def convert(files: Sequence[Path], folder: Path) -> None:
    """Save model and tokenizer in `folder`, from the checkpoint, its configuration and its vocabulary."""
    checkpoint, configuration, vocabulary = files
    sizes = json.loads(configuration.read_text(encoding="utf-8"))
    config = BertConfig(**{name: sizes[name] for name in _SIZES})
    model = BertForMaskedLM(config).eval()
    model.load_state_dict(renamed(torch.load(checkpoint, weights_only=True, map_location="cpu")))
    model.save_pretrained(folder)
    residue_tokenizer(
        vocabulary.read_text(encoding="utf-8").split(),
        begin="[CLS]",
        end="[SEP]",
        pad="[PAD]",
        unknown="[UNK]",
        mask="[MASK]",
        longest=config.max_position_embeddings,
    ).save_pretrained(folder)


def renamed(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of `BertForMaskedLM`, under its names: without classifiers, pooler, and positions that are counted anyway."""
    dropped = (*CLASSIFIERS, "bert.pooler.", "bert.embeddings.position_ids")
    return {name: tensor for name, tensor in weights.items() if not name.startswith(dropped)}

"""Sapiens: two RoBERTas of 4 layers trained by fairseq on human antibodies, one for heavy and one for light chains."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import RobertaConfig, RobertaForMaskedLM

from glauber_mlm.pretrained.residues import residue_tokenizer

BEFORE_RESIDUES = ("<s>", "<pad>", "</s>", "<unk>")  # fairseq puts these before the symbols of the dictionary
MASK = "<mask>"  # and the mask, which masked training adds, behind them
PADDING = BEFORE_RESIDUES.index("<pad>")
LAYER_NORM_EPSILON = 1e-5  # torch's default, which fairseq leaves as it is
# From fairseq's names, without `decoder.` or `decoder.sentence_encoder.`, to those of transformers.
NAMES = (
    (r"embed_tokens\.", "roberta.embeddings.word_embeddings."),
    (r"embed_positions\.", "roberta.embeddings.position_embeddings."),
    (r"emb_layer_norm\.", "roberta.embeddings.LayerNorm."),
    (r"layers\.(\d+)\.self_attn\.q_proj\.", r"roberta.encoder.layer.\1.attention.self.query."),
    (r"layers\.(\d+)\.self_attn\.k_proj\.", r"roberta.encoder.layer.\1.attention.self.key."),
    (r"layers\.(\d+)\.self_attn\.v_proj\.", r"roberta.encoder.layer.\1.attention.self.value."),
    (r"layers\.(\d+)\.self_attn\.out_proj\.", r"roberta.encoder.layer.\1.attention.output.dense."),
    (r"layers\.(\d+)\.self_attn_layer_norm\.", r"roberta.encoder.layer.\1.attention.output.LayerNorm."),
    (r"layers\.(\d+)\.fc1\.", r"roberta.encoder.layer.\1.intermediate.dense."),
    (r"layers\.(\d+)\.fc2\.", r"roberta.encoder.layer.\1.output.dense."),
    (r"layers\.(\d+)\.final_layer_norm\.", r"roberta.encoder.layer.\1.output.LayerNorm."),
    (r"lm_head\.weight", "lm_head.decoder.weight"),
    (r"lm_head\.bias", "lm_head.bias"),
    (r"lm_head\.(dense|layer_norm)\.", r"lm_head.\1."),
)


def convert(files: Sequence[Path], folder: Path) -> None:
    """Save model and tokenizer in `folder`, from a checkpoint of fairseq and its dictionary."""
    checkpoint, dictionary = files
    with torch.serialization.safe_globals([argparse.Namespace]):
        saved = torch.load(checkpoint, weights_only=True, map_location="cpu")
    settings, weights = saved["args"], renamed(saved["model"])
    tokens = [*BEFORE_RESIDUES, *(line.split()[0] for line in dictionary.read_text().splitlines()), MASK]
    model = RobertaForMaskedLM(_configuration(settings, len(tokens))).eval()
    model.load_state_dict(weights)
    model.save_pretrained(folder)
    residue_tokenizer(
        tokens,
        begin="<s>",
        end="</s>",
        pad="<pad>",
        unknown="<unk>",
        mask=MASK,
        longest=settings.max_positions,
    ).save_pretrained(folder)


def _configuration(settings: argparse.Namespace, vocabulary: int) -> RobertaConfig:
    return RobertaConfig(
        vocab_size=vocabulary,
        hidden_size=settings.encoder_embed_dim,
        num_hidden_layers=settings.encoder_layers,
        num_attention_heads=settings.encoder_attention_heads,
        intermediate_size=settings.encoder_ffn_embed_dim,
        hidden_act=settings.activation_fn,
        max_position_embeddings=settings.max_positions
        + PADDING
        + 1,  # positions start after the padding index
        type_vocab_size=1,
        layer_norm_eps=LAYER_NORM_EPSILON,
        bos_token_id=BEFORE_RESIDUES.index("<s>"),
        pad_token_id=PADDING,
        eos_token_id=BEFORE_RESIDUES.index("</s>"),
        tie_word_embeddings=True,
    )


def renamed(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors of `RobertaForMaskedLM`, under its names; what fairseq has no tensor for is zero or shared."""
    named = {_renamed(name): tensor for name, tensor in weights.items()}
    width = named["roberta.embeddings.word_embeddings.weight"].shape[1]
    named["roberta.embeddings.token_type_embeddings.weight"] = torch.zeros(1, width)
    named["lm_head.decoder.bias"] = named["lm_head.bias"]
    return named


def _renamed(name: str) -> str:
    bare = name.removeprefix("decoder.").removeprefix("sentence_encoder.")
    pattern, replacement = next(pair for pair in NAMES if re.match(pair[0], bare))
    return re.sub(f"^{pattern}", replacement, bare)

"""A public antibody, and what must hold of a model of antibodies on it: the same logits by hand, and figures measured before.

Trastuzumab's variable domains are public: they are in the drug's label and in structures of the Protein Data Bank.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear

from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.models import LoadedModel
from glauber_mlm.pretrained.registry import find
from glauber_mlm.pretrained.wheels import installed_files

Loader = Callable[[str], LoadedModel]  # the fixture `pretrained`

HEAVY = "EVQLVESGGGLVQPGGSLRLSCAASGFNIKDTYIHWVRQAPGKGLEWVARIYPTNGYTRYADSVKGRFTISADTSKNTAYLQMNSLRAEDTAVYYCSRWGGDGFYAMDYWGQGTLVTVSS"
LIGHT = "DIQMTQSPSSLSASVGDRVTITCRASQDVNTAVAWYQQKPGKAPKLLIYSASFLYSGVPSRFSGSRSGTDFTLTISSLQPEDFATYYCQQHYTTPPTFGQGTKVEIK"
# Pseudo-log-likelihood in nats a residue, and the share of residues that are the argmax of their conditional.
FIGURES = {
    ("sapiens-vh", HEAVY): (-0.989, 0.767),
    ("sapiens-vl", LIGHT): (-0.627, 0.850),
    ("antiberty", HEAVY): (-0.645, 0.842),
    ("antiberty", LIGHT): (-0.582, 0.841),
}
TOLERANCE = 0.005  # of both

# Names in the checkpoints; a layer's number goes into the braces.
FAIRSEQ = {
    "words": "decoder.sentence_encoder.embed_tokens",
    "positions": "decoder.sentence_encoder.embed_positions",
    "first norm": "decoder.sentence_encoder.emb_layer_norm",
    "query": "decoder.sentence_encoder.layers.{}.self_attn.q_proj",
    "key": "decoder.sentence_encoder.layers.{}.self_attn.k_proj",
    "value": "decoder.sentence_encoder.layers.{}.self_attn.v_proj",
    "mixed": "decoder.sentence_encoder.layers.{}.self_attn.out_proj",
    "attention norm": "decoder.sentence_encoder.layers.{}.self_attn_layer_norm",
    "wide": "decoder.sentence_encoder.layers.{}.fc1",
    "narrow": "decoder.sentence_encoder.layers.{}.fc2",
    "last norm": "decoder.sentence_encoder.layers.{}.final_layer_norm",
    "head": "decoder.lm_head.dense",
    "head norm": "decoder.lm_head.layer_norm",
    "scores": "decoder.lm_head",
}
BERT = {
    "words": "bert.embeddings.word_embeddings",
    "positions": "bert.embeddings.position_embeddings",
    "types": "bert.embeddings.token_type_embeddings",
    "first norm": "bert.embeddings.LayerNorm",
    "query": "bert.encoder.layer.{}.attention.self.query",
    "key": "bert.encoder.layer.{}.attention.self.key",
    "value": "bert.encoder.layer.{}.attention.self.value",
    "mixed": "bert.encoder.layer.{}.attention.output.dense",
    "attention norm": "bert.encoder.layer.{}.attention.output.LayerNorm",
    "wide": "bert.encoder.layer.{}.intermediate.dense",
    "narrow": "bert.encoder.layer.{}.output.dense",
    "last norm": "bert.encoder.layer.{}.output.LayerNorm",
    "head": "cls.predictions.transform.dense",
    "head norm": "cls.predictions.transform.LayerNorm",
    "scores": "cls.predictions.decoder",
}


class ByHand:
    """An encoder with the norm behind each block, as BERT and fairseq's RoBERTa have it, in float64 from a checkpoint's own tensors."""

    def __init__(
        self, weights: dict[str, Tensor], names: dict[str, str], layers: int, first: int, epsilon: float
    ) -> None:
        self.weights, self.names, self.layers = weights, names, layers
        self.first, self.epsilon = first, epsilon

    def _get(self, role: str, what: str, layer: int) -> Tensor:
        return self.weights[f"{self.names[role].format(layer)}.{what}"].double()

    def _map(self, values: Tensor, role: str, layer: int = 0) -> Tensor:
        return linear(values, self._get(role, "weight", layer), self._get(role, "bias", layer))

    def _norm(self, values: Tensor, role: str, layer: int = 0) -> Tensor:
        gain, shift = (self._get(role, what, layer) for what in ("weight", "bias"))
        return layer_norm(values, gain.shape, gain, shift, self.epsilon)

    def _attention(self, values: Tensor, layer: int) -> Tensor:
        heads = [
            self._map(values, role, layer).unflatten(-1, (8, -1)).transpose(0, 1)
            for role in ("query", "key", "value")
        ]
        query, key, value = heads  # each (heads, tokens, width of a head)
        scores = query @ key.transpose(1, 2) / query.shape[-1] ** 0.5
        return (scores.softmax(dim=-1) @ value).transpose(0, 1).flatten(1)

    def logits(self, ids: Tensor) -> Tensor:
        """Rows of all tokens of one sequence, frame included: float64, shape (n, V)."""
        values = self._get("words", "weight", 0)[ids]
        values = values + self._get("positions", "weight", 0)[self.first : self.first + len(ids)]
        if "types" in self.names:
            values = values + self._get("types", "weight", 0)[0]
        values = self._norm(values, "first norm")
        for layer in range(self.layers):
            mixed = self._map(self._attention(values, layer), "mixed", layer)
            values = self._norm(values + mixed, "attention norm", layer)
            wide = gelu(self._map(values, "wide", layer))
            values = self._norm(values + self._map(wide, "narrow", layer), "last norm", layer)
        return self._map(self._norm(gelu(self._map(values, "head")), "head norm"), "scores")


def by_hand(name: str) -> ByHand:
    """The encoder of a pretrained model of antibodies, from the installed checkpoint as it is."""
    file = installed_files(find(name))[0]
    if name == "antiberty":
        return ByHand(_read(file), BERT, layers=8, first=0, epsilon=1e-12)
    return ByHand(_read(file)["model"], FAIRSEQ, layers=4, first=2, epsilon=1e-5)


def _read(file: Path) -> dict:
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(file, weights_only=True, map_location="cpu")


def distance_to_hand(loaded: LoadedModel, name: str, sequence: str) -> float:
    """Largest difference between the logits of a converted model and those by hand, on a sequence of which every tenth residue is masked."""
    tokenizer = loaded.tokenizer
    ids = torch.tensor(tokenizer(sequence)["input_ids"])
    ids[5:-5:10] = tokenizer.mask_token_id
    with torch.inference_mode():
        return float((loaded.model(input_ids=ids[None]).logits[0] - by_hand(name).logits(ids)).abs().max())


def figures(conditionals: MaskedLanguageModel, sequence: str) -> tuple[float, float]:
    """Pseudo-log-likelihood in nats a residue, and the share of residues that are the argmax of their conditional."""
    count = len(sequence)
    state = torch.tensor([conditionals.encode(sequence)])
    rows = conditionals.logits(state.expand(count, -1), torch.arange(count)).double().log_softmax(dim=1)
    own = rows.gather(1, state.T)[:, 0]
    return float(own.mean()), float((own == rows.amax(dim=1)).double().mean())

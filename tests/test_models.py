"""Loading by name: what is refused, what is recorded, and that a saved model comes back as it was."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from tiny_models import BUILDERS, TinyModels, random_states, randomise
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertModel
from transformers.utils import logging as transformers_logging

from glauber_mlm import embedded, models
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.errors import UserError

pytest_plugins = ("tiny_fixtures",)


def refusal(*arguments, **options) -> str:
    with pytest.raises(UserError) as caught:
        models.load(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 400
    return message


@pytest.fixture
def copied(tiny: TinyModels, tmp_path: Path) -> Path:
    """A BERT folder to spoil."""
    return Path(shutil.copytree(tiny.folder("bert"), tmp_path / "copy"))


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "distilbert", "gpt2"])
def test_a_loaded_model_is_frozen_and_in_the_dtype_asked_for(tiny: TinyModels, name: str):
    for label, dtype in models.DTYPES.items():
        loaded = tiny.load(name, label)
        assert not loaded.model.training
        assert {(parameter.dtype, parameter.requires_grad) for parameter in loaded.model.parameters()} == {
            (dtype, False)
        }
        assert torch.get_default_dtype() == torch.float32
    for attention in ("sdpa", "eager"):
        assert tiny.load(name, attention=attention).model.config._attn_implementation == attention


def test_the_description_is_json_and_says_which_model_it_is(tiny: TinyModels):
    loaded = tiny.load("bert", "bfloat16", "eager")
    described = json.loads(json.dumps(loaded.describe()))
    assert described == {
        "model": str(tiny.folder("bert")),
        "revision": None,
        "dtype": "bfloat16",
        "device": "cpu",
        "attention": "eager",
        "weights": loaded.digest[:16],
        "parameters": loaded.model.num_parameters(),
    }
    digests = {tiny.load(name, dtype).digest for name in ("bert", "roberta") for dtype in models.DTYPES}
    assert len(digests) == 6
    assert tiny.load("bert", attention="sdpa").digest == tiny.load("bert", attention="eager").digest


def test_a_revision_is_recorded(tiny: TinyModels):
    assert models.load(str(tiny.folder("bert")), revision="main").describe()["revision"] == "main"


def test_conditionals_carry_the_digest_and_the_options(tiny: TinyModels):
    loaded = tiny.load("bert")
    conditionals = loaded.conditionals(7, extra_barred=[50], allow_special=True)
    assert (conditionals.length, conditionals.barred, conditionals.vocabulary) == (
        7,
        [50],
        loaded.model.config.vocab_size,
    )
    by_hand = MaskedLanguageModel(
        loaded.model, loaded.tokenizer, 7, extra_barred=[50], allow_special=True, identity=loaded.digest
    )
    assert conditionals.fingerprint == by_hand.fingerprint


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert"])
def test_a_folder_gives_back_the_model_that_was_saved_there(tmp_path: Path, name: str):
    model, tokenizer = BUILDERS[name]()
    randomise(model, seed=99).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    direct = MaskedLanguageModel(model, tokenizer, 9)
    loaded = models.load(str(tmp_path)).conditionals(9)
    states, sites = random_states(direct, 20, seed=1)
    assert loaded.fingerprint == direct.fingerprint
    assert torch.equal(loaded.logits(states, sites), direct.logits(states, sites))
    text = "the best player won the game !"
    assert loaded.encode(text) == direct.encode(text)


@pytest.mark.parametrize("folder", ["bert", "bert_without_head"])
def test_an_encoder_without_its_head_is_refused(tiny: TinyModels, tmp_path: Path, folder: str):
    if folder == "bert_without_head":
        path = tiny.folder(folder)
    else:  # the encoder cut out of a masked language model: the same weights, saved without the head
        path = tmp_path / "encoder"
        BertModel.from_pretrained(tiny.folder("bert")).save_pretrained(path)
        tiny.load("bert").tokenizer.save_pretrained(path)
    message = refusal(str(path))
    assert (
        "no trained masked language-model head" in message
        and "cls.predictions" in message
        and "saved with its head" in message
    )
    model, report = AutoModelForMaskedLM.from_pretrained(path, output_loading_info=True)
    assert any(
        "cls.predictions" in key for key in report["missing_keys"]
    )  # transformers itself goes on, with random weights


def test_a_checkpoint_that_lacks_a_layer_or_has_other_shapes_is_refused(copied: Path):
    config = json.loads((copied / "config.json").read_text())
    for change in (
        {"num_hidden_layers": config["num_hidden_layers"] + 1},
        {"vocab_size": config["vocab_size"] + 5},
    ):
        (copied / "config.json").write_text(json.dumps(config | change))
        assert "would be random" in refusal(str(copied))
    (copied / "config.json").write_text(json.dumps(config))
    models.load(str(copied))


def test_a_causal_model_is_no_masked_one(tiny: TinyModels):
    assert "gpt2 model, which transformers cannot load as a masked language model" in refusal(
        str(tiny.folder("gpt2"))
    )
    assert "cannot load as a causal language model" in refusal(str(tiny.folder("distilbert")), kind="causal")
    assert tiny.load("gpt2").tokenizer.mask_token is None


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_an_encoder_is_no_control(tiny: TinyModels, name: str):
    assert "sees both sides of a token" in refusal(
        str(tiny.folder(name)), kind="causal"
    )  # transformers would load it with its attention unmasked


def test_a_tokenizer_without_a_mask_token_is_refused(tmp_path: Path, tiny: TinyModels):
    tiny.load("bert").model.save_pretrained(tmp_path)
    tiny.load("gpt2").tokenizer.save_pretrained(tmp_path)
    assert "has no mask token" in refusal(str(tmp_path))


def test_a_folder_without_a_tokenizer_is_refused(copied: Path):
    for file in copied.iterdir():
        if "token" in file.name or "vocab" in file.name:
            file.unlink()
    assert len(AutoTokenizer.from_pretrained(copied).get_vocab()) < 10  # transformers makes one up
    assert "holds no tokenizer" in refusal(str(copied))


def test_what_is_not_there_is_refused_by_name(tmp_path: Path, copied: Path):
    for name in (str(tmp_path / "nothing"), "./nothing", "~/nothing", "a/b/c"):
        assert f"there is no folder {name}" in refusal(name)
    for name in ("no-such-owner/no-such-model", "not a name"):
        assert refusal(name).startswith(f"cannot load {name!r}")
    (tmp_path / "empty").mkdir()
    assert "config.json" in refusal(str(tmp_path / "empty"))
    (copied / "model.safetensors").unlink()
    assert "model.safetensors" in refusal(str(copied))


def test_torn_files_are_refused(copied: Path):
    for file in ("model.safetensors", "config.json", "tokenizer.json"):
        whole = (copied / file).read_bytes()
        (copied / file).write_bytes(whole[: len(whole) // 2])
        assert refusal(str(copied)).startswith("cannot load")
        (copied / file).write_bytes(whole)
    models.load(str(copied))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"dtype": "float16"},
            "dtype is 'float16'; did you mean 'bfloat16'? allowed: float32, float64, bfloat16",
        ),
        ({"dtype": "torch.float32"}, "did you mean 'float32'?"),
        ({"device": "gpu"}, "device 'gpu' cannot be used here"),
        ({"device": "mps"}, "device 'mps' cannot be used here"),
        ({"device": "cuda:99"}, "device 'cuda:99' cannot be used here"),
        ({"device": ""}, "'cpu' always works"),
        ({"attention": "flash"}, "attention is 'flash'; allowed: eager, sdpa"),
    ],
)
def test_unknown_choices_are_refused(tiny: TinyModels, options: dict, expected: str):
    assert expected in refusal(str(tiny.folder("bert")), **options)


def test_an_attention_that_a_model_lacks_is_named(tiny: TinyModels):
    assert "does not offer attention 'sdpa'; choose 'eager'" in refusal(str(tiny.folder("mpnet")))


def test_the_embedded_model_has_no_kinds_and_no_revisions():
    assert "masked" in refusal(embedded.NAME, kind="causal")
    assert "no revisions" in refusal(embedded.NAME, revision="main")


def test_refusals_leave_the_verbosity_of_transformers_alone(tiny: TinyModels):
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_info()
    try:
        refusal(str(tiny.folder("bert_without_head")))
        refusal("no-such-owner/no-such-model")
        assert transformers_logging.get_verbosity() == transformers_logging.INFO
    finally:
        transformers_logging.set_verbosity(before)


def test_nothing_here_reaches_for_the_network():
    assert os.environ["HF_HUB_OFFLINE"] == "1"


def test_passage_digests_tell_lists_apart():
    digests = [models.passage_digest(texts) for texts in (["ab", "c"], ["a", "bc"], ["abc"], ["c", "ab"], [])]
    assert (
        len(set(digests)) == 5
        and models.passage_digest(["ab", "c"]) == digests[0]
        and {len(digest) for digest in digests} == {16}
    )

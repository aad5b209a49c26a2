"""SmolLM2-135M-Instruct: a causal model of text, stored as GGUF in 4 bits a weight."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import redirect_stderr
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from glauber_mlm.errors import UserError


def convert(files: Sequence[Path], folder: Path) -> None:
    """Save model, in float32, and tokenizer in `folder`, from a GGUF file.

    Raises
    ------
    UserError
        If the package `gguf`, with which transformers reads such files, is not installed.
    """
    if find_spec("gguf") is None:
        raise UserError(
            "model smollm2 is stored as GGUF, and the package that reads it is not installed; run 'python -m pip install gguf'"
        )
    (file,) = files
    stored = {"gguf_file": file.name, "local_files_only": True}
    with redirect_stderr(StringIO()):  # a progress bar that transformers' own switch leaves on
        loaded = AutoModelForCausalLM.from_pretrained(file.parent, dtype=torch.float32, **stored)
    plain(loaded).save_pretrained(folder)
    AutoTokenizer.from_pretrained(file.parent, **stored).save_pretrained(folder)


def plain(loaded: LlamaForCausalLM) -> LlamaForCausalLM:
    """The same model without the mark of its quantization, which would keep transformers from saving it."""
    settings = loaded.config.to_dict()
    settings.pop("quantization_config")
    model = LlamaForCausalLM(LlamaConfig(**settings)).eval()
    model.load_state_dict(loaded.state_dict())
    return model

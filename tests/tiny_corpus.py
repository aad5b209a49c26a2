"""A corpus of twelve articles in the form of the real one."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import numpy as np
from tiny_models import TEXTS

from glauber_mlm.training.corpus import TABLE_IN_ARCHIVE


def write_news(path: Path, articles: int = 12) -> Path:
    """Articles of 90 words that the tiny tokenizers know."""
    known = [word for text in TEXTS for word in text.split()]
    table = io.StringIO()
    writer = csv.writer(table)
    writer.writerow(["title", "text"])
    draws = [np.random.Generator(np.random.Philox([2, number])) for number in range(articles)]
    writer.writerows(("", " ".join(draw.choice(known, size=90))) for draw in draws)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(TABLE_IN_ARCHIVE, table.getvalue())
    return path

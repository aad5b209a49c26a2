"""The claims ledger and the table made of it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser

import pytest

from glauber_mlm.chapters.base.claims import CLAIMS, Verdict
from glauber_mlm.chapters.base.ledger import COLUMNS, Ledger, read_ledger
from glauber_mlm.chapters.base.parameters import CHAPTERS, validate
from glauber_mlm.chapters.scoreboard.words import ScoreboardTable, scoreboard_html, scoreboard_markdown
from glauber_mlm.errors import UserError


def ledger(folder, chapter: str) -> Ledger:
    return Ledger(folder, chapter, validate(chapter, {"profile": "smoke", "seed": 7}))


def test_the_claims_are_those_of_the_paper():
    assert list(CLAIMS) == ["R1", "R2", "R3", "T1", "T2", "T3", "M1", "M2", "M3", "S1", "S2", "S3", "S4"]
    for claim in CLAIMS.values():
        assert claim.chapter in CHAPTERS and claim.rule and claim.statement and claim.paper
    assert [claim.id for claim in CLAIMS.values() if claim.kind == "theorem"] == ["T1", "T2"]


def test_an_empty_ledger_reads_not_run(tmp_path):
    frame = read_ledger(tmp_path)
    assert tuple(frame.columns) == COLUMNS and list(frame["claim"]) == list(CLAIMS)
    assert set(frame["verdict"]) == {"not run"} and set(frame["ours"]) == {""}


def test_a_record_is_read_back_with_the_declared_rule(tmp_path):
    ledger(tmp_path, "rectangle_test").record(
        "R1", "mean |delta| = 0.53", Verdict.AGREES, interval="0.50-0.56, 95 %", note="n = 16"
    )
    row = read_ledger(tmp_path).set_index("claim").loc["R1"]
    assert list(row[["ours", "interval", "model", "profile"]]) == [
        "mean |delta| = 0.53",
        "0.50-0.56, 95 %",
        "embedded",
        "smoke",
    ]
    assert (row["verdict"], row["rule"]) == ("agrees", CLAIMS["R1"].rule)
    stored = json.loads((tmp_path / "ledger" / "R1.json").read_text())
    assert (stored["seed"], stored["dtype"], stored["note"], stored["chapter"]) == (
        7,
        "float32",
        "n = 16",
        "rectangle_test",
    )


def test_clear_forgets_the_claims_of_one_chapter(tmp_path):
    ledger(tmp_path, "rectangle_test").record("R1", "x", Verdict.AGREES)
    ledger(tmp_path, "theory_checks").record("T1", "x", Verdict.NO_VIOLATION_FOUND)
    ledger(tmp_path, "rectangle_test").clear()
    assert sorted(path.name for path in (tmp_path / "ledger").iterdir()) == ["T1.json"]


@pytest.mark.parametrize("verdict", list(Verdict))
def test_theorems_are_never_confirmed(tmp_path, verdict):
    if verdict in (Verdict.NO_VIOLATION_FOUND, Verdict.VIOLATED, Verdict.NOT_RUN):
        ledger(tmp_path, "theory_checks").record("T1", "x", verdict)
    else:
        with pytest.raises(UserError, match="does not take the verdict"):
            ledger(tmp_path, "theory_checks").record("T1", "x", verdict)


@pytest.mark.parametrize("verdict", [Verdict.NO_VIOLATION_FOUND, Verdict.VIOLATED, "reproduced"])
def test_findings_take_no_verdict_of_theorems(tmp_path, verdict):
    with pytest.raises(UserError, match="does not take the verdict"):
        ledger(tmp_path, "rectangle_test").record("R1", "x", verdict)


def test_claims_of_other_chapters_and_unknown_claims_are_refused(tmp_path):
    with pytest.raises(UserError, match="recorded by chapter theory_checks, not by rectangle_test"):
        ledger(tmp_path, "rectangle_test").record("T1", "x", Verdict.VIOLATED)
    with pytest.raises(UserError, match="unknown claim 'R9'"):
        ledger(tmp_path, "rectangle_test").record("R9", "x", Verdict.AGREES)


@pytest.mark.parametrize("damage", ["{", "[]", '{"verdict": "agrees"}', None])
def test_a_damaged_record_is_told(tmp_path, damage):
    book = ledger(tmp_path, "theory_checks")
    book.record("T1", "x", Verdict.VIOLATED)
    path = tmp_path / "ledger" / "T1.json"
    path.write_text(path.read_text().replace("violated", "agrees") if damage is None else damage)
    with pytest.raises(UserError, match="run chapter theory_checks again"):
        book.frame()


class Rows(HTMLParser):
    """Counts table rows and checks that tags close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows = 0

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.rows += tag == "tr"

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_table_holds_every_claim_and_escapes_text(tmp_path):
    ledger(tmp_path, "rectangle_test").record("R1", "|delta| < 1 & > 0", Verdict.UNDECIDED)
    ledger(tmp_path, "theory_checks").record("T1", "3 <b>", Verdict.VIOLATED)
    frame = read_ledger(tmp_path)
    html = scoreboard_html(frame)
    rows = Rows()
    rows.feed(html)
    assert rows.rows == len(CLAIMS) + 1 and not rows.open
    assert "|delta| &lt; 1 &amp; &gt; 0" in html and "3 &lt;b&gt;" in html and "verdict-undecided" in html
    assert not re.search(r"<script|src=|href=|url\(", html)
    assert re.findall(r"<strong>(\w+)</strong>", html) == list(CLAIMS)


def test_the_markdown_table_keeps_its_columns(tmp_path):
    ledger(tmp_path, "rectangle_test").record("R1", "|delta| = 1", Verdict.AGREES)
    table = [line for line in scoreboard_markdown(read_ledger(tmp_path)).splitlines() if line.startswith("|")]
    assert len(table) == len(CLAIMS) + 2
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {8}


def test_the_table_object_offers_html_markdown_and_text(tmp_path):
    table = ScoreboardTable(read_ledger(tmp_path))
    assert table._repr_html_().startswith("<div") and table._repr_markdown_() == repr(table)

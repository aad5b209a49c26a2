"""The scoreboard: the claims ledger as one table, for the book and for GitHub."""

from __future__ import annotations

from html import escape

import pandas as pd

from glauber_mlm.chapters.base.claims import Verdict
from glauber_mlm.chapters.base.ledger import COLUMNS
from glauber_mlm.errors import UserError

# Dark text on a pale ground, readable in a light and in a dark theme.
_COLOURS: dict[str, tuple[str, str]] = {
    Verdict.AGREES: ("#0b5d1e", "#d9f2e0"),
    Verdict.NO_VIOLATION_FOUND: ("#0b5d1e", "#d9f2e0"),
    Verdict.DISAGREES: ("#8a1c1c", "#fbe0de"),
    Verdict.VIOLATED: ("#8a1c1c", "#fbe0de"),
    Verdict.UNDECIDED: ("#6b4a00", "#fdf0cf"),
    Verdict.NOT_RUN: ("#4a4f57", "#e8eaed"),
}
_HEADINGS = ("Claim", "What is claimed", "Paper", "Ours", "Model", "Profile", "Verdict")
_SHOWN = ("Claim", "Verdict", "What is claimed", "Paper", "Ours")
_CELL = "text-align: left; vertical-align: top; padding: 0.4em 0.6em 0.4em 0;"
_SMALL = "font-size: 0.85em; opacity: 0.75;"


class ScoreboardTable:
    """Shown as HTML where that is possible (the book, JupyterLab), else as Markdown.

    Parameters
    ----------
    frame : DataFrame
        As `glauber_mlm.chapters.base.ledger.read_ledger` gives it; rows keep its order.

    Raises
    ------
    UserError
        If it is no such table.
    """

    def __init__(self, frame: pd.DataFrame) -> None:
        if not isinstance(frame, pd.DataFrame) or not set(COLUMNS) <= set(frame.columns):
            raise UserError(f"frame is {type(frame).__name__}; give the table that `read_ledger` returns")
        self.frame = frame

    def _repr_html_(self) -> str:
        return scoreboard_html(self.frame)

    def _repr_markdown_(self) -> str:
        return scoreboard_markdown(self.frame)

    def __repr__(self) -> str:
        return scoreboard_markdown(self.frame)


def _ours(row: pd.Series) -> str:
    return f"{row['ours']} ({row['interval']})" if row["interval"] else row["ours"] or "-"


def scoreboard_html(frame: pd.DataFrame) -> str:
    """The ledger as an HTML table without scripts or outside resources; the decision rule unfolds below each claim."""
    head = "".join(f'<th style="{_CELL}">{heading}</th>' for heading in _SHOWN)
    rows = []
    for _, row in frame.iterrows():
        ink, ground = _COLOURS[row["verdict"]]
        badge = (
            f'<span class="verdict verdict-{row["verdict"].replace(" ", "-")}" style="color: {ink}; background: {ground}; '
            f'padding: 0.1em 0.5em; border-radius: 0.6em; display: inline-block;">{escape(row["verdict"])}</span>'
        )
        statement = f"{escape(row['statement'])}<details><summary>decision rule</summary>{escape(row['rule'])}</details>"
        origin = (
            f'<div style="{_SMALL}">{escape(row["model"])}, profile {escape(row["profile"])}</div>'
            if row["model"]
            else ""
        )
        note = f'<div style="{_SMALL}">{escape(row["note"])}</div>' if row["note"] else ""
        cells = [
            f"<strong>{escape(row['claim'])}</strong>",
            badge,
            statement,
            escape(row["paper"]),
            escape(_ours(row)) + note + origin,
        ]
        rows.append("<tr>" + "".join(f'<td style="{_CELL}">{cell}</td>' for cell in cells) + "</tr>")
    table = (
        f'<table class="scoreboard" style="font-size: 0.85em; width: 100%;"><thead><tr>{head}</tr></thead><tbody>\n'
        + "\n".join(rows)
        + "\n</tbody></table>"
    )
    return f'<div style="overflow-x: auto;">{table}</div>'


def scoreboard_markdown(frame: pd.DataFrame) -> str:
    """The ledger as a Markdown table, with the decision rules as a list below it."""

    def line(cells) -> str:
        return "| " + " | ".join(str(cell).replace("|", r"\|").replace("\n", " ") for cell in cells) + " |"

    table = [line(_HEADINGS), line(["---"] * len(_HEADINGS))]
    for _, row in frame.iterrows():
        table.append(
            line(
                [
                    row["claim"],
                    row["statement"],
                    row["paper"],
                    " ".join(filter(None, (_ours(row), row["note"]))),
                    row["model"] or "-",
                    row["profile"] or "-",
                    row["verdict"],
                ]
            )
        )
    rules = [f"* {row['claim']}: {row['rule']}" for _, row in frame.iterrows()]
    return "\n".join([*table, "", "Decision rules:", "", *rules]) + "\n"

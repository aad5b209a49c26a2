"""One look for all figures, and a caption that the run wrote."""

from __future__ import annotations

from html import escape

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn
from IPython.display import HTML, Markdown, display
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

WIDTH = 8.0  # inches, the text width of the book


def set_style() -> None:
    """The style of every figure in the book."""
    seaborn.set_theme(context="notebook", style="ticks", palette="colorblind", font_scale=0.85)
    matplotlib.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "legend.frameon": False,
            "figure.constrained_layout.use": True,
        }
    )


def show(figure: Figure, caption: str) -> None:
    """Display a figure as PNG with its caption, and close it.

    Parameters
    ----------
    caption : str
        Markdown without emphasis; numbers in it come from the run.
    """
    display(figure)
    plt.close(figure)
    display(Markdown(_caption(caption)))


def _caption(text: str) -> str:
    """Text in italics; the asterisks in it, as in tau*(n), stay asterisks."""
    return "*{}*".format(text.replace("*", r"\*"))


def say(text: str) -> None:
    """Display a paragraph of Markdown that the run wrote."""
    display(Markdown(text))


def table(frame: pd.DataFrame, caption: str = "", digits: int = 3) -> None:
    """Display a table without its index, missing values as a dash, and a caption below it.

    Integers are written in full, other numbers from 1,000 to a million without decimals, the rest to `digits`
    significant digits.
    """
    shown = frame.copy()
    for column in shown.columns:
        if pd.api.types.is_numeric_dtype(shown[column]) and not pd.api.types.is_bool_dtype(shown[column]):
            shown[column] = [cell(value, digits) for value in shown[column]]
    shown.columns.name = None
    display(HTML(_html(shown)))
    if caption:
        display(Markdown(_caption(caption)))


def _html(frame: pd.DataFrame) -> str:
    """A table whose short cells do not wrap and whose columns of prose are wide enough to read."""
    columns = {str(name): [str(value) for value in frame[name]] for name in frame.columns}
    styles = []
    for values in columns.values():
        longest = max(map(len, values), default=0)
        styles.append(
            "padding: 0.2em 0.9em 0.2em 0; text-align: left; vertical-align: top;"
            + (" min-width: 8em;" if longest > 60 else " white-space: nowrap;" if longest <= 16 else "")
        )
    head = "".join(
        f'<th style="{style.replace(" white-space: nowrap;", "")}">{escape(name)}</th>'
        for name, style in zip(columns, styles, strict=True)
    )
    rows = [
        "".join(f'<td style="{style}">{escape(value)}</td>' for value, style in zip(row, styles, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div style="overflow-x: auto;"><table class="dataframe"><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def plain_ticks(axis: Axis) -> None:
    """Ticks of a logarithmic axis as plain numbers: at powers of ten, and at 2 and 5 times these where it spans less than two decades."""
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
    axis.set_minor_formatter(NullFormatter())


def cell(value: float | int, digits: int) -> str:
    """One number of a table."""
    if pd.isna(value):
        return "–"
    return f"{value:,}" if isinstance(value, int | np.integer) else number(float(value), digits)


def number(value: float, digits: int = 3) -> str:
    """A number for reading: fixed notation where it is short, else powers of ten."""
    if value != value or value in (float("inf"), float("-inf")):
        return {True: "∞", False: "–∞"}[value > 0] if value == value else "–"
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e6):
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{digits}g}" if size < 1000 else f"{value:,.0f}"

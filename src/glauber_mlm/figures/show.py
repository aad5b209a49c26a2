"""One look for all figures, and a caption that the run wrote."""

from __future__ import annotations

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn
from IPython.display import HTML, Markdown, display
from matplotlib.figure import Figure

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
    """Display a table without its index, numbers to `digits` significant digits, missing values as a dash, and a caption below it."""
    shown = frame.copy()
    for column in shown.columns:
        if pd.api.types.is_numeric_dtype(shown[column]) and not pd.api.types.is_bool_dtype(shown[column]):
            shown[column] = [cell(value, digits) for value in shown[column]]
    shown.columns.name = None
    html = shown.to_html(index=False, border=0, escape=True, justify="left")
    padding = "padding: 0.2em 0.9em 0.2em 0; text-align: left; vertical-align: top;"
    display(HTML(html.replace("<td>", f'<td style="{padding}">').replace("<th>", f'<th style="{padding}">')))
    if caption:
        display(Markdown(_caption(caption)))


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

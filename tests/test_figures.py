"""How results are shown: tables, captions and ticks."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from glauber_mlm.figures import show


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list:
    found: list = []
    monkeypatch.setattr(show, "display", found.append)
    return found


def test_a_table_escapes_text_and_shows_what_is_missing(shown: list):
    show.table(pd.DataFrame({"text": ["a < b", "c"], "count": [12345, 7], "value": [0.000123456, np.nan]}))
    (html,) = (item.data for item in shown)
    assert "a &lt; b" in html and "12,345" in html and "1.23e-04" in html and "–" in html and "nan" not in html.lower()


def test_short_cells_do_not_wrap_and_prose_has_room(shown: list):
    show.table(pd.DataFrame({"law": ["n log n"], "middle": ["more than sixteen letters"], "prose": ["word " * 20]}))
    cells = shown[0].data.split("<td")[1:]
    assert ["nowrap" in cell for cell in cells] == [True, False, False]
    assert ["min-width" in cell for cell in cells] == [False, False, True]


def test_asterisks_of_a_caption_stay_asterisks(shown: list):
    show.table(pd.DataFrame({"n": [4]}), "The boundary τ*(n) of *this* model")
    assert shown[1].data == r"*The boundary τ\*(n) of \*this\* model*"


def test_a_figure_is_closed_once_shown(shown: list):
    figure = plt.figure()
    show.show(figure, "A caption")
    assert shown[0] is figure and shown[1].data == "*A caption*" and not plt.fignum_exists(figure.number)


@pytest.mark.parametrize(("low", "high"), [(1.1, 1.9), (20, 800), (1, 1e5)])
def test_plain_ticks_are_numbers_and_few(low: float, high: float):
    figure, axis = plt.subplots()
    axis.set(xscale="log", xlim=(low, high))
    show.plain_ticks(axis.xaxis)
    figure.canvas.draw()
    labels = [text.get_text() for text in axis.get_xticklabels() if low <= text.get_position()[0] <= high]
    assert 1 <= len(labels) <= 10 and [float(label.replace(",", "")) for label in labels]
    assert not any(text.get_text() for text in axis.get_xticklabels(minor=True))
    plt.close(figure)

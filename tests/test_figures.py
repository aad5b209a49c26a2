"""How results are shown: tables, captions, ticks, and pictures that do not change from call to call."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from glauber_mlm.figures import landscape, show


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list:
    found: list = []
    monkeypatch.setattr(show, "display", found.append)
    return found


def test_a_table_escapes_text_and_shows_what_is_missing(shown: list):
    show.table(pd.DataFrame({"text": ["a < b", "c"], "count": [12345, 7], "value": [0.000123456, np.nan]}))
    (html,) = (item.data for item in shown)
    assert (
        "a &lt; b" in html
        and "12,345" in html
        and "1.23e-04" in html
        and "–" in html
        and "nan" not in html.lower()
    )


def test_short_cells_do_not_wrap_and_prose_has_room(shown: list):
    show.table(
        pd.DataFrame({"law": ["n log n"], "middle": ["more than sixteen letters"], "prose": ["word " * 20]})
    )
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


def test_likelihoods_stand_in_their_group_and_are_drawn_alike_each_time():
    texts = ("starts", "ends", "ends, shuffled")
    frame = pd.DataFrame(
        [
            {"temperature": tau, "texts": kind, "value": -k - tau}
            for tau in (1.1, 0.5)
            for kind in texts
            for k in range(5)
        ]
    )
    drifts = {tau: np.linspace(0, 1, 12).reshape(2, 6) for tau in (0.5, 1.1)}
    drawn = []
    for _ in range(2):
        figure = landscape.drift_and_likelihood(np.arange(6), drifts, 0.9, 0.9, frame)
        axis = figure.axes[1]
        assert [label.get_text() for label in axis.get_xticklabels()] == ["0.5", "1.1"]
        assert [text.get_text() for text in axis.get_legend().get_texts()] == list(texts)
        drawn.append([line.get_xydata() for line in axis.lines])
        plt.close(figure)
    assert all(np.array_equal(first, again) for first, again in zip(*drawn, strict=True))
    for kind, points in enumerate(drawn[0]):
        group = np.round(points[:, 0] - 0.27 * (kind - 1))
        assert np.array_equal(group, [1] * 5 + [0] * 5) and len(np.unique(points[:, 0])) == 10
        assert np.allclose(points[:, 1], [-k - tau for tau in (1.1, 0.5) for k in range(5)])

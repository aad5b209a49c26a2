"""How results are shown: tables, captions, ticks, and pictures that do not change from call to call."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from glauber_mlm.chapters.base import show
from glauber_mlm.chapters.mixing_times import figures as mixing
from glauber_mlm.chapters.semantic_traps import figures as landscape
from glauber_mlm.chapters.theory_checks import figures as theory
from glauber_mlm.readings.margins import LocalView


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    plt.close("all")


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


def luminances(figure: plt.Figure, low: float, high: float) -> tuple[float, float]:
    """How light two values are in the first image of a figure."""
    (image,) = figure.axes[0].images
    return tuple(
        float(np.dot(image.to_rgba(np.array([value]))[0, :3], (0.2126, 0.7152, 0.0722)))
        for value in (low, high)
    )


def test_a_held_chain_is_dark_as_docstring_and_caption_say():
    held, moving = luminances(landscape.hamming_raster({"run": np.array([[0, 5, 3]])}, np.arange(4)), 0, 5)
    assert held < 0.2 < 0.6 < moving
    assert "dark where a chain is held" in landscape.hamming_raster.__doc__
    chapter = (Path(__file__).parents[1] / "book" / "04_semantic_traps.py").read_text(encoding="utf-8")
    assert "Dark stretches, without changes, are where a chain is held." in chapter


def test_a_political_text_is_dark():
    figure = landscape.politics(np.arange(3), np.array([[0.0, 0.5, 1.0]]), ["food"], 0.5)
    none, full = luminances(figure, 0, 1)
    assert full < 0.1 < 0.8 < none and "light at 0, dark at 1" in landscape.politics.__doc__


def test_bands_of_the_drift_are_two_standard_errors():
    drift = np.array([[0.0, 0.4], [0.0, 0.8], [0.0, 0.9]])
    figure = mixing.drifts({(4, 1.0): {"times": [0, 8], "drift": drift.tolist()}}, 0.9, 4)
    heights = figure.axes[0].collections[0].get_paths()[0].vertices[:, 1]
    mean, error = drift[:, 1].mean(), drift[:, 1].std(ddof=1) / np.sqrt(3)
    assert (heights.min(), heights.max()) == pytest.approx((0.0, mean + 2 * error))
    assert "two standard errors" in mixing.drifts.__doc__


def test_only_settled_states_of_positive_margin_have_an_escape_line():
    view = LocalView(np.array([[1.0, 2.0], [-1.0, 3.0]]), np.full((2, 2), 0.1), np.array([0.5, 1.0]))
    axis = theory.escapes(view, view, 10).axes[1]
    assert len(axis.lines) == 2 and axis.get_xlabel().startswith(
        "inverse temperature"
    )  # one state, and the bound
    assert axis.lines[0].get_xdata().tolist() == [2.0, 1.0] and max(axis.lines[1].get_ydata()) <= 1
    assert "of positive margin" in theory.escapes.__doc__


def test_each_clock_with_laws_has_a_panel_of_three_laws():
    laws = pd.DataFrame(
        {"law": ["n log n", "n", "n^2", "n^a"], "constant": 1.0, "p_value": [0.5, 0.1, 0.0, np.nan]}
    )
    points = pd.DataFrame(
        {
            "clock": "semantic",
            "n": [4, 8, 16],
            "time": [4.0, 9, 20],
            "low": [3.0, 8, 18],
            "high": [5.0, 10, 23],
        }
    )
    figure = mixing.scalings(points, {"semantic": laws})
    (axis,) = figure.axes
    assert [text.get_text().split("  ")[0] for text in axis.get_legend().get_texts()][:3] == [
        "C n log n",
        "C n",
        "C n^2",
    ]
    assert axis.get_xscale() == axis.get_yscale() == "log" and "not drawn" in mixing.scalings.__doc__


def test_the_raster_is_dark_where_a_chain_is_held():
    figure = landscape.hamming_raster({"a": np.array([[0, 5], [0, 0]])}, np.array([0, 10, 20]))
    (image,) = figure.axes[0].images
    held, moving = (
        np.dot(image.cmap(image.norm(changed))[:3], (0.2126, 0.7152, 0.0722)) for changed in (0, 5)
    )
    assert held < 0.2 < moving
    assert "dark where a chain is held" in landscape.hamming_raster.__doc__

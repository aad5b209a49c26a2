"""What the chapter on rectangles computes, against planted defects and numbers by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from by_hand import ROUNDING
from tiny_models import TinyModels

from glauber_mlm.chapters.rectangle_test import study as rectangles
from glauber_mlm.chapters.semantic_traps import study as landscape
from glauber_mlm.conditionals.solvable import DefectTable
from glauber_mlm.errors import UserError
from glauber_mlm.passages import load_passages
from glauber_mlm.readings.rectangle import defects, draw_rectangles
from glauber_mlm.statistics.bootstrap import mean_interval
from glauber_mlm.text import alphabets, starts

pytest_plugins = ("tiny_fixtures",)


def test_starts_are_repeated_in_turn():
    states = torch.arange(6).reshape(3, 2)
    assert rectangles.rectangle_starts(states, 7).tolist() == [
        [0, 1],
        [2, 3],
        [4, 5],
        [0, 1],
        [2, 3],
        [4, 5],
        [0, 1],
    ]
    assert torch.equal(rectangles.rectangle_starts(states, 2), states[:2])


def test_the_floor_is_how_far_delta_moves():
    model = DefectTable(1.0)
    drawn = draw_rectangles(model, model.states().repeat(20, 1), seed=1)
    reference = defects(model, drawn)
    assert reference.abs().tolist() == pytest.approx([1.0] * 80, rel=ROUNDING)
    floor = rectangles.numerical_floor(model, DefectTable(1.25), drawn, reference, seed=2)
    assert floor.batch.tolist() == [0.0] * 80 and floor.double.tolist() == pytest.approx(
        [0.25] * 80, rel=ROUNDING
    )
    assert floor.largest == floor.double.max()
    moved = reference.clone()
    moved[37] += 0.5  # one rectangle alone, so that the new order must have been undone
    floor = rectangles.numerical_floor(model, model, drawn, moved, seed=2)
    assert np.flatnonzero(floor.batch).tolist() == np.flatnonzero(floor.double).tolist() == [37]
    assert floor.largest == pytest.approx(0.5, rel=ROUNDING)


def test_the_floor_of_float32_is_that_against_float64(tiny: TinyModels):
    single, double = (tiny.conditionals("bert", 8, dtype=dtype) for dtype in ("float32", "float64"))
    drawn = draw_rectangles(single, landscape.random_states(single, 24, seed=1), seed=1)
    delta = defects(single, drawn)
    floor = rectangles.numerical_floor(single, double, drawn, delta, seed=2)
    assert floor.double == pytest.approx(
        (defects(double, drawn, batch=5) - delta).abs().numpy(), abs=ROUNDING
    )
    assert 0 < floor.largest < float(delta.abs().median())


def test_defects_by_protocol_hold_sites_fixed_and_are_the_planted_ones(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 8, dtype="float64")
    states = landscape.random_states(conditionals, 12, seed=1)
    frame = rectangles.defects_by_protocol(conditionals, states, seed=4)
    assert frame["protocol"].unique().tolist() == ["conditional", "top", "uniform"]
    for protocol, part in frame.groupby("protocol"):
        drawn = draw_rectangles(conditionals, states, seed=4, alternatives=protocol)
        assert part["delta"].to_numpy() == pytest.approx(
            defects(conditionals, drawn, batch=7).numpy(), abs=ROUNDING
        )
        assert part["distance"].tolist() == (drawn.i - drawn.j).abs().tolist()
        assert part["rectangle"].tolist() == list(range(12))
    assert frame.pivot(index="rectangle", columns="protocol", values="distance").nunique(axis=1).eq(1).all()
    planted = rectangles.defects_by_protocol(
        DefectTable(0.75), DefectTable(0.75).states().repeat(3, 1), seed=1
    )
    assert (
        planted["delta"].abs().tolist() == pytest.approx([0.75] * 36, rel=ROUNDING)
        and planted["distance"].eq(1).all()
    )


def test_the_summary_of_defects_by_hand():
    frame = pd.DataFrame(
        {
            "protocol": ["top"] * 4 + ["uniform"] * 3,
            "delta": [0.05, -0.2, 0.4, -0.01, 1.0, -2.0, 3.0],
            "rectangle": [0, 1, 2, 3, 0, 1, 2],
        }
    )
    table = rectangles.summary_by_protocol(frame, seed=3)
    assert table["alternatives"].tolist() == ["top", "uniform"] and table["rectangles"].tolist() == [4, 3]
    interval = ["mean |delta| (nats)", "95 % from", "to"]
    assert table[interval[0]].tolist() == pytest.approx([0.165, 2.0]) and table[
        "median |delta| (nats)"
    ].tolist() == pytest.approx([0.125, 2.0])
    assert table["share above 0.1 nats"].tolist() == [0.5, 1.0]
    assert tuple(table.loc[1, interval]) == mean_interval(np.array([1.0, 2.0, 3.0]), 3)
    by_passage = rectangles.summary_by_protocol(
        frame, seed=3, passages=2
    )  # 0.05 and 0.4 are of one passage, 0.2 and 0.01 of the other
    assert by_passage.loc[0, interval].tolist() == pytest.approx([0.165, 0.105, 0.225])


def test_the_controls_have_no_defect_where_the_model_has_one(tiny: TinyModels):
    single, double = (tiny.conditionals("bert", 8, dtype=dtype) for dtype in ("float32", "float64"))
    states = landscape.random_states(double, 10, seed=1)
    masked = float(defects(double, draw_rectangles(double, states, seed=2)).abs().median())
    folder = str(tiny.folder("gpt2"))
    for control, named in (("left_to_right", "the same model read left to right"), (folder, folder)):
        delta, rounding, name = rectangles.control_defects(
            control, double, double, states, seed=2, dtype="float64", revision=None
        )
        assert delta.shape == (10,) and name == named
        assert float(delta.abs().max()) < 1e-6 * masked and 0 <= rounding < 1e-6 * masked
        delta, rounding, name = rectangles.control_defects(
            control, single, double, states, seed=2, dtype="float32"
        )
        assert float(delta.abs().max()) <= rounding / 10 + 1e-6 * masked and rounding < masked
    with pytest.raises(UserError, match="no alternative"):
        rectangles.control_defects(folder, single, double, states[:1].repeat(3, 1), seed=2)


def test_further_models_are_judged_by_the_rule_on_their_own_intervals(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
):
    passages = load_passages()[::14]
    assert len(passages) == 8
    for module in (alphabets, starts):
        monkeypatch.setattr(module, "load_passages", lambda: passages)
    asked = []

    def rule(low: float, high: float, floor: float) -> str:
        asked.append((low, high, floor))
        return f"verdict {len(asked)}"

    names = {name: str(tiny.folder(name)) for name in ("bert", "roberta")}
    verdicts = rectangles.verdicts_of_models(list(names.values()), 6, 20, 3, rule, dtype="float32")
    assert verdicts == {
        folder: (tiny.load(name).describe()["parameters"], f"verdict {k}")
        for k, (name, folder) in enumerate(names.items(), start=1)
    }
    for name, (low, high, floor) in zip(names, asked, strict=True):
        conditionals = tiny.conditionals(name, 6)
        states = rectangles.rectangle_starts(starts.starting_states(conditionals, 8, 3)[0], 20)
        drawn = draw_rectangles(conditionals, states, seed=3)
        delta = defects(conditionals, drawn)
        assert (low, high) == pytest.approx(mean_interval(delta.abs(), 3, np.arange(20) % 8)[1:], rel=1e-5)
        assert (
            floor
            == rectangles.numerical_floor(
                conditionals, tiny.conditionals(name, 6, dtype="float64"), drawn, delta, 3
            ).largest
            < low
        )

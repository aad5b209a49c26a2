"""The rectangle test against planted defects, compatible models, and a slow computation from probabilities."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tiny_models import TinyModels, random_states
from torch import Tensor

from glauber_mlm.conditionals import Restricted
from glauber_mlm.conditionals.solvable import (
    CurieWeiss,
    DefectTable,
    Ising,
    Potts,
    ProductMeasure,
    RandomJoint,
)
from glauber_mlm.conditionals.stubs import Faulty, PlantedMargins
from glauber_mlm.errors import UserError
from glauber_mlm.readings.rectangle import Rectangles, defects, draw_rectangles, joint_defects

pytest_plugins = ("tiny_fixtures",)

COMPATIBLE = {
    "cycle": Ising("cycle", 7, coupling=0.8, field=-0.3),
    "torus": Ising("torus", 3, coupling=0.5),
    "Curie-Weiss": CurieWeiss(9),
    "Potts": Potts(6, 4, coupling=1.3),
    "product": ProductMeasure(np.random.default_rng(0).standard_normal((5, 6))),
    "random": RandomJoint(5, 4, seed=1),
}


class Tempered:
    """Conditionals at another temperature, as conditionals at temperature 1."""

    def __init__(self, conditionals, temperature: float) -> None:
        self.inner, self.temperature = conditionals, temperature

    def __getattr__(self, name: str):
        return getattr(self.inner, name)

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        return self.inner.logits(states, sites) / self.temperature


class Recording(Tempered):
    """Remembers the rows asked for."""

    def __init__(self, conditionals) -> None:
        super().__init__(conditionals, 1.0)
        self.asked: list[tuple[list[int], int]] = []

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        self.asked += list(zip(states.tolist(), sites.tolist(), strict=True))
        return self.inner.logits(states, sites)


def states_of(conditionals, count: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(conditionals.vocabulary, (count, conditionals.length), generator=generator)


def exchanged(rectangles: Rectangles) -> Rectangles:
    return Rectangles(rectangles.states, rectangles.j, rectangles.i, rectangles.b_new, rectangles.a_new)


def by_definition(conditionals, rectangles: Rectangles) -> list[float]:
    """delta from probabilities, one conditional at a time, following the two paths."""

    def log_p(state: list[int], site: int) -> float:
        row = conditionals.logits(torch.tensor([state]), torch.tensor([site]))[0].double()
        return float(torch.log_softmax(row, dim=0)[state[site]])

    def step(old: list[int], site: int, token: int) -> tuple[list[int], float]:
        new = [*old[:site], token, *old[site + 1 :]]
        return new, log_p(new, site) - log_p(old, site)

    values = []
    for x, i, j, a_new, b_new in zip(
        *(
            part.tolist()
            for part in (rectangles.states, rectangles.i, rectangles.j, rectangles.a_new, rectangles.b_new)
        ),
        strict=True,
    ):
        y, first = step(x, i, a_new)
        z, second = step(y, j, b_new)
        w, third = step(x, j, b_new)
        last, fourth = step(w, i, a_new)
        assert z == last
        values.append(first + second - third - fourth)
    return values


CORNERS = [(0, 0, 1.0), (1, 1, 1.0), (0, 1, -1.0), (1, 0, -1.0)]


@given(defect=st.floats(-20, 20), corner=st.sampled_from(CORNERS))
def test_a_planted_defect_is_found_exactly(defect: float, corner: tuple[int, int, float]):
    a, b, sign = corner
    zero, one = torch.tensor([0]), torch.tensor([1])
    rectangle = Rectangles(torch.tensor([[a, b]]), zero, one, torch.tensor([1 - a]), torch.tensor([1 - b]))
    table = DefectTable(defect)
    assert float(defects(table, rectangle)) == pytest.approx(sign * defect, abs=1e-12)
    assert float(defects(table, exchanged(rectangle))) == pytest.approx(-sign * defect, abs=1e-12)


@given(defect=st.floats(-20, 20), temperature=st.floats(0.05, 20))
def test_at_temperature_tau_the_defect_is_delta_over_tau(defect: float, temperature: float):
    zero, one = torch.tensor([0]), torch.tensor([1])
    rectangle = Rectangles(torch.tensor([[0, 0]]), zero, one, one, one)
    assert float(defects(Tempered(DefectTable(defect), temperature), rectangle)) == pytest.approx(
        defect / temperature, rel=1e-9, abs=1e-11
    )


@pytest.mark.parametrize("alternatives", ["conditional", "top", "uniform"])
@pytest.mark.parametrize("name", COMPATIBLE)
def test_a_joint_law_has_no_defect(name: str, alternatives: str):
    model = COMPATIBLE[name]
    rectangles = draw_rectangles(model, states_of(model, 200), seed=1, alternatives=alternatives)
    for temperature in (0.3, 1.0):
        assert float(defects(Tempered(model, temperature), rectangles).abs().max()) < 1e-11
    # and the check can fail: conditionals tuned to two temperatures, by site, have none
    mixed = Tempered(model, 1.0)
    mixed.logits = lambda states, sites: (
        model.logits(states, sites) * torch.where(sites % 2 == 0, 1.0, 0.9)[:, None]
    )
    if name != "product":
        assert float(defects(mixed, rectangles).abs().max()) > 1e-3


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "distilbert"])
def test_on_masked_models_delta_is_what_the_definition_says(tiny: TinyModels, name: str):
    conditionals = tiny.conditionals(name, dtype="float64")
    states, _ = random_states(conditionals, 12, seed=2)
    rectangles = draw_rectangles(conditionals, states, seed=3)
    delta = defects(conditionals, rectangles)
    assert delta.dtype == torch.float64 and delta.shape == (12,)
    assert delta.tolist() == pytest.approx(by_definition(conditionals, rectangles), abs=1e-11)
    assert torch.allclose(defects(conditionals, exchanged(rectangles)), -delta, atol=1e-11)
    assert torch.allclose(defects(Tempered(conditionals, 2.5), rectangles), delta / 2.5, atol=1e-11)
    assert float(delta.abs().median()) > 0.02


def test_the_floor_of_float32_lies_far_below_the_defects(tiny: TinyModels):
    single, double = tiny.conditionals("bert"), tiny.conditionals("bert", dtype="float64")
    states, _ = random_states(single, 50, seed=4)
    rectangles = draw_rectangles(double, states, seed=5)
    delta = defects(double, rectangles)
    assert float((defects(single, rectangles) - delta).abs().max()) < 2e-5
    assert float((defects(single, rectangles, batch=7) - delta).abs().max()) < 2e-5
    assert float(delta.abs().max()) > 0.1


def test_without_its_context_a_model_has_no_defect():
    model = PlantedMargins(6, 10, 2.0, torch.zeros(1, 6, dtype=torch.int64), dtype=torch.float64)
    rectangles = draw_rectangles(model, states_of(model, 100), seed=6)
    assert float(defects(model, rectangles).abs().median()) > 0.1
    frozen = Tempered(model, 1.0)
    frozen.logits = lambda states, sites: model.logits(torch.full_like(states, 3), sites)
    assert float(defects(frozen, rectangles).abs().max()) < 1e-12


def test_a_rectangle_costs_four_rows_at_the_right_corners():
    recording = Recording(RandomJoint(4, 3, seed=2))
    rectangle = Rectangles(
        torch.tensor([[0, 1, 2, 0]]),
        torch.tensor([1]),
        torch.tensor([3]),
        torch.tensor([2]),
        torch.tensor([1]),
    )
    defects(recording, rectangle)
    assert sorted(recording.asked) == sorted(
        [([0, 1, 2, 0], 1), ([0, 2, 2, 0], 3), ([0, 1, 2, 0], 3), ([0, 1, 2, 1], 1)]
    )


def test_corners_leave_the_states_alone():
    rectangle = Rectangles(
        torch.tensor([[5, 6, 7]]), torch.tensor([2]), torch.tensor([0]), torch.tensor([1]), torch.tensor([2])
    )
    assert [
        rectangle.corner(*new).tolist()
        for new in ((False, False), (True, False), (False, True), (True, True))
    ] == [
        [[5, 6, 7]],
        [[5, 6, 1]],
        [[2, 6, 7]],
        [[2, 6, 1]],
    ]
    assert rectangle.states.tolist() == [[5, 6, 7]] and len(rectangle) == 1
    assert rectangle.take(slice(0, 0)).states.shape == (0, 3)


def test_defects_do_not_depend_on_the_batches():
    model = RandomJoint(5, 4, seed=3)
    bent = Tempered(model, 1.0)
    bent.logits = lambda states, sites: model.logits(states, sites) * (1 + 0.1 * sites[:, None])
    rectangles = draw_rectangles(bent, states_of(model, 53), seed=7)
    assert torch.equal(defects(bent, rectangles), defects(bent, rectangles, batch=5))
    assert torch.equal(draw_rectangles(bent, states_of(model, 53), seed=7, batch=5).a_new, rectangles.a_new)


def test_a_token_that_cannot_stand_there_has_no_defect():
    model = Restricted(RandomJoint(3, 4, seed=4), allowed=[[0, 1], [0, 1], [0, 1]])
    zero, one = torch.zeros(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64)
    for states, new in (
        (torch.tensor([[0, 0, 0], [3, 0, 0]]), one),
        (torch.tensor([[0, 0, 0], [0, 0, 0]]), torch.tensor([1, 3])),
    ):
        with pytest.raises(UserError, match="rectangle 1 uses a token that may not be drawn"):
            defects(model, Rectangles(states, zero, one, new, one))


@pytest.mark.parametrize(
    ("value", "token", "reason"),
    [
        (math.nan, 0, "are NaN"),
        (math.nan, 3, "are NaN"),
        (math.inf, 3, r"are \+inf"),
        (-math.inf, None, "bar every"),
    ],
)
def test_rows_that_are_no_conditionals_are_named(value: float, token: int | None, reason: str):
    model, zero = RandomJoint(3, 4, seed=4), torch.zeros(4, dtype=torch.int64)
    rectangles = Rectangles(torch.zeros(4, 3, dtype=torch.int64), zero, zero + 2, zero + 1, zero + 1)
    for call, rectangle in ((0, 0), (4, 2)):  # four forwards a batch of two; token 3 is in no rectangle
        with pytest.raises(UserError, match=f"rectangle {rectangle}: logits at site 2 {reason}"):
            defects(Faulty(model, None, 2, value, call=call, token=token), rectangles, batch=2)
    for alternatives in ("conditional", "top", "uniform"):
        with pytest.raises(UserError, match=f"rectangle [0-9]+: logits at site 2 {reason}"):
            draw_rectangles(
                Faulty(model, None, 2, value, token=token),
                states_of(model, 40),
                seed=0,
                alternatives=alternatives,
            )


# How rectangles are drawn.


@pytest.mark.parametrize("alternatives", ["conditional", "top", "uniform"])
def test_alternatives_are_allowed_and_new(tiny: TinyModels, alternatives: str):
    for conditionals in (tiny.conditionals("bert"), RandomJoint(6, 3, seed=5)):
        states = (
            states_of(conditionals, 300)
            if isinstance(conditionals, RandomJoint)
            else random_states(conditionals, 300, seed=6)[0]
        )
        kept = states.clone()
        rectangles = draw_rectangles(conditionals, states, seed=8, alternatives=alternatives)
        a, b = states.gather(1, rectangles.i[:, None])[:, 0], states.gather(1, rectangles.j[:, None])[:, 0]
        assert (
            bool((rectangles.i != rectangles.j).all())
            and bool((rectangles.a_new != a).all())
            and bool((rectangles.b_new != b).all())
        )
        barred = torch.tensor(getattr(conditionals, "barred", []))
        assert not bool(torch.isin(torch.cat([rectangles.a_new, rectangles.b_new]), barred).any())
        assert torch.equal(rectangles.states, kept) and torch.equal(states, kept)


def test_sites_are_the_same_for_all_protocols_and_draws_are_fixed_by_the_seed(tiny: TinyModels):
    conditionals = tiny.conditionals("bert")
    states, _ = random_states(conditionals, 80, seed=9)
    drawn = {
        name: draw_rectangles(conditionals, states, seed=9, alternatives=name)
        for name in ("conditional", "top", "uniform")
    }
    for rectangles in drawn.values():
        assert torch.equal(rectangles.i, drawn["top"].i) and torch.equal(rectangles.j, drawn["top"].j)
    assert not torch.equal(drawn["conditional"].a_new, drawn["uniform"].a_new)
    again, other = (draw_rectangles(conditionals, states, seed=seed) for seed in (9, 10))
    first = drawn["conditional"]
    assert (
        torch.equal(again.a_new, first.a_new)
        and torch.equal(again.b_new, first.b_new)
        and torch.equal(again.i, first.i)
    )
    assert not torch.equal(other.i, first.i) and not torch.equal(other.a_new, first.a_new)
    fewer = draw_rectangles(conditionals, states[:30], seed=9)  # rectangle r has its own draws
    assert torch.equal(fewer.a_new, first.a_new[:30]) and torch.equal(fewer.j, first.j[:30])


def test_top_is_the_most_likely_other_token(tiny: TinyModels):
    conditionals = tiny.conditionals("roberta")
    states, _ = random_states(conditionals, 60, seed=10)
    # half of the states have the argmax itself at the site: the runner-up is wanted there
    first = draw_rectangles(conditionals, states, seed=11, alternatives="top")
    states[:30].scatter_(1, first.i[:30, None], first.a_new[:30, None])
    rectangles = draw_rectangles(conditionals, states, seed=11, alternatives="top")
    for sites, new in ((rectangles.i, rectangles.a_new), (rectangles.j, rectangles.b_new)):
        rows = conditionals.logits(states, sites)
        order = rows.argsort(dim=1, descending=True)
        own = states.gather(1, sites[:, None])[:, 0]
        expected = torch.where(order[:, 0] == own, order[:, 1], order[:, 0])
        assert torch.equal(new, expected)


def test_ordered_pairs_of_free_sites_are_equally_likely():
    inner = ProductMeasure(torch.zeros(6, 3))
    model = Restricted(inner, free_sites=[0, 2, 3, 5])
    rectangles = draw_rectangles(model, states_of(inner, 6000), seed=12)
    pairs, counts = torch.unique(rectangles.i * 6 + rectangles.j, return_counts=True)
    assert sorted(pairs.tolist()) == sorted(i * 6 + j for i in (0, 2, 3, 5) for j in (0, 2, 3, 5) if i != j)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


@pytest.mark.parametrize("alternatives", ["conditional", "uniform"])
def test_alternatives_have_the_law_they_claim(alternatives: str):
    table = torch.tensor([[0.0, 1.0, -1.0, 2.0]]).repeat(3, 1)
    model = Restricted(ProductMeasure(table), allowed=[[0, 1, 2, 3], [0, 1, 3], [1, 2, 3]])
    rectangles = draw_rectangles(model, torch.full((9000, 3), 3), seed=13, alternatives=alternatives)
    for site, tokens in ((0, [0, 1, 2]), (1, [0, 1]), (2, [1, 2])):  # without the token 3 that stands there
        weights = (
            np.exp(table[site, tokens].double().numpy())
            if alternatives == "conditional"
            else np.ones(len(tokens))
        )
        for sites, new in ((rectangles.i, rectangles.a_new), (rectangles.j, rectangles.b_new)):
            seen = new[sites == site].numpy()
            counts = [int((seen == token).sum()) for token in tokens]
            assert sum(counts) == len(seen)
            assert stats.chisquare(counts, weights / weights.sum() * len(seen)).pvalue > 1e-3


def test_what_makes_no_rectangle_is_refused():
    model = RandomJoint(3, 3, seed=6)
    states = states_of(model, 4)
    with pytest.raises(UserError, match="two free sites"):
        draw_rectangles(Restricted(model, free_sites=[1]), states, seed=0)
    with pytest.raises(UserError, match="allowed: conditional, top, uniform"):
        draw_rectangles(model, states, seed=0, alternatives="argmax")
    for alternatives in ("conditional", "top", "uniform"):
        with pytest.raises(UserError, match="no second token"):
            draw_rectangles(
                Restricted(model, allowed=[[0], [0], [0]]),
                torch.zeros(4, 3, dtype=torch.int64),
                seed=0,
                alternatives=alternatives,
            )
    for bad in (states[:, :2], states.float(), states + 3):
        with pytest.raises(UserError):
            draw_rectangles(model, bad, seed=0)


# The control.


def test_a_table_of_a_joint_law_telescopes():
    model = RandomJoint(5, 4, seed=7)
    log_mu = model.log_mu(1.0)
    place = 4 ** torch.arange(4, -1, -1)
    rectangles = draw_rectangles(model, states_of(model, 150), seed=14)
    floor = joint_defects(lambda states: log_mu[(states * place).sum(dim=1)], rectangles)
    assert floor.dtype == torch.float64 and floor.shape == (150,) and float(floor.abs().max()) < 1e-12


def test_the_control_shows_rounding_and_not_an_identity():
    model = RandomJoint(5, 4, seed=8)
    log_mu = model.log_mu(1.0).float()
    place = 4 ** torch.arange(4, -1, -1)
    sizes: list[int] = []

    def rounded(
        states: Tensor,
    ) -> Tensor:  # as a network would: the rounding depends on the place in the batch
        sizes.append(len(states))
        return log_mu[(states * place).sum(dim=1)] * (1 + 1e-7 * torch.arange(len(states)))

    rectangles = draw_rectangles(model, states_of(model, 150), seed=15)
    floor = joint_defects(rounded, rectangles, batch=32)
    assert 0 < float(floor.abs().max()) < 1e-3
    assert max(sizes) == 32 and sum(sizes) == 8 * 150


def test_the_control_follows_the_edges():
    calls: list[Tensor] = []

    def spy(states: Tensor) -> Tensor:
        calls.append(states)
        return (states * torch.tensor([1.0, 10.0, 100.0])).sum(
            dim=1
        ) ** 2  # not a law, but a function of the corner all the same

    rectangle = Rectangles(
        torch.tensor([[1, 2, 3]]), torch.tensor([0]), torch.tensor([2]), torch.tensor([4]), torch.tensor([5])
    )
    assert float(joint_defects(spy, rectangle)) == pytest.approx(0, abs=1e-6)
    edges = [{tuple(state) for state in call.tolist()} for call in calls]
    x, y, w, z = (1, 2, 3), (4, 2, 3), (1, 2, 5), (4, 2, 5)
    assert edges == [{x, y}, {y, z}, {x, w}, {w, z}]

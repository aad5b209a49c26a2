"""Margins and escape probabilities against exact transition matrices and closed forms."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import TinyModels, random_states

from glauber_mlm.conditionals import Restricted
from glauber_mlm.conditionals.solvable import (
    CurieWeiss,
    DefectTable,
    Ising,
    Potts,
    ProductMeasure,
    RandomJoint,
)
from glauber_mlm.conditionals.stubs import Counting, Faulty, PlantedMargins
from glauber_mlm.errors import UserError
from glauber_mlm.exact import glauber as exact
from glauber_mlm.readings.margins import escape_bound, local_view

pytest_plugins = ("tiny_fixtures",)

MODELS = {
    "cycle": Ising("cycle", 5, 0.8, 0.1),
    "Curie-Weiss": CurieWeiss(6),
    "Potts": Potts(4, 3, coupling=1.2),
    "random": RandomJoint(4, 3, seed=1),
    "incompatible": DefectTable(2.0),
}
TEMPERATURES = [0.05, 0.5, 1.0, 4.0]


@pytest.mark.parametrize("name", MODELS)
def test_escapes_are_those_of_the_transition_matrix(name: str):
    model = MODELS[name]
    view = local_view(model, model.states(), TEMPERATURES)
    assert view.escapes.shape == (4, len(model.states())) and view.margins.shape == (
        len(model.states()),
        model.length,
    )
    for t, temperature in enumerate(TEMPERATURES):
        matrix = exact.transition_matrix(model, temperature)
        np.fill_diagonal(matrix, 0)
        assert view.escapes[t] == pytest.approx(matrix.sum(axis=1), rel=1e-9)


@pytest.mark.parametrize("name", MODELS)
def test_margins_are_the_definition_and_bound_the_escapes(name: str):
    model = MODELS[name]
    states = model.states()
    view = local_view(model, states, TEMPERATURES)
    for k, state in enumerate(states.tolist()):
        for site in range(model.length):
            row = model.logits(states[k : k + 1], torch.tensor([site]))[0].tolist()
            others = [value for token, value in enumerate(row) if token != state[site]]
            assert view.margins[k, site] == pytest.approx(row[state[site]] - max(others), abs=1e-12)
    assert view.local_margin == pytest.approx(view.margins.min(axis=1))
    assert view.argmax_fraction == pytest.approx((view.margins >= 0).mean(axis=1))
    bound = escape_bound(view.local_margin[None], np.array(TEMPERATURES)[:, None], model.vocabulary)
    assert bound.shape == view.escapes.shape and bool((view.escapes <= bound * (1 + 1e-12)).all())
    assert bool((bound[0][view.local_margin > 0.5] < 1).all())  # where it is cold it says something


@pytest.mark.parametrize("name", MODELS)
def test_states_of_positive_margin_are_never_neighbours(name: str):
    model = MODELS[name]
    states = model.states()
    isolated = states[torch.from_numpy(local_view(model, states, [1.0]).local_margin > 0)]
    apart = (isolated[:, None] != isolated[None]).sum(dim=2)
    assert len(isolated) and not bool((apart == 1).any())


def test_tiny_escapes_keep_their_digits():
    gap, n, tau = (
        27.6,
        5,
        1.0,
    )  # e**-27.6 is about 1e-12: one minus a sum of probabilities would keep four digits of it
    table = torch.zeros(n, 4, dtype=torch.float64)
    table[:, 2] = gap
    state = torch.full((1, n), 2)
    expected = 3 * math.exp(-gap / tau) / (1 + 3 * math.exp(-gap / tau))
    view = local_view(ProductMeasure(table), state, [tau, tau / 20])
    assert view.escapes[0, 0] == pytest.approx(expected, rel=1e-12) and 1e-12 < expected < 5e-12
    assert view.escapes[1, 0] == pytest.approx(3 * math.exp(-20 * gap), rel=1e-9)
    naive = 1 - float(torch.softmax(table[0] / tau, 0)[2])
    assert abs(naive / expected - 1) > 1e-6


@given(margin=st.floats(0.5, 60).map(lambda value: float(np.float32(value))), temperature=st.floats(0.3, 3))
def test_planted_traps_have_their_margin_and_their_escape(margin: float, temperature: float):
    pattern = torch.tensor([[3, 1, 4, 1, 5, 9]])
    for dtype, accuracy in ((torch.float32, 1e-4), (torch.float64, 1e-9)):
        model = PlantedMargins(6, 12, margin, pattern, seed=2, dtype=dtype)
        view = local_view(model, pattern, [temperature])
        assert view.margins[0] == pytest.approx(margin, rel=1e-12)
        assert view.argmax_fraction[0] == 1 and view.local_margin[0] == pytest.approx(margin)
        rows = model.logits(pattern.expand(6, -1), torch.arange(6)).double()
        weights = torch.exp((rows - margin) / temperature).scatter(1, pattern.T, 0.0).sum(dim=1)
        assert view.escapes[0, 0] == pytest.approx(float((weights / (1 + weights)).mean()), rel=accuracy)
        assert view.escapes[0, 0] <= escape_bound(margin, temperature, 12)


def test_the_argmax_fraction_counts_sites():
    table = torch.tensor([[0.0, 1.0, 2.0]] * 4)
    view = local_view(ProductMeasure(table), torch.tensor([[2, 2, 2, 2], [2, 0, 2, 1], [0, 1, 0, 1]]), [1.0])
    assert view.argmax_fraction.tolist() == [1.0, 0.5, 0.0]
    assert view.local_margin.tolist() == [1.0, -2.0, -2.0]
    tied = local_view(ProductMeasure(torch.zeros(4, 3)), torch.tensor([[0, 1, 2, 0]]), [1.0])
    assert tied.argmax_fraction.tolist() == [1.0] and tied.local_margin.tolist() == [0.0]


def test_at_temperature_zero_a_state_stays_or_goes():
    table = torch.tensor([[0.0, 1.0, 2.0]] * 4)
    view = local_view(ProductMeasure(table), torch.tensor([[2, 2, 2, 2], [2, 0, 2, 1], [0, 1, 0, 1]]), [0.0])
    assert view.escapes.tolist() == [[0.0, 0.5, 1.0]]


def test_only_free_sites_and_allowed_tokens_count():
    inner = RandomJoint(4, 3, seed=3)
    model = Restricted(inner, free_sites=[1, 3], allowed=[[0, 2], [0, 1, 2]])
    states = torch.tensor([[2, 0, 1, 1], [2, 1, 1, 1]])
    view = local_view(model, states, [0.7])
    assert view.margins.shape == (2, 2)
    rows = inner.logits(states[:1].expand(2, -1), torch.tensor([1, 3])) / 0.7
    stay = [float(torch.softmax(rows[0, [0, 2]], 0)[0]), float(torch.softmax(rows[1], 0)[1])]
    assert view.escapes[0, 0] == pytest.approx(1 - np.mean(stay))
    # the token 1 may not be drawn at site 1: it has no margin there and is left as soon as its site is chosen
    assert view.margins[1, 0] == -math.inf and view.escapes[0, 1] >= 0.5
    alone = local_view(Restricted(inner, free_sites=[1], allowed=[[0]]), states[:1], [1.0])
    assert alone.margins.tolist() == [[math.inf]] and alone.escapes.tolist() == [[0.0]]


@pytest.mark.parametrize("name", ["bert", "modernbert", "distilbert"])
def test_on_a_masked_model(tiny: TinyModels, name: str):
    conditionals = tiny.conditionals(name, 6)
    states, _ = random_states(conditionals, 8, seed=4)
    kept = states.clone()
    counted = Counting(conditionals)
    view = local_view(counted, states, [0.5, 1.5], batch=11)
    assert counted.rows == 8 * 6  # one set of rows for all temperatures
    for k in range(8):
        rows = conditionals.logits(states[k].expand(6, -1), torch.arange(6)).double()
        for t, temperature in enumerate((0.5, 1.5)):
            stay = torch.softmax(rows / temperature, dim=1).gather(1, states[k][:, None]).mean()
            assert view.escapes[t, k] == pytest.approx(1 - float(stay), abs=1e-5)
    size = int(torch.isfinite(rows[0]).sum())
    assert bool((view.escapes <= escape_bound(view.local_margin[None], np.array([[0.5], [1.5]]), size)).all())
    assert bool(((view.escapes > 0) & (view.escapes < 1)).all()) and bool((view.argmax_fraction < 1).all())
    assert torch.equal(states, kept)


def test_the_bound_is_vacuous_above_the_stated_temperature():
    tokens, gamma = 30_000, 10.0
    edge = gamma / math.log(tokens - 1)
    assert escape_bound(gamma, edge, tokens) == pytest.approx(1)
    assert escape_bound(gamma, 0.9 * edge, tokens) < 1 < escape_bound(gamma, 1.1 * edge, tokens)


@pytest.mark.parametrize(
    ("value", "token", "reason"),
    [(math.nan, 2, "are NaN"), (math.inf, 0, r"are \+inf"), (-math.inf, None, "bar every token")],
)
def test_rows_that_are_no_conditionals_are_named(value: float, token: int | None, reason: str):
    model = RandomJoint(3, 3, seed=5)
    states = torch.zeros(4, 3, dtype=torch.int64)
    for call, state in ((0, 0), (1, 2)):  # two states a batch
        with pytest.raises(UserError, match=f"state {state}: logits at site 1 {reason}"):
            local_view(Faulty(model, None, 1, value, call=call, token=token), states, [1.0], batch=6)


def test_bad_states_and_temperatures_are_refused():
    model = RandomJoint(3, 3, seed=5)
    with pytest.raises(UserError, match="states have shape"):
        local_view(model, torch.zeros(1, 4, dtype=torch.int64), [1.0])
    with pytest.raises(UserError, match="temperature"):
        local_view(model, torch.zeros(1, 3, dtype=torch.int64), [-1.0])

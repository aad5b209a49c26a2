"""Influences against exact ones, the proved bound against brute force and against what is seen, and the theorem it feeds."""

from __future__ import annotations

import copy
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import KNOWN_HEADS, WIDTH, TinyModels, random_states
from torch import Tensor

from glauber_mlm.conditionals import Restricted
from glauber_mlm.conditionals.solvable import Ising, Potts, ProductMeasure, RandomJoint
from glauber_mlm.conditionals.stubs import Counting, Faulty
from glauber_mlm.errors import UserError
from glauber_mlm.exact import glauber as exact
from glauber_mlm.readings.influence import (
    contraction_temperature,
    logit_oscillation_bound,
    mixing_bound,
    sample_influence,
    total_variation_bound,
)

pytest_plugins = ("tiny_fixtures",)

TEMPERATURES = [0.3, 1.0, 3.0]


def allowed_mask(conditionals) -> Tensor:
    mask = torch.ones(conditionals.vocabulary, dtype=torch.bool)
    mask[conditionals.barred] = False
    return mask


# Sampled influence: a lower bound.


@pytest.mark.parametrize(
    "model",
    [RandomJoint(4, 3, seed=1), Potts(4, 3, coupling=1.1), Ising("cycle", 5, 0.8, 0.1)],
    ids=["random", "Potts", "Ising"],
)
def test_sampled_influence_never_exceeds_the_exact_one(model):
    states = model.states()[
        torch.randperm(len(model.states()), generator=torch.Generator().manual_seed(0))[:20]
    ]
    sampled = sample_influence(model, states, TEMPERATURES, seed=2)
    assert (
        sampled.worst.shape == sampled.mean.shape == (3, model.length, model.length) and sampled.changes == 40
    )
    assert sampled.temperatures.tolist() == TEMPERATURES
    for t, temperature in enumerate(TEMPERATURES):
        c = exact.influence_matrix(model, temperature)
        assert bool((sampled.worst[t] <= c + 1e-12).all())
        assert bool((sampled.mean[t] <= sampled.worst[t] + 1e-12).all())
        assert not np.diagonal(sampled.worst[t]).any() and not np.diagonal(sampled.mean[t]).any()
        row, column = exact.dobrushin(c)
        assert sampled.alpha_row[t] <= row + 1e-12 and sampled.alpha_column[t] <= column + 1e-12
        assert sampled.alpha_row[t] == pytest.approx(exact.dobrushin(sampled.worst[t])[0])
        assert sampled.alpha_column[t] == pytest.approx(exact.dobrushin(sampled.worst[t])[1])
        assert sampled.alpha_typical[t] == pytest.approx(min(exact.dobrushin(sampled.mean[t])))
        assert sampled.worst[t].max() > 0.5 * c.max()  # and comes near


def test_where_every_change_is_tried_the_sampled_influence_is_the_exact_one():
    model = RandomJoint(5, 2, seed=3)  # two tokens: the only other one is tried in every state
    sampled = sample_influence(model, model.states(), TEMPERATURES, seed=4)
    for t, temperature in enumerate(TEMPERATURES):
        c = exact.influence_matrix(model, temperature)
        assert sampled.worst[t] == pytest.approx(c, abs=1e-12)  # rows are i and columns j
    assert not np.allclose(c, c.T, atol=1e-3)


def test_the_mean_is_over_contexts_and_both_ways_of_changing():
    model = RandomJoint(3, 2, seed=5)
    state = torch.tensor([[0, 1, 0]])
    sampled = sample_influence(model, state, [1.0], seed=6)
    for i, j in itertools.permutations(range(3), 2):
        moved = state.clone()
        moved[0, j] = 1 - moved[0, j]
        p, q = (torch.softmax(model.logits(x, torch.tensor([i]))[0], 0) for x in (state, moved))
        expected = 0.5 * float((p - q).abs().sum())
        assert sampled.mean[0, i, j] == pytest.approx(expected) == sampled.worst[0, i, j]


def test_independent_sites_have_no_influence():
    model = ProductMeasure(np.random.default_rng(7).standard_normal((4, 5)))
    sampled = sample_influence(model, model.states()[::37], TEMPERATURES, seed=8)
    assert not sampled.worst.any() and not sampled.mean.any()
    assert not sampled.alpha_row.any() and not sampled.alpha_typical.any()


def test_influence_among_the_free_sites_alone():
    inner = RandomJoint(5, 2, seed=9)
    model = Restricted(inner, free_sites=[1, 4])
    states = inner.states()
    sampled = sample_influence(model, states, [1.0], seed=10)
    assert sampled.worst[0] == pytest.approx(
        exact.influence_matrix(inner, 1.0)[np.ix_([1, 4], [1, 4])], abs=1e-12
    )


def test_influence_on_a_masked_model(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 5, "float64")
    states, _ = random_states(conditionals, 4, seed=11)
    kept = states.clone()
    counted = Counting(conditionals)
    sampled = sample_influence(counted, states, TEMPERATURES, seed=12, batch=7)
    assert counted.rows == 4 * (5 + 5 * 2 * 4)  # all temperatures from the same rows
    again = sample_influence(conditionals, states, TEMPERATURES, seed=12)
    assert np.allclose(sampled.worst, again.worst, atol=1e-12) and np.allclose(
        sampled.mean, again.mean, atol=1e-12
    )
    assert bool((np.diff(sampled.mean.sum(axis=(1, 2))) < 0).all())  # less when hotter
    assert 0 < sampled.worst[sampled.worst > 0].min() and sampled.worst.max() <= 1
    assert torch.equal(states, kept)
    assert not np.array_equal(sample_influence(conditionals, states, [1.0], seed=13).mean, again.mean[1:2])
    bound = float(
        total_variation_bound(logit_oscillation_bound(conditionals.model, allowed_mask(conditionals)), 1.0)
    )
    assert sampled.worst[1].max() <= bound


def test_what_has_no_influence_to_sample_is_refused():
    model = RandomJoint(3, 3, seed=14)
    with pytest.raises(UserError, match="two free sites"):
        sample_influence(Restricted(model, free_sites=[0]), model.states()[:2], [1.0], seed=0)
    with pytest.raises(UserError, match="no second token"):
        sample_influence(
            Restricted(model, allowed=[[0, 1], [0], [0, 1]]),
            torch.zeros(2, 3, dtype=torch.int64),
            [1.0],
            seed=0,
        )
    for temperature in (-1.0, math.nan, math.inf):
        with pytest.raises(UserError, match="temperature"):
            sample_influence(model, model.states()[:2], [temperature], seed=0)
    with pytest.raises(UserError, match="states have shape"):
        sample_influence(model, torch.zeros(2, 4, dtype=torch.int64), [1.0], seed=0)


@pytest.mark.parametrize(
    ("value", "token", "reason"),
    [(math.nan, 0, "are NaN"), (math.inf, 2, r"are \+inf"), (-math.inf, None, "bar every token")],
)
def test_rows_that_are_no_conditionals_are_named(value: float, token: int | None, reason: str):
    model = RandomJoint(3, 3, seed=14)
    states = torch.zeros(2, 3, dtype=torch.int64)
    for call, context in (
        (0, 0),
        (2, 0),
        (4, 1),
    ):  # four forwards a context: at the context, and with each site changed
        with pytest.raises(UserError, match=f"context {context}: logits at site 1 {reason}"):
            sample_influence(Faulty(model, None, 1, value, call=call, token=token), states, [1.0], seed=0)


# TV <= tanh(w / 4 tau).


@given(
    width=st.integers(2, 30),
    oscillation=st.floats(0, 50),
    temperature=st.floats(0.05, 50),
    seed=st.integers(0, 10**6),
)
def test_total_variation_is_bounded_by_the_oscillation(
    width: int, oscillation: float, temperature: float, seed: int
):
    generator = np.random.default_rng(seed)
    first = generator.normal(0, 4, width)
    change = generator.random(width)
    change = oscillation * (change - change.min()) / (change.max() - change.min())
    p, q = (np.exp((s - s.max()) / temperature) for s in (first, first + change))
    distance = 0.5 * np.abs(p / p.sum() - q / q.sum()).sum()
    assert distance <= float(total_variation_bound(oscillation, temperature)) + 1e-12


@given(oscillation=st.floats(0, 30), temperature=st.floats(0.1, 30))
def test_the_bound_is_attained(oscillation: float, temperature: float):
    s = np.array([oscillation / 2, 0.0]) / temperature  # p = (s, 1 - s), q = (1 - s, s)
    p = np.exp(s) / np.exp(s).sum()
    distance = abs(p[0] - p[1])
    assert distance == pytest.approx(
        float(total_variation_bound(oscillation, temperature)), rel=1e-9, abs=1e-12
    )


def test_the_bound_takes_arrays():
    bound = total_variation_bound(np.array([1.0, 2.0]), np.array([1.0, 4.0]))
    assert bound == pytest.approx(np.tanh([0.25, 0.125]))


# The proved bound on the oscillation.


def last_layers(model) -> tuple[torch.nn.LayerNorm, torch.nn.Linear]:
    """Written out by architecture, as an outsider would read it from the model's print-out."""
    if model.config.model_type == "bert":
        return model.cls.predictions.transform.LayerNorm, model.cls.predictions.decoder
    if model.config.model_type == "roberta":
        return model.lm_head.layer_norm, model.lm_head.decoder
    return model.head.norm, model.decoder


def brute_force(
    norm: torch.nn.LayerNorm, decoder: torch.nn.Linear, allowed: Tensor
) -> tuple[float, int, int]:
    """2 sqrt(d) times the largest projected distance, pair by pair, in float64."""
    gain = norm.weight.double().numpy()
    rows = decoder.weight.double().numpy()
    largest = (-1.0, 0, 0)
    for a, b in itertools.combinations(torch.nonzero(allowed)[:, 0].tolist(), 2):
        difference = gain * (rows[a] - rows[b])
        largest = max(largest, (float(np.linalg.norm(difference - difference.mean())), a, b))
    return 2 * math.sqrt(len(gain)) * largest[0], largest[1], largest[2]


@pytest.mark.parametrize("name", KNOWN_HEADS)
def test_the_oscillation_bound_is_the_maximum_over_pairs(tiny: TinyModels, name: str):
    conditionals = tiny.conditionals(name)
    mask = allowed_mask(conditionals)
    expected, a, b = brute_force(*last_layers(conditionals.model), mask)
    bound = logit_oscillation_bound(conditionals.model, mask)
    assert expected <= bound <= expected * (1 + 2e-4)
    assert logit_oscillation_bound(conditionals.model, mask, block=17) == pytest.approx(bound, rel=1e-6)
    mask[[a, b]] = False  # tokens that may not be sampled do not count
    assert (
        brute_force(*last_layers(conditionals.model), mask)[0]
        <= logit_oscillation_bound(conditionals.model, mask)
        < bound
    )


@pytest.mark.parametrize("name", KNOWN_HEADS)
def test_no_two_contexts_move_the_logits_further(tiny: TinyModels, name: str):
    conditionals = tiny.conditionals(name)
    mask = allowed_mask(conditionals)
    bound = logit_oscillation_bound(conditionals.model, mask)
    generator = torch.Generator().manual_seed(15)
    states, sites = random_states(conditionals, 400, seed=16)
    states[200:] = (
        conditionals.mask_token
    )  # contexts of special tokens count too: the head does not know what it sees
    states[200:300, ::2] = torch.randint(conditionals.vocabulary, (100, 5), generator=generator)
    rows = conditionals.logits(states, sites)[:, mask].double()
    seen = 0.0
    for row in rows:
        change = rows - row
        seen = max(seen, float((change.amax(dim=1) - change.amin(dim=1)).max()))
    assert bound / 8 < seen <= bound


@pytest.mark.parametrize("name", KNOWN_HEADS)
def test_the_head_alone_attains_the_bound(tiny: TinyModels, name: str):
    """Two inputs of the last LayerNorm, opposite along the worst direction: nothing smaller is a bound for this norm and decoder."""
    model = tiny.load(name, "float64").model
    conditionals = tiny.conditionals(name, dtype="float64")
    norm, decoder = last_layers(model)
    expected, a, b = brute_force(norm, decoder, allowed_mask(conditionals))
    direction = norm.weight * (decoder.weight[a] - decoder.weight[b])
    direction = 1e6 * (direction - direction.mean())
    with torch.no_grad():
        there, back = (decoder(norm(sign * direction)) for sign in (1, -1))
    moved = (there - back)[[a, b]]
    assert float(moved[0] - moved[1]) == pytest.approx(expected, rel=1e-6)


def test_the_bound_survives_what_all_rows_share(tiny: TinyModels):
    model = copy.deepcopy(tiny.load("bert").model)
    mask = torch.ones(model.config.vocab_size, dtype=torch.bool)
    with torch.no_grad():
        model.cls.predictions.decoder.weight += 300 * torch.randn(
            WIDTH, generator=torch.Generator().manual_seed(17)
        )
    expected, _, _ = brute_force(*last_layers(model), mask)
    assert expected <= logit_oscillation_bound(model, mask) <= expected * (1 + 2e-4)


def test_heads_without_a_proof_are_refused(tiny: TinyModels):
    for name in ("distilbert", "gpt2"):
        model = tiny.load(name).model
        with pytest.raises(UserError, match=f"no bound is known for the head of {type(model).__name__}"):
            logit_oscillation_bound(model, torch.ones(model.config.vocab_size, dtype=torch.bool))
    model = copy.deepcopy(tiny.load("modernbert").model)
    model.head.norm = torch.nn.RMSNorm(WIDTH)
    with pytest.raises(UserError, match="ends in RMSNorm, not LayerNorm"):
        logit_oscillation_bound(model, torch.ones(model.config.vocab_size, dtype=torch.bool))


# What follows from a bound.


@given(oscillation=st.floats(0.1, 500), sites=st.integers(3, 200))
def test_the_contraction_temperature_is_where_alpha_reaches_one(oscillation: float, sites: int):
    tau = contraction_temperature(oscillation, sites)
    assert (sites - 1) * float(total_variation_bound(oscillation, tau)) == pytest.approx(1, rel=1e-9)
    assert (sites - 1) * float(total_variation_bound(oscillation, 1.001 * tau)) < 1


def test_the_figure_of_the_first_embedded_model():
    assert contraction_temperature(101, 16) == pytest.approx(378, abs=1)
    with pytest.raises(UserError, match="fewer than 3 sites"):
        contraction_temperature(101, 2)


def test_the_mixing_bound_is_the_formula():
    assert mixing_bound(0.5, 16) == math.ceil(32 * (math.log(16) + math.log(4)))
    assert mixing_bound(0.0, 8, epsilon=0.01) == math.ceil(8 * (math.log(8) + math.log(100)))
    assert isinstance(mixing_bound(0.5, 16), int)
    for alpha in (1.0, 1.5, math.inf, math.nan):
        assert mixing_bound(alpha, 16) == math.inf


@pytest.mark.parametrize("temperature", [2.5, 4.0, 10.0])
def test_chains_mix_within_the_bound(temperature: float):
    for model in (Ising("cycle", 6, 0.7, 0.2), RandomJoint(4, 3, seed=18), Potts(4, 3, coupling=0.9)):
        alpha = min(exact.dobrushin(exact.influence_matrix(model, temperature)))
        bound = mixing_bound(alpha, model.length)
        matrix = exact.transition_matrix(model, temperature)
        assert exact.mixing_time(matrix, exact.stationary(matrix)) <= bound
        if temperature == 10.0:
            assert bound < math.inf

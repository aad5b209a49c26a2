"""What the chapter on theory computes, against exact answers and brute force."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
from by_hand import ROUNDING, laws_by_hand, matrix_by_hand, philox
from tiny_models import TinyModels

from glauber_mlm.chapters.semantic_traps import study as landscape
from glauber_mlm.chapters.theory_checks import study as theory
from glauber_mlm.chapters.theory_checks import words as theory_words
from glauber_mlm.conditionals import Restricted
from glauber_mlm.conditionals.solvable import CurieWeiss, DefectTable, Ising, ProductMeasure, RandomJoint
from glauber_mlm.errors import UserError
from glauber_mlm.readings.margins import LocalView

pytest_plugins = ("tiny_fixtures",)


def test_a_restriction_keeps_the_state_and_the_likeliest_others(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 8, dtype="float64")
    state = landscape.random_states(conditionals, 1, seed=1)[0]
    restricted = theory.restrict_to_likely(conditionals, state, free=4, tokens=3, seed=2)
    sites = restricted.free_sites.tolist()
    assert sites == sorted(set(sites)) and len(sites) == 4
    laws = laws_by_hand(conditionals, state)
    for site, allowed in zip(sites, restricted.allowed, strict=True):
        ranked = [token for token in np.argsort(-laws[site]) if token != state[site]]
        assert list(allowed) == [int(state[site]), *ranked[:2]]
    assert (
        theory.restrict_to_likely(conditionals, state, free=4, tokens=3, seed=2).fingerprint
        == restricted.fingerprint
    )
    assert (
        len(
            {
                tuple(
                    theory.restrict_to_likely(
                        conditionals, state, free=4, tokens=3, seed=seed
                    ).free_sites.tolist()
                )
                for seed in range(8)
            }
        )
        > 1
    )


def test_a_restriction_out_of_range_is_refused():
    model, state = CurieWeiss(4), torch.zeros(4, dtype=torch.int64)
    for free, tokens in ((1, 2), (5, 2), (2, 1)):
        with pytest.raises(UserError, match="out of range|give a whole number at least 2"):
            theory.restrict_to_likely(model, state, free, tokens, seed=0)
    with pytest.raises(UserError, match="allow at most 2"):
        theory.restrict_to_likely(model, state, 2, 3, seed=0)
    assert theory.restrict_to_likely(model, state, 2, 2, seed=0).allowed == ((0, 1), (0, 1))


@pytest.mark.parametrize("model", [RandomJoint(3, 2, 7), DefectTable(1.5)], ids=["joint", "defect"])
def test_a_restricted_chain_is_described_as_by_brute_force(model):
    temperatures = [0.6, 1.0, 4.0]
    table = theory.restricted_chain(
        Restricted(model), torch.zeros(model.length, dtype=torch.int64), temperatures
    )
    assert table["temperature"].tolist() == temperatures
    for row in table.itertuples():
        matrix = matrix_by_hand(model, row.temperature)
        size = len(matrix)
        values, vectors = np.linalg.eig(matrix.T)
        mu = np.real(vectors[:, np.argmin(abs(values - 1))])
        mu /= mu.sum()
        if not isinstance(model, DefectTable):
            assert mu == pytest.approx(model.log_mu(row.temperature).exp().numpy(), rel=ROUNDING)
        assert row.largest_mass == pytest.approx(mu.max(), rel=ROUNDING)
        assert row.gap == pytest.approx(1 - sorted(abs(values))[-2], rel=ROUNDING) and row.gap_resolved
        power, steps = np.eye(size), 0
        while 0.5 * abs(power - mu).sum(axis=1).max() > 0.25:
            power, steps = power @ matrix, steps + 1
        assert row.mixing_time == steps
        flow = mu[:, None] * matrix
        off = ~np.eye(size, dtype=bool) & (flow > 0)
        production = (flow * np.log(np.where(off, flow, 1) / np.where(off, flow.T, 1)) * off).sum()
        assert row.entropy_production == pytest.approx(production, abs=1e-12)
        assert (production > 1e-3) == isinstance(model, DefectTable)
        sets = [
            np.array(inside)
            for inside in itertools.product([False, True], repeat=size)
            if 0 < mu[list(inside)].sum() <= 0.5
        ]
        bottleneck = min(flow[np.ix_(inside, ~inside)].sum() / mu[inside].sum() for inside in sets)
        assert 0 < row.lower_bound <= 1 / (4 * bottleneck) * (1 + ROUNDING) and row.lower_bound <= steps

        influence = np.zeros((model.length, model.length))
        states = model.states()
        for j in range(model.length):
            other = states.clone()
            other[:, j] = 1 - other[:, j]
            for i in set(range(model.length)) - {j}:
                site = torch.full((size,), i)
                p, q = (
                    torch.softmax(model.logits(tokens, site) / row.temperature, dim=1)
                    for tokens in (states, other)
                )
                influence[i, j] = 0.5 * (p - q).abs().sum(dim=1).max()
        assert row.alpha_row == pytest.approx(influence.sum(axis=1).max(), rel=ROUNDING)
        assert row.alpha_column == pytest.approx(influence.sum(axis=0).max(), rel=ROUNDING)
        assert row.alpha == min(row.alpha_row, row.alpha_column)
        if row.alpha < 1:
            assert (
                row.bound
                == math.ceil(model.length / (1 - row.alpha) * (math.log(model.length) + math.log(4)))
                >= steps
            )
        else:
            assert math.isinf(row.bound)
    assert (table["alpha"] < 1).any()


def test_a_chain_too_slow_to_resolve_is_said_to_be_so():
    chain = theory.restricted_chain(
        Restricted(Ising("cycle", 3)), torch.zeros(3, dtype=torch.int64), [0.05]
    ).iloc[0]
    assert math.isnan(chain["mixing_time"]) and not chain["gap_resolved"]
    assert chain["lower_bound"] > theory.LONGEST_RESOLVED
    assert math.isinf(chain["bound"])


def test_descent_ends_at_the_argmax_of_every_site():
    table = torch.from_numpy(philox(3).normal(size=(5, 4)))
    settled = theory.descend(ProductMeasure(table), torch.zeros(6, 5, dtype=torch.int64), sweeps=20, seed=1)
    assert settled.tolist() == [table.argmax(dim=1).tolist()] * 6
    leaning = torch.tensor([[1, 1, 1, 1, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1]])
    assert theory.descend(CurieWeiss(7), leaning, sweeps=20, seed=1).tolist() == [[1] * 7, [0] * 7]
    untouched = theory.descend(CurieWeiss(7), leaning, sweeps=0, seed=1)
    assert torch.equal(untouched, leaning)


def test_allowed_tokens_are_those_of_positive_probability(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 8)
    state = landscape.random_states(conditionals, 1, seed=1)[0]
    assert theory.allowed_tokens(conditionals).tolist() == (laws_by_hand(conditionals, state)[0] > 0).tolist()
    assert 0 < int((~theory.allowed_tokens(conditionals)).sum()) < conditionals.vocabulary


def test_the_table_of_settled_states_holds_local_maxima_by_margin(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 3)
    states = landscape.random_states(conditionals, 4, seed=1)
    view = LocalView(
        np.array([[1.0, 2, 3], [5, 4, 6], [-1, 9, 9], [2, 2, 2]]),
        np.array([[0.5, 0.4, 0.3, 0.2], [0.1, 0.05, 0.01, 0.0]]),
        np.array([1.0, 0.2]),
    )
    table = theory_words.settled_table(view, conditionals, states, top=2)
    assert table["margin (nats)"].tolist() == [4.0, 2.0]
    assert table["text"].tolist() == [conditionals.decode(states[1]), conditionals.decode(states[3])]
    assert table["mean dwell at τ = 1 (steps)"].tolist() == pytest.approx([2.5, 5.0])
    assert table["mean dwell at τ = 0.2 (steps)"].tolist() == pytest.approx([20.0, 1e300])
    assert len(theory_words.settled_table(view, conditionals, states, top=9)) == 3


def test_margins_in_words_count_maxima_and_cases():
    def view(*margins: float) -> LocalView:
        return LocalView(np.array(margins)[:, None], np.full((2, len(margins)), 0.5), np.array([1.0, 0.2]))

    words = theory_words.describe_margins(
        view(-1, -1, 1), view(-1, 2, 3), informative=1, verdict="no violation found"
    )
    assert words.startswith("2 of 3 settled states") and "passages they came from, 1 were" in words
    assert "Of 4 cases" in words and "below 1 in 1;" in words and "**no violation found**" in words
    nothing = theory_words.describe_margins(view(-1), view(-2), informative=0, verdict="undecided")
    assert nothing.startswith("0 of 1") and nothing.endswith("nothing to say here.")


def test_contraction_in_words_compares_bound_and_time():
    chains = pd.DataFrame(
        {
            "alpha": [0.5, 0.9, 1.2],
            "bound": [30.0, 40.0, math.inf],
            "mixing_time": [10.0, 16.0, 50.0],
            "entropy_production": [0.0, 2e-3, 0.5],
            "gap_resolved": [True, True, False],
        }
    )
    assert (
        theory_words.count_contraction(chains)
        == "bound / exact mixing time at least 2.50 in 2 contracting cases"
    )
    words = theory_words.describe_contraction(chains)
    assert (
        "below 1 in 2 of 3 cases" in words
        and "at best 2.5 times too long" in words
        and "in 1 of 3 cases" in words
        and "between 0.0e+00 and 5.0e-01" in words
    )
    assert "**beyond the bound**: bound over time is 0.800" in theory_words.describe_contraction(
        chains.assign(mixing_time=[10.0, 50.0, 50.0])
    )
    nowhere = chains.assign(alpha=1.5)
    assert theory_words.count_contraction(
        nowhere
    ) == "no case with alpha below 1" and "nothing to say here" in theory_words.describe_contraction(nowhere)

"""Defects planted in the kernels: the checks that the right code passes elsewhere must catch them here."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from statistics_helpers import (
    CASES,
    P_VALUE,
    SIGMAS,
    average_z,
    coupled_step_ps,
    event_walk,
    one_step_p,
    rare_token_z,
    replicas_p,
    stationary_p,
    tokens_unlike_plain,
    walk_of,
)

from glauber_mlm.conditionals.stubs import RareToken
from glauber_mlm.kernels import coupled, event, plain
from glauber_mlm.kernels.sampling import draw, maximal_partner, prepare
from glauber_mlm.randomness import ACCEPT, RESIDUAL, SITE, TOKEN

CAUGHT = P_VALUE / 1000  # beyond what right kernels must pass, with room


def finish(state, sites, drawn):
    """The new state and what was done."""
    previous = state.tokens.gather(1, sites[:, None])[:, 0]
    tokens = state.tokens.scatter(1, sites[:, None], drawn[:, None])
    return plain.ChainState(tokens, state.temperature), plain.StepInfo(
        sites, previous, drawn, torch.ones_like(sites, dtype=torch.bool)
    )


# --- off-by-one site --------------------------------------------------------------------------------------------------


def writes_at_the_next_site(model, state, randomness):
    _, info = plain.step(model, state, randomness)
    return finish(state, (info.sites + 1) % model.length, info.drawn)


def reads_the_row_of_the_next_site(model, state, randomness):
    sites = plain.choose_sites(model, randomness[:, SITE])
    rows = model.logits(state.tokens, (sites + 1) % model.length)
    return finish(state, sites, draw(prepare(rows, state.temperature), randomness[:, TOKEN]))


def never_takes_the_last_site(model, state, randomness):
    randomness = randomness.clone()
    randomness[:, SITE] *= (model.length - 1) / model.length
    return plain.step(model, state, randomness)


@pytest.mark.parametrize("name", ["ising-cycle", "joint-3-4", "potts", "restricted"])
@pytest.mark.parametrize(
    "defect", [writes_at_the_next_site, reads_the_row_of_the_next_site, never_takes_the_last_site]
)
def test_an_off_by_one_site_is_caught(defect, name):
    case = CASES[name]
    assert one_step_p(plain.step, case) > P_VALUE
    assert one_step_p(defect, case) < CAUGHT


def test_an_off_by_one_site_shows_in_the_long_run_too():
    """Reading the wrong row keeps every site moving; the stationary law gives it away."""
    case = CASES["joint-3-4"]
    assert stationary_p(plain.walk, case, 512) > P_VALUE
    assert stationary_p(walk_of(reads_the_row_of_the_next_site), case, 512) < CAUGHT


# --- wrong temperature ------------------------------------------------------------------------------------------------


def hotter_by_a_tenth(model, state, randomness):
    new, info = plain.step(model, replace(state, temperature=1.1 * state.temperature), randomness)
    return plain.ChainState(new.tokens, state.temperature), info


def multiplies_by_the_temperature(model, state, randomness):
    new, info = plain.step(model, replace(state, temperature=1 / state.temperature), randomness)
    return plain.ChainState(new.tokens, state.temperature), info


@pytest.mark.parametrize("name", ["ising-cycle", "joint-2-5", "product"])
@pytest.mark.parametrize("defect", [hotter_by_a_tenth, multiplies_by_the_temperature])
def test_a_wrong_temperature_is_caught(defect, name):
    case = CASES[name]
    assert one_step_p(plain.step, case, 200_000) > P_VALUE
    assert one_step_p(defect, case, 200_000) < CAUGHT


@pytest.mark.parametrize("name", ["ising-cycle", "joint-3-4"])
def test_a_wrong_temperature_moves_the_averages(name):
    case = CASES[name]
    assert abs(average_z(plain.walk, case)) < SIGMAS
    assert abs(average_z(walk_of(hotter_by_a_tenth), case)) > 1.5 * SIGMAS


# --- a visiting order shared by replicas ------------------------------------------------------------------------------


def one_site_for_all(model, state, randomness):
    randomness = randomness.clone()
    randomness[:, SITE] = randomness[0, SITE]
    return plain.step(model, state, randomness)


@pytest.mark.parametrize("name", ["ising-cycle", "restricted"])
def test_a_shared_visiting_order_is_caught(name):
    case = CASES[name]
    assert replicas_p(plain.walk, case) > P_VALUE
    assert replicas_p(walk_of(one_site_for_all), case) < CAUGHT


def test_a_systematic_scan_is_caught():
    case = CASES["ising-cycle"]

    def sweeps(model, state, randomness):
        randomness = randomness.clone()
        randomness[:, SITE] = (torch.arange(len(randomness)) + sweeps.step) % model.length / model.length
        sweeps.step += 1
        return plain.step(model, state, randomness)

    sweeps.step = 0
    assert replicas_p(walk_of(sweeps), case) < CAUGHT


# --- a draw in float16 ------------------------------------------------------------------------------------------------


def draws_in_half_precision(model, state, randomness):
    sites = plain.choose_sites(model, randomness[:, SITE])
    law = torch.softmax(model.logits(state.tokens, sites).double() / state.temperature[:, None], dim=1)
    cumulative = law.cumsum(dim=1).half().double()
    drawn = torch.searchsorted(cumulative, randomness[:, [TOKEN]].half().double(), right=True)[:, 0]
    return finish(state, sites, drawn.clamp_(max=model.vocabulary - 1))


def draws_in_single_precision_sums(model, state, randomness):
    """Float32 uniforms and sums: enough for 2e-4, not for 1e-7."""
    sites = plain.choose_sites(model, randomness[:, SITE])
    law = torch.softmax(model.logits(state.tokens, sites).float() / state.temperature[:, None].float(), dim=1)
    drawn = torch.searchsorted(law.cumsum(dim=1), randomness[:, [TOKEN]].float(), right=True)[:, 0]
    return finish(state, sites, drawn.clamp_(max=model.vocabulary - 1))


def test_a_draw_in_half_precision_is_caught():
    assert abs(rare_token_z(plain.step)) < SIGMAS
    assert abs(rare_token_z(draws_in_half_precision)) > 1.5 * SIGMAS


def inside_the_rare_interval(step, probability=1e-7, vocabulary=30_000, token=20_001) -> int:
    """Of 200 uniforms placed inside the interval of a rare token, how many draw it."""
    model = RareToken(1, vocabulary, token, probability)
    randomness = torch.zeros(200, 4, dtype=torch.float64)
    shares = torch.linspace(0.02, 0.98, 200, dtype=torch.float64)
    randomness[:, TOKEN] = token * (1 - probability) / (vocabulary - 1) + probability * shares
    state = plain.initial_state(model, torch.zeros(200, 1, dtype=torch.int64), 1.0)
    return int((step(model, state, randomness)[1].drawn == token).sum())


@pytest.mark.parametrize("defect", [draws_in_half_precision, draws_in_single_precision_sums])
def test_coarse_draws_miss_the_interval_of_a_rare_token(defect):
    assert inside_the_rare_interval(plain.step) == 200
    assert inside_the_rare_interval(defect) < 160


# --- a stale row ------------------------------------------------------------------------------------------------------


class NeverInvalidated(event._Walker):
    """Rows stay pinned to their sites when the state moves on."""

    def release(self, keep=None):
        if keep is None:
            super().release()


class KeyedBySiteAlone(event._Walker):
    def key(self, site):
        return site.to_bytes(4, "little")


class KeyedWithoutTheSite(event._Walker):
    """The token at the masked site is forgotten, but not which site it was."""

    def key(self, site):
        return np.delete(self.tokens, site).tobytes()


@pytest.mark.parametrize("name", ["joint-3-4", "potts", "restricted"])
@pytest.mark.parametrize("walker", [NeverInvalidated, KeyedBySiteAlone, KeyedWithoutTheSite])
def test_a_stale_row_is_caught(monkeypatch, walker, name):
    case = CASES[name]
    assert tokens_unlike_plain(event_walk, case) == 0
    assert stationary_p(event_walk, case, 256, 4) > P_VALUE
    monkeypatch.setattr(event, "_Walker", walker)
    assert tokens_unlike_plain(event_walk, case) > 100
    assert stationary_p(event_walk, case, 256, 4) < CAUGHT


# --- a wrong residual -------------------------------------------------------------------------------------------------


def residual_from_p(first, second, tokens, accept, residual):
    partner = maximal_partner(first, second, tokens, accept, residual)
    return torch.where(partner == tokens, tokens, draw(first, residual))


def residual_from_q(first, second, tokens, accept, residual):
    partner = maximal_partner(first, second, tokens, accept, residual)
    return torch.where(partner == tokens, tokens, draw(second, residual))


def residual_from_the_excess_of_p(first, second, tokens, accept, residual):
    partner = maximal_partner(first, second, tokens, accept, residual)
    return torch.where(
        partner == tokens, tokens, maximal_partner(second, first, partner, torch.ones_like(accept), residual)
    )


def never_accepts(first, second, tokens, accept, residual):
    return draw(second, residual)


@pytest.mark.parametrize("name", ["joint-3-4", "joint-2-5", "potts-repelling"])
@pytest.mark.parametrize("partner", [residual_from_p, residual_from_q, residual_from_the_excess_of_p])
def test_a_wrong_residual_is_caught_in_the_second_chain(monkeypatch, partner, name):
    case = CASES[name]
    assert min(coupled_step_ps(coupled.step, case).values()) > P_VALUE
    monkeypatch.setattr(coupled, "maximal_partner", partner)
    found = coupled_step_ps(coupled.step, case)
    assert found["first"] > P_VALUE, "the first chain is the plain one still"
    assert found["second"] < CAUGHT


def test_independent_tokens_are_caught_by_their_agreement(monkeypatch):
    """Right marginals, wrong coupling: only the agreement shows it."""
    monkeypatch.setattr(coupled, "maximal_partner", never_accepts)
    found = coupled_step_ps(coupled.step, CASES["joint-2-5"])
    assert min(found["first"], found["second"]) > P_VALUE and found["agree"] < CAUGHT


def test_one_uniform_for_token_and_acceptance_is_caught():
    def reuses_the_token_uniform(model, state, randomness):
        randomness = randomness.clone()
        randomness[:, ACCEPT] = randomness[:, TOKEN]
        return coupled.step(model, state, randomness)

    assert coupled_step_ps(reuses_the_token_uniform, CASES["joint-2-5"])["second"] < CAUGHT


def test_one_uniform_for_acceptance_and_residual_is_caught():
    def reuses_the_accept_uniform(model, state, randomness):
        randomness = randomness.clone()
        randomness[:, RESIDUAL] = randomness[:, ACCEPT]
        return coupled.step(model, state, randomness)

    assert coupled_step_ps(reuses_the_accept_uniform, CASES["joint-2-5"])["second"] < CAUGHT


def test_different_sites_in_a_pair_are_caught_by_the_laws_agreement():
    """The second chain moves at another site of its own: each chain is right, the pair is not the coupled chain."""

    def own_sites(model, state, randomness):
        new, info = coupled.step(model, state, randomness)
        moved = randomness.clone()
        moved[:, SITE] = (moved[:, SITE] + 0.5) % 1
        second, other = plain.step(model, plain.ChainState(state.second, state.temperature), moved)
        return coupled.PairState(new.first, second.tokens, state.temperature), replace(
            info, second=other.drawn
        )

    found = coupled_step_ps(own_sites, CASES["joint-3-4"])
    assert min(found["first"], found["second"]) > P_VALUE and found["agree"] < CAUGHT

"""Exact finite chains against theorems, closed forms and slower independent computations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

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

COMPATIBLE = {
    "cycle": lambda: Ising("cycle", 5, coupling=0.7, field=0.2),
    "torus": lambda: Ising("torus", 3, coupling=0.3),
    "Curie-Weiss": lambda: CurieWeiss(6),
    "Potts": lambda: Potts(4, 3, coupling=0.9),
    "product": lambda: ProductMeasure(torch.tensor([[0.0, 1.0, -2.0], [0.5, 0.5, 3.0], [-1.0, 0.25, 0.0]])),
    "random": lambda: RandomJoint(4, 3, seed=5),
}


class Incompatible:
    """Independent random rows for every (masked context, site): no joint law."""

    def __init__(self, length: int, vocabulary: int, seed: int, scale: float = 1.0) -> None:
        self.length, self.vocabulary, self.device, self.dtype = (
            length,
            vocabulary,
            torch.device("cpu"),
            torch.float64,
        )
        self.free_sites, self.fingerprint = torch.arange(length), f"{length}|{vocabulary}|{seed}|{scale}"
        self._rows = scale * torch.from_numpy(
            np.random.default_rng(seed).standard_normal((length, vocabulary**length, vocabulary))
        )

    def logits(self, states, sites):
        place = self.vocabulary ** torch.arange(self.length)
        return self._rows[sites, (states.scatter(1, sites[:, None], 0) * place).sum(1)]


def naive_matrix(model, temperature: float, states: list[tuple[int, ...]]) -> np.ndarray:
    """P by definition, one probability at a time."""
    P = np.zeros((len(states), len(states)))
    sites = model.free_sites.tolist()
    for x, state in enumerate(states):
        for site in sites:
            row = torch.softmax(
                model.logits(torch.tensor([state]), torch.tensor([site]))[0] / temperature, 0
            ).tolist()
            for y, other in enumerate(states):
                if all(a == b for k, (a, b) in enumerate(zip(state, other, strict=True)) if k != site):
                    P[x, y] += row[other[site]] / len(sites)
    return P


def chain(model, temperature: float, states=None) -> tuple[np.ndarray, np.ndarray]:
    P = exact.transition_matrix(model, temperature, states)
    return P, exact.stationary(P)


# Enumeration


def test_matrix_is_the_definition():
    for model in (RandomJoint(3, 3, seed=1), Incompatible(2, 4, seed=2), DefectTable(1.5)):
        states = list(itertools.product(range(model.vocabulary), repeat=model.length))
        assert np.abs(exact.transition_matrix(model, 0.6) - naive_matrix(model, 0.6, states)).max() < 1e-15


def test_restricted_chain_with_frozen_sites():
    model = Restricted(RandomJoint(4, 3, seed=3), free_sites=[1, 3], allowed=[[2, 0], [1]])
    states = exact.enumerate_states(model, base=torch.tensor([1, 0, 2, 0]))
    assert states.tolist() == [[1, 2, 2, 1], [1, 0, 2, 1]]
    P = exact.transition_matrix(model, 1.0, states)
    assert np.abs(P - naive_matrix(model, 1.0, [tuple(s) for s in states.tolist()])).max() < 1e-15
    assert np.diag(P).min() > 0.5  # site 3 has one allowed token and never moves


def test_nested_and_wrapped_restrictions_intersect():
    inner = Restricted(RandomJoint(3, 4, seed=3), allowed=[[0, 1, 2], [1, 3], [2, 3]])
    model = Counting(Restricted(inner, free_sites=[0, 2], allowed=[[3, 2, 1], [0, 3]]))
    states = exact.enumerate_states(model, torch.tensor([0, 1, 0]))
    assert states.tolist() == [[2, 1, 3], [1, 1, 3]]
    assert exact.transition_matrix(model, 1.0, states).sum(1) == pytest.approx([1, 1])


def test_one_set_of_logits_serves_every_temperature_and_asks_each_context_once():
    model = Counting(RandomJoint(3, 3, seed=1))
    table = exact.enumerate_logits(model)
    assert model.rows == model.distinct == 3 * 9
    for temperature in (0.2, 5.0):
        direct = exact.transition_matrix(model.wrapped, temperature)
        assert np.array_equal(exact.transition_matrix(table, temperature), direct)
    assert model.rows == 27


def test_hard_constraints_make_a_smaller_chain():
    # Token 1 at both sites of a bond is forbidden: the hard-core model on two sites.
    class HardCore(ProductMeasure):
        def logits(self, states, sites):
            rows = super().logits(states, sites).clone()
            rows[:, 1] = torch.where(states.gather(1, 1 - sites[:, None])[:, 0] == 1, -math.inf, rows[:, 1])
            return rows

    states = torch.tensor([[0, 0], [0, 1], [1, 0]])
    P, mu = chain(HardCore(torch.tensor([[0.0, 1.0], [0.0, 2.0]])), 1.0, states)
    weights = np.exp([0.0, 2.0, 1.0])
    assert mu == pytest.approx(weights / weights.sum())
    assert exact.entropy_production(HardCore(torch.tensor([[0.0, 1.0], [0.0, 2.0]])), 1.0, mu, states) < 1e-20
    whole = exact.log_transition_ratios(HardCore(torch.tensor([[0.0, 1.0], [0.0, 2.0]])), 1.0)
    assert whole[3, 1] == math.inf and whole[1, 3] == -math.inf and np.isnan(whole[0, 3])


def test_what_cannot_be_enumerated_is_refused():
    ising = Ising("cycle", 4)
    refusals = [
        (lambda: exact.enumerate_states(Ising("cycle", 13)), "8192 states"),
        (lambda: exact.enumerate_states(Restricted(ising, free_sites=[0])), "base"),
        (lambda: exact.enumerate_states(ising, torch.tensor([0, 1])), "shape"),
        (
            lambda: exact.enumerate_states(
                Restricted(Restricted(ising, allowed=[[0]] * 4), allowed=[[1]] * 4)
            ),
            "0 states",
        ),
        (
            lambda: exact.enumerate_logits(ising, torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0]])),
            "outside the listed states",
        ),
        (lambda: exact.enumerate_logits(ising, Ising("cycle", 4).states()[:-1]), "leaves the listed states"),
        (lambda: exact.enumerate_logits(ising, torch.zeros(2, 4, dtype=torch.int64)), "twice"),
        (lambda: exact.enumerate_logits(ising, torch.zeros(0, 4, dtype=torch.int64)), "between 1"),
        (lambda: exact.transition_matrix(Faulty(ising, None, 2), 1.0), "site 2"),
        (lambda: exact.transition_matrix(Faulty(ising, None, 1, -math.inf, token=None), 1.0), "site 1"),
        (lambda: exact.transition_matrix(ising, 0.0), "temperature"),
        (lambda: exact.log_transition_ratios(ising, math.nan), "temperature"),
        (
            lambda: exact.transition_matrix(exact.enumerate_logits(ising), 1.0, ising.states().flip(0)),
            "other states",
        ),
        (lambda: exact.stationary(np.eye(2)), "reducible"),
        (lambda: exact.stationary(np.ones((2, 2))), "rows that add to 1"),
        (lambda: exact.mixing_time(np.full((2, 2), 0.5), np.full(2, 0.5), epsilon=0.0), "epsilon"),
        (lambda: exact.distance_to_stationarity(np.full((2, 2), 0.5), np.full(2, 0.5), [-1]), "times"),
        (lambda: exact.sweep_cut(np.eye(2), np.array([1.0, 0.0])), "one state"),
        (lambda: exact.coupled_meeting_times(Ising("cycle", 10), 1.0), "at most 512"),
        (lambda: exact.coupled_meeting_times(Ising("cycle", 4), 0.05), "too slow"),
        (lambda: exact.coupled_meeting_times(Ising("cycle", 4), 0.001), "too slow"),
        (lambda: exact.enumerate_logits(ising, torch.zeros(1, 4)), "int64"),
        (
            lambda: exact.enumerate_states(Restricted(ising, free_sites=[0]), torch.tensor([0, 0, 0, 2])),
            "outside",
        ),
    ]
    for refused, message in refusals:
        with pytest.raises(UserError, match=message):
            refused()


# Stationary laws


@pytest.mark.parametrize("name", COMPATIBLE)
@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_compatible_conditionals_give_a_reversible_chain_with_that_law(name, temperature):
    model = COMPATIBLE[name]()
    P, mu = exact.transition_matrix(model, temperature), model.log_mu(temperature).exp().numpy()
    flow = mu[:, None] * P
    assert np.abs(P.sum(1) - 1).max() < 1e-14
    assert np.abs(flow - flow.T).max() < 1e-15
    assert np.abs(mu @ P - mu).max() < 1e-15
    assert np.abs(exact.stationary(P) / mu - 1).max() < 1e-11
    assert 0 <= exact.entropy_production(model, temperature, mu) < 1e-12


@pytest.mark.parametrize("seed", range(4))
def test_gth_against_eigenvectors_of_an_incompatible_chain(seed):
    P, mu = chain(Incompatible(3, 3, seed), 1.0)
    values, vectors = np.linalg.eig(P.T)
    vector = vectors[:, np.abs(values - 1).argmin()].real
    assert np.abs(mu - vector / vector.sum()).max() < 1e-12
    assert np.abs(mu @ P - mu).max() < 1e-16 * len(P)


def test_gth_holds_when_cold_where_a_direct_solve_fails():
    model, temperature = Ising("cycle", 6, field=0.02), 0.1
    P = exact.transition_matrix(model, temperature)
    law = model.log_mu(temperature).exp().numpy()
    assert np.abs(exact.stationary(P) / law - 1).max() < 1e-11
    system = np.vstack([P.T - np.eye(len(P)), np.ones(len(P))])
    direct = np.linalg.lstsq(system, np.eye(len(P) + 1)[-1], rcond=None)[0]
    assert np.abs(direct - law).max() > 1e-2


def test_gth_with_a_law_that_spans_more_than_floating_point():
    # A ladder that climbs by a factor 1e6 a step: entries from 1e-600 (0 in float64) to 1.
    size = 101
    P = np.diag(np.full(size - 1, 0.5), 1) + np.diag(np.full(size - 1, 0.5e-6), -1)
    P += np.diag(1 - P.sum(1))
    mu = exact.stationary(P)
    assert np.isfinite(mu).all() and mu[-1] == pytest.approx(1, rel=1e-5)
    assert mu[-40:] / mu[-41:-1] == pytest.approx(1e6, rel=1e-9) and mu[0] == 0
    phi, mask = exact.sweep_cut(P, mu)
    assert np.isfinite(phi) and not mask[-1]


# Distance, mixing, gap


def test_distance_is_that_of_matrix_powers():
    P, mu = chain(Incompatible(3, 3, seed=7), 0.7)
    times = [40, 0, 1, 7, 7, 64]
    expected = [0.5 * np.abs(np.linalg.matrix_power(P, t) - mu).sum(1).max() for t in times]
    assert exact.distance_to_stationarity(P, mu, times) == pytest.approx(expected, abs=1e-13)
    starts = [exact.exact_tv_to_mu(P, mu, start, times) for start in np.eye(len(P))]
    assert np.max(starts, axis=0) == pytest.approx(expected, abs=1e-13)
    mixture = np.full(len(P), 1 / len(P))
    assert exact.exact_tv_to_mu(P, mu, mixture, [5]) <= np.mean(starts, axis=0)[3]
    assert exact.exact_tv_to_mu(P, mu, mu, [0, 3]) == pytest.approx([0, 0], abs=1e-14)


@pytest.mark.parametrize("epsilon", [0.25, 0.01])
@pytest.mark.parametrize(
    "make",
    [
        lambda: Incompatible(3, 3, 8, 2.0),
        lambda: Ising("cycle", 5),
        lambda: ProductMeasure(torch.zeros(4, 2)),
    ],
)
def test_mixing_time_is_the_first_time_below_epsilon(make, epsilon):
    P, mu = chain(make(), 0.8)
    distances = exact.distance_to_stationarity(P, mu, range(1500))
    assert (np.diff(distances) <= 1e-12).all()
    first = int(np.argmax(distances <= epsilon))
    assert first > 0 and exact.mixing_time(P, mu, epsilon) == first
    assert exact.mixing_time(P, mu, epsilon, cap=first) == first
    assert exact.mixing_time(P, mu, epsilon, cap=first - 1) is None


def test_slow_mixing_stays_accurate_where_the_gap_is_not_resolved():
    rate = 1e-20
    P = np.array([[1.0, rate], [rate, 1.0]])
    mu = exact.stationary(P)
    # d(t) = (1 - 2 rate)^t / 2, so t_mix(1/4) = log 2 / (2 rate).
    assert exact.mixing_time(P, mu, cap=2**70) == pytest.approx(math.log(2) / (2 * rate), rel=1e-9)
    assert exact.mixing_time(P, mu, cap=2**50) is None
    assert not exact.spectral_gap(P).resolved
    assert exact.mixing_time(np.full((2, 2), 0.5), np.full(2, 0.5), epsilon=0.6) == 0


@pytest.mark.parametrize("n,coupling,temperature", [(4, 1.0, 1.0), (6, 0.5, 0.7), (6, 1.0, 3.0)])
def test_gap_of_the_ising_cycle(n, coupling, temperature):
    # Glauber (1963): magnetisation is an eigenfunction, and the gap is (1 - tanh(2 J / tau)) / n.
    gap = exact.spectral_gap(exact.transition_matrix(Ising("cycle", n, coupling), temperature))
    assert gap.resolved and gap.value == pytest.approx(
        (1 - math.tanh(2 * coupling / temperature)) / n, rel=1e-10
    )


def test_gap_of_a_product_chain_and_of_a_rotation():
    assert exact.spectral_gap(
        exact.transition_matrix(ProductMeasure(np.random.default_rng(9).standard_normal((3, 3))), 1.0)
    ).value == pytest.approx(1 / 3)
    rotation = 0.7 * np.roll(np.eye(3), 1, axis=1) + 0.1
    assert exact.spectral_gap(rotation).value == pytest.approx(0.3)
    assert exact.spectral_gap(np.ones((1, 1))) == (1.0, True)


def test_relaxation_time_bounds_mixing_of_reversible_chains():
    for name in ("cycle", "Curie-Weiss", "Potts"):
        model = COMPATIBLE[name]()
        P, mu = exact.transition_matrix(model, 0.8), model.log_mu(0.8).exp().numpy()
        relaxation = 1 / exact.spectral_gap(P).value
        mixing = exact.mixing_time(P, mu)
        assert (
            (relaxation - 1) * math.log(2) <= mixing <= relaxation * math.log(4 / mu.min())
        )  # LPW, theorems 12.4 and 12.5


# Bottlenecks


def brute_bottleneck(P: np.ndarray, mu: np.ndarray) -> float:
    best = math.inf
    for bits in range(1, 2 ** len(mu) - 1):
        inside = np.array([bits >> k & 1 for k in range(len(mu))], dtype=bool)
        if mu[inside].sum() <= 0.5 + 1e-12:
            best = min(best, (mu[inside, None] * P[np.ix_(inside, ~inside)]).sum() / mu[inside].sum())
    return best


SMALL = [
    *[(lambda seed=seed: RandomJoint(3, 2, seed), True) for seed in range(4)],
    *[(lambda seed=seed: Incompatible(3, 2, seed, 2.0), False) for seed in range(4)],
    (lambda: Ising("cycle", 3), True),
    (lambda: DefectTable(3.0), False),
]


@pytest.mark.parametrize("make,reversible", SMALL)
@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_sweep_cut_is_an_upper_bound_of_the_bottleneck(make, reversible, temperature):
    P, mu = chain(make(), temperature)
    phi, mask = exact.sweep_cut(P, mu)
    assert mu[mask].sum() <= 0.5 + 1e-12
    assert phi == pytest.approx((mu[mask, None] * P[np.ix_(mask, ~mask)]).sum() / mu[mask].sum(), rel=1e-9)
    bottleneck = brute_bottleneck(P, mu)
    assert phi >= bottleneck * (1 - 1e-9)
    assert exact.mixing_time(P, mu) >= 1 / (4 * phi)
    backward = mu[None] * P.T / mu[:, None]
    gap = 1 - np.sort(np.linalg.eigvals((P + backward) / 2).real)[-2]
    assert phi <= math.sqrt(2 * gap) * (1 + 1e-6)  # Cheeger, of the reversibilised chain
    assert gap <= 2 * bottleneck * (1 + 1e-6)
    if reversible:
        assert gap == pytest.approx(exact.spectral_gap(P).value, rel=1e-5)


@pytest.mark.parametrize(
    "temperature", [0.6, 0.3, 0.02]
)  # at the last, the second eigenvalue is 1 in float64
def test_sweep_cut_finds_the_two_phases_of_a_cold_magnet(temperature):
    model = CurieWeiss(6)
    P, mu = chain(model, temperature)
    phi, mask = exact.sweep_cut(P, mu)
    plus = model.states().sum(1).numpy()
    assert mask[plus == 0] != mask[plus == 6]
    lumped, law = model.magnetisation_chain(temperature)
    levels = [law[k - 1] * lumped[k - 1, k] / min(law[:k].sum(), law[k:].sum()) for k in range(1, 7)]
    assert 0 < phi <= min(levels) * (1 + 1e-9)
    assert phi == pytest.approx((mu[mask, None] * P[np.ix_(mask, ~mask)]).sum() / mu[mask].sum(), rel=1e-9)


def test_sweep_cut_of_a_chain_in_two_pieces_is_zero():
    phi, mask = exact.sweep_cut(np.kron(np.eye(2), np.full((2, 2), 0.5)), np.full(4, 0.25))
    assert phi == 0 and mask[0] == mask[1] != mask[2]
    assert exact.sweep_cut(np.eye(2), np.full(2, 0.5))[0] == 0


# Entropy production


@pytest.mark.parametrize("defect", [-2.0, 0.3, 1e-3])
@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_entropy_production_of_one_cycle_is_current_times_affinity(defect, temperature):
    model = DefectTable(defect)
    P, mu = chain(model, temperature)
    rate = exact.entropy_production(model, temperature, mu)
    # x = 00 -> y = 10 -> z = 11 -> w = 01 -> x is the only cycle; states are numbered 2 x_0 + x_1.
    current = mu[0] * P[0, 2] - mu[2] * P[2, 0]
    assert rate == pytest.approx(current * defect / temperature, rel=1e-9)
    assert rate > 1e-9
    assert np.abs(exact.stationary(P) @ P - mu).max() < 1e-15


def test_entropy_production_is_zero_without_a_defect():
    P, mu = chain(DefectTable(0.0), 1.0)
    assert 0 <= exact.entropy_production(DefectTable(0.0), 1.0, mu) < 1e-25


def test_entropy_production_is_its_definition():
    model = Incompatible(3, 3, seed=4)
    P, mu = chain(model, 0.9)
    flow = mu[:, None] * P
    x, y = np.nonzero((flow > 0) & ~np.eye(len(P), dtype=bool))
    definition = (flow[x, y] * np.log(flow[x, y] / flow[y, x])).sum()
    assert exact.entropy_production(model, 0.9, mu) == pytest.approx(definition, rel=1e-10)
    assert definition > 1e-3
    ratios = exact.log_transition_ratios(model, 0.9)
    assert ratios[x, y] == pytest.approx(np.log(P[x, y] / P[y, x]), abs=1e-12)
    assert np.array_equal(np.isnan(ratios), P == 0) and not np.diag(ratios).any()


def test_log_ratios_survive_underflow():
    model, temperature = Ising("cycle", 4), 0.004
    assert exact.transition_matrix(model, temperature)[0, 1] == 0
    assert exact.log_transition_ratios(model, temperature)[0, 1] == pytest.approx(-4 / temperature)
    with pytest.raises(UserError, match="underflowed"):
        exact.stationary(exact.transition_matrix(model, temperature))


# Influence, path coupling, total variation


def test_influence_in_closed_form():
    assert not exact.influence_matrix(COMPATIBLE["product"](), 0.7).any()
    for temperature in (0.8, 2.5):
        influence = exact.influence_matrix(Ising("cycle", 5, coupling=0.6), temperature)
        near = np.roll(np.eye(5), 1, 0) + np.roll(np.eye(5), -1, 0)
        assert influence == pytest.approx(near * math.tanh(1.2 / temperature) / 2, abs=1e-14)
        assert exact.dobrushin(influence) == pytest.approx((math.tanh(1.2 / temperature),) * 2)


def test_influence_is_the_worst_pair():
    model, temperature = Incompatible(3, 3, seed=11), 0.5
    influence = exact.influence_matrix(model, temperature)
    expected = np.zeros((3, 3))
    for state in itertools.product(range(3), repeat=3):
        for i, j, token in itertools.product(range(3), repeat=3):
            if i != j:
                pair = torch.tensor([state, state])
                pair[1, j] = token
                p, q = torch.softmax(model.logits(pair, torch.tensor([i, i])) / temperature, 1)
                expected[i, j] = max(expected[i, j], 0.5 * float((p - q).abs().sum()))
    assert influence == pytest.approx(expected, abs=1e-14)
    assert exact.dobrushin(np.array([[0, 0.5, 0.1], [0.2, 0, 0.1], [0.3, 0.1, 0]])) == pytest.approx(
        (0.6, 0.6)
    )
    assert exact.dobrushin(np.array([[0, 0.5], [0.1, 0]])) == (0.5, 0.5)
    assert exact.dobrushin(np.array([[0, 0.3, 0.3], [0, 0, 0], [0, 0, 0]])) == pytest.approx((0.6, 0.3))


def test_path_coupling_bounds_the_exact_mixing_time():
    models = [make() for name, make in COMPATIBLE.items() if name != "torus"]
    models += [Incompatible(3, 2, seed, scale=0.4) for seed in range(5)] + [
        Incompatible(4, 2, seed, scale=0.3) for seed in range(3)
    ]
    models += [DefectTable(defect) for defect in (0.5, 2.0)]
    used = 0
    for model, temperature in itertools.product(models, (0.7, 1.5, 4.0)):
        table = exact.enumerate_logits(model)
        alpha = min(exact.dobrushin(exact.influence_matrix(table, temperature)))
        if alpha < 1:
            used += 1
            P, mu = chain(table, temperature)
            n = model.length
            for epsilon in (0.25, 0.02):
                bound = math.ceil(n / (1 - alpha) * (math.log(n) + math.log(1 / epsilon)))
                assert exact.mixing_time(P, mu, epsilon) <= bound
    assert used >= 25


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    rows=st.integers(2, 6).flatmap(
        lambda size: st.tuples(*[st.lists(st.floats(-30, 30), min_size=size, max_size=size)] * 2)
    ),
    temperature=st.floats(0.05, 20),
)
def test_tv_of_two_softmaxes_is_bounded_by_their_oscillation(rows, temperature):
    a, b = np.array(rows[0]), np.array(rows[1])
    oscillation = np.ptp(a - b)
    assume(oscillation > 0)
    model = ProductMeasure(torch.from_numpy(np.stack([a, b])))
    p, q = torch.softmax(
        model.logits(torch.zeros(2, 2, dtype=torch.int64), torch.arange(2)) / temperature, 1
    ).numpy()
    assert 0.5 * np.abs(p - q).sum() <= math.tanh(oscillation / (4 * temperature)) + 1e-14


@pytest.mark.parametrize("oscillation", [1e-3, 1.0, 8.0])
def test_that_bound_is_sharp(oscillation):
    temperature = 0.6
    p, q = (np.exp([sign * oscillation / 2 / temperature, 0]) for sign in (1, -1))
    distance = 0.5 * np.abs(p / p.sum() - q / q.sum()).sum()
    assert distance == pytest.approx(math.tanh(oscillation / (4 * temperature)), rel=1e-12)


# Coupling


def test_meeting_times_of_independent_sites_are_coupon_collectors():
    one = exact.coupled_meeting_times(ProductMeasure(torch.tensor([[0.0, 2.0]])), 1.0)
    assert one == pytest.approx(np.array([[0, 1], [1, 0]]))
    model = ProductMeasure(np.random.default_rng(9).standard_normal((3, 3)))
    states = model.states()
    differing = (states[:, None] != states[None]).sum(2).numpy()
    harmonic = np.array([0, 1, 1.5, 11 / 6])
    assert exact.coupled_meeting_times(model, 0.8) == pytest.approx(3 * harmonic[differing])
    larger = ProductMeasure(np.random.default_rng(10).standard_normal((4, 3)))  # 81 states
    differing = (larger.states()[:, None] != larger.states()[None]).sum(2).numpy()
    assert exact.coupled_meeting_times(larger, 0.8) == pytest.approx(
        4 * np.append(harmonic, 25 / 12)[differing], rel=1e-9
    )


@pytest.mark.parametrize("temperature", [0.25, 0.5, 2.0])
def test_meeting_times_by_iteration_are_those_by_elimination(temperature, monkeypatch):
    models = [Ising("cycle", 4), RandomJoint(3, 3, seed=3), Incompatible(3, 3, seed=4)]
    iterated = [exact.coupled_meeting_times(model, temperature) for model in models]
    monkeypatch.setattr(exact, "_RESIDUAL", -1.0)  # no iteration is good enough
    for model, times in zip(models, iterated, strict=True):
        assert times == pytest.approx(exact.coupled_meeting_times(model, temperature), rel=2e-9)
    with pytest.raises(UserError, match="too slow"):  # and above 64 states nothing else is tried
        exact.coupled_meeting_times(Potts(4, 3), temperature)


@pytest.mark.parametrize("temperature", [0.7, 1.0, 5.0])
def test_meeting_times_of_two_spins_by_hand(temperature):
    # Two sites, one double bond; r = TV of the two conditionals. Pairs that differ at one site: E1 = 2 + r / (1 - r); at both: E2 = E1 + 1 / (1 - r).
    r = math.tanh(2 / temperature)
    times = exact.coupled_meeting_times(Ising("cycle", 2), temperature)
    both = np.array([[(x ^ y).bit_count() for y in range(4)] for x in range(4)])
    assert times == pytest.approx(
        np.select([both == 0, both == 1], [0, 2 + r / (1 - r)], 2 + r / (1 - r) + 1 / (1 - r)), rel=1e-9
    )


def test_meeting_times_against_iteration_of_the_ordered_pair_chain():
    # Three sites: with two, the mean does not depend on which chain gets which of two different tokens.
    model, temperature = Incompatible(3, 2, seed=5, scale=1.5), 0.8
    states = list(itertools.product(range(2), repeat=3))
    number = {state: k for k, state in enumerate(states)}
    step = np.zeros((64, 64))
    for x, y in itertools.product(range(8), repeat=2):
        for site in range(3):
            pair = torch.tensor([states[x], states[y]])
            p, q = torch.softmax(model.logits(pair, torch.tensor([site, site])) / temperature, 1).tolist()
            distance = sum(max(a - b, 0) for a, b in zip(p, q, strict=True))
            for a, b in itertools.product(range(2), repeat=2):
                chance = min(p[a], q[a]) if a == b else 0.0
                if distance > 1e-12:
                    chance += max(p[a] - q[a], 0) * max(q[b] - p[b], 0) / distance
                to = [list(states[x]), list(states[y])]
                to[0][site], to[1][site] = a, b
                step[8 * x + y, 8 * number[tuple(to[0])] + number[tuple(to[1])]] += chance / 3
    apart = np.array([x != y for x in range(8) for y in range(8)], dtype=float)
    survival, expected = apart.copy(), np.zeros(64)
    for _ in range(6000):
        expected += survival
        survival = apart * (step @ survival)
    assert survival.max() < 1e-12
    assert exact.coupled_meeting_times(model, temperature) == pytest.approx(expected.reshape(8, 8), rel=1e-9)


def test_survival_of_coupled_pairs_bounds_mixing():
    # Markov's inequality: P(T > 4 E) <= 1/4 for every pair, so t_mix(1/4) <= 4 max E.
    for model in (
        DefectTable(1.0),
        Ising("cycle", 4),
        Incompatible(3, 2, seed=1),
        PlantedMargins(3, 3, 2.0, torch.tensor([[0, 1, 2]])),
    ):
        P, mu = chain(model, 1.0)
        assert exact.mixing_time(P, mu) <= math.ceil(4 * exact.coupled_meeting_times(model, 1.0).max())

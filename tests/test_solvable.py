"""Solvable models against their own joint laws, and stubs against what they promise."""

from __future__ import annotations

import copy
import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from glauber_mlm.conditionals import Conditionals, Restricted, solvable
from glauber_mlm.conditionals.protocol import of_conditionals
from glauber_mlm.conditionals.solvable import (
    CurieWeiss,
    DefectTable,
    Ising,
    Potts,
    ProductMeasure,
    RandomJoint,
)
from glauber_mlm.conditionals.stubs import Counting, Faulty, MaskLover, PlantedMargins, RareToken
from glauber_mlm.errors import UserError
from glauber_mlm.exact.glauber import transition_matrix

PRODUCT = torch.tensor([[0.0, 1.0, -2.0], [0.5, 0.5, 3.0], [-1.0, 0.25, 0.0]], dtype=torch.float64)
COMPATIBLE = {
    "cycle": lambda: Ising("cycle", 5, coupling=0.7, field=0.2),
    "cycle of two": lambda: Ising("cycle", 2),
    "torus": lambda: Ising("torus", 3, coupling=0.3, field=-0.1),
    "Curie-Weiss": lambda: CurieWeiss(7),
    "Potts": lambda: Potts(4, 3, coupling=0.9),
    "product": lambda: ProductMeasure(PRODUCT),
    "random": lambda: RandomJoint(4, 3, seed=5),
    "table": lambda: DefectTable(0.0),
}
each_compatible = pytest.mark.parametrize("name", COMPATIBLE)


def all_pairs(model) -> tuple[torch.Tensor, torch.Tensor]:
    states = model.states()
    return states.repeat_interleave(model.length, 0), torch.arange(model.length).repeat(len(states))


def worst_against_joint(model, temperature: float) -> float:
    """Largest error of a conditional log-probability against the ratio of joint probabilities, states found by name."""
    law = dict(zip(map(tuple, model.states().tolist()), model.log_mu(temperature).tolist(), strict=True))
    states, sites = all_pairs(model)
    ours = torch.log_softmax(model.logits(states, sites) / temperature, dim=1).tolist()
    worst = 0.0
    for state, site, row in zip(states.tolist(), sites.tolist(), ours, strict=True):
        joint = np.array(
            [law[tuple(state[:site] + [token] + state[site + 1 :])] for token in range(model.vocabulary)]
        )
        worst = max(worst, float(np.abs(joint - np.logaddexp.reduce(joint) - row).max()))
    return worst


@each_compatible
@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_conditionals_are_ratios_of_the_joint_law(name, temperature):
    assert worst_against_joint(COMPATIBLE[name](), temperature) < 1e-12


def test_that_check_sees_a_wrong_conditional():
    bent = DefectTable(1e-6)
    bent.log_weights = DefectTable(0.0).log_weights
    assert worst_against_joint(bent, 1.0) > 1e-7


@each_compatible
def test_a_model_meets_the_protocol(name):
    model = COMPATIBLE[name]()
    states, sites = all_pairs(model)
    rows = model.logits(states, sites)
    assert isinstance(model, Conditionals)
    assert rows.shape == (len(sites), model.vocabulary) and rows.dtype == model.dtype == torch.float64
    assert model.free_sites.tolist() == list(range(model.length))
    other = states.scatter(1, sites[:, None], (states.gather(1, sites[:, None]) + 1) % model.vocabulary)
    assert torch.equal(rows, model.logits(other, sites)), "the row depends on the token at its own site"
    assert abs(float(model.log_mu(0.7).exp().sum()) - 1) < 1e-12


def test_states_are_numbered_by_their_digits():
    model = RandomJoint(4, 3, seed=0)
    assert [tuple(state) for state in model.states().tolist()] == list(itertools.product(range(3), repeat=4))


def test_fingerprints_tell_laws_apart():
    models = [make() for make in COMPATIBLE.values()]
    models += [
        Ising("cycle", 9),
        Ising("torus", 3),
        Ising("cycle", 5),
        RandomJoint(4, 3, seed=6),
        Potts(4, 3),
        DefectTable(0.5),
        ProductMeasure(PRODUCT + 1e-9),
    ]
    assert len({model.fingerprint for model in models}) == len(models)
    assert RandomJoint(4, 3, seed=5).fingerprint == COMPATIBLE["random"]().fingerprint


@pytest.mark.parametrize("coupling,field,temperature", [(1.0, 0.0, 1.0), (0.6, 0.3, 0.5), (-0.8, 0.1, 2.0)])
def test_ising_cycle_against_the_transfer_matrix(coupling, field, temperature):
    n, spin = 7, np.array([-1.0, 1.0])
    transfer = np.exp((coupling * np.outer(spin, spin) + field * (spin[:, None] + spin) / 2) / temperature)
    model = Ising("cycle", n, coupling, field)
    spins = 2 * model.states().double() - 1
    assert float(torch.logsumexp(model.log_weights(model.states()) / temperature, 0)) == pytest.approx(
        np.log(np.trace(np.linalg.matrix_power(transfer, n)))
    )
    law = model.log_mu(temperature).exp()
    for apart in range(1, n):
        parts = (
            np.diag(spin),
            np.linalg.matrix_power(transfer, apart),
            np.diag(spin),
            np.linalg.matrix_power(transfer, n - apart),
        )
        expected = np.trace(np.linalg.multi_dot(parts)) / np.trace(np.linalg.matrix_power(transfer, n))
        assert float((law * spins[:, 0] * spins[:, apart]).sum()) == pytest.approx(expected, abs=1e-12)


def test_ising_torus_energy_is_the_sum_over_edges():
    size, coupling, field = 3, 0.8, 0.25
    model = Ising("torus", size, coupling, field)
    states = model.states()[:: 2**4 + 1]
    for state, weight in zip(states.tolist(), model.log_weights(states).tolist(), strict=True):
        spin = np.array(state).reshape(size, size) * 2 - 1
        edges = sum(
            spin[r, c] * (spin[(r + 1) % size, c] + spin[r, (c + 1) % size])
            for r in range(size)
            for c in range(size)
        )
        assert weight == pytest.approx(coupling * edges + field * spin.sum())


def test_potts_of_two_colours_is_ising_of_half_the_coupling():
    ising, potts = Ising("cycle", 6, coupling=0.45), Potts(6, 2, coupling=0.9)
    assert torch.allclose(ising.log_mu(0.8), potts.log_mu(0.8), atol=1e-13)
    states, sites = all_pairs(ising)
    assert torch.allclose(
        torch.log_softmax(ising.logits(states, sites), 1),
        torch.log_softmax(potts.logits(states, sites), 1),
        atol=1e-13,
    )


def test_curie_weiss_logits_at_a_length_that_nobody_can_enumerate():
    model = CurieWeiss(128)
    states = torch.from_numpy(np.random.default_rng(1).integers(0, 2, (32, 128)))
    sites = torch.from_numpy(np.random.default_rng(2).integers(0, 128, 32))
    rows = model.logits(states, sites)
    spins = 2 * states - 1
    expected = 2 * (spins.sum(1) - spins[torch.arange(32), sites]) / 128
    assert torch.allclose(rows[:, 1] - rows[:, 0], expected.double(), atol=1e-14)
    with pytest.raises(UserError, match="too many to enumerate"):
        model.states()
    with pytest.raises(UserError, match="too many to enumerate"):
        model.log_mu(1.0)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_curie_weiss_magnetisation_chain_is_the_lumped_full_chain(temperature):
    model = CurieWeiss(8)
    full, law = transition_matrix(model, temperature), model.log_mu(temperature).exp().numpy()
    plus = model.states().sum(1).numpy()
    lumped, stationary = model.magnetisation_chain(temperature)
    classes = plus[:, None] == np.arange(9)
    assert np.abs(full @ classes - lumped[plus]).max() < 1e-14
    assert np.abs(law @ classes - stationary).max() < 1e-14
    assert np.abs(stationary @ lumped - stationary).max() < 1e-15


def test_magnetisation_chain_at_128_sites():
    lumped, stationary = CurieWeiss(128).magnetisation_chain(0.8)
    assert np.abs(lumped.sum(1) - 1).max() < 1e-14 and (lumped >= 0).all()
    flow = stationary[:, None] * lumped
    assert np.abs(flow - flow.T).max() < 1e-15
    # Below tau_c the law has two peaks, above it one.
    peaks = [
        np.sum(np.diff(np.sign(np.diff(CurieWeiss(128).magnetisation_chain(tau)[1]))) < 0)
        for tau in (0.8, 1.2)
    ]
    assert peaks == [2, 1]


def rectangle(model, temperature: float = 1.0, i: int = 0) -> float:
    """delta of spec: sites i and 1 - i, tokens 0 -> 1 at both."""
    j = 1 - i

    def ratio(site: int, other: int) -> float:  # log p(1 | other) / p(0 | other)
        row = torch.log_softmax(
            model.logits(torch.tensor([[other, other]]), torch.tensor([site]))[0] / temperature, 0
        )
        return float(row[1] - row[0])

    return (ratio(i, 0) + ratio(j, 1)) - (ratio(j, 0) + ratio(i, 1))


@pytest.mark.parametrize("defect", [0.0, 0.7, -2.5, 1e-9])
def test_defect_table_has_that_defect(defect):
    assert rectangle(DefectTable(defect)) == pytest.approx(defect, abs=4e-15)
    assert rectangle(DefectTable(defect), temperature=0.25) == pytest.approx(4 * defect, abs=2e-14)
    assert rectangle(DefectTable(defect), i=1) == pytest.approx(-defect, abs=4e-15)


def test_a_defect_leaves_no_joint_law():
    with pytest.raises(UserError, match="no joint law"):
        DefectTable(0.1).log_mu(1.0)


class Delegating:
    """Conditionals that are another's but for what is set here, as a user may wrap them."""

    def __init__(self, conditionals) -> None:
        self._conditionals = conditionals

    def __getattr__(self, name: str):
        return getattr(self._conditionals, name)


class WithoutSites(Delegating):
    free_sites = torch.zeros(0, dtype=torch.int64)


@pytest.mark.parametrize(
    "make,message",
    [
        (lambda: Ising("square", 3), "cycle"),
        (lambda: Ising("cycle", 1), "size is 1; give a whole number at least 2"),
        (lambda: Ising("cycle", 3, coupling=math.nan), "finite"),
        (lambda: CurieWeiss(0), "whole number at least 1"),
        (lambda: CurieWeiss(4).magnetisation_chain(-1.0), "temperature"),
        (lambda: CurieWeiss(4).log_mu(0.0), "temperature"),
        (lambda: Potts(1, 3), "at least 2"),
        (lambda: Potts(4, 1), "colours is 1; give a whole number at least 2"),
        (lambda: ProductMeasure(torch.tensor([0.0, 1.0])), "2 axes"),
        (lambda: ProductMeasure(torch.tensor([[0.0, math.inf]])), "finite"),
        (lambda: RandomJoint(21, 2, seed=0), "too large"),
        (lambda: DefectTable(math.inf), "finite"),
        (lambda: Restricted(CurieWeiss(3), free_sites=[]), "at least one"),
        (lambda: Restricted(CurieWeiss(3), free_sites=[0, 0]), "distinct"),
        (lambda: Restricted(Restricted(CurieWeiss(3), free_sites=[0]), free_sites=[1]), "among"),
        (lambda: Restricted(CurieWeiss(3), free_sites=[2, 0]), "increasing"),
        (lambda: Restricted(CurieWeiss(3), allowed=[[0], [1]]), "each free site"),
        (lambda: Restricted(CurieWeiss(3), allowed=[[0], [1], []]), "each free site"),
        (lambda: Restricted(CurieWeiss(3), allowed=[[0], [1], [2]]), "outside"),
        (lambda: MaskLover(2, 5, [5]), "token is 5"),
        (lambda: MaskLover(0, 5, [1]), "whole number at least 1"),
        (lambda: MaskLover(2, 5, [1], dtype=torch.bfloat16), "float32"),
        (lambda: RareToken(2, 5, token=1, probability=0.0), "above 0 and below 1"),
        (lambda: PlantedMargins(3, 5, -1.0, torch.zeros(1, 3)), "above 0"),
        (lambda: PlantedMargins(3, 5, 1.0, torch.zeros(1, 4, dtype=torch.int64)), "shape"),
        (lambda: PlantedMargins(3, 5, 1.0, torch.full((1, 3), 5)), "outside"),
        (lambda: PlantedMargins(3, 5, 1.0, torch.tensor([[0, 0, 0], [0, 0, 1]])), "fewer than two"),
        (lambda: PlantedMargins(3, 5, 1.0, torch.zeros(2, 3, dtype=torch.int64)), "fewer than two"),
        (lambda: PlantedMargins(3, 5, 1.0, torch.zeros(2, 3)), "token ids"),
        (lambda: PlantedMargins(3, 5, 1.0, torch.full((1, 3), 0.5)), "token ids"),
        (lambda: PlantedMargins(3, 5, 1e39, torch.zeros(1, 3, dtype=torch.int64)), "0 or infinite"),
        (lambda: PlantedMargins(3, 5, 1e-60, torch.zeros(1, 3, dtype=torch.int64)), "0 or infinite"),
        (lambda: MaskLover(2, 5, [0.5]), r"favourites\[0\] is 0.5"),
        (lambda: MaskLover(2, 5, "12"), "favourites is '12'; give a list"),
        (lambda: RareToken(2, 5, token=1.0), "token is 1.0; give a whole number"),
        (lambda: RareToken(2, 5, token=1, dtype="float32"), "rows of 'float32' are not offered"),
        (lambda: RareToken(2, 5, token=1, probability="1e-7"), "probability is '1e-7'; give a finite number"),
        (lambda: Counting(None), "conditionals is None"),
        (lambda: Faulty(CurieWeiss(3), 0.5, None), "chain_row is 0.5; give a whole number"),
        (lambda: Faulty(CurieWeiss(3), None, "1"), "site is '1'; give a whole number"),
        (lambda: Faulty(CurieWeiss(3), None, 1, token=2), "token is 2; give a whole number at least 0"),
        (lambda: CurieWeiss(3.0), "length is 3.0; give a whole number"),
        (lambda: CurieWeiss(True), "length is True; give a whole number"),
        (lambda: CurieWeiss(10**12), "length is 1000000000000; give a whole number"),
        (lambda: CurieWeiss(3, device="gpu"), "device 'gpu' cannot be used here"),
        (lambda: CurieWeiss(3, device=0), "device 0 cannot be used here"),
        (lambda: CurieWeiss(5000).magnetisation_chain(1.0), "length is 5000; .* at most 4,096"),
        (lambda: CurieWeiss(4).magnetisation_chain("1"), "temperature is '1'"),
        (lambda: CurieWeiss(4).log_mu(1e-320), "temperature is 1e-320; give a finite number at least"),
        (lambda: Ising("torsu", 4), "shape is 'torsu'; did you mean 'torus'"),
        (lambda: Ising("cycle", 4.5), "size is 4.5; give a whole number"),
        (lambda: Ising("torus", 1025), "size is 1025; give a whole number at least 2 and at most 1,024"),
        (lambda: Ising("cycle", 4, coupling="1"), "coupling is '1'; give a finite number"),
        (lambda: Ising("cycle", 4, coupling=1e308), "coupling is 1e[+]308; give a finite number"),
        (lambda: Ising("cycle", 4, field=1j), "field is 1j; give a finite number"),
        (lambda: Potts(4, 2.0), "colours is 2.0; give a whole number"),
        (lambda: ProductMeasure([["a", "b"]]), "give an array of numbers with 2 axes"),
        (lambda: ProductMeasure([[True, False]]), "give an array of numbers with 2 axes"),
        (lambda: RandomJoint(2, 3, seed=1.8e19), "seed is 1.8e[+]19; give a whole number"),
        (lambda: RandomJoint(10**6, 10**6, seed=0), "too large"),
        (lambda: DefectTable("0.5"), "defect is '0.5'; give a finite number"),
        (
            lambda: Restricted(CurieWeiss(3), free_sites=[0.5, 2.5]),
            r"free_sites\[0\] is 0.5; give a whole number",
        ),
        (lambda: Restricted(CurieWeiss(3), free_sites=[0, True]), r"free_sites\[1\] is True"),
        (lambda: Restricted(CurieWeiss(3), free_sites="02"), "free_sites is '02'; give a list"),
        (
            lambda: Restricted(CurieWeiss(3), [0], allowed=[[0.9]]),
            r"allowed\[0\]\[0\] is 0.9; give a whole number",
        ),
        (lambda: Restricted(CurieWeiss(3), [0, 1], allowed=[[0], "1"]), r"allowed\[1\] is '1'; give a list"),
        (lambda: Restricted(CurieWeiss, [0]), "conditionals is"),
        (lambda: Restricted(WithoutSites(CurieWeiss(3))), "conditionals has free_sites tensor"),
    ],
)
def test_bad_parameters_are_refused_in_one_line(make, message):
    with pytest.raises(UserError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("wrapped", [Delegating, Counting])
def test_conditionals_that_pass_on_what_they_wrap_are_conditionals(wrapped):
    model = wrapped(CurieWeiss(3))
    assert of_conditionals("conditionals", model) is model


def test_what_is_missing_of_conditionals_is_named():
    with pytest.raises(
        UserError, match="conditionals is .*, without vocabulary, .*, logits; give conditionals"
    ):
        of_conditionals("conditionals", SimpleNamespace(length=3))


def test_mask_lover_is_all_favourites_until_they_are_barred():
    model = MaskLover(3, 6, favourites=[0, 4])
    states, sites = torch.zeros(2, 3, dtype=torch.int64), torch.tensor([0, 2])
    assert torch.softmax(model.logits(states, sites), 1)[:, [0, 4]].sum(1).tolist() == [1.0, 1.0]
    barred = Restricted(model, allowed=[[1, 2, 3, 5]] * 3)
    assert torch.softmax(barred.logits(states, sites), 1).tolist() == [[0, 0.25, 0.25, 0.25, 0, 0.25]] * 2


@pytest.mark.parametrize("dtype,accuracy", [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_rare_token_has_its_probability(dtype, accuracy):
    model = RareToken(2, 30000, token=29999, dtype=dtype)
    row = model.logits(torch.zeros(1, 2, dtype=torch.int64), torch.tensor([1]))[0]
    assert row.dtype == dtype
    assert float(torch.softmax(row.double(), 0)[29999]) == pytest.approx(1e-7, rel=accuracy)


def test_a_caller_cannot_change_a_fixed_row():
    model = RareToken(2, 4, token=0)
    ask = torch.zeros(1, 2, dtype=torch.int64), torch.tensor([0])
    before = model.logits(*ask)
    model.logits(*ask).zero_()
    assert torch.equal(model.logits(*ask), before)


PATTERNS = torch.tensor([[3, 1, 4, 1], [2, 2, 2, 2], [3, 1, 2, 2]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("margin", [0.375, 12.0])
def test_planted_margins_are_exact_at_every_site_of_every_pattern(dtype, margin):
    model = PlantedMargins(4, 7, margin, PATTERNS, seed=3, dtype=dtype)
    for pattern in PATTERNS:
        rows = model.logits(pattern.repeat(4, 1), torch.arange(4))
        own = rows.gather(1, pattern[:, None])
        others = rows.scatter(1, pattern[:, None], -math.inf)
        assert (own[:, 0] - others.amax(1)).tolist() == [margin] * 4
        assert float(others[others > -math.inf].min()) >= -2 and float(others.max()) <= 0


def test_planted_background_is_bounded_deterministic_and_varied():
    model = PlantedMargins(4, 7, 3.0, PATTERNS, seed=3, dtype=torch.float32)
    states = torch.cartesian_prod(*[torch.arange(7)] * 4)[::5]
    sites = torch.arange(len(states)) % 4
    rows = model.logits(states, sites)
    planted = (rows == 3.0).any(1)
    near = (
        (states[:, None] != PATTERNS).scatter(2, sites[:, None, None].expand(-1, 3, 1), False).sum(2) == 0
    ).any(1)
    assert torch.equal(planted, near) and bool(planted.any())
    assert float(rows[~planted].abs().max()) <= 1
    assert abs(float(rows[~planted].mean())) < 0.05 and abs(float(rows[~planted].var()) - 1 / 3) < 0.03
    # One at a time, after a copy, and in float64: the same bits.
    alone = torch.cat([model.logits(states[k : k + 1], sites[k : k + 1]) for k in range(50)])
    assert torch.equal(alone, rows[:50])
    assert torch.equal(
        PlantedMargins(4, 7, 3.0, PATTERNS, seed=3, dtype=torch.float64)
        .logits(states, sites)[~planted]
        .float(),
        rows[~planted],
    )
    assert not torch.equal(
        PlantedMargins(4, 7, 3.0, PATTERNS, seed=4).logits(states, sites)[~planted], rows[~planted]
    )
    contexts = torch.cat([states.scatter(1, sites[:, None], -1), sites[:, None]], 1)
    # Planted rows keep their background but for the raised token, so distinct contexts have distinct rows and equal ones equal rows.
    assert len(rows.unique(dim=0)) == len(contexts.unique(dim=0))


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_planted_traps_obey_the_escape_bound(temperature):
    margin, vocabulary = 6.0, 5
    model = PlantedMargins(4, vocabulary, margin, PATTERNS, dtype=torch.float64)
    states = torch.cartesian_prod(*[torch.arange(vocabulary)] * 4)
    P = transition_matrix(model, temperature)
    escapes = []
    for pattern in PATTERNS:
        index = int((states == pattern).all(1).nonzero()[0, 0])
        row = np.delete(P[index], index)
        escapes.append(row.sum())
        rows = torch.softmax(model.logits(pattern.repeat(4, 1), torch.arange(4)) / temperature, 1)
        assert row.sum() == pytest.approx(1 - float(rows.gather(1, pattern[:, None]).mean()), abs=1e-12)
    bound = (vocabulary - 1) * math.exp(-margin / temperature)
    assert 0 < max(escapes) <= bound
    if temperature == 0.5:  # a margin one temperature smaller than it should be would be noticed
        assert max(escapes) > bound * math.exp(-2)


def test_counting_counts_rows_and_distinct_pairs():
    model = Counting(Restricted(Ising("cycle", 4), free_sites=[0, 1, 3]))
    states = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0]])
    plain = model.wrapped.logits(states, torch.tensor([0, 0, 0]))
    assert torch.equal(model.logits(states, torch.tensor([0, 0, 0])), plain)
    assert (model.calls, model.rows, model.distinct) == (1, 3, 2)
    model.logits(states[:1], torch.tensor([1]))
    model.logits(states[:1], torch.tensor([0]))
    assert (model.calls, model.rows, model.distinct) == (3, 5, 3)
    assert isinstance(model, Conditionals)
    assert model.fingerprint == model.wrapped.fingerprint and model.free_sites.tolist() == [0, 1, 3]
    twin = copy.deepcopy(model)
    model.reset()
    assert (model.rows, model.distinct, twin.distinct) == (0, 0, 3)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_faulty_breaks_where_it_is_told(value):
    states = torch.zeros(3, 4, dtype=torch.int64)
    model = Faulty(Ising("cycle", 4), chain_row=1, site=2, value=value, call=1)
    good = model.wrapped.logits(states, torch.tensor([2, 2, 2]))
    assert torch.equal(model.logits(states, torch.tensor([2, 2, 2])), good), "too early"
    assert torch.isfinite(model.logits(states, torch.tensor([2, 0, 2]))).all(), "another site"
    broken = ~torch.isfinite(model.logits(states, torch.tensor([2, 2, 2])))
    assert broken.nonzero().tolist() == [[1, 0]]
    everywhere = Faulty(Ising("cycle", 4), None, None, value, token=None)
    assert not torch.isfinite(everywhere.logits(states, torch.tensor([0, 1, 2]))).any()
    assert model.fingerprint != model.wrapped.fingerprint and model.length == 4


@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_restriction_is_renormalisation(data):
    seed = data.draw(st.integers(0, 10**6))
    model = RandomJoint(3, 4, seed)
    free = sorted(data.draw(st.sets(st.integers(0, 2), min_size=1)))
    allowed = [sorted(data.draw(st.sets(st.integers(0, 3), min_size=1))) for _ in free]
    restricted = Restricted(model, free, allowed)
    temperature = data.draw(st.floats(0.1, 10))
    states = model.states()
    for site, tokens in zip(free, allowed, strict=True):
        sites = torch.full((len(states),), site)
        whole = torch.softmax(model.logits(states, sites) / temperature, 1)
        part = torch.softmax(restricted.logits(states, sites) / temperature, 1)
        expected = torch.zeros_like(whole)
        expected[:, tokens] = whole[:, tokens] / whole[:, tokens].sum(1, keepdim=True)
        assert torch.allclose(part, expected, rtol=1e-12, atol=0)


def test_a_model_without_its_law_cannot_be_made():
    class Lawless(solvable.SolvableModel):
        def logits(self, states, sites):
            return states

    with pytest.raises(TypeError, match="log_weights"):
        Lawless(2, 2, "no joint law given")

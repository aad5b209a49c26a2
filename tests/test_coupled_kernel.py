"""Two chains on one probability space: marginals, meetings, lags."""

import math
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import statistics_helpers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from statistics_helpers import (
    CASES,
    DEVICES,
    P_VALUE,
    SIGMAS,
    cases,
    coupled_step_ps,
    lag_bound_and_truth,
    meeting_time_z,
    seed_of,
)

from glauber_mlm.conditionals.restricted import Restricted
from glauber_mlm.conditionals.solvable import CurieWeiss, Ising, ProductMeasure, RandomJoint
from glauber_mlm.conditionals.stubs import Faulty, MaskLover
from glauber_mlm.errors import UserError
from glauber_mlm.kernels import coupled, plain
from glauber_mlm.kernels.sampling import prepare, total_variation
from glauber_mlm.randomness import RandomStream

BELOW_ONE = 1 - 2.0**-53
NAMES = list(CASES)


def common(model, state, randomness):
    return coupled.step(model, state, randomness, "common")


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_both_chains_have_the_plain_law_and_agree_as_often_as_can_be(name, device):
    p_values = coupled_step_ps(coupled.step, next(case for case in cases(device) if case.name == name))
    assert min(p_values.values()) > P_VALUE, p_values


@pytest.mark.parametrize("name", ["ising-cycle", "joint-3-4", "restricted"])
def test_common_random_numbers_keep_the_marginals(name):
    p_values = coupled_step_ps(common, CASES[name])
    assert min(p_values["first"], p_values["second"]) > P_VALUE, p_values


def test_common_random_numbers_meet_less_often_than_the_maximal_coupling():
    """With more than two tokens the two couplings differ; the check on agreement tells them apart."""
    assert coupled_step_ps(common, CASES["joint-2-5"])["agree"] < 1e-10


def test_meeting_in_one_step_is_one_minus_total_variation():
    """Two sites free, one of them already equal: the pair meets if the differing site is drawn, or the tokens must agree there by the law's overlap."""
    model, temperature = RandomJoint(2, 6, 4), 0.7
    x, y, draws = torch.tensor([[0, 1]]), torch.tensor([[3, 5]]), 40_000
    temperatures = torch.full((1,), temperature, dtype=torch.float64)
    blocks = RandomStream(seed_of("meet once"), range(2000)).blocks(0, draws // 2000).reshape(-1, 4)
    state = coupled.PairState(x.expand(draws, -1), y.expand(draws, -1), temperatures.expand(draws))
    _, info = coupled.step(model, state, blocks)
    for site in (0, 1):
        column = torch.tensor([site])
        p, q = prepare(model.logits(x, column), temperatures), prepare(model.logits(y, column), temperatures)
        tv = float(total_variation(p, q))
        assert 0.05 < tv < 0.95
        here = info.sites == site
        agreed, count = int((info.first == info.second)[here].sum()), int(here.sum())
        assert abs(agreed - count * (1 - tv)) < SIGMAS * np.sqrt(count * tv * (1 - tv))
    assert not bool(info.met.any()), "the other site still differs"
    # At distance one the contexts agree off the differing site, and the pair meets exactly when that site is drawn.
    near = coupled.PairState(
        x.expand(draws, -1), torch.tensor([[0, 4]]).expand(draws, -1), temperatures.expand(draws)
    )
    _, info = coupled.step(model, near, blocks)
    assert torch.equal(info.met, info.sites == 1)


@pytest.mark.parametrize("name", NAMES)
def test_mean_coalescence_time_is_that_of_the_exact_pair_chain(name):
    assert abs(meeting_time_z(CASES[name])) < SIGMAS


def breaks(bound: np.ndarray, error: np.ndarray, truth: np.ndarray) -> bool:
    """Whether a bound lies below the truth by more than chance allows."""
    # Where no pair of 1000 contributes, fewer than -log(1e-4) / 1000 do (with probability 1 - 1e-4).
    return not bool((bound + SIGMAS * error + 0.01 >= truth).all())


@pytest.mark.parametrize("lag", [1, 6, 25])
@pytest.mark.parametrize(
    "name",
    [
        "ising-cycle",
        "curie-weiss-8",
        "potts-repelling",
        "joint-3-4",
        "joint-2-5",
        "defect",
        "restricted",
        "product",
        "ising-torus-2",
    ],
)
def test_the_lagged_bound_lies_above_the_exact_distance(name, lag):
    times = np.arange(0, 120)
    bound, error, truth = lag_bound_and_truth(CASES[name], lag, times)
    assert not breaks(bound, error, truth)
    assert (np.diff(bound) <= 1e-12).all()
    if lag == 25:
        assert bound[-1] < 0.2 and truth[-1] < 0.1, "and it says something"
        assert bound[0] <= 4


def ratio_bound(rounding: Callable, lags: int):
    """`lag_bound` with another rounding, or another number of lags taken off the meeting time; `np.ceil` and 1 are right."""

    def bound(times: np.ndarray, lag: int, moments: np.ndarray, censored: np.ndarray) -> SimpleNamespace:
        terms = np.maximum(0.0, rounding((times[:, None] - lags * lag - moments[None]) / lag))
        return SimpleNamespace(
            bound=terms.mean(axis=0), standard_error=terms.std(axis=0, ddof=1) / np.sqrt(len(times))
        )

    return bound


@pytest.mark.parametrize("name", ["curie-weiss-8", "joint-3-4", "defect"])
def test_a_lag_taken_off_twice_or_rounding_down_would_break_the_bound(name, monkeypatch):
    """The check above can fail: wrong bounds go through it and are caught."""
    outcome, times = {}, np.arange(0, 120)
    for label, rounding, lags in (("right", np.ceil, 1), ("lag twice", np.ceil, 2), ("floor", np.floor, 1)):
        monkeypatch.setattr(statistics_helpers, "lag_bound", ratio_bound(rounding, lags))
        outcome[label] = breaks(*lag_bound_and_truth(CASES[name], 25, times))
    assert outcome == {"right": False, "lag twice": True, "floor": True}


# --- the first chain is the plain chain -------------------------------------------------------------------------------


@st.composite
def pairs_of_chains(draw: Callable):
    length, vocabulary, count = draw(st.integers(1, 4)), draw(st.integers(2, 5)), draw(st.integers(1, 5))
    model = RandomJoint(length, vocabulary, draw(st.integers(0, 50)))
    states = st.lists(
        st.lists(st.integers(0, vocabulary - 1), min_size=length, max_size=length),
        min_size=count,
        max_size=count,
    )
    temperatures = draw(st.lists(st.sampled_from([0.0, 0.05, 0.6, 1.0, 4.0]), min_size=count, max_size=count))
    first, second = torch.tensor(draw(states)), torch.tensor(draw(states))
    state = coupled.PairState(first, second, torch.tensor(temperatures, dtype=torch.float64))
    return model, state, RandomStream(draw(st.integers(0, 10**6)), range(count))


@given(pairs_of_chains(), st.sampled_from(["maximal", "common"]))
def test_x_is_the_plain_chain_and_met_pairs_stay_together(problem, coupling):
    model, state, stream = problem
    alone, met = (
        plain.ChainState(state.first, state.temperature),
        torch.zeros(len(state.first), dtype=torch.bool),
    )
    for block in stream.blocks(0, 40):
        before = (state.first.clone(), state.second.clone())
        new, info = coupled.step(model, state, block, coupling)
        assert torch.equal(state.first, before[0]) and torch.equal(state.second, before[1]), (
            "the caller's state is left as it was"
        )
        alone, wanted = plain.step(model, alone, block)
        state = new
        assert (
            torch.equal(state.first, alone.tokens)
            and torch.equal(info.first, wanted.drawn)
            and torch.equal(info.sites, wanted.sites)
        )
        assert torch.equal(info.met, (state.first == state.second).all(dim=1))
        assert bool((info.met | ~met).all())
        met = info.met


class Noisy:
    """A model whose rows come out a little different every time, as floating point does in batches of other shapes, only more."""

    def __init__(self, inner, scale: float = 1e-2, device: str = "cpu"):
        self.inner, self.scale, self.generator = inner, scale, np.random.default_rng(0)
        self.length, self.vocabulary, self.free_sites = inner.length, inner.vocabulary, inner.free_sites
        self.device, self.dtype, self.fingerprint = inner.device, inner.dtype, f"noisy|{inner.fingerprint}"

    def logits(self, states, sites):
        rows = self.inner.logits(states, sites)
        return rows + self.scale * torch.from_numpy(self.generator.normal(size=tuple(rows.shape))).to(rows)


@given(pairs_of_chains(), st.sampled_from(["maximal", "common"]), st.sampled_from([1e-12, 1e-2, 5.0]))
def test_noise_of_the_batch_cannot_split_a_met_pair(problem, coupling, scale):
    model, state, stream = problem
    noisy, met = Noisy(model, scale), (state.first == state.second).all(dim=1)
    for block in stream.blocks(0, 60):
        state, info = coupled.step(noisy, state, block, coupling)
        assert bool((info.met | ~met).all())
        # Where the contexts agree off the site the token is one and the same, met or not.
        off_site = torch.ones_like(state.first, dtype=torch.bool).scatter_(1, info.sites[:, None], False)
        agree = ~((state.first != state.second) & off_site).any(dim=1)
        assert torch.equal(info.first[agree], info.second[agree])
        met = info.met


def test_a_pair_that_agrees_but_does_not_share_a_row_would_split():
    """What the shared row is for: with rows of its own, noise of 1e-2 splits equal states within 2000 steps."""
    model = Noisy(RandomJoint(3, 4, 1))
    blocks = RandomStream(2, range(64)).blocks(0, 40)
    states, temperatures = torch.zeros(64, 3, dtype=torch.int64), torch.ones(64, dtype=torch.float64)
    split = 0
    for block in blocks:
        first, _ = plain.step(model, plain.ChainState(states, temperatures), block)
        second, _ = plain.step(model, plain.ChainState(states, temperatures), block)
        split += int((first.tokens != second.tokens).any(dim=1).sum())
    assert split > 0


@settings(max_examples=30)
@given(pairs_of_chains(), st.lists(st.sampled_from([0.0, 0.4, BELOW_ONE]), min_size=4, max_size=4))
def test_extreme_uniforms_never_draw_a_barred_token(problem, uniforms):
    model, state, _ = problem
    allowed = [[0, model.vocabulary - 1]] * model.length
    block = torch.tensor(uniforms, dtype=torch.float64).repeat(len(state.first), 1)
    _, info = coupled.step(Restricted(model, None, allowed), state, block)
    for tokens in (info.first, info.second):
        assert set(tokens.tolist()) <= set(allowed[0])


@pytest.mark.parametrize("uniform", [0.0, BELOW_ONE])
def test_favoured_but_barred_tokens_are_never_drawn(uniform):
    allowed = (130, 131, 257)
    model = Restricted(MaskLover(2, 300, [0, 128, 132, 299]), None, [allowed] * 2)
    state = coupled.PairState(
        torch.zeros(1, 2, dtype=torch.int64),
        torch.ones(1, 2, dtype=torch.int64),
        torch.ones(1, dtype=torch.float64),
    )
    _, info = coupled.step(model, state, torch.full((1, 4), uniform, dtype=torch.float64))
    assert int(info.first) in allowed and int(info.second) in allowed


def test_pairs_that_differ_where_no_site_is_free_are_refused():
    model = Restricted(CurieWeiss(4), [0, 2])
    first, second = torch.zeros(3, 4, dtype=torch.int64), torch.zeros(3, 4, dtype=torch.int64)
    second[:, [0, 2]] = 1
    coupled.coalescence(model, first, second, 1.0, RandomStream(0, range(3)), 5, lag=2)
    second[1, 3] = 1
    for lag in (0, 2):
        with pytest.raises(
            UserError,
            match="pair 1 differs at site 3, which is not free, so it can never meet; let both starts agree",
        ):
            coupled.coalescence(model, first, second, 1.0, RandomStream(0, range(3)), 5, lag=lag)


# --- coalescence ------------------------------------------------------------------------------------------------------


def by_hand(model, first, second, temperature, stream, cap, lag, coupling="maximal"):
    """Meeting times, one pair at a time and one step at a time."""
    times = []
    for row, chain in enumerate(stream.chains):
        own = RandomStream(stream.seed, [chain])
        x, y = plain.initial_state(model, first[[row]], temperature), second[[row]]
        for step in range(lag):
            x, _ = plain.step(model, x, own.blocks(step, 1)[0])
        state, time = coupled.PairState(x.tokens, y, x.temperature), lag
        met = lag == 0 and bool((state.first == state.second).all())
        while not met and time < cap:
            state, info = coupled.step(model, state, own.blocks(time, 1)[0], coupling)
            time, met = time + 1, bool(info.met)
        times.append(time if met else None)
    return times


@pytest.mark.parametrize("coupling", ["maximal", "common"])
@pytest.mark.parametrize("lag", [0, 1, 9])
def test_batches_give_the_times_of_pairs_alone(lag, coupling):
    model = CurieWeiss(6)
    first, second = torch.zeros(12, 6, dtype=torch.int64), torch.ones(12, 6, dtype=torch.int64)
    second[0] = 0
    stream = RandomStream(31, range(100, 112))
    expected = by_hand(model, first, second, 0.9, stream, 40, lag, coupling)
    assert None in expected and any(time is not None for time in expected)
    for every in (None, 7, 1000):
        taken = []
        found = coupled.coalescence(
            model,
            first,
            second,
            0.9,
            stream,
            40,
            lag=lag,
            coupling=coupling,
            check_every=every,
            progress=taken.append,
        )
        assert [
            time if met else None for time, met in zip(found.times.tolist(), found.met.tolist(), strict=True)
        ] == expected
        assert (
            bool((found.times[~found.met] == 40).all())
            and (found.cap, found.lag) == (40, lag)
            and sum(taken) <= 40 - lag
        )
    if lag == 0:
        assert expected[0] == 0
    elif expected[0] is not None:
        assert expected[0] > lag, "with a lag, agreement at the start does not count"


def test_times_beyond_one_segment_of_randomness():
    """Randomness is drawn 256 steps at a time; a slow pair crosses the seam."""
    model = Ising("cycle", 4, 2.0)
    first, second = torch.zeros(6, 4, dtype=torch.int64), torch.ones(6, 4, dtype=torch.int64)
    stream = RandomStream(3, range(6))
    expected = by_hand(model, first, second, 1.3, stream, 1200, 0)
    assert any(time is not None and time > 256 for time in expected)
    found = coupled.coalescence(model, first, second, 1.3, stream, 1200)
    assert [
        time if met else None for time, met in zip(found.times.tolist(), found.met.tolist(), strict=True)
    ] == expected


def test_pairs_leave_the_batch_when_they_meet():
    class Watching(Noisy):
        sizes: list[int] = []

        def logits(self, states, sites):
            self.sizes.append(len(states))
            return super().logits(states, sites)

    model = Watching(ProductMeasure(np.zeros((4, 3))), 0.0)
    first, second = torch.zeros(50, 4, dtype=torch.int64), torch.ones(50, 4, dtype=torch.int64)
    found = coupled.coalescence(model, first, second, 1.0, RandomStream(1, range(50)), 500)
    assert bool(found.met.all())
    alive = [int((found.times > step).sum()) for step in range(int(found.times.max()))]
    assert model.sizes == [2 * count for count in alive]


def test_pairs_of_one_batch_have_their_own_temperatures():
    model = CurieWeiss(5)
    first, second = torch.zeros(30, 5, dtype=torch.int64), torch.ones(30, 5, dtype=torch.int64)
    temperatures = [0.5, 1.0, 2.0] * 10
    mixed = coupled.coalescence(model, first, second, temperatures, RandomStream(8, range(30)), 5000)
    for place, temperature in enumerate(temperatures[:3]):
        rows = list(range(place, 30, 3))
        alone = coupled.coalescence(
            model, first[rows], second[rows], temperature, RandomStream(8, rows), 5000
        )
        assert torch.equal(mixed.times[rows], alone.times)


@pytest.mark.parametrize("cap, lag", [(0, 0), (5, 5), (5, 6), (10, -1), (-3, 0)])
def test_caps_and_lags_that_do_not_fit_are_refused(cap, lag):
    with pytest.raises(UserError, match="must be above the lag|give a whole number at least"):
        coupled.coalescence(
            CurieWeiss(3),
            torch.zeros(1, 3, dtype=torch.int64),
            torch.ones(1, 3, dtype=torch.int64),
            1.0,
            RandomStream(0, [0]),
            cap,
            lag=lag,
        )


@pytest.mark.parametrize(
    "change, message",
    [
        ({"coupling": "comon"}, "coupling is 'comon'; did you mean 'common'[?] allowed: maximal, common"),
        ({"coupling": None}, "coupling is None; allowed: maximal, common"),
        ({"cap": 10.5}, "cap is 10.5; give a whole number at least 1"),
        ({"cap": "10"}, "cap is '10'; give a whole number"),
        ({"cap": True}, "cap is True; give a whole number"),
        ({"cap": 2**63}, "cap is 9223372036854775808; give a whole number"),
        ({"lag": 2.5}, "lag is 2.5; give a whole number at least 0"),
        ({"lag": None}, "lag is None; give a whole number"),
        ({"check_every": 0}, "check_every is 0; give a whole number at least 1"),
        ({"check_every": 1.5}, "check_every is 1.5; give a whole number"),
        ({"progress": 3}, "progress is 3; give a Callable"),
        ({"stream": 7}, "stream is 7; give a RandomStream"),
        ({"temperature": "1.0"}, "temperature '1.0' is refused"),
        ({"temperature": 1j}, "temperature 1j is refused"),
        ({"first": [[0, 0, 0]]}, "give a tensor of token ids"),
        ({"second": torch.zeros(1, 3)}, "must be int64"),
        ({"conditionals": "bert"}, "conditionals is 'bert'"),
    ],
)
def test_what_means_nothing_is_refused(change, message):
    states = torch.zeros(1, 3, dtype=torch.int64)
    given = {
        "conditionals": CurieWeiss(3),
        "first": states,
        "second": 1 - states,
        "temperature": 1.0,
        "stream": RandomStream(0, [0]),
        "cap": 20,
    }
    with pytest.raises(UserError, match=message):
        coupled.coalescence(**given | change)


@pytest.mark.parametrize(
    "sites, multiple, message",
    [
        (8.0, 25, "sites is 8.0; give a whole number"),
        (True, 25, "sites is True; give a whole number"),
        (10**400, 25, "sites is 1000.*; give a whole number at least 1 and at most"),
        (8, "25", "multiple is '25'; give a finite number"),
        (8, 0, "multiple is 0; give a finite number above 0 and at most"),
        (8, 1e308, "multiple is 1e[+]308; give a finite number"),
    ],
)
def test_a_cap_is_of_whole_sites_and_a_finite_multiple(sites, multiple, message):
    with pytest.raises(UserError, match=message):
        coupled.steps_at_scale(sites, multiple)


def test_unequal_numbers_of_states_are_refused():
    states = torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(UserError, match="as many"):
        coupled.coalescence(CurieWeiss(3), states, states[:1], 1.0, RandomStream(0, [0, 1]), 10)
    with pytest.raises(UserError, match="as many"):
        coupled.coalescence(CurieWeiss(3), states, states, 1.0, RandomStream(0, [0]), 10)


@pytest.mark.parametrize("every", [1, 50])
@pytest.mark.parametrize("value, token", [(math.nan, 0), (math.inf, 1), (-math.inf, None)])
def test_non_finite_logits_stop_the_run_by_name(value, token, every):
    model, stream = RandomJoint(3, 4, 1), RandomStream(5, [40, 41, 42])
    first, second = torch.zeros(3, 3, dtype=torch.int64), torch.ones(3, 3, dtype=torch.int64)
    sites = plain.choose_sites(model, stream.blocks(0, 50)[:, :, 0])
    step = next(step for step in range(50) if (sites[step] == 1).any())
    chain = 40 + int(torch.nonzero(sites[step] == 1)[0])
    with pytest.raises(plain.NonFiniteLogits, match=f"chain {chain}, step {step}, site 1"):
        coupled.coalescence(
            Faulty(model, None, 1, value, token=token), first, second, 1e-3, stream, 50, check_every=every
        )


def test_non_finite_logits_of_the_second_chain_are_seen():
    model, stream = RandomJoint(3, 4, 1), RandomStream(5, [40, 41])
    first, second = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 3, dtype=torch.int64)
    with pytest.raises(plain.NonFiniteLogits, match="chain 41, step 0"):
        coupled.coalescence(Faulty(model, 3, None), first, second, 1.0, stream, 50)


@pytest.mark.parametrize("sites, multiple, steps", [(1, 1, 2), (2, 1, 2), (8, 25, 416), (64, 0.5, 134)])
def test_steps_at_scale(sites, multiple, steps):
    assert coupled.steps_at_scale(sites, multiple) == steps

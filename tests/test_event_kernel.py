"""The event-driven kernel: the plain chain, token for token, for the price of the rows never seen."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from statistics_helpers import (
    CASES,
    DEVICES,
    P_VALUE,
    SIGMAS,
    average_z,
    event_step,
    event_walk,
    one_step_p,
    rare_token_z,
    replicas_p,
    stationary_p,
    tokens_unlike_plain,
)

from glauber_mlm.conditionals.restricted import Restricted
from glauber_mlm.conditionals.solvable import ProductMeasure, RandomJoint
from glauber_mlm.conditionals.stubs import Counting, Faulty, MaskLover, PlantedMargins
from glauber_mlm.errors import UserError
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.event import OVERHEAD_BYTES, CachedRow, EventDriven, RowCache
from glauber_mlm.randomness import RandomStream

BELOW_ONE = 1 - 2.0**-53
ROOMY = 2**31


class CheckedCache(RowCache):
    """A cache that looks at its own books after every entry."""

    def put(self, key, row):
        kept = super().put(key, row)
        self.audit()
        return kept

    def add_temperature(self, row, temperature, prepared):
        kept = super().add_temperature(row, temperature, prepared)
        self.audit()
        return kept

    def audit(self):
        assert 0 <= self.used <= max(0, self.limit)
        assert self.used == sum(row.bytes for row in self._rows.values())


def checked(model, limit, batch_rows=256):
    kernel = EventDriven(model, limit, batch_rows)
    kernel.cache = CheckedCache(limit)
    return kernel


@pytest.mark.parametrize("name", list(CASES))
def test_event_equals_plain_token_for_token_in_float64(name):
    assert tokens_unlike_plain(event_walk, CASES[name], chains=8, steps=300) == 0


@pytest.mark.parametrize("name", list(CASES))
def test_one_step_has_the_exact_law(name):
    assert one_step_p(event_step, CASES[name], draws=20_000) > P_VALUE


@pytest.mark.parametrize("name", ["joint-3-4", "defect", "restricted", "product"])
def test_long_runs_have_the_stationary_law(name):
    assert stationary_p(event_walk, CASES[name], 512, 4) > P_VALUE
    assert abs(average_z(event_walk, CASES[name], 32, 100)) < SIGMAS


def test_replicas_visit_sites_independently():
    assert replicas_p(event_walk, CASES["ising-cycle"]) > P_VALUE


def test_rare_tokens_come_at_their_rate():
    assert abs(rare_token_z(event_step, 1e-3, 500, 512, 100)) < SIGMAS


# --- properties -------------------------------------------------------------------------------------------------------

TEMPERATURE = st.sampled_from([0.0, 1e-6, 0.1, 0.5, 1.0, 3.0])
LIMIT = st.sampled_from([0, 1, OVERHEAD_BYTES, 1500, 2000, 5000, 12_000, 40_000, ROOMY])


@st.composite
def problems(draw):
    """A random small model, starts, temperatures that may be mixed, and a stream."""
    length, vocabulary = draw(st.integers(1, 4)), draw(st.integers(2, 5))
    model = RandomJoint(length, vocabulary, draw(st.integers(0, 50)))
    if length > 1 and draw(st.booleans()):
        sites = sorted(draw(st.sets(st.integers(0, length - 1), min_size=1)))
        model = Restricted(
            model, sites, [sorted(draw(st.sets(st.integers(0, vocabulary - 1), min_size=1))) for _ in sites]
        )
    chains = draw(st.integers(1, 6))
    tokens = torch.tensor(
        draw(
            st.lists(
                st.lists(st.integers(0, vocabulary - 1), min_size=length, max_size=length),
                min_size=chains,
                max_size=chains,
            )
        )
    )
    temperatures = draw(
        st.one_of(
            TEMPERATURE.map(lambda value: [value] * chains),
            st.lists(TEMPERATURE, min_size=chains, max_size=chains),
        )
    )
    return model, tokens, temperatures, RandomStream(draw(st.integers(0, 1000)), range(chains))


@settings(max_examples=150)
@given(problems(), st.integers(1, 80), LIMIT, st.sampled_from([1, 2, 256]))
def test_any_bound_on_the_cache_gives_the_plain_chain(problem, steps, limit, batch_rows):
    model, tokens, temperatures, stream = problem
    counting = Counting(model)
    kernel = checked(counting, limit, batch_rows)
    state = plain.initial_state(model, tokens, temperatures)
    final, record = kernel.walk(state, stream, 3, steps)
    expected, reference = plain.walk(model, state, stream, 3, steps)
    assert (
        torch.equal(record.tokens, reference.tokens)
        and torch.equal(record.sites, reference.sites)
        and torch.equal(final.tokens, expected.tokens)
    )
    assert kernel.forward_rows == counting.rows and kernel.steps == steps * len(tokens)
    assert counting.rows <= steps * len(tokens), "never more rows than the plain kernel"
    if limit == ROOMY:
        assert counting.rows == counting.distinct, (
            "each (masked context, site) once, whatever the temperatures"
        )


@given(problems(), LIMIT, st.lists(st.lists(TEMPERATURE, min_size=1, max_size=1), min_size=2, max_size=4))
def test_one_cache_serves_walks_at_other_temperatures(problem, limit, later):
    """A kernel used again, mixed or not: rows kept without their logits are replaced, and the books still balance."""
    model, tokens, temperatures, stream = problem
    kernel = checked(model, limit)
    for index, again in enumerate([temperatures, *[value * len(tokens) for value in later], temperatures]):
        state = plain.initial_state(model, tokens, again)
        _, record = kernel.walk(state, stream, 10 * index, 10)
        assert torch.equal(record.tokens, plain.walk(model, state, stream, 10 * index, 10)[1].tokens)
        kernel.cache.audit()
    assert all(row.pins == 0 for row in kernel.cache._rows.values()), "nothing stays pinned after a walk"


def test_rows_dropped_are_those_unused_longest_and_never_pinned_ones():
    cache = RowCache(3 * OVERHEAD_BYTES)
    rows = {key: CachedRow(None) for key in (b"a", b"b", b"c")}
    assert all(cache.put(key, row) for key, row in rows.items()) and len(cache) == 3
    assert cache.get(b"a") is rows[b"a"] and cache.get(b"missing") is None
    assert cache.put(b"d", CachedRow(None)) and cache.get(b"b") is None and cache.get(b"a") is rows[b"a"]
    for key in (b"a", b"c", b"d"):
        cache.get(key).pins = 1
    assert not cache.put(b"e", CachedRow(None)) and len(cache) == 3 and cache.used == 3 * OVERHEAD_BYTES
    cache.get(b"c").pins = 0
    assert cache.put(b"e", CachedRow(None)) and cache.get(b"c") is None


def test_a_row_that_was_not_kept_costs_nothing():
    """Three temperatures on one stream of masked contexts, and room for nothing: the books stay at zero."""
    model = RandomJoint(2, 4, 3)
    kernel = checked(
        model, 1500
    )  # a row with its logits takes 1664, its weights at one more temperature 1032
    state = plain.initial_state(model, torch.zeros(3, 2, dtype=torch.int64), [0.5, 1.0, 2.0])
    kernel.walk(state, RandomStream(1, range(3)), 0, 50)
    assert len(kernel.cache) == 0 and kernel.cache.used == 0


def test_a_cold_chain_pays_for_the_pairs_that_it_visits():
    """In a trap the plain kernel computes a row a step; the event-driven one computes each row once."""
    length, steps, chains = 12, 3000, 4
    patterns = torch.arange(length)[None] % 7
    model = Counting(PlantedMargins(length, 50, 30.0, patterns, dtype=torch.float64))
    state = plain.initial_state(model, patterns.repeat(chains, 1), 1.0)
    kernel = EventDriven(model)
    final, _ = kernel.walk(state, RandomStream(4, range(chains)), 0, steps)
    assert torch.equal(final.tokens, state.tokens), "a margin of 30 holds for 12,000 steps"
    assert model.rows == model.distinct == kernel.forward_rows == length and kernel.steps == steps * chains


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("temperatures", [[0.7] * 6, [0.0, 0.3, 0.3, 1.0, 2.0, 0.0]])
def test_wide_rows_and_every_device(device, temperatures):
    """Rows of several blocks; the draws of numpy and of torch are the same sums in the same order."""
    generator = np.random.default_rng(2)
    for model in (
        ProductMeasure(generator.normal(scale=3, size=(5, 1000)), device),
        PlantedMargins(6, 300, 4.0, torch.arange(6)[None], dtype=torch.float64, device=device),
        PlantedMargins(6, 300, 4.0, torch.arange(6)[None], dtype=torch.float32, device=device),
    ):
        state = plain.initial_state(model, torch.arange(model.length).repeat(6, 1), temperatures)
        stream = RandomStream(9, range(6))
        final, record = EventDriven(model, 200_000, 4).walk(state, stream, 0, 200)
        expected, reference = plain.walk(model, state, stream, 0, 200)
        assert (
            torch.equal(record.tokens, reference.tokens)
            and torch.equal(final.tokens, expected.tokens)
            and final.tokens.device.type == device
        )


def test_single_steps_are_those_of_the_plain_kernel():
    case = CASES["potts"]
    kernel, state = EventDriven(case.model), case.start(np.arange(20))
    before = state.tokens.clone()
    for block in RandomStream(8, range(20)).blocks(0, 30):
        expected, wanted = plain.step(case.model, state, block)
        new, info = kernel.step(state, block)
        assert torch.equal(new.tokens, expected.tokens) and bool(info.usable.all())
        assert (
            torch.equal(info.sites, wanted.sites)
            and torch.equal(info.previous, wanted.previous)
            and torch.equal(info.drawn, wanted.drawn)
        )
        state = new
    assert torch.equal(case.start(np.arange(20)).tokens, before), "the caller's state is left as it was"


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, message",
    [
        ({"cache_bytes": -1}, "cache_bytes is -1; give a whole number at least 0"),
        ({"cache_bytes": 1.5}, "cache_bytes is 1.5; give a whole number"),
        ({"cache_bytes": "2GB"}, "cache_bytes is '2GB'; give a whole number"),
        ({"batch_rows": 0}, "batch_rows is 0; give a whole number at least 1"),
        ({"batch_rows": 2.5}, "batch_rows is 2.5; give a whole number"),
        ({"batch_rows": True}, "batch_rows is True; give a whole number"),
    ],
)
def test_bounds_are_whole_numbers(options, message):
    with pytest.raises(UserError, match=message):
        EventDriven(RandomJoint(3, 4, 1), **options)


@pytest.mark.parametrize("temperature", [0.0, 1e-20, 1.0, 50.0])
@pytest.mark.parametrize("uniform", [0.0, 0.3, BELOW_ONE])
def test_barred_tokens_are_never_drawn(uniform, temperature):
    allowed = (130, 131, 133, 257)
    for inner in (
        MaskLover(2, 300, [0, 127, 128, 132, 255, 256, 299]),
        MaskLover(2, 300, allowed, torch.float64),
    ):
        model = Restricted(inner, None, [allowed] * 2)
        state = plain.initial_state(model, torch.zeros(1, 2, dtype=torch.int64), temperature)
        _, info = event_step(
            model, state, torch.tensor([[0.0, uniform, uniform, uniform]], dtype=torch.float64)
        )
        assert int(info.drawn) in allowed


@pytest.mark.parametrize("temperatures", [1.0, 0.0, [1.0, 0.5, 0.0]])
@pytest.mark.parametrize("value, token", [(math.nan, 0), (math.inf, 1), (math.nan, None), (-math.inf, None)])
def test_non_finite_logits_stop_the_walk_by_name(value, token, temperatures):
    model, stream = RandomJoint(3, 4, 1), RandomStream(5, [40, 41, 42])
    state = plain.initial_state(model, torch.zeros(3, 3, dtype=torch.int64), temperatures)
    _, record = plain.walk(model, state, stream, 100, 50)
    kernel = EventDriven(Faulty(model, None, 1, value, token=token))
    with pytest.raises(plain.NonFiniteLogits, match="site 1") as caught:
        kernel.walk(state, stream, 100, 50)
    # Chains run ahead of one another, so any chain may be the first to ask; it is named at its own first visit of the site.
    first_visits = {
        40 + chain: 100 + int(torch.nonzero(record.sites[:, chain] == 1)[0]) for chain in range(3)
    }
    assert any(
        f"chain {chain}, step {step}, site 1" in str(caught.value) for chain, step in first_visits.items()
    )
    assert all(row.pins == 0 for row in kernel.cache._rows.values()), "a walk that failed holds nothing"

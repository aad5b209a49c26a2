"""The plain kernel against exact answers."""

import math

import numpy as np
import pytest
import torch
from statistics_helpers import (
    CASES,
    DEVICES,
    P_VALUE,
    SIGMAS,
    average_z,
    cases,
    one_step_p,
    replicas_p,
    seed_of,
    stationary_p,
    walk_of,
)

from glauber_mlm.conditionals.restricted import Restricted
from glauber_mlm.conditionals.solvable import Ising, ProductMeasure, RandomJoint
from glauber_mlm.conditionals.stubs import Faulty, MaskLover
from glauber_mlm.errors import UserError
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.event import EventDriven
from glauber_mlm.randomness import RandomStream

BELOW_ONE = 1 - 2.0**-53
NAMES = list(CASES)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", NAMES)
def test_one_step_has_the_exact_law(name, device):
    case = next(case for case in cases(device) if case.name == name)
    assert one_step_p(plain.step, case) > P_VALUE


@pytest.mark.parametrize("name", NAMES)
def test_long_runs_have_the_stationary_law(name):
    assert stationary_p(plain.walk, CASES[name]) > P_VALUE


@pytest.mark.parametrize("name", NAMES)
def test_averages_along_chains_agree_with_the_stationary_law(name):
    assert abs(average_z(plain.walk, CASES[name])) < SIGMAS


@pytest.mark.parametrize("name", ["ising-cycle", "product", "restricted"])
def test_replicas_visit_sites_independently(name):
    assert replicas_p(plain.walk, CASES[name]) > P_VALUE


@pytest.mark.parametrize("device", DEVICES)
def test_a_chain_is_the_same_alone_in_a_batch_and_in_pieces(device):
    model = RandomJoint(4, 5, 8, device)
    generator = np.random.default_rng(seed_of("same"))
    tokens = torch.tensor(generator.integers(5, size=(64, 4)))
    temperatures = generator.uniform(0.2, 2, size=64).tolist()
    temperatures[:2] = [0.0, 0.0]
    stream = RandomStream(21, range(64))
    final, record = plain.walk(model, plain.initial_state(model, tokens, temperatures), stream, 0, 60)
    assert record.sites.device.type == record.tokens.device.type == "cpu"
    for chain in (0, 1, 17, 63):
        alone, alone_record = plain.walk(
            model,
            plain.initial_state(model, tokens[[chain]], temperatures[chain]),
            RandomStream(21, [chain]),
            0,
            60,
        )
        assert torch.equal(alone.tokens[0], final.tokens[chain])
        assert torch.equal(alone_record.tokens[:, 0], record.tokens[:, chain]) and torch.equal(
            alone_record.sites[:, 0], record.sites[:, chain]
        )
    state = plain.initial_state(model, tokens, temperatures)
    for first, steps in [(0, 1), (1, 30), (31, 29)]:
        state, part = plain.walk(model, state, stream, first, steps)
        assert torch.equal(part.tokens, record.tokens[first : first + steps])
    assert torch.equal(state.tokens, final.tokens)


@pytest.mark.skipif(len(DEVICES) < 2, reason="no CUDA device")
def test_the_device_does_not_change_a_chain_in_float64():
    records = []
    for device in DEVICES:
        model = RandomJoint(4, 5, 8, device)
        records.append(
            plain.walk(
                model,
                plain.initial_state(model, torch.zeros(8, 4, dtype=torch.int64), 0.8),
                RandomStream(3, range(8)),
                0,
                300,
            )[1]
        )
    assert torch.equal(records[0].tokens, records[1].tokens)


def test_a_step_says_what_it_did_and_edits_nothing():
    model = RandomJoint(3, 4, 1)
    state = plain.initial_state(model, torch.tensor([[0, 1, 2], [3, 3, 3]]), [1.0, 0.5])
    before = state.tokens.clone()
    randomness = torch.tensor([[0.5, 0.9, 0.1, 0.1], [0.99, 0.2, 0.7, 0.7]], dtype=torch.float64)
    new, info = plain.step(model, state, randomness)
    assert (
        torch.equal(state.tokens, before)
        and info.sites.tolist() == [1, 2]
        and info.previous.tolist() == [1, 3]
    )
    rows = torch.arange(2)
    assert torch.equal(new.tokens[rows, info.sites], info.drawn) and bool(info.usable.all())
    changed = new.tokens != before
    changed[rows, info.sites] = False
    assert not bool(changed.any())
    # The last two words are not used.
    randomness[:, 2:] = 0.5
    assert torch.equal(plain.step(model, state, randomness)[0].tokens, new.tokens)


def test_the_callers_tensor_is_not_shared():
    model, tokens = RandomJoint(3, 4, 1), torch.zeros(2, 3, dtype=torch.int64)
    state = plain.initial_state(model, tokens, 1.0)
    tokens += 1
    assert int(state.tokens.sum()) == 0


def test_frozen_sites_are_never_resampled():
    model = Restricted(RandomJoint(5, 3, 2), [1, 4])
    state = plain.initial_state(model, torch.tensor([[0, 1, 2, 1, 0]] * 4), 1.0)
    final, record = plain.walk(model, state, RandomStream(1, range(4)), 0, 200)
    assert set(record.sites.unique().tolist()) == {1, 4}
    assert torch.equal(final.tokens[:, [0, 2, 3]], state.tokens[:, [0, 2, 3]])


@pytest.mark.parametrize("site_uniform, site", [(0.0, 0), (BELOW_ONE, -1)])
def test_extreme_uniforms_choose_the_end_sites(site_uniform, site):
    for length in range(1, 130):
        model = ProductMeasure(np.zeros((length, 2)))
        chosen = plain.choose_sites(model, torch.tensor([site_uniform], dtype=torch.float64))
        assert chosen.tolist() == [site % length]


@pytest.mark.parametrize("temperature", [0.0, 1e-20, 1.0, 50.0])
@pytest.mark.parametrize("uniform", [0.0, 0.3, BELOW_ONE])
def test_barred_tokens_are_never_drawn(uniform, temperature):
    favourites = [0, 127, 128, 132, 255, 256, 299]
    allowed = (130, 131, 133, 257)
    for inner in (
        MaskLover(2, 300, favourites),
        MaskLover(2, 300, favourites, torch.float64),
        MaskLover(2, 300, allowed),
    ):
        model = Restricted(inner, None, [allowed] * 2)
        state = plain.initial_state(model, torch.zeros(1, 2, dtype=torch.int64), temperature)
        randomness = torch.tensor([[0.0, uniform, uniform, uniform]], dtype=torch.float64)
        _, info = plain.step(model, state, randomness)
        assert int(info.drawn) in allowed
        if temperature == 0:
            assert int(info.drawn) == 130


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value, token", [(math.nan, 0), (math.inf, 1), (math.nan, None), (-math.inf, None)])
@pytest.mark.parametrize("model", [RandomJoint(3, 4, 1), Ising("cycle", 4)], ids=["table", "ising"])
def test_non_finite_logits_stop_the_walk_by_name(model, value, token, temperature):
    stream, call = RandomStream(5, [40, 41, 42]), 6
    sound = plain.initial_state(model, torch.zeros(3, model.length, dtype=torch.int64), temperature)
    _, record = plain.walk(model, sound, stream, 100, 30)
    late = next(step for step in range(call, 30) if (record.sites[step] == 1).any())
    chain = 40 + int(torch.nonzero(record.sites[late] == 1)[0])
    faulty = Faulty(model, None, 1, value, call, token)
    with pytest.raises(
        plain.NonFiniteLogits, match=f"non-finite logits: chain {chain}, step {100 + late}, site 1"
    ):
        plain.walk(faulty, sound, stream, 100, 30)


def test_a_single_row_of_the_batch_is_named():
    model, stream = RandomJoint(3, 4, 1), RandomStream(5, [7, 8, 9])
    state = plain.initial_state(model, torch.zeros(3, 3, dtype=torch.int64), 1.0)
    _, record = plain.walk(model, state, stream, 0, 10)
    with pytest.raises(plain.NonFiniteLogits, match=f"chain 8, step 4, site {int(record.sites[4, 1])}"):
        plain.walk(Faulty(model, 1, None, call=4), state, stream, 0, 10)


def test_an_unusable_row_leaves_the_token_alone():
    """The end of a segment is where the device is asked, so states must stay valid until then."""
    model = Faulty(RandomJoint(3, 4, 1), 0, None, token=None)
    state = plain.initial_state(model, torch.tensor([[1, 2, 3], [1, 2, 3]]), 1.0)
    new, info = plain.step(model, state, torch.full((2, 4), 0.9, dtype=torch.float64))
    assert info.usable.tolist() == [False, True]
    assert torch.equal(new.tokens[0], state.tokens[0])


@pytest.mark.parametrize(
    "tokens, message",
    [
        (torch.zeros(2, 4, dtype=torch.int64), "group chains of other lengths"),
        (torch.zeros(3, dtype=torch.int64), "this model takes"),
        (torch.zeros(2, 3, dtype=torch.int32), "must be int64"),
        (torch.full((2, 3), 4), "outside"),
        (torch.full((2, 3), -1), "outside"),
        ("some text", "give a tensor of token ids"),
        (None, "give a tensor of token ids"),
        (torch.zeros(2, 3, dtype=torch.bool), "must be int64"),
        (torch.zeros(2, 3), "must be int64"),
    ],
)
def test_states_that_do_not_fit_are_refused(tokens, message):
    with pytest.raises(UserError, match=message):
        plain.initial_state(RandomJoint(3, 4, 1), tokens, 1.0)


WALKS = {"plain": plain.walk, "event": lambda model, *rest: EventDriven(model).walk(*rest)}


@pytest.mark.parametrize("walk", WALKS.values(), ids=list(WALKS))
@pytest.mark.parametrize(
    "change, message",
    [
        ({"first": 2.5}, "first_step is 2.5; give a whole number"),
        ({"steps": "3"}, "steps is '3'; give a whole number"),
        ({"steps": -1}, "steps is -1; give a whole number"),
        ({"state": torch.zeros(2, 3, dtype=torch.int64)}, "give a ChainState"),
        ({"stream": 7}, "stream is 7; give a RandomStream"),
        ({"stream": RandomStream(0, [0])}, r"the state has shape \(2, 3\); .* take \(1, 3\)"),
        ({"model": RandomJoint(4, 4, 1)}, r"the state has shape \(2, 3\); .* take \(2, 4\)"),
        ({"model": "bert"}, "conditionals is 'bert'"),
    ],
)
def test_what_does_not_fit_is_refused_before_the_first_step(walk, change, message):
    model = RandomJoint(3, 4, 1)
    state = plain.initial_state(model, torch.zeros(2, 3, dtype=torch.int64), 1.0)
    given = {
        "model": model,
        "state": state,
        "stream": RandomStream(0, [0, 1]),
        "first": 0,
        "steps": 3,
    } | change
    with pytest.raises(UserError, match=message):
        walk(*given.values())


def test_repeating_a_step_is_the_walk():
    case = CASES["joint-3-4"]
    state, stream = case.start(np.arange(8)), RandomStream(2, range(8))
    final, record = plain.walk(case.model, state, stream, 5, 20)
    other, other_record = walk_of(plain.step)(case.model, state, stream, 5, 20)
    assert (
        torch.equal(final.tokens, other.tokens)
        and torch.equal(record.tokens, other_record.tokens)
        and torch.equal(record.sites, other_record.sites)
    )

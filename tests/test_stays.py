"""Stays and dwell times of recorded chains, against brute force and against the geometric law."""

import math

import numpy as np
import pytest
from by_hand import philox, states_of
from hypothesis import given, settings
from hypothesis import strategies as st

from glauber_mlm.errors import UserError
from glauber_mlm.readings.paths import hamming_path, reconstruct
from glauber_mlm.readings.stays import dwell_test, dwell_times, expected_dwell, longest_stays


def brute_stays(states: np.ndarray, radius: int, minimum: int) -> list[tuple[int, int]]:
    """(start, end) by the protocol, from all states: every reference, one step at a time."""
    last = len(states) - 1

    def best(first: int, final: int) -> tuple[int, int, int] | None:
        found = None
        for centre in range(first, final + 1):
            a = b = centre
            while a > first and (states[a - 1] != states[centre]).sum() <= radius:
                a -= 1
            while b < final and (states[b + 1] != states[centre]).sum() <= radius:
                b += 1
            length = (b if b == last else b + 1) - a
            if length >= minimum and (found is None or (length, -a) > found[:2]):
                found = (length, -a, b)
        return found

    chosen, segments = [], [(0, last)]
    while True:
        options = [(best(first, final), first, final) for first, final in segments if first <= final]
        options = [option for option in options if option[0] is not None]
        if not options:
            return chosen
        (length, negative, b), first, final = max(options, key=lambda option: option[0][:2])
        chosen.append((-negative, -negative + length))
        segments.remove((first, final))
        segments += [(first, -negative - 1), (b + 1, final)]


@st.composite
def chains(draw):
    places = draw(st.integers(1, 4))
    steps = draw(st.integers(0, 30))
    initial = draw(st.lists(st.integers(0, 2), min_size=places, max_size=places))
    sites = draw(st.lists(st.integers(0, places - 1), min_size=steps, max_size=steps))
    tokens = draw(st.lists(st.integers(0, 2), min_size=steps, max_size=steps))
    return initial, sites, tokens


@given(chains(), st.integers(0, 2), st.integers(1, 6))
@settings(max_examples=200, deadline=None)
def test_stays_agree_with_brute_force(chain, radius, minimum):
    states = states_of(*chain)
    radius = min(radius, states.shape[1])
    stays = longest_stays(*chain, radius=radius, minimum=minimum, top=None)
    assert [(stay.start, stay.end) for stay in stays] == brute_stays(states, radius, minimum)
    claimed = np.zeros(len(states), int)
    for stay in stays:
        assert stay.length == stay.end - stay.start >= minimum
        assert stay.censored == (
            stay.end == len(states) - 1 and (states[-1] != stay.centre).sum() <= radius and not claimed[-1]
        )
        times = range(stay.start, stay.end + stay.censored)
        assert all((states[t] != stay.centre).sum() <= radius for t in times)
        assert stay.occupancy == pytest.approx(
            np.mean([(states[t] == stay.centre).all() for t in range(stay.start, stay.end)])
        )
        assert any((states[t] == stay.centre).all() for t in times)
        claimed[times] += 1
    assert claimed.max(initial=0) <= 1
    if minimum == 1:
        assert sum(stay.length for stay in stays) == len(states) - 1
    assert longest_stays(*chain, radius=radius, minimum=minimum, top=1) == stays[:1]


@given(chains(), st.integers(1, 7))
@settings(max_examples=100, deadline=None)
def test_paths_agree_with_brute_force(chain, every):
    states = states_of(*chain)
    np.testing.assert_array_equal(reconstruct(*chain, every), states[::every])
    np.testing.assert_array_equal(hamming_path(*chain), (states != states[0]).sum(axis=1))
    np.testing.assert_array_equal(
        hamming_path(*chain, reference=states[-1]), (states != states[-1]).sum(axis=1)
    )
    dwells = dwell_times(*chain)
    assert dwells.lengths.sum() == len(states) - 1
    assert dwells.censored[-1] and not dwells.censored[:-1].any()
    for state, entry, length in zip(dwells.states, dwells.entries, dwells.lengths, strict=True):
        assert (states[entry : entry + max(length, 1)] == state).all()
    assert (dwells.states[1:] != dwells.states[:-1]).any(axis=1).all()


def test_stays_by_hand():
    # States: 00 00 00 01 00 00 | 20 21 | 21: seven steps, radius 1 around 00, then the rest.
    chain = [0, 0], [0, 1, 1, 1, 0, 0, 1, 1], [0, 0, 1, 0, 0, 2, 1, 1]
    whole, rest = longest_stays(*chain, radius=1, minimum=1, top=5)
    assert (whole.start, whole.end, whole.centre, whole.censored) == (0, 7, (0, 0), False)
    assert whole.occupancy == pytest.approx(5 / 7)
    assert (rest.start, rest.end, rest.length, rest.centre, rest.censored) == (7, 8, 1, (2, 1), True)
    assert [stay.length for stay in longest_stays(*chain, radius=0, minimum=2)] == [3, 2]
    assert longest_stays(*chain, radius=0, minimum=9) == []
    dwells = dwell_times(*chain)
    np.testing.assert_array_equal(dwells.entries, [0, 3, 4, 6, 7])
    np.testing.assert_array_equal(dwells.lengths, [3, 1, 2, 1, 1])


def test_a_planted_trap_is_found():
    """A held state with single excursions at many sites: radius 1 spans it, radius 0 does not."""
    generator, n = philox(1), 12
    hot = [
        (int(site), int(token))
        for site, token in zip(generator.integers(0, n, 400), generator.integers(0, 50, 400), strict=True)
    ]
    held = []
    for site in generator.integers(0, n, 300):
        held += [(int(site), 99), (int(site), 7)]
    fill = [(site, 7) for site in range(n)]
    record = np.array(hot + fill + held + hot)
    stay = longest_stays(np.zeros(n, int), record[:, 0], record[:, 1], radius=1, minimum=100, top=3)
    assert len(stay) == 1 and stay[0].centre == (7,) * n
    assert 600 <= stay[0].length <= 606 and 400 < stay[0].start < 415
    assert longest_stays(np.zeros(n, int), record[:, 0], record[:, 1], radius=0, minimum=100) == []


@pytest.mark.parametrize(
    "arguments",
    [
        {"sites": [2]},
        {"sites": [-1]},
        {"sites": [0, 1]},
        {"initial": []},
        {"radius": -1},
        {"radius": 3},
        {"minimum": 0},
        {"top": -1},
    ],
)
def test_stays_refuse(arguments):
    with pytest.raises(UserError):
        longest_stays(**{"initial": [0, 0], "sites": [0], "tokens": [1], "radius": 1, **arguments})
    with pytest.raises(UserError):
        reconstruct([0], [0], [1], 0)
    with pytest.raises(UserError):
        hamming_path([0], [0], [1], [0, 0])


# Dwell times against the geometric law


def simulated_dwells(rates: np.ndarray, steps: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Dwells of a chain that jumps among states with these escape probabilities, cut off after `steps` steps."""
    generator = philox(seed)
    lengths, escapes, total = [], [], 0
    while total < steps:
        rate = rates[generator.integers(len(rates))]
        lengths.append(min(int(generator.geometric(rate)), steps - total + 1))
        escapes.append(rate)
        total += lengths[-1]
    censored = np.zeros(len(lengths), bool)
    if total > steps:  # the last dwell would have outlasted the record
        lengths[-1] -= 1
        censored[-1] = True
    return np.array(lengths), np.array(escapes), censored


RATES = np.array([0.5, 0.2, 0.05, 0.01])


def test_dwell_test_is_calibrated():
    """z has mean 0 and variance 1 over independent chains, censored dwells included; a chain of 3,000 steps."""
    results = [dwell_test(*simulated_dwells(RATES, 3000, seed)) for seed in range(300)]
    z = np.array([result.z for result in results])
    assert abs(z.mean()) < 4 / math.sqrt(300)
    assert abs(z.var() - 1) < 4 * math.sqrt(2 / 300)
    assert (
        0 < np.mean([result.p_value < 0.05 for result in results]) < 0.05 + 4 * math.sqrt(0.05 * 0.95 / 300)
    )


@pytest.mark.parametrize(("factor", "sign"), [(0.8, 1), (1.25, -1)])
def test_dwell_test_finds_a_wrong_escape_probability(factor, sign):
    lengths, escapes, censored = simulated_dwells(RATES, 60_000, 11)
    assert abs(dwell_test(lengths, escapes, censored).z) < 4
    wrong = dwell_test(lengths, factor * escapes, censored)
    assert sign * wrong.z > 6 and wrong.p_value < 1e-8


def test_dropping_censored_dwells_is_a_defect_that_shows():
    """Many short records: without their censored ends the chains seem to leave too soon."""
    lengths, escapes, censored = (
        np.concatenate(parts)
        for parts in zip(*(simulated_dwells(RATES, 60, seed) for seed in range(300)), strict=True)
    )
    assert abs(dwell_test(lengths, escapes, censored).z) < 4
    assert dwell_test(lengths[~censored], escapes[~censored], censored[~censored]).z > 6


def test_dwell_test_by_hand():
    result = dwell_test([2, 3, 4], [0.5, 0.25, 0.25], [False, False, True])
    assert (result.escapes, result.expected) == (2, 2.75)
    assert result.z == pytest.approx(-0.75 / math.sqrt(2 * 0.25 + 7 * 0.1875))
    assert dwell_test([1, 1], [1.0, 1.0], [False, False]).p_value == 1.0
    impossible = dwell_test([5], [0.0], [False])
    assert impossible.z == math.inf and impossible.p_value == 0.0


def test_dwells_of_a_simulated_glauber_chain():
    """Two spins with exact conditionals: dwell times read off a recorded chain agree with the exact escape probabilities."""
    coupling, steps, generator = 1.1, 20_000, philox(5)

    def up(other: int) -> float:
        return 1 / (1 + math.exp(-coupling * (2 * other - 1)))

    state, sites, tokens = [0, 1], [], []
    for site, u in zip(generator.integers(0, 2, steps), generator.random(steps), strict=True):
        state[site] = int(u < up(state[1 - site]))
        sites.append(site)
        tokens.append(state[site])
    dwells = dwell_times([0, 1], sites, tokens)
    stay = [np.mean([up(x[1 - i]) if x[i] else 1 - up(x[1 - i]) for i in range(2)]) for x in dwells.states]
    assert abs(dwell_test(dwells.lengths, 1 - np.array(stay), dwells.censored).z) < 4


def test_expected_dwell():
    np.testing.assert_array_equal(expected_dwell([1, 0.01, 0]), [1, 100, math.inf])
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(UserError):
            expected_dwell([bad])


@pytest.mark.parametrize(
    "arguments", [([], [], []), ([1], [0.5, 0.5], [False]), ([0], [0.5], [False]), ([-1], [0.5], [True])]
)
def test_dwell_test_refuses(arguments):
    with pytest.raises(UserError):
        dwell_test(*arguments)

"""The deterministic core: logits, a temperature and uniforms give tokens."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from statistics_helpers import DEVICES, P_VALUE, SIGMAS, chi_square, chi_square_p, rare_token_z, seed_of

from glauber_mlm.conditionals.stubs import RareToken
from glauber_mlm.errors import UserError
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.event import _draw_one
from glauber_mlm.kernels.sampling import (
    LARGEST_TEMPERATURE,
    SMALLEST_TEMPERATURE,
    check_temperatures,
    draw,
    maximal_partner,
    prepare,
    probability,
    total_variation,
)
from glauber_mlm.randomness import RandomStream

BELOW_ONE = 1 - 2.0**-53
GRID = 2000
MIDPOINTS = (torch.arange(GRID, dtype=torch.float64) + 0.5) / GRID
UNIFORM = st.one_of(
    st.sampled_from([0.0, BELOW_ONE, 5e-324, 2.0**-53]), st.integers(0, 2**53 - 1).map(lambda k: k * 2.0**-53)
)
TEMPERATURE = st.sampled_from([0.0, 1e-30, 1e-3, 0.05, 0.7, 1.0, 2.5, 1e3, 1e30])
LOGIT = st.one_of(st.floats(-30, 30), st.just(-math.inf), st.sampled_from([0.0, -100.0, -1e4]))


@st.composite
def rows(draw_from, largest=12):
    """A row of logits with at least one finite entry, possibly spread over blocks by barred tokens."""
    logits = draw_from(st.lists(LOGIT, min_size=2, max_size=largest))
    assume(any(math.isfinite(value) for value in logits))
    row = torch.full(
        (draw_from(st.sampled_from([len(logits), 128, 129, 300])),),
        -math.inf,
        dtype=draw_from(st.sampled_from([torch.float32, torch.float64])),
    )
    places = (
        draw_from(
            st.lists(st.integers(0, len(row) - 1), min_size=len(logits), max_size=len(logits), unique=True)
        )
        if len(row) > len(logits)
        else range(len(row))
    )
    row[list(places)] = torch.tensor(logits, dtype=row.dtype)
    assume(bool(torch.isfinite(row).any()))
    return row


def weights_of(row: torch.Tensor, temperature: float, copies: int = 1):
    return prepare(row.expand(copies, -1), torch.full((copies,), temperature, dtype=torch.float64))


def law_of(row: torch.Tensor, temperature: float) -> np.ndarray:
    """The softmax in float64, found another way."""
    values = row.double().numpy()
    if temperature == 0:
        return np.eye(len(values))[int(values.argmax())]
    scaled = np.exp((values - values.max()) / temperature)
    return scaled / scaled.sum()


@given(rows(), TEMPERATURE, UNIFORM)
def test_a_token_of_weight_zero_is_never_drawn(row, temperature, uniform):
    weights = weights_of(row, temperature)
    assert bool(weights.usable)
    token = draw(weights, torch.tensor([uniform], dtype=torch.float64))
    assert 0 <= int(token) < len(row)
    assert float(weights.values[0, int(token)]) > 0 and math.isfinite(row[int(token)])
    assert _draw_one((weights.values[0].numpy(), weights.blocks[0].numpy()), uniform) == int(token)


@given(rows(), TEMPERATURE)
def test_a_grid_of_uniforms_gives_the_softmax(row, temperature):
    """The inverse of a cumulative law puts on a grid of N points every token within one point of its probability: no statistics needed."""
    counts = np.bincount(draw(weights_of(row, temperature, GRID), MIDPOINTS).numpy(), minlength=len(row))
    assert np.abs(counts / GRID - law_of(row, temperature)).max() <= 1 / GRID + 1e-5
    tokens = draw(weights_of(row, temperature, GRID), MIDPOINTS)
    assert bool((tokens.diff() >= 0).all()), "id order"


@given(rows(), TEMPERATURE)
def test_probabilities_are_those_of_the_softmax(row, temperature):
    weights = weights_of(row, temperature, len(row))
    found = probability(weights, torch.arange(len(row))).numpy()
    tolerance = 1e-14 if row.dtype == torch.float64 else 1e-5
    assert np.allclose(found, law_of(row, temperature), rtol=20 * tolerance * 30, atol=tolerance)


@st.composite
def two_rows(draw_from):
    first = draw_from(rows())
    values = (
        draw_from(
            st.lists(
                st.one_of(st.floats(-5, 5), st.just(-math.inf)), min_size=len(first), max_size=len(first)
            )
        )
        if len(first) < 128
        else None
    )
    second = first.flip(0) if values is None else first + torch.tensor(values, dtype=first.dtype)
    assume(bool(torch.isfinite(second).any()))
    return first, second


@given(two_rows(), st.sampled_from([0.0, 0.05, 0.7, 1.0, 2.5]), st.lists(UNIFORM, min_size=3, max_size=3))
def test_the_partner_never_takes_a_token_of_weight_zero(pair, temperature, uniforms):
    first, second = (weights_of(row, temperature) for row in pair)
    token_uniform, accept, residual = (torch.tensor([uniform], dtype=torch.float64) for uniform in uniforms)
    token = draw(first, token_uniform)
    partner = maximal_partner(first, second, token, accept, residual)
    assert float(second.values[0, int(partner)]) > 0


@given(rows(), TEMPERATURE, st.lists(UNIFORM, min_size=3, max_size=3))
def test_equal_laws_give_equal_tokens(row, temperature, uniforms):
    weights = weights_of(row, temperature)
    token_uniform, accept, residual = (torch.tensor([uniform], dtype=torch.float64) for uniform in uniforms)
    token = draw(weights, token_uniform)
    assert torch.equal(maximal_partner(weights, weights, token, accept, residual), token)
    # A constant added to a row moves its rounding, not its law.
    moved = weights_of(row + 3.3, temperature)
    if temperature:
        partner = maximal_partner(weights, moved, token, torch.clamp(accept, max=0.999), residual)
        assert torch.equal(partner, token) or temperature < 1e-2


@given(two_rows(), st.sampled_from([0.3, 1.0, 2.5]))
def test_the_partner_is_maximal_and_has_the_law_q(pair, temperature):
    """Integrated over accept and residual uniforms on grids: the token is kept with probability min(1, q/p), else replaced by a draw from (q - p)+."""
    p, q = (law_of(row, temperature) for row in pair)
    first, second = (weights_of(row, temperature, GRID) for row in pair)
    tv = float(total_variation(first, second)[0])
    assert tv == pytest.approx(0.5 * np.abs(p - q).sum(), abs=1e-5)
    law = np.zeros_like(q)
    for token in np.nonzero(p > 1e-6)[0].tolist():
        tokens = torch.full((GRID,), token)
        kept = (
            (maximal_partner(first, second, tokens, MIDPOINTS, torch.full_like(MIDPOINTS, 0.5)) == token)
            .double()
            .mean()
            .item()
        )
        assert kept == pytest.approx(min(1.0, q[token] / p[token]), abs=1.01 / GRID + 1e-5)
        law[token] += p[token] * min(1.0, q[token] / p[token])
        if kept < 1 - 2 / GRID:
            fresh = maximal_partner(first, second, tokens, torch.full_like(MIDPOINTS, BELOW_ONE), MIDPOINTS)
            counts = np.bincount(fresh.numpy(), minlength=len(q)) / GRID
            assert np.abs(counts - np.clip(q - p, 0, None) / tv).max() <= 1 / GRID + 1e-4 / tv
            law += p[token] * (1 - q[token] / p[token]) * counts
    assert np.abs(law - q).max() <= 2 / GRID + 1e-4


def test_an_excess_below_rounding_keeps_the_token():
    """A refusal that finds no positive part to draw from: laws that are equal up to rounding share the token."""
    first, second = (
        weights_of(torch.tensor([0.0, 0.0], dtype=torch.float64), 1.0),
        weights_of(torch.tensor([0.0, 0.0], dtype=torch.float64), 1.0),
    )
    second.values[0, 0] = 1 - 2.0**-52  # the total is left as it was: q <= p everywhere
    token = torch.tensor([0])
    assert torch.equal(
        maximal_partner(
            first,
            second,
            token,
            torch.tensor([BELOW_ONE], dtype=torch.float64),
            torch.tensor([0.3], dtype=torch.float64),
        ),
        token,
    )


# --- temperatures -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [-1.0, -1e-300, math.nan, math.inf, -math.inf, 5e-324, 1e-310, 1e-45, SMALLEST_TEMPERATURE * 0.999],
)
def test_meaningless_temperatures_are_refused(value):
    with pytest.raises(UserError, match="temperature .* is refused; allowed are 0"):
        check_temperatures(value, 3)
    with pytest.raises(UserError, match="is refused"):
        check_temperatures([1.0, value, 0.0], 3)
    with pytest.raises(UserError, match="is refused"):
        plain.initial_state(RareToken(2, 5, 1), torch.zeros(1, 2, dtype=torch.int64), value)


@pytest.mark.parametrize(
    "value",
    [
        True,
        np.bool_(True),
        "1.0",
        None,
        1j,
        [[1.0]],
        [[1.0], [1.0], [1.0]],
        [1.0, "1", 1.0],
        {1.0},
        1e39,
        object(),
    ]
    + [torch.ones(3, dtype=torch.bool), np.ones((1, 3)), np.array(["1"]), torch.ones(3) * 1j],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_temperature_is_refused(value):
    with pytest.raises(
        UserError, match="temperature .* is refused; allowed are 0 .argmax. and values from 1.18e-38"
    ):
        check_temperatures(value, 3)


def test_the_largest_temperature_leaves_barred_tokens_barred():
    """One step above it, float32 rows would divide -inf by infinity."""
    logits = torch.tensor([[0.0, -math.inf, 1.0]])
    weights = prepare(logits, check_temperatures(LARGEST_TEMPERATURE, 1))
    assert bool(weights.usable) and weights.values[0, :3].tolist() == [1.0, 0.0, 1.0]
    assert not bool(prepare(logits, torch.tensor([1e39], dtype=torch.float64)).usable)


@pytest.mark.parametrize("count", [1.0, "3", True, -1])
def test_the_number_of_chains_is_a_whole_number(count):
    with pytest.raises(UserError, match="count is .*; give a whole number at least 0"):
        check_temperatures(1.0, count)


def test_a_wrong_number_of_temperatures_is_refused():
    with pytest.raises(UserError, match="2 temperatures for 3 chains"):
        check_temperatures([1.0, 2.0], 3)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, SMALLEST_TEMPERATURE, 1, 1e30])
def test_allowed_temperatures_are_spread_over_the_chains(value):
    found = check_temperatures(value, 3)
    assert found.dtype == torch.float64 and found.tolist() == [value] * 3


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_temperature_zero_takes_the_lowest_id_among_ties(device, dtype):
    logits = torch.full((5, 300), -1.0, dtype=dtype, device=device)
    logits[0, [7, 200, 299]] = 2.0
    logits[1, 129] = 2.0
    logits[2, :] = -math.inf
    logits[2, [131, 133]] = -5.0
    logits[3, 0] = math.nextafter(-1.0, 0) if dtype == torch.float64 else -0.99999994
    temperature = torch.zeros(5, dtype=torch.float64, device=device)
    weights = prepare(logits, temperature)
    assert bool(weights.usable.all())
    for uniform in (0.0, 0.5, BELOW_ONE):
        assert draw(weights, torch.full((5,), uniform, dtype=torch.float64, device=device)).tolist() == [
            7,
            129,
            131,
            0,
            0,
        ]


def test_rows_of_one_batch_have_their_own_temperatures():
    row = torch.tensor([0.0, 1.0, 1.0, -2.0], dtype=torch.float64)
    temperatures = torch.tensor([0.0, 1e-30, 0.5, 1.0, 1e30], dtype=torch.float64)
    together = prepare(row.expand(5, -1), temperatures)
    for index, temperature in enumerate(temperatures.tolist()):
        law = law_of(row, temperature)
        found = (together.values[index] / together.blocks[index, -1]).numpy()[:4]
        assert np.allclose(found, law, atol=1e-15), temperature


def test_logits_are_left_as_they_were():
    logits = torch.tensor([[0.0, 1.0, -math.inf]])
    before = logits.clone()
    prepare(logits, torch.tensor([0.5], dtype=torch.float64))
    assert torch.equal(logits, before)


@pytest.mark.parametrize("temperature", [0.0, 0.5])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_that_mean_nothing_are_not_usable(temperature, bad):
    logits = torch.zeros(4, 200)
    logits[0, 150] = bad
    logits[1] = -math.inf
    logits[2, 1:] = -math.inf
    assert prepare(logits, torch.full((4,), temperature, dtype=torch.float64)).usable.tolist() == [
        False,
        False,
        True,
        True,
    ]


# --- small probabilities ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("token", [0, 127, 128, 20_001, 29_999])
def test_a_token_of_probability_1e_minus_7_has_its_interval(token, dtype, device):
    vocabulary, rare = 30_000, 1e-7
    model = RareToken(1, vocabulary, token, rare, dtype, device)
    weights = prepare(
        model.logits(torch.zeros(1, 1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)),
        torch.ones(1, dtype=torch.float64, device=device),
    )
    other = (1 - rare) / (vocabulary - 1)
    low = token * other
    inside = [low + rare * share for share in (0.02, 0.3, 0.5, 0.98)]
    around = [(low - 0.02 * rare, token - 1), (low + 1.02 * rare, token + 1)]

    def drawn(uniform):
        return int(draw(weights, torch.tensor([uniform], dtype=torch.float64, device=device)))

    assert [drawn(uniform) for uniform in inside] == [token] * 4
    assert [drawn(uniform) for uniform, expected in around if 0 <= uniform < 1] == [
        expected for uniform, expected in around if 0 <= uniform < 1
    ]
    host = (weights.values[0].cpu().numpy(), weights.blocks[0].cpu().numpy())
    assert [_draw_one(host, uniform) for uniform in inside] == [token] * 4


def test_rare_tokens_come_at_their_rate():
    assert abs(rare_token_z(plain.step)) < SIGMAS
    assert abs(rare_token_z(plain.step, 1e-3, 2000, 512, 200)) < SIGMAS


@pytest.mark.parametrize("device", DEVICES)
def test_a_wide_row_is_drawn_at_its_law(device):
    """A peaked float32 row of 30,000 tokens: the draw, by chi-square."""
    generator = np.random.default_rng(seed_of("wide row"))
    row = torch.tensor(generator.normal(scale=4, size=30_000), dtype=torch.float32, device=device)
    temperature = torch.ones(200, dtype=torch.float64, device=device)
    counts = np.zeros(30_000)
    for block in RandomStream(seed_of("wide row"), range(200)).blocks(0, 50, device):
        counts += np.bincount(
            draw(prepare(row.expand(200, -1), temperature), block[:, 1]).cpu().numpy(), minlength=30_000
        )
    assert chi_square_p(counts, law_of(row.cpu(), 1.0)) > P_VALUE


# --- the tests of counts themselves -----------------------------------------------------------------------------------


def test_the_chi_square_of_right_counts_is_uniform_and_of_wrong_ones_is_not():
    generator = np.random.default_rng(seed_of("chi-square"))
    law = np.array([0.5, 0.3, 0.15, 0.049, 0.0005, 0.0005])
    p_values = np.array([chi_square_p(generator.multinomial(2000, law), law) for _ in range(400)])
    assert 0.4 < p_values.mean() < 0.6 and (p_values < 0.05).mean() < 0.1
    assert chi_square_p(generator.multinomial(20_000, np.roll(law, 1)), law) < 1e-100
    assert chi_square(np.array([5, 0, 1]), np.array([0.5, 0.5, 0.0])) == (math.inf, 1)


def test_laws_equal_up_to_rounding_share_no_token_that_one_of_them_bars():
    weak = torch.tensor([[0.0, 0.0, 2.0]]), torch.tensor([[-torch.inf, 0.0, 2.0]])
    tau, zero = torch.tensor([0.05], dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    p, q = (prepare(rows, tau) for rows in weak)
    token = draw(p, zero)
    assert int(token) == 0 and float(probability(p, token)) < 1e-16
    partner = maximal_partner(p, q, token, zero, zero)
    assert float(probability(q, partner)) > 0

"""Counter-based randomness: what a chain draws is a function of (seed, chain, step) and of nothing else."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from statistics_helpers import DEVICES, P_VALUE, independence_p, seed_of

from glauber_mlm.errors import UserError
from glauber_mlm.randomness import WORDS, RandomStream

WORD = st.integers(0, 2**64 - 1)


def philox_by_hand(seed: int, chain: int, counter: int) -> list[int]:
    """Philox 4x64 with ten rounds, from the paper of Salmon et al."""
    low, words, key = 2**64 - 1, [counter & (2**64 - 1), counter >> 64, 0, 0], [seed, chain]
    for _ in range(10):
        left, right = words[0] * 0xD2E7470EE14C6C93, words[2] * 0xCA5A826395121157
        words = [(right >> 64) ^ words[1] ^ key[0], right & low, (left >> 64) ^ words[3] ^ key[1], left & low]
        key = [(key[0] + 0x9E3779B97F4A7C15) & low, (key[1] + 0xBB67AE8584CAA73B) & low]
    return words


@pytest.mark.parametrize(
    "seed, chain, step",
    [(0, 0, 0), (7, 3, 12), (2**64 - 1, 2**63, 5), (123456789, 0, 10**12), (1, 2**64 - 1, 2**32)],
)
def test_blocks_are_philox_of_seed_chain_and_step(seed, chain, step):
    found = RandomStream(seed, [chain]).blocks(step, 3)[:, 0]
    for later in range(3):
        # numpy counts up before it draws.
        expected = [(word >> 11) * 2.0**-53 for word in philox_by_hand(seed, chain, step + later + 1)]
        assert found[later].tolist() == expected


def test_a_chain_draws_the_same_alone_and_in_a_batch_of_64():
    batch = RandomStream(11, range(64)).blocks(0, 20)
    assert batch.shape == (20, 64, WORDS) and batch.dtype == torch.float64
    for chain in range(64):
        assert torch.equal(RandomStream(11, [chain]).blocks(0, 20)[:, 0], batch[:, chain])


@given(
    seed=WORD,
    chains=st.lists(WORD, min_size=1, max_size=6, unique=True),
    first=st.integers(0, 10**9),
    cuts=st.lists(st.integers(0, 30), max_size=4),
    data=st.data(),
)
def test_chunks_and_subsets_change_nothing(seed, chains, first, cuts, data):
    stream = RandomStream(seed, chains)
    whole = stream.blocks(first, 30)
    ends = [0, *sorted(cuts), 30]
    assert torch.equal(
        torch.cat([stream.blocks(first + start, end - start) for start, end in itertools.pairwise(ends)]),
        whole,
    )
    rows = data.draw(st.permutations(range(len(chains))))[: data.draw(st.integers(0, len(chains)))]
    some = stream.subset(rows)
    assert some.seed == seed and some.chains == tuple(chains[row] for row in rows)
    assert torch.equal(some.blocks(first, 30), whole[:, rows])


def test_uniforms_lie_below_one_and_fill_the_interval():
    uniforms = RandomStream(seed_of("range"), range(256)).blocks(0, 1000).numpy()
    assert uniforms.min() >= 0 and uniforms.max() < 1
    assert np.array_equal(uniforms * 2.0**53, np.floor(uniforms * 2.0**53))
    assert uniforms.min() < 1e-5 and uniforms.max() > 1 - 1e-5
    # The last of the 53 bits is a fair coin too.
    odd = int((uniforms * 2.0**53 % 2).sum())
    assert abs(odd - uniforms.size / 2) < 4 * np.sqrt(uniforms.size) / 2


def test_the_largest_word_stays_below_one():
    assert (np.uint64(2**64 - 1) >> np.uint64(11)).astype(np.float64) * 2.0**-53 == 1 - 2.0**-53


@pytest.mark.parametrize("bins", [2, 8, 16])
def test_neighbouring_chains_steps_words_and_seeds_are_independent(bins):
    seed = seed_of("independence")
    blocks = RandomStream(seed, range(64)).blocks(0, 1025).numpy()
    assert independence_p(blocks[:, ::2], blocks[:, 1::2], bins) > P_VALUE, "chains"
    assert independence_p(blocks[:-1:2], blocks[1::2], bins) > P_VALUE, "steps"
    for first, second in itertools.combinations(range(WORDS), 2):
        assert independence_p(blocks[..., first], blocks[..., second], bins) > P_VALUE, (
            f"words {first} and {second}"
        )
    other = RandomStream(seed + 1, range(64)).blocks(0, 1025).numpy()
    assert independence_p(blocks, other, bins) > P_VALUE, "seeds"
    # The key is a pair: chain 1 under seed s is not chain 0 under seed s + 1.
    assert independence_p(blocks[:, 1], other[:, 0], bins) > P_VALUE, "shifted keys"


def test_the_independence_check_can_fail():
    blocks = RandomStream(3, range(2)).blocks(0, 20_000).numpy()
    lagged = 0.9 * blocks[:, 0] + 0.1 * blocks[:, 1]
    assert independence_p(blocks[:, 0], lagged) < 1e-50
    assert independence_p(blocks[:, 0], np.sqrt(blocks[:, 1])) < 1e-50


@pytest.mark.parametrize("device", DEVICES)
def test_the_device_does_not_change_the_draws(device):
    stream = RandomStream(5, [3, 1])
    blocks = stream.blocks(7, 10, device)
    assert blocks.device.type == device
    assert torch.equal(blocks.cpu(), stream.blocks(7, 10))


@pytest.mark.parametrize("chains", [[0, 0], [3, 1, 3], [2**64 - 1, 0, 2**64 - 1]])
def test_repeated_chains_are_refused(chains):
    with pytest.raises(UserError, match="chain numbers repeat"):
        RandomStream(0, chains)


@pytest.mark.parametrize(
    "seed", [7.9, 7.0, "7", math.nan, True, None, 1.8e19, 2**64, -1, [7], np.float64(3.0), np.bool_(True)]
)
def test_seeds_are_whole_numbers_in_range(seed):
    with pytest.raises(UserError, match="seed is .*; give a whole number at least 0 and at most 18,446"):
        RandomStream(seed, [0])


@pytest.mark.parametrize(
    "chains, message",
    [
        ([0.5], r"chains\[0\] is 0.5; give a whole number"),
        ([0, True], r"chains\[1\] is True; give a whole number"),
        ([0, "1"], r"chains\[1\] is '1'; give a whole number"),
        (np.arange(2.0), r"chains\[0\] is 0.0; give a whole number"),
        (torch.tensor([[0, 1]]), r"chains\[0\] is \[0, 1\]; give a whole number"),
        ("12", "chains is '12'; give a list"),
        (3, "chains is 3; give a list"),
    ],
)
def test_chain_numbers_are_a_list_of_whole_numbers(chains, message):
    with pytest.raises(UserError, match=message):
        RandomStream(0, chains)


def test_numpys_integers_are_the_same_numbers():
    theirs = RandomStream(np.uint64(2**64 - 1), np.array([3, 5]))
    ours = RandomStream(2**64 - 1, [3, 5])
    assert theirs == ours and type(theirs.seed) is int
    assert torch.equal(theirs.blocks(np.int64(2), np.int32(4)), ours.blocks(2, 4))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ((2.5, 3), "first_step is 2.5; give a whole number"),
        ((-1, 3), "first_step is -1; give a whole number"),
        ((0, "3"), "steps is '3'; give a whole number"),
        ((0, 2**31), "steps is 2147483648; give a whole number"),
        ((0, 3, "gpu"), "device 'gpu' cannot be used here"),
        ((0, 3, 0), "device is 0; give a str or device"),
    ],
)
def test_blocks_are_of_whole_steps_on_a_device(arguments, message):
    with pytest.raises(UserError, match=message):
        RandomStream(0, [1]).blocks(*arguments)


@pytest.mark.parametrize(
    "rows, message",
    [
        ([-1], r"rows\[0\] is -1"),
        ([0, 2], r"rows\[1\] is 2"),
        ([0.0], r"rows\[0\] is 0.0"),
        ([0, 0], "repeat"),
    ],
)
def test_a_subset_is_of_chains_that_are_there(rows, message):
    with pytest.raises(UserError, match=message):
        RandomStream(0, [7, 8]).subset(rows)


@pytest.mark.parametrize("seed, chain", [(-1, 0), (2**64, 0), (0, -1), (0, 2**64)])
def test_numbers_out_of_range_are_refused(seed, chain):
    with pytest.raises(UserError, match="give a whole number at least 0 and at most 18,446"):
        RandomStream(seed, [chain])


def test_no_global_state_is_read_or_written():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    RandomStream(1, range(4)).blocks(0, 10)
    assert torch.equal(torch.get_rng_state(), torch_state) and np.array_equal(
        np.random.get_state()[1], numpy_state
    )

"""The chain on the CPU and on every accelerator at hand: the same randomness, the same trajectory in float64."""

import copy

import pytest
import torch
from tiny_models import TinyModels

from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel, head_of
from glauber_mlm.conditionals.solvable import CurieWeiss, Potts
from glauber_mlm.conditionals.stubs import _Wrapper
from glauber_mlm.kernels import coupled, plain
from glauber_mlm.kernels.coupled import coalescence
from glauber_mlm.kernels.event import EventDriven
from glauber_mlm.models import load
from glauber_mlm.randomness import RandomStream

pytest_plugins = ("tiny_fixtures",)

DEVICES = [
    "cpu",
    pytest.param(
        "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
    ),
]


@pytest.mark.parametrize("device", DEVICES)
def test_uniforms_do_not_depend_on_the_device(device):
    stream = RandomStream(3, [0, 9])
    assert torch.equal(stream.blocks(5, 4, device).cpu(), stream.blocks(5, 4))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kernel", ["plain", "event"])
def test_trajectories_do_not_depend_on_the_device(device, kernel):
    stream = RandomStream(1, range(5))
    start = torch.zeros(5, 6, dtype=torch.int64)
    records = []
    for model in (Potts(6, 3, 1.0), Potts(6, 3, 1.0, device=device)):
        state = plain.initial_state(model, start, [0.3, 0.5, 1.0, 2.0, 0.0])
        walk = (
            EventDriven(model).walk
            if kernel == "event"
            else lambda s, r, f, n, model=model: plain.walk(model, s, r, f, n)
        )
        records.append(walk(state, stream, 0, 200)[1])
    assert torch.equal(records[0].tokens, records[1].tokens) and torch.equal(
        records[0].sites, records[1].sites
    )


@pytest.mark.parametrize("device", DEVICES)
def test_meeting_times_do_not_depend_on_the_device_or_on_how_often_pairs_are_looked_at(device):
    start = torch.zeros(8, 6, dtype=torch.int64)
    stream = RandomStream(2, range(8))
    reference = coalescence(CurieWeiss(6), start, 1 - start, 1.5, stream, 500)
    other = coalescence(CurieWeiss(6, device=device), start, 1 - start, 1.5, stream, 500, check_every=32)
    assert torch.equal(reference.times, other.times) and torch.equal(reference.met, other.met)


class Unwatched(_Wrapper):
    """Conditionals seen through a wrapper that forbids waiting for the device between the first call of `logits` and the last of `calls`."""

    def __init__(self, conditionals, calls: int) -> None:
        super().__init__(conditionals)
        self.left = self.calls = calls

    def logits(self, states, sites):
        torch.cuda.set_sync_debug_mode("error")
        rows = self.wrapped.logits(states, sites)
        self.left -= 1
        if not self.left:
            torch.cuda.set_sync_debug_mode("default")
        return rows


@pytest.fixture
def models_on_cuda(tiny: TinyModels):
    bert = load(str(tiny.folder("bert")), device="cuda").conditionals(6)
    yield {"Curie-Weiss": CurieWeiss(6, device="cuda"), "bert": bert}
    torch.cuda.set_sync_debug_mode("default")


def two_states(model) -> torch.Tensor:
    tokens = sorted(set(range(model.vocabulary)) - set(getattr(model, "barred", [])))[-2:]
    return torch.tensor(tokens)[:, None].expand(2, 6).contiguous()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", ["Curie-Weiss", "bert"])
def test_steps_and_rows_do_not_wait_for_the_device(models_on_cuda, name):
    model = models_on_cuda[name]
    state = plain.initial_state(model, two_states(model), 1.0)
    pair = coupled.PairState(state.tokens, state.tokens.flip(0), state.temperature)
    blocks = RandomStream(0, range(2)).blocks(0, 8, "cuda")
    sites = plain.choose_sites(model, blocks[0, :, 0])
    for mode in ("default", "error"):  # the first time libraries may be loaded
        torch.cuda.set_sync_debug_mode(mode)
        for block in blocks:
            model.logits(state.tokens, sites)
            state, _ = plain.step(model, state, block)
            pair, _ = coupled.step(model, pair, block)
            pair, _ = coupled.step(model, pair, block, "common")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
@pytest.mark.parametrize("name", ["Curie-Weiss", "bert"])
def test_the_loops_of_segments_do_not_wait_for_the_device(models_on_cuda, name):
    """Randomness goes to the device before the loop of steps, and the record comes back after it."""
    model, stream = models_on_cuda[name], RandomStream(0, range(2))
    states = two_states(model)
    for watched in (model, Unwatched(model, 20)):
        plain.walk(watched, plain.initial_state(model, states, 1.0), stream, 0, 20)
    assert watched.left == 0
    for watched in (model, Unwatched(model, 20)):
        coupled.coalescence(watched, states, states.flip(0), 1.0, stream, 20, check_every=20)
    assert watched.left == 0


def on_meta(conditionals: MaskedLanguageModel) -> MaskedLanguageModel:
    """The same adapter with every tensor on the device that holds no values."""
    moved = copy.copy(conditionals)
    moved.model, moved.device = copy.deepcopy(conditionals.model).to("meta"), torch.device("meta")
    moved._head = head_of(moved.model)
    for name in ("free_sites", "_barred", "_before", "_after"):
        setattr(moved, name, getattr(conditionals, name).to("meta"))
    return moved


@pytest.mark.parametrize("name", ["Curie-Weiss", "bert", "roberta", "modernbert"])
def test_steps_and_rows_look_at_no_value(tiny: TinyModels, name: str):
    """On a device without values whatever would wait for one fails: what the CUDA tests above forbid, as far as it can be seen without CUDA."""
    model = CurieWeiss(6, device="meta") if name == "Curie-Weiss" else on_meta(tiny.conditionals(name, 6))
    tokens = torch.zeros(4, 6, dtype=torch.int64, device="meta")
    state = plain.ChainState(tokens, torch.ones(4, dtype=torch.float64, device="meta"))
    block = torch.zeros(4, 4, dtype=torch.float64, device="meta")
    with pytest.raises(RuntimeError):
        bool(block.any())
    assert model.logits(tokens, plain.choose_sites(model, block[:, 0])).shape == (4, model.vocabulary)
    state, _ = plain.step(model, state, block)
    for coupling in ("maximal", "common"):
        pair, info = coupled.step(
            model, coupled.PairState(tokens, state.tokens, state.temperature), block, coupling
        )
        assert info.met.shape == (4,) and pair.second.device.type == "meta"

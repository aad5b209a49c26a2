"""The chain on the CPU and on every accelerator at hand: the same randomness, the same trajectory in float64."""

import pytest
import torch

from glauber_mlm.conditionals.solvable import CurieWeiss, Potts
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.coupled import coalescence
from glauber_mlm.kernels.event import EventDriven
from glauber_mlm.randomness import RandomStream

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"))]


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
        walk = EventDriven(model).walk if kernel == "event" else lambda s, r, f, n, model=model: plain.walk(model, s, r, f, n)
        records.append(walk(state, stream, 0, 200)[1])
    assert torch.equal(records[0].tokens, records[1].tokens) and torch.equal(records[0].sites, records[1].sites)


@pytest.mark.parametrize("device", DEVICES)
def test_meeting_times_do_not_depend_on_the_device_or_on_how_often_pairs_are_looked_at(device):
    start = torch.zeros(8, 6, dtype=torch.int64)
    stream = RandomStream(2, range(8))
    reference = coalescence(CurieWeiss(6), start, 1 - start, 1.5, stream, 500)
    other = coalescence(CurieWeiss(6, device=device), start, 1 - start, 1.5, stream, 500, check_every=32)
    assert torch.equal(reference.times, other.times) and torch.equal(reference.met, other.met)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_the_plain_loop_does_not_wait_for_the_device():
    model = CurieWeiss(6, device="cuda")
    state = plain.initial_state(model, torch.zeros(4, 6, dtype=torch.int64), 1.0)
    blocks = RandomStream(0, range(4)).blocks(0, 8, "cuda")
    plain.step(model, state, blocks[0])
    torch.cuda.set_sync_debug_mode("error")
    try:
        for block in blocks:
            state, _ = plain.step(model, state, block)
    finally:
        torch.cuda.set_sync_debug_mode("default")

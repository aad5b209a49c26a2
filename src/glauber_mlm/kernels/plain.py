"""The plain random-scan Glauber kernel, batched over chains of one length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from glauber_mlm.checks import an_instance, checked
from glauber_mlm.conditionals.protocol import Conditionals, check_states, of_conditionals
from glauber_mlm.errors import UserError
from glauber_mlm.kernels.sampling import check_temperatures, draw, prepare
from glauber_mlm.randomness import SITE, TOKEN, RandomStream


class NonFiniteLogits(UserError):
    """A model returned NaN, +inf, or a row without a single token that may be drawn."""

    def __init__(self, chain: int, step: int, site: int) -> None:
        super().__init__(
            f"non-finite logits: chain {chain}, step {step}, site {site}; the segment was discarded, what was written before it is kept. Check the model's weights and dtype."
        )


@dataclass(frozen=True)
class ChainState:
    """B chains of one length.

    Attributes
    ----------
    tokens : Tensor of int64, shape (B, n)
    temperature : Tensor of float64, shape (B,)
    """

    tokens: Tensor
    temperature: Tensor


@dataclass(frozen=True)
class StepInfo:
    """What one step did; all of shape (B,).

    Attributes
    ----------
    sites : Tensor of int64
    previous, drawn : Tensor of int64
        Tokens at the site before and after.
    usable : Tensor of bool
        False where the row of logits was unusable; the token is then left as it was.
    """

    sites: Tensor
    previous: Tensor
    drawn: Tensor
    usable: Tensor


@dataclass(frozen=True)
class Record:
    """Updates of a segment: CPU tensors of int64, shape (steps, B).

    The states follow from the initial state: at step t, `tokens[t]` was put at `sites[t]`.
    """

    sites: Tensor
    tokens: Tensor


@checked(conditionals=of_conditionals)
def initial_state(
    conditionals: Conditionals, tokens: Tensor, temperature: float | Sequence[float] | Tensor
) -> ChainState:
    """Check and place starting sequences.

    Parameters
    ----------
    tokens : Tensor of int64, shape (B, n)
    temperature : float, sequence or Tensor
        One for all chains, or one for each; 0 is the argmax (lowest id among ties).

    Raises
    ------
    UserError
        For states or temperatures out of range; see `check_states` and `check_temperatures`.
    """
    check_states(conditionals, tokens)
    temperatures = check_temperatures(temperature, len(tokens))
    return ChainState(tokens.to(conditionals.device).clone(), temperatures.to(conditionals.device))


def choose_sites(conditionals: Conditionals, uniform: Tensor) -> Tensor:
    """Uniform free sites from uniforms in [0, 1): int64, the shape of `uniform`."""
    free = conditionals.free_sites
    return free[(uniform * len(free)).long()]


def step(conditionals: Conditionals, state: ChainState, randomness: Tensor) -> tuple[ChainState, StepInfo]:
    """Resample one uniform free site of each chain.

    Parameters
    ----------
    conditionals : Conditionals
    state : ChainState
    randomness : Tensor of float64, shape (B, 4)
        One block a chain: site, token, accept, residual; the last two are not used.

    Returns
    -------
    state : ChainState
        A new state; the given one is left as it was.
    info : StepInfo
    """
    sites = choose_sites(conditionals, randomness[:, SITE])
    weights = prepare(conditionals.logits(state.tokens, sites), state.temperature)
    previous, usable = state.tokens.gather(1, sites[:, None])[:, 0], weights.usable
    # An unusable row leaves the token alone: the state must fit the model until the end of the segment, where the fault is reported.
    drawn = torch.where(usable, draw(weights, randomness[:, TOKEN]), previous)
    tokens = state.tokens.scatter(1, sites[:, None], drawn[:, None])
    return ChainState(tokens, state.temperature), StepInfo(sites, previous, drawn, usable)


def raise_if_unusable(usable: Tensor, sites: Tensor, chains: Sequence[int], first_step: int) -> None:
    """Raise `NonFiniteLogits` for the earliest False in `usable`, shape (steps, B)."""
    if not bool(usable.all()):
        late, column = torch.nonzero(~usable)[0].tolist()
        raise NonFiniteLogits(chains[column], first_step + late, int(sites[late, column]))


def check_walk(conditionals: Conditionals, state: ChainState, stream: RandomStream) -> None:
    """Refuse a state of another shape than these conditionals and chains; `initial_state` saw its tokens.

    Raises
    ------
    UserError
    """
    wanted = (len(stream.chains), conditionals.length)
    if tuple(state.tokens.shape) != wanted:
        raise UserError(
            f"the state has shape {tuple(state.tokens.shape)}; "
            f"these chain numbers and conditionals take {wanted}"
        )


@checked(conditionals=of_conditionals, state=an_instance(ChainState), stream=an_instance(RandomStream))
def walk(
    conditionals: Conditionals, state: ChainState, stream: RandomStream, first_step: int, steps: int
) -> tuple[ChainState, Record]:
    """Take `steps` plain steps and record the updates.

    Does not wait for the device inside the loop: unusable logits are found at the end of the segment.

    Parameters
    ----------
    stream : RandomStream
        Of as many chains as `state` has.
    first_step : int
        Number of the first step in the life of the chains; decides the randomness.
    steps : int
        In [0, 2**31).

    Raises
    ------
    UserError
        For arguments that do not fit one another, or numbers out of range.
    NonFiniteLogits
        Naming chain, step and site.
    """
    check_walk(conditionals, state, stream)
    blocks = stream.blocks(first_step, steps, conditionals.device)
    shape = (steps, len(stream.chains))
    sites = torch.empty(shape, dtype=torch.int64, device=conditionals.device)
    tokens, usable = torch.empty_like(sites), torch.empty(shape, dtype=torch.bool, device=conditionals.device)
    for index in range(steps):
        state, info = step(conditionals, state, blocks[index])
        sites[index], tokens[index], usable[index] = info.sites, info.drawn, info.usable
    sites, tokens = sites.cpu(), tokens.cpu()
    raise_if_unusable(usable.cpu(), sites, stream.chains, first_step)
    return state, Record(sites, tokens)

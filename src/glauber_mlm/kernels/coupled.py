"""Two chains on one probability space: maximal coupling, common random numbers, and a lag between the two."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from glauber_mlm.checks import a_number, a_whole, an_instance, checked, one_of, optional
from glauber_mlm.conditionals.protocol import Conditionals
from glauber_mlm.errors import UserError
from glauber_mlm.kernels.plain import ChainState, choose_sites, initial_state, raise_if_unusable, walk
from glauber_mlm.kernels.sampling import draw, maximal_partner, prepare
from glauber_mlm.randomness import ACCEPT, MOST_STEPS, RESIDUAL, SITE, TOKEN, RandomStream

Coupling = Literal["maximal", "common"]
COUPLINGS = get_args(Coupling)
_LARGEST_CAP = 2**63 - 1  # times are int64


@dataclass(frozen=True)
class PairState:
    """B pairs of chains.

    Attributes
    ----------
    first, second : Tensor of int64, shape (B, n)
    temperature : Tensor of float64, shape (B,)
    """

    first: Tensor
    second: Tensor
    temperature: Tensor


@dataclass(frozen=True)
class PairInfo:
    """What one coupled step did; all of shape (B,).

    Attributes
    ----------
    sites : Tensor of int64
    first, second : Tensor of int64
        Tokens drawn.
    met : Tensor of bool
        Whether the two states agree after the step.
    usable : Tensor of bool
        False where a row of logits was unusable.
    """

    sites: Tensor
    first: Tensor
    second: Tensor
    met: Tensor
    usable: Tensor


def step(
    conditionals: Conditionals, state: PairState, randomness: Tensor, coupling: Coupling = "maximal"
) -> tuple[PairState, PairInfo]:
    """Resample the same site in both chains of each pair.

    The first chain moves by the plain rule on the same block of randomness, so its trajectory *is* the plain chain's. Where the two
    contexts agree off the site, the second chain uses the first one's row: a pair that has met cannot split again,
    whatever batching does to floating point.

    Parameters
    ----------
    randomness : Tensor of float64, shape (B, 4)
    coupling : {"maximal", "common"}
        "common" gives both chains the same uniform (inverse of the cumulative law in id order).
    """
    count = len(state.first)
    sites = choose_sites(conditionals, randomness[:, SITE])
    off_site = torch.ones_like(state.first, dtype=torch.bool).scatter_(1, sites[:, None], False)
    shared = ~((state.first != state.second) & off_site).any(dim=1)
    rows = conditionals.logits(torch.cat([state.first, state.second]), torch.cat([sites, sites]))
    first_row = rows[:count]
    second_row = torch.where(shared[:, None], first_row, rows[count:])
    p, q = prepare(first_row, state.temperature), prepare(second_row, state.temperature)
    a = draw(p, randomness[:, TOKEN])
    if coupling == "maximal":
        b = maximal_partner(p, q, a, randomness[:, ACCEPT], randomness[:, RESIDUAL])
    else:
        b = draw(q, randomness[:, TOKEN])
    b = torch.where(shared, a, b)
    # As in the plain step, an unusable row leaves the tokens alone until the fault is reported.
    usable, column = p.usable & q.usable, sites[:, None]
    a = torch.where(usable, a, state.first.gather(1, column)[:, 0])
    b = torch.where(usable, b, state.second.gather(1, column)[:, 0])
    first = state.first.scatter(1, column, a[:, None])
    second = state.second.scatter(1, column, b[:, None])
    met = (first == second).all(dim=1)
    return PairState(first, second, state.temperature), PairInfo(sites, a, b, met, usable)


@dataclass(frozen=True)
class Coalescence:
    """Meeting times of pairs, right-censored at the cap.

    Attributes
    ----------
    times : Tensor of int64, shape (B,)
        In steps of the first chain; the cap where the pair had not met.
    met : Tensor of bool, shape (B,)
        False: censored, the meeting time is above the cap.
    cap, lag : int
        In steps. With a lag L the time is T_L = inf{t > L : X_t = Y_{t-L}}.
    """

    times: Tensor
    met: Tensor
    cap: int
    lag: int


@checked(sites=a_whole(1, MOST_STEPS), multiple=a_number(above=0, most=1e6))
def steps_at_scale(sites: int, multiple: float) -> int:
    """A cap of `multiple * n log n` steps, rounded up; `n log n` is taken at n >= 2.

    Parameters
    ----------
    sites : int
        n, at least 1.
    multiple : float
        Above 0, at most 1e6.

    Raises
    ------
    UserError
    """
    sites = max(2, sites)
    return math.ceil(multiple * sites * math.log(sites))


@checked(
    stream=an_instance(RandomStream),
    cap=a_whole(1, _LARGEST_CAP),
    lag=a_whole(0, MOST_STEPS),
    coupling=one_of(*COUPLINGS),
    check_every=optional(a_whole(1)),
    progress=optional(an_instance(Callable)),
)
def coalescence(
    conditionals: Conditionals,
    first: Tensor,
    second: Tensor,
    temperature: float | Sequence[float] | Tensor,
    stream: RandomStream,
    cap: int,
    *,
    lag: int = 0,
    coupling: Coupling = "maximal",
    check_every: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> Coalescence:
    """Run coupled pairs until they meet or reach a cap fixed beforehand.

    Parameters
    ----------
    first, second : Tensor of int64, shape (B, n)
        Starting states of X and Y.
    temperature : float, sequence or Tensor
    stream : RandomStream
        One chain number a pair; X is the plain chain of that number.
    cap : int
        Steps of X, at least 1 and above the lag. Pairs that have not met are censored there, never dropped.
    lag : int
        L >= 0: X runs alone for L steps first. With 0, pairs equal at the start have met at time 0.
    coupling : {"maximal", "common"}
    check_every : int, optional
        Steps between looks at which pairs have met and leave the batch; 1 on the CPU, 32 elsewhere by default.
        Times do not depend on it, up to the rounding of other batch shapes.
    progress : callable, optional
        Called with the number of steps taken since the last call.

    Returns
    -------
    Coalescence

    Raises
    ------
    UserError
        For a cap not above the lag, an unknown coupling, a value of another type, starting states out of
        range, or a pair whose starts differ at a site that is not free: it could never meet.
    NonFiniteLogits

    Notes
    -----
    `P(T > t)` for one pair of starts bounds `TV(P^t(x, .), P^t(y, .))`. It bounds d(t) only as a maximum over all pairs, and slow
    coalescence does not prove slow mixing.
    """
    if cap <= lag:
        raise UserError(f"cap {cap} must be above the lag {lag}; give a larger cap or a smaller lag")
    start = initial_state(conditionals, first, temperature)
    partner = initial_state(conditionals, second, temperature)
    if not len(start.tokens) == len(partner.tokens) == len(stream.chains):
        raise UserError("give as many first states, second states and chain numbers")
    _refuse_frozen_differences(conditionals, start.tokens, partner.tokens)
    if lag:
        start, _ = walk(conditionals, start, stream, 0, lag)
    state = PairState(start.tokens, partner.tokens, start.temperature)
    every = check_every or (1 if conditionals.device.type == "cpu" else 32)
    times = torch.full((len(stream.chains),), cap, dtype=torch.int64)
    met = torch.zeros(len(stream.chains), dtype=torch.bool)
    alive = torch.arange(len(stream.chains))
    if lag == 0:
        met = (state.first == state.second).all(dim=1).cpu()
        times[met] = 0
        alive = torch.nonzero(~met)[:, 0]
        state = _rows(state, alive)
    now, segment = lag, 256
    while now < cap and len(alive):
        blocks = stream.subset(alive.tolist()).blocks(now, min(segment, cap - now), conditionals.device)
        kept = torch.arange(len(alive), device=conditionals.device)
        index = 0
        while index < len(blocks) and len(alive):
            stretch = min(every, len(blocks) - index)
            count = len(alive)
            first_met = torch.full((count,), -1, dtype=torch.int64, device=conditionals.device)
            usable = torch.empty(stretch, count, dtype=torch.bool, device=conditionals.device)
            sites = torch.empty(stretch, count, dtype=torch.int64, device=conditionals.device)
            for inner in range(stretch):
                state, info = step(conditionals, state, blocks[index + inner, kept], coupling)
                first_met = torch.where(info.met & (first_met < 0), now + inner + 1, first_met)
                usable[inner], sites[inner] = info.usable, info.sites
            raise_if_unusable(usable.cpu(), sites.cpu(), [stream.chains[k] for k in alive.tolist()], now)
            met_here = (first_met >= 0).cpu()
            if bool(met_here.any()):
                times[alive[met_here]] = first_met.cpu()[met_here]
                met[alive[met_here]] = True
                stay = torch.nonzero(~met_here)[:, 0]
                alive = alive[stay]
                kept = kept[stay.to(kept.device)]
                state = _rows(state, stay)
            now += stretch
            index += stretch
            if progress is not None:
                progress(stretch)
    return Coalescence(times, met, cap, lag)


def _refuse_frozen_differences(conditionals: Conditionals, first: Tensor, second: Tensor) -> None:
    differs = (first != second).index_fill(1, conditionals.free_sites, False).cpu()
    if bool(differs.any()):
        pair, site = torch.nonzero(differs)[0].tolist()
        raise UserError(
            f"pair {pair} differs at site {site}, which is not free, so it can never meet; let both starts agree at the sites that are not free"
        )


def _rows(state: PairState, rows: Tensor) -> PairState:
    rows = rows.to(state.first.device)
    return PairState(state.first[rows], state.second[rows], state.temperature[rows])


__all__ = [
    "ChainState",
    "Coalescence",
    "Coupling",
    "PairInfo",
    "PairState",
    "coalescence",
    "step",
    "steps_at_scale",
]

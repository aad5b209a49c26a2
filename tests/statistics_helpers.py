"""Checks of kernels against exact answers, each a function of the kernel, so that a defective one can be handed in.

A check returns p-values, a z-score or a margin; a test compares them with `P_VALUE` and `SIGMAS`. Seeds are derived from the name of the test and never chosen by
outcome. The suite makes fewer than 200 comparisons, each of which would fail a right engine with probability 1e-4 or less for a seed picked blindly: the chance
of one false alarm among all of them is below 2 %, and since seeds are fixed it is there on every run or on none. Defects are caught at far smaller p-values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from glauber_mlm.conditionals.protocol import Conditionals
from glauber_mlm.conditionals.restricted import Restricted
from glauber_mlm.conditionals.solvable import (
    CurieWeiss,
    DefectTable,
    Ising,
    Potts,
    ProductMeasure,
    RandomJoint,
)
from glauber_mlm.conditionals.stubs import RareToken
from glauber_mlm.exact.glauber import (
    coupled_meeting_times,
    enumerate_logits,
    enumerate_states,
    exact_tv_to_mu,
    mixing_time,
    stationary,
    transition_matrix,
)
from glauber_mlm.kernels import coupled, plain
from glauber_mlm.kernels.event import EventDriven
from glauber_mlm.randomness import RandomStream
from glauber_mlm.statistics.survival import lag_bound

P_VALUE = 1e-4
SIGMAS = 4.0
LEAST_EXPECTED = 5.0
DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]

Step = Callable[[Conditionals, plain.ChainState, Tensor], tuple[plain.ChainState, plain.StepInfo]]
Walk = Callable[
    [Conditionals, plain.ChainState, RandomStream, int, int], tuple[plain.ChainState, plain.Record]
]
PairStep = Callable[[Conditionals, coupled.PairState, Tensor], tuple[coupled.PairState, coupled.PairInfo]]


def seed_of(*words: object) -> int:
    """A seed that depends on the words only."""
    return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:8], "big")


# --- kernels in one shape ---------------------------------------------------------------------------------------------


def event_step(
    model: Conditionals, state: plain.ChainState, randomness: Tensor
) -> tuple[plain.ChainState, plain.StepInfo]:
    return EventDriven(model).step(state, randomness)


def event_walk(
    model: Conditionals, state: plain.ChainState, stream: RandomStream, first: int, steps: int
) -> tuple[plain.ChainState, plain.Record]:
    return EventDriven(model).walk(state, stream, first, steps)


STEPS: dict[str, Step] = {"plain": plain.step, "event": event_step}
WALKS: dict[str, Walk] = {"plain": plain.walk, "event": event_walk}


def walk_of(step: Step) -> Walk:
    """Repeat a step."""

    def walk(
        model: Conditionals, state: plain.ChainState, stream: RandomStream, first: int, steps: int
    ) -> tuple[plain.ChainState, plain.Record]:
        sites, tokens = [], []
        for block in stream.blocks(first, steps, model.device):
            state, info = step(model, state, block)
            sites.append(info.sites.cpu())
            tokens.append(info.drawn.cpu())
        return state, plain.Record(torch.stack(sites), torch.stack(tokens))

    return walk


# --- models with their answers ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model small enough to enumerate, at one temperature."""

    name: str
    model: Conditionals
    temperature: float
    base: tuple[int, ...] | None = None

    @cached_property
    def states(self) -> Tensor:
        return enumerate_states(self.model, None if self.base is None else torch.tensor(self.base))

    @cached_property
    def matrix(self) -> np.ndarray:
        return transition_matrix(self.model, self.temperature, self.states)

    @cached_property
    def mu(self) -> np.ndarray:
        """The joint law where there is one in closed form, so that the engine's own solver is not its judge."""
        if hasattr(self.model, "log_mu") and not getattr(self.model, "defect", 0):
            return self.model.log_mu(self.temperature).exp().cpu().numpy()
        return stationary(self.matrix)

    @cached_property
    def rows(self) -> tuple[np.ndarray, ...]:
        """Conditional probabilities at each free site: arrays of shape (S, tokens)."""
        return enumerate_logits(self.model, self.states).probabilities(self.temperature)

    def numbers(self, states: Tensor) -> np.ndarray:
        """Positions of states in the list of states; -1 for a state that is not there."""
        place = self.model.vocabulary ** torch.arange(self.model.length - 1, -1, -1)
        codes = (self.states * place).sum(dim=1).numpy()
        order = np.argsort(codes)
        asked = (states.cpu() * place).sum(dim=1).numpy()
        found = order[np.searchsorted(codes[order], asked).clip(max=len(codes) - 1)]
        return np.where(codes[found] == asked, found, -1)

    def start(self, rows: np.ndarray) -> plain.ChainState:
        return plain.initial_state(self.model, self.states[torch.as_tensor(rows)], self.temperature)


def cases(device: str = "cpu") -> list[Case]:
    """Every solvable model, at 4 to 512 states."""
    generator = np.random.default_rng(5)
    return [
        Case("ising-cycle", Ising("cycle", 6, device=device), 3.0),
        Case("ising-torus-2", Ising("torus", 2, 0.5, device=device), 2.0),
        Case("ising-torus-3", Ising("torus", 3, field=0.2, device=device), 6.0),
        Case("curie-weiss-5", CurieWeiss(5, device), 1.2),
        Case("curie-weiss-8", CurieWeiss(8, device), 1.2),
        Case("potts", Potts(4, 3, device=device), 1.0),
        Case("potts-repelling", Potts(3, 3, -1.0, device=device), 0.8),
        Case("product", ProductMeasure(generator.normal(size=(3, 4)), device), 0.8),
        Case("joint-3-4", RandomJoint(3, 4, 1, device), 1.0),
        Case("joint-2-5", RandomJoint(2, 5, 2, device), 0.6),
        Case("defect", DefectTable(1.5, device), 1.0),
        Case(
            "restricted",
            Restricted(RandomJoint(4, 4, 3, device), [0, 2, 3], [(0, 1, 2), (1, 3), (0, 3)]),
            0.9,
            (0, 2, 1, 0),
        ),
    ]


CASES = {case.name: case for case in cases()}

# --- tests of counts --------------------------------------------------------------------------------------------------


def chi_square(observed: np.ndarray, probabilities: np.ndarray) -> tuple[float, int]:
    """Pearson's statistic and its degrees of freedom for one multinomial; cells that expect too little are pooled.

    A count in a cell of probability 0 gives infinity.
    """
    observed, expected = (
        np.asarray(observed, dtype=float),
        np.asarray(probabilities, dtype=float) * np.sum(observed),
    )
    if observed[expected == 0].any():
        return np.inf, 1
    order = np.argsort(-expected, kind="stable")
    observed, expected = observed[order], expected[order]
    kept = int((expected >= LEAST_EXPECTED).sum())
    if kept < len(expected) and expected[kept:].sum() < LEAST_EXPECTED:
        kept = max(0, kept - 1)
    if kept < len(expected):
        observed, expected = (
            np.append(observed[:kept], observed[kept:].sum()),
            np.append(expected[:kept], expected[kept:].sum()),
        )
    return float(((observed - expected) ** 2 / expected).sum()), len(expected) - 1


def chi_square_p(observed: np.ndarray, probabilities: np.ndarray) -> float:
    """p-value of several multinomials at once: counts and probabilities of shape (R, K), or (K,) for one."""
    parts = [
        chi_square(counts, law)
        for counts, law in zip(np.atleast_2d(observed), np.atleast_2d(probabilities), strict=True)
    ]
    return float(stats.chi2.sf(sum(part[0] for part in parts), sum(part[1] for part in parts)))


def independence_p(first: np.ndarray, second: np.ndarray, bins: int = 8) -> float:
    """p-value of two arrays of uniforms being independent and uniform, by counts on a `bins` x `bins` grid."""
    cells = (np.ravel(first) * bins).astype(int) * bins + (np.ravel(second) * bins).astype(int)
    return chi_square_p(np.bincount(cells, minlength=bins * bins), np.full(bins * bins, bins**-2.0))


# --- checks of a kernel -----------------------------------------------------------------------------------------------


def one_step_p(step: Step, case: Case, draws: int = 60_000) -> float:
    """The empirical one-step kernel from every state against the exact matrix."""
    size = len(case.states)
    copies = max(1, 2048 // size)
    passes = max(2, -(-draws // (size * copies)))
    start = np.tile(np.arange(size), copies)
    state = case.start(start)
    counts = np.zeros((size, size))
    for block in RandomStream(seed_of("one step", case.name), range(len(start))).blocks(
        0, passes, case.model.device
    ):
        new, _ = step(case.model, state, block)
        arrived = case.numbers(new.tokens)
        if (arrived < 0).any():
            return 0.0
        np.add.at(counts, (start, arrived), 1)
    return chi_square_p(counts, case.matrix)


def stationary_p(walk: Walk, case: Case, chains: int = 1024, draws: int = 6) -> float:
    """States read every `t_mix(1e-4)` steps against mu: whatever the past, each is within 1e-4 of mu, so the readings are as good as independent."""
    apart = mixing_time(case.matrix, case.mu, 1e-4)
    stream = RandomStream(seed_of("stationary", case.name), range(chains))
    state = case.start(np.zeros(chains, dtype=int))
    counts = np.zeros(len(case.mu))
    for draw in range(draws):
        state, _ = walk(case.model, state, stream, draw * apart, apart)
        numbers = case.numbers(state.tokens)
        if (numbers < 0).any():
            return 0.0
        counts += np.bincount(numbers, minlength=len(counts))
    return chi_square_p(counts, case.mu)


def trace_of(case: Case, start: np.ndarray, record: plain.Record, every: int) -> np.ndarray:
    """Numbers of the states along chains, from the record of updates: int64, shape (chains, draws)."""
    states, rows, numbers = case.states[torch.as_tensor(start)].clone(), torch.arange(len(start)), []
    for step in range(len(record.sites)):
        states[rows, record.sites[step]] = record.tokens[step]
        if (step + 1) % every == 0:
            numbers.append(case.numbers(states))
    return np.stack(numbers, axis=1)


def average_z(walk: Walk, case: Case, chains: int = 64, sweeps: int = 150) -> float:
    """The log-probability averaged over whole correlated trajectories against its mean under mu.

    The batches of the batch means are the chains, which are independent: the standard error holds whatever the autocorrelation.
    """
    values = np.log(case.mu)
    warm_up = mixing_time(case.matrix, case.mu, 1e-4)
    stream = RandomStream(seed_of("average", case.name), range(chains))
    start = np.zeros(chains, dtype=int)
    state, _ = walk(case.model, case.start(start), stream, 0, warm_up)
    _, record = walk(case.model, state, stream, warm_up, sweeps * case.model.length)
    means = values[trace_of(case, case.numbers(state.tokens), record, 1)].mean(axis=1)
    return float((means.mean() - case.mu @ values) / (means.std(ddof=1) / np.sqrt(chains)))


def replicas_p(walk: Walk, case: Case, replicas: int = 16, steps: int = 1000) -> float:
    """Sites and tokens of replicas with one start, in disjoint pairs: the sites visited at one step are independent, and uniform."""
    stream = RandomStream(seed_of("replicas", case.name), range(replicas))
    _, record = walk(case.model, case.start(np.zeros(replicas, dtype=int)), stream, 0, steps)
    free = case.model.free_sites.cpu().numpy()
    places = np.searchsorted(free, record.sites.numpy())
    cells = places[:, ::2] * len(free) + places[:, 1::2]
    return chi_square_p(
        np.bincount(cells.ravel(), minlength=len(free) ** 2), np.full(len(free) ** 2, len(free) ** -2.0)
    )


def rare_token_z(
    step: Step, probability: float = 2e-4, vocabulary: int = 500, chains: int = 1024, steps: int = 400
) -> float:
    """The count of a token of small probability, standardised."""
    model = RareToken(4, vocabulary, (2 * vocabulary) // 3, probability)
    state = plain.initial_state(model, torch.zeros(chains, 4, dtype=torch.int64), 1.0)
    count = 0
    for block in RandomStream(seed_of("rare", probability), range(chains)).blocks(0, steps):
        count += int((step(model, state, block)[1].drawn == (2 * vocabulary) // 3).sum())
    expected = chains * steps * probability
    return (count - expected) / np.sqrt(expected * (1 - probability))


def tokens_unlike_plain(walk: Walk, case: Case, chains: int = 16, steps: int = 400, segments: int = 2) -> int:
    """Tokens that differ from those of the plain chain on the same stream."""
    stream = RandomStream(seed_of("like plain", case.name), range(chains))
    ours = theirs = case.start(np.arange(chains) % len(case.states))
    different = 0
    for segment in range(segments):
        ours, record = walk(case.model, ours, stream, segment * steps, steps)
        theirs, reference = plain.walk(case.model, theirs, stream, segment * steps, steps)
        different += int((record.tokens != reference.tokens).sum()) + int(
            (record.sites != reference.sites).sum()
        )
        different += int((ours.tokens != theirs.tokens).sum())
    return different


# --- checks of a coupling ---------------------------------------------------------------------------------------------


def coupled_step_ps(step: PairStep, case: Case, draws: int = 60_000, pairs: int = 200) -> dict[str, float]:
    """One coupled step from many pairs of states.

    Returns
    -------
    dict
        p-values: "first" and "second", the two chains' laws against the exact matrix; "agree", the tokens' agreement at each site against `1 - TV` of the two
        conditionals.
    """
    size = len(case.states)
    generator = np.random.default_rng(seed_of("pairs", case.name))
    x, y = np.divmod(generator.choice(size * size, min(pairs, size * size), replace=False), size)
    copies = max(1, 2048 // len(x))
    passes = max(2, -(-draws // (len(x) * copies)))
    kind = np.tile(np.arange(len(x)), copies)
    state = coupled.PairState(
        case.start(x[kind]).tokens, case.start(y[kind]).tokens, case.start(x[kind]).temperature
    )
    free = case.model.free_sites.cpu().numpy()
    first, second, agree = (
        np.zeros((len(x), size)),
        np.zeros((len(x), size)),
        np.zeros((len(x), 2 * len(free))),
    )
    for block in RandomStream(seed_of("coupled", case.name), range(len(kind))).blocks(
        0, passes, case.model.device
    ):
        new, info = step(case.model, state, block)
        arrived, partner = case.numbers(new.first), case.numbers(new.second)
        if min(arrived.min(), partner.min()) < 0:
            return dict.fromkeys(("first", "second", "agree"), 0.0)
        np.add.at(first, (kind, arrived), 1)
        np.add.at(second, (kind, partner), 1)
        place = np.searchsorted(free, info.sites.cpu().numpy())
        np.add.at(agree, (kind, 2 * place + (info.first == info.second).cpu().numpy()), 1)
    overlap = np.stack([np.minimum(rows[x], rows[y]).sum(axis=1) for rows in case.rows], axis=1)
    overlap[np.abs(overlap - 1) < 1e-12] = 1.0
    together = np.stack([1 - overlap, overlap], axis=2).reshape(len(x), -1) / len(free)
    return {
        "first": chi_square_p(first, case.matrix[x]),
        "second": chi_square_p(second, case.matrix[y]),
        "agree": chi_square_p(agree, together),
    }


def meeting_time_z(case: Case, pairs: int = 1500, coupling: coupled.Coupling = "maximal") -> float:
    """The mean coalescence time of random pairs of starts against the exact one of the coupled chain, no pair being cut off."""
    generator = np.random.default_rng(seed_of("meeting", case.name))
    x, y = generator.integers(len(case.states), size=(2, pairs))
    stream = RandomStream(seed_of("meeting", case.name), range(pairs))
    outcome = coupled.coalescence(
        case.model, case.states[x], case.states[y], case.temperature, stream, 10**6, coupling=coupling
    )
    assert bool(outcome.met.all())
    surplus = outcome.times.numpy() - coupled_meeting_times(case.model, case.temperature, case.states)[x, y]
    return float(surplus.mean() / (surplus.std(ddof=1) / np.sqrt(pairs)))


def lag_bound_and_truth(
    case: Case, lag: int, times: np.ndarray, pairs: int = 1000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The lagged-coupling bound, its standard error, and the exact distance to mu, for a starting law on a few states."""
    generator = np.random.default_rng(seed_of("lagged", case.name, lag))
    starts = generator.choice(len(case.states), 3, replace=False)
    x, y = starts[generator.integers(3, size=(2, pairs))]
    stream = RandomStream(seed_of("lagged", case.name, lag), range(pairs))
    outcome = coupled.coalescence(
        case.model, case.states[x], case.states[y], case.temperature, stream, 10**6, lag=lag
    )
    bound = lag_bound(outcome.times.numpy(), lag, times, ~outcome.met.numpy())
    law = np.zeros(len(case.states))
    law[starts] = 1 / 3
    return bound.bound, bound.standard_error, exact_tv_to_mu(case.matrix, case.mu, law, times)

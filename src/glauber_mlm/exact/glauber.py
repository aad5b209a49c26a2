"""Exact finite chains: transition matrices, stationary laws, mixing, bottlenecks, entropy production, influence and coupling.

Dense float64 throughout, at most 4096 states; time in steps. Where `conditionals` are asked for, `EnumeratedLogits` do as well: one set of logits
serves every temperature. Nothing found for a restricted chain bounds anything about the full one.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sparse
from scipy.sparse.linalg import bicgstab
from torch import Tensor

from glauber_mlm.conditionals.protocol import Conditionals
from glauber_mlm.errors import UserError
from glauber_mlm.exact.enumeration import (
    EnumeratedLogits,
    enumerate_logits,
    enumerate_states,
    enumerated,
)
from glauber_mlm.exact.finite_chain import (
    RESOLVED_GAP,
    SpectralGap,
    distance_to_stationarity,
    exact_tv_to_mu,
    mixing_time,
    spectral_gap,
    stationary,
    sweep_cut,
)

__all__ = [
    "EnumeratedLogits",
    "SpectralGap",
    "coupled_meeting_times",
    "distance_to_stationarity",
    "dobrushin",
    "entropy_production",
    "enumerate_logits",
    "enumerate_states",
    "exact_tv_to_mu",
    "influence_matrix",
    "log_transition_ratios",
    "mixing_time",
    "spectral_gap",
    "stationary",
    "sweep_cut",
    "transition_matrix",
]

_LARGEST_COUPLED = 512
_LARGEST_DENSE = 64  # states whose pair chain is solved by elimination if iteration fails
_PAIRS_AT_ONCE = 2**13
_RESIDUAL = 1e-9


def transition_matrix(
    conditionals: Conditionals | EnumeratedLogits, temperature: float, states: Tensor | None = None
) -> np.ndarray:
    """P_tau of the random-scan Glauber chain, the site uniform among the free ones.

    Parameters
    ----------
    conditionals : Conditionals or EnumeratedLogits
    temperature : float
        Finite and positive.
    states : Tensor of int64, shape (S, n), optional
        As in `enumerate_logits`.

    Returns
    -------
    ndarray of float64, shape (S, S)
        Rows add to 1; no entry is found by subtraction, so small ones keep their relative accuracy. Below about 1e-308 they are 0.
    """
    table = enumerated(conditionals, states)
    size = len(table.states)
    matrix = np.zeros((size, size))
    start = np.arange(size)[:, None]
    for probabilities, moves in zip(table.probabilities(temperature), table.moves, strict=True):
        np.add.at(matrix, (start, moves), probabilities / len(table.sites))
    return matrix


def log_transition_ratios(
    conditionals: Conditionals | EnumeratedLogits, temperature: float, states: Tensor | None = None
) -> np.ndarray:
    """`log P(x,y) / P(y,x)` from logits: exact where P itself has underflowed.

    Returns
    -------
    ndarray of float64, shape (S, S)
        NaN where neither move is possible, +-inf where one is not, 0 on the diagonal.
    """
    table = enumerated(conditionals, states)
    table.probabilities(temperature)  # refuses a bad temperature
    size = len(table.states)
    ratios = np.full((size, size), np.nan)
    for site, tokens, logits, moves in zip(table.sites, table.tokens, table.logits, table.moves, strict=True):
        own = np.searchsorted(tokens, table.states[:, site].numpy())
        rows, columns = np.nonzero(np.isfinite(logits) & (moves != np.arange(size)[:, None]))
        change = (logits[rows, columns] - logits[rows, own[rows]]) / temperature
        ratios[rows, moves[rows, columns]] = change
        ratios[moves[rows, columns], rows] = -change
    np.fill_diagonal(ratios, 0.0)
    return ratios


def entropy_production(
    conditionals: Conditionals | EnumeratedLogits,
    temperature: float,
    mu: np.ndarray,
    states: Tensor | None = None,
) -> float:
    """Rate `sum_xy mu(x) P(x,y) log( mu(x) P(x,y) / (mu(y) P(y,x)) )` in nats a step.

    Summed over unordered pairs as `(J(x,y) - J(y,x)) log(J(x,y) / J(y,x))`, with J the flow: every term is at least 0. Log-ratios come from logits. The rate
    is 0 exactly when the chain is reversible under `mu`.

    Parameters
    ----------
    conditionals : Conditionals or EnumeratedLogits
    temperature : float
    mu : ndarray, shape (S,)
        Stationary law, of `stationary`. States where it has underflowed to 0 contribute nothing.
    states : Tensor, optional
        As in `enumerate_logits`.

    Returns
    -------
    float
        At least 0; inf if a move is possible one way only.
    """
    table = enumerated(conditionals, states)
    mu = np.asarray(mu, dtype=np.float64)
    flow = mu[:, None] * transition_matrix(table, temperature)
    ratios = log_transition_ratios(table, temperature)
    x, y = np.nonzero(np.triu((flow > 0) | (flow.T > 0), 1) & (mu[:, None] > 0) & (mu[None] > 0))
    affinity = np.log(mu[x]) - np.log(mu[y]) + ratios[x, y]
    return float(((flow[x, y] - flow[y, x]) * affinity).sum())


def influence_matrix(
    conditionals: Conditionals | EnumeratedLogits, temperature: float, states: Tensor | None = None
) -> np.ndarray:
    """Exact influences `c_ij`: the largest TV between conditionals at site i of two states that differ only at j.

    Returns
    -------
    ndarray of float64, shape (m, m)
        In [0, 1], zero diagonal, rows and columns in the order of the free sites; exact for the chain on these states and for no larger one.
    """
    table = enumerated(conditionals, states)
    rows = table.probabilities(temperature)
    influence = np.zeros((len(rows), len(rows)))
    for j, moves in enumerate(table.moves):
        for i in range(len(rows)):
            if i != j:
                for column in moves.T:
                    influence[i, j] = max(
                        influence[i, j], 0.5 * np.abs(rows[i] - rows[i][column]).sum(axis=1).max()
                    )
    return influence


def dobrushin(influence: np.ndarray) -> tuple[float, float]:
    """`alpha_row = max_i sum_j c_ij` and `alpha_col = max_j sum_i c_ij`. A bound on mixing follows only if `influence` is exact or an upper bound."""
    influence = np.asarray(influence, dtype=np.float64)
    return float(influence.sum(axis=1).max()), float(influence.sum(axis=0).max())


def coupled_meeting_times(
    conditionals: Conditionals | EnumeratedLogits, temperature: float, states: Tensor | None = None
) -> np.ndarray:
    """Mean coalescence time, in steps, of two chains that share the site and couple the token maximally.

    Given laws p and q of the two tokens, the pair (a, b) has probability `min(p, q)(a)` if a = b and `(p - q)+(a) (q - p)+(b) / TV(p, q)` if not.

    Returns
    -------
    ndarray of float64, shape (S, S)
        Symmetric, zero diagonal; the solution of the linear system of the pair chain.

    Raises
    ------
    UserError
        For more than 512 states, or if the system cannot be solved in floating point: times beyond about 1e12 with up to 64 states, about 1e6 with more.

    Notes
    -----
    S states make S (S - 1) / 2 unordered pairs. The sparse system is solved by iteration (seconds, and a few hundred MB, at 512 states of spins) and the residual r
    is checked: since the inverse of the system is positive and maps 1 to the times, each time found is within a factor 1 +- max |r|, at most 1e-9, of the true
    one. Where that fails, up to 64 states are solved by elimination.
    """
    table = enumerated(conditionals, states)
    size = len(table.states)
    if size > _LARGEST_COUPLED:
        raise UserError(f"{size} states; exact coalescence times take at most {_LARGEST_COUPLED}")
    x, y = np.triu_indices(size, 1)  # the coupling treats both chains alike, so unordered pairs suffice
    number = np.full((size, size), -1)
    number[x, y] = number[y, x] = np.arange(len(x))
    entries, into = [], []
    for rows, moves in zip(table.probabilities(temperature), table.moves, strict=True):
        for start in range(0, len(x), _PAIRS_AT_ONCE):
            first, second = x[start : start + _PAIRS_AT_ONCE], y[start : start + _PAIRS_AT_ONCE]
            p, q = rows[first], rows[second]
            more, less = np.clip(p - q, 0, None), np.clip(q - p, 0, None)
            distance = more.sum(axis=1)
            joint = more[:, :, None] * less[:, None, :] / np.where(distance > 0, distance, 1)[:, None, None]
            joint += np.minimum(p, q)[:, :, None] * np.eye(p.shape[1])
            target = number[moves[first][:, :, None], moves[second][:, None, :]]
            pair, a, b = np.nonzero((target >= 0) & (joint > 0))
            entries.append(joint[pair, a, b] / len(table.sites))
            into.append((start + pair, target[pair, a, b]))
    places = tuple(np.concatenate(part) for part in zip(*into, strict=True))
    # Summed in this form, entries of one place add up.
    system = (
        sparse.identity(len(x), format="csr")
        - sparse.coo_array((np.concatenate(entries), places), shape=(len(x), len(x))).tocsr()
    )
    means = _solve_pairs(system, size)
    if not (np.isfinite(means) & (means > 0) & (means < 1 / RESOLVED_GAP)).all():
        raise UserError("coalescence is too slow to solve for in float64; raise the temperature")
    times = np.zeros((size, size))
    times[x, y] = times[y, x] = means
    return times


def _solve_pairs(system: sparse.csr_array, states: int) -> np.ndarray:
    """Solution of `system @ means = 1`; NaN where there is none to be trusted."""
    ones = np.ones(system.shape[0])
    with np.errstate(all="ignore"):  # of a system that is all but singular; the residual tells
        means, _ = bicgstab(system, ones, rtol=1e-13, atol=0.0, maxiter=2000)
        if np.abs(ones - system @ means).max() <= _RESIDUAL:
            return means
    try:
        return (
            np.linalg.solve(system.toarray(), ones)
            if states <= _LARGEST_DENSE
            else np.full_like(ones, np.nan)
        )
    except np.linalg.LinAlgError:
        return np.full_like(ones, np.nan)

"""Finite chains given as a matrix: stationary laws, distances, mixing times, gaps and cuts. Dense float64, time in steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import linkage
from scipy.spatial.distance import squareform

from glauber_mlm.checks import a_number, a_whole, array, checked, shown, whole_list
from glauber_mlm.errors import UserError

RESOLVED_GAP = 1e-12


def stationary(P: np.ndarray) -> np.ndarray:
    """Stationary law by the algorithm of Grassmann, Taksar and Heyman (1985).

    There is no subtraction, so every entry is found with small relative error however cold the chain is, where a direct solve returns noise.
    Cost: S**3 / 3 multiplications, seconds for 1024 states and minutes for 4096.

    Parameters
    ----------
    P : ndarray, shape (S, S)
        Transition matrix; its diagonal is not used.

    Returns
    -------
    ndarray of float64, shape (S,)
        Adds to 1; entries below about 1e-308 are 0.

    Raises
    ------
    UserError
        If the chain is not irreducible in floating point (a probability has underflowed).
    """
    work = _checked(P).copy()
    size = len(work)
    for last in range(size - 1, 0, -1):
        leaving = work[last, :last].sum()
        if not leaving > 0:
            raise UserError(
                f"state {last} cannot reach the states before it: the chain is reducible or probabilities have underflowed; raise the temperature"
            )
        work[:last, last] /= leaving
        work[:last, :last] += np.outer(work[:last, last], work[last, :last])
    law = np.zeros(size)
    law[0] = 1.0
    for state in range(1, size):
        law[state] = law[:state] @ work[:state, state]
        law[: state + 1] /= law[: state + 1].max()
    return law / law.sum()


@checked(times=whole_list(0))
def distance_to_stationarity(P: np.ndarray, mu: np.ndarray, times: Sequence[int]) -> np.ndarray:
    """`d(t) = max_x TV(P**t(x,.), mu)`: float64, one for each time (steps, at least 0, in any order)."""
    P, mu = _pair(P, mu)
    return _along(P, np.eye(len(P)), times, lambda rows: _distance(rows, mu))


@checked(times=whole_list(0))
def exact_tv_to_mu(P: np.ndarray, mu: np.ndarray, start_law: np.ndarray, times: Sequence[int]) -> np.ndarray:
    """`TV(start_law P**t, mu)`: float64, one for each time (steps, at least 0, in any order)."""
    P, mu = _pair(P, mu)
    return _along(P, _law("start_law", start_law, len(P))[None], times, lambda rows: _distance(rows, mu))


@checked(epsilon=a_number(above=0, below=1), cap=a_whole(1, 2**100))
def mixing_time(P: np.ndarray, mu: np.ndarray, epsilon: float = 0.25, cap: int = 2**40) -> int | None:
    """First t (steps) with `d(t) <= epsilon`, by repeated squaring and bisection.

    Squares have no subtraction and their rows are renormalised, so slow mixing stays accurate where the spectral gap is no longer resolved. Memory:
    one S x S matrix for each doubling.

    Parameters
    ----------
    P : ndarray, shape (S, S)
    mu : ndarray, shape (S,)
    epsilon : float
        In (0, 1).
    cap : int

    Returns
    -------
    int or None
        None if the time exceeds `cap`.
    """
    P, mu = _pair(P, mu)
    squares = [P]
    if _distance(np.eye(len(mu)), mu) <= epsilon:
        return 0
    while _distance(squares[-1], mu) > epsilon:
        if 2 ** (len(squares) - 1) >= cap:
            return None
        squares.append(_product(squares[-1], squares[-1]))
    rows, late = np.eye(len(mu)), 0  # d(late) > epsilon throughout
    for power in range(len(squares) - 2, -1, -1):
        trial = _product(rows, squares[power])
        if _distance(trial, mu) > epsilon:
            rows, late = trial, late + 2**power
    return late + 1 if late + 1 <= cap else None


class SpectralGap(NamedTuple):
    """`value` = 1 - max |lambda| over the other eigenvalues; `resolved` is False where float64 cannot tell it from 0."""

    value: float
    resolved: bool


def spectral_gap(P: np.ndarray) -> SpectralGap:
    """Absolute spectral gap, complex eigenvalues included.

    One eigenvalue, the nearest to 1, is set aside. Eigenvalues carry an absolute error of about 1e-15, more when P is far from normal, so a gap of
    1e-12 has two or three digits and one below it is not resolved. `1 / gap` bounds the mixing time from above for reversible chains only.
    """
    values = np.linalg.eigvals(_checked(P))
    rest = np.delete(values, np.abs(values - 1).argmin())
    gap = float(1 - np.abs(rest).max(initial=0.0))
    return SpectralGap(gap, gap > RESOLVED_GAP)


def sweep_cut(P: np.ndarray, mu: np.ndarray) -> tuple[float, np.ndarray]:
    """A low cut: an upper bound on the bottleneck constant `Phi* = min over mu(A) <= 1/2 of Q(A, A^c) / mu(A)` (LPW, section 7.2).

    Candidates are the initial segments of the states ordered by the second eigenvector of the reversibilised chain `(P + P^) / 2`, the best of which
    obeys Cheeger's `phi <= sqrt(2 gap)` of that chain, and the clusters of a single linkage of the states by flow. The latter matter when cold: then the
    leading eigenvalues agree in floating point and the eigenvector is noise, while flows keep their relative accuracy. It is not claimed that the cut
    is the best one.

    Parameters
    ----------
    P : ndarray, shape (S, S)
    mu : ndarray, shape (S,)
        Stationary law; states where it has underflowed to 0 are left out of A.

    Returns
    -------
    phi : float
        `Q(A, A^c) / mu(A)`; hence `t_mix(1/4) >= 1 / (4 Phi*) >= 1 / (4 phi)`, with or without reversibility.
    mask : ndarray of bool, shape (S,)
        The set A, with `mu(A) <= 1/2`.

    Raises
    ------
    UserError
        If `mu` sits on fewer than two states.
    """
    P, mu = _pair(P, mu)
    support = np.nonzero(mu > 0)[0]
    if len(support) < 2:
        raise UserError(
            "the stationary law sits on one state in floating point; a cut needs two: raise the temperature"
        )
    law, inner = mu[support], P[np.ix_(support, support)]
    half = np.log(law) / 2
    with np.errstate(divide="ignore"):
        balanced = np.exp(np.log(inner) + half[:, None] - half[None])
    second = np.linalg.eigh((balanced + balanced.T) / 2)[1][:, -2]
    flow = law[:, None] * inner
    phi, members = min(
        _best_segment(flow, law, np.argsort(second / np.sqrt(law), kind="stable")),
        _best_cluster(flow, law),
        key=lambda cut: cut[0],
    )
    return float(phi), np.isin(np.arange(len(mu)), support[members])


def _best_segment(flow: np.ndarray, law: np.ndarray, order: np.ndarray) -> tuple[float, np.ndarray]:
    """Least `Q(A, A^c) / mu(A)` over initial segments and their complements; sums only, so that small flows are not lost."""
    flow, law = flow[np.ix_(order, order)], law[order]
    to_later = np.cumsum(flow[:, ::-1], axis=1)[:, ::-1]  # [x, k]: flow from x to k, k+1, ...
    crossing = np.array([to_later[:k, k].sum() for k in range(1, len(law))])
    first, second = np.cumsum(law)[:-1], np.cumsum(law[::-1])[::-1][1:]
    # Under a stationary law as much flows back as forth, so one crossing serves A and its complement.
    phi = crossing / np.minimum(first, second)
    k = int(phi.argmin())
    return phi[k], order[: k + 1] if first[k] <= second[k] else order[k + 1 :]


def _best_cluster(flow: np.ndarray, law: np.ndarray) -> tuple[float, np.ndarray]:
    """Least `Q(A, A^c) / mu(A)` over the clusters of a single linkage by flow and their complements; sums only."""
    size = len(law)
    between = (flow + flow.T) / 2
    np.fill_diagonal(between, 0.0)
    strongest = between.max()
    if not strongest > 0:  # nothing flows at all, so any state is a perfect cut
        return 0.0, np.array([law.argmin()])
    with np.errstate(divide="ignore"):
        apart = np.minimum(np.log(strongest) - np.log(between), 1e6)
    np.fill_diagonal(apart, 0.0)
    merges = linkage(squareform(apart, checks=False), "single")[:, :2].astype(np.int64)
    slot = list(range(size))  # row of `between` that holds a cluster
    members: dict[int, list[int]] = {row: [row] for row in range(size)}
    mass = law.copy()
    cuts = [(between[row].sum() / min(mass[row], np.delete(mass, row).sum()), row) for row in range(size)]
    phi, row = min(cuts)
    best = phi, [row]
    for one, other in merges[:-1]:
        keep, drop = slot[one], slot[other]
        slot.append(keep)
        members[keep] = members[keep] + members.pop(drop)
        between[keep] += between[drop]
        between[:, keep] += between[:, drop]
        between[drop], between[:, drop], between[keep, keep] = 0.0, 0.0, 0.0
        mass[keep], mass[drop] = mass[keep] + mass[drop], 0.0
        phi = between[keep].sum() / min(mass[keep], np.delete(mass, keep).sum())
        if phi < best[0]:
            best = phi, list(members[keep])
    inside = np.isin(np.arange(size), best[1])
    return best[0], np.nonzero(inside if law[inside].sum() <= law[~inside].sum() else ~inside)[0]


def _law(name: str, law: np.ndarray, size: int) -> np.ndarray:
    """A law on `size` states, in float64."""
    found = np.asarray(array(name, law, 1), dtype=np.float64)
    if len(found) != size or not (found >= 0).all() or abs(found.sum() - 1) > 1e-9:
        raise UserError(f"{name} is {shown(law)}; give {size} probabilities that add to 1")
    return found


def _pair(P: np.ndarray, mu: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A transition matrix and a law on its states."""
    P = _checked(P)
    return P, _law("mu", mu, len(P))


def _checked(P: np.ndarray) -> np.ndarray:
    P = np.asarray(array("P", P, 2), dtype=np.float64)
    if (
        P.shape[0] != P.shape[1]
        or not 1 <= len(P)
        or not (P >= 0).all()
        or np.abs(P.sum(axis=1) - 1).max() > 1e-9
    ):
        raise UserError(
            f"a transition matrix is square, at least 0, with rows that add to 1; got shape {P.shape} or entries that do not"
        )
    return P


def _distance(rows: np.ndarray, mu: np.ndarray) -> float:
    return float(0.5 * np.abs(rows - mu).sum(axis=1).max())


def _product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    product = left @ right
    return product / product.sum(axis=1, keepdims=True)


def _along(
    P: np.ndarray, rows: np.ndarray, times: Sequence[int], reading: Callable[[np.ndarray], float]
) -> np.ndarray:
    """Readings of `rows P**t` at given times, each time reached from the one before it by squares of P."""
    asked = np.asarray(times, dtype=np.int64).reshape(-1)
    if (asked < 0).any():
        raise UserError("times must be at least 0 steps")
    squares, now, found = [P], 0, {}
    for time in np.unique(asked).tolist():
        gap, power = time - now, 0
        while gap:
            if power == len(squares):
                squares.append(_product(squares[-1], squares[-1]))
            if gap & 1:
                rows = _product(rows, squares[power])
            gap, power = gap >> 1, power + 1
        now, found[time] = time, reading(rows)
    return np.array([found[time] for time in asked.tolist()])

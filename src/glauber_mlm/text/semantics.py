"""What a chain's text is about: drift from its start, and visits to a region of topic scores.

Everything here works on embeddings, rows of unit length that some `Embedder` gives for decoded texts, and on scores in [0, 1] made from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA

from glauber_mlm.checks import LEVEL, SEED, a_number, a_whole, an_array, checked, optional, word_list
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import check_together, finite
from glauber_mlm.statistics.survival import wilson_interval

Floats = NDArray[np.float64]
_HITTING = 0x68697474  # keeps these draws apart from every other use of the same seed


class Embedder(Protocol):
    """Anything that maps texts to vectors, float of shape (k, d), rows of unit length."""

    def __call__(self, texts: list[str]) -> NDArray[np.floating]: ...


@checked(a=an_array(), b=an_array())
def cosine_distance(a: ArrayLike, b: ArrayLike) -> Floats:
    """``1 - cos(a, b)`` along the last axis, in [0, 2]; the other axes broadcast. The vectors need not have unit length.

    Raises
    ------
    UserError
        For a zero or non-finite vector, which has no direction.
    """
    first, second = _directions(a), _directions(b)
    check_together(a=first, b=second)
    return np.clip(1.0 - (first * second).sum(axis=-1), 0.0, 2.0)


def _directions(vectors: ArrayLike) -> Floats:
    values = np.atleast_1d(np.asarray(vectors, dtype=np.float64))
    lengths = np.linalg.norm(values, axis=-1, keepdims=True)
    if not np.isfinite(lengths).all() or (lengths == 0).any():
        raise UserError(
            "an embedding is zero or not finite, so it has no direction; check the text it was made from"
        )
    return values / lengths


@checked(embeddings=finite(3))
def drift(embeddings: ArrayLike) -> Floats:
    """Cosine distance of each chain to its own start.

    Parameters
    ----------
    embeddings : array, shape (chains, times, d)
        The first time is the start.

    Returns
    -------
    float64 array, shape (chains, times)
    """
    values = np.asarray(embeddings, dtype=np.float64)
    return cosine_distance(values, values[:, :1])


@checked(embeddings=finite(2), labels=word_list())
def unrelated_level(embeddings: ArrayLike, labels: Sequence[str]) -> tuple[float, float]:
    """Mean cosine distance over the pairs of passages of different topics, and its standard error.

    Pairs share passages, so the error is the jackknife over *passages*, not the spread over pairs.

    Parameters
    ----------
    embeddings : array, shape (k, d)
    labels : sequence of str, length k
        At least three passages and two topics.
    """
    values, topics = _directions(embeddings), np.asarray(labels)
    if len(values) != len(topics) or len(topics) < 3 or len(np.unique(topics)) < 2:
        raise UserError(
            "the unrelated level needs at least three passages of at least two topics, one label for each"
        )
    differ = topics[:, None] != topics[None, :]
    distance = np.where(differ, 1.0 - values @ values.T, 0.0)
    sums, counts = distance.sum(axis=1), differ.sum(axis=1)
    total, pairs = sums.sum() / 2, counts.sum() / 2
    remaining = pairs - counts
    if (remaining <= 0).any():
        raise UserError("one passage is in every pair; give each topic at least two passages")
    without = (total - sums) / remaining
    size = len(topics)
    error = math.sqrt((size - 1) / size * float(((without - without.mean()) ** 2).sum()))
    return float(total / pairs), error


@dataclass(frozen=True)
class HittingTime:
    """When the mean drift of an ensemble first reaches a level.

    Attributes
    ----------
    time : float or None
        First recorded time; None if it never does.
    low, high : float or None
        Bootstrap interval; None lies beyond the last recorded time.
    reached : float
        Share of the resampled ensembles that reach the level.
    """

    time: float | None
    low: float | None
    high: float | None
    reached: float


@checked(
    drifts=finite(2),
    times=finite(1),
    level=a_number(),
    seed=SEED,
    level_error=a_number(0),
    resamples=a_whole(1),
    confidence=LEVEL,
)
def semantic_hitting_time(
    drifts: ArrayLike,
    times: ArrayLike,
    level: float,
    seed: int = 0,
    *,
    level_error: float = 0.0,
    resamples: int = 2000,
    confidence: float = 0.95,
) -> HittingTime:
    """First time at which the **ensemble mean** of the drift reaches `level`.

    Not the mean of first touches: single chains overshoot by chance, and early. The mean tends to its limit from below, so a level *at* the limit may never
    be reached or be reached by noise; use a stated fraction of `unrelated_level`, and vary it.

    Parameters
    ----------
    drifts : array, shape (chains, times)
        At least one chain; the bootstrap (Philox) resamples chains.
    times : array, shape (times,)
        Ascending.
    level : float
    seed : int
        Not negative.
    level_error : float
        Standard error of `level`; each resample moves the level by a normal draw of that size.
    resamples : int
    confidence : float
    """
    values, moments = np.asarray(drifts, dtype=np.float64), np.asarray(times, dtype=np.float64)
    if moments.shape != values.shape[1:] or (np.diff(moments) <= 0).any():
        raise UserError(
            f"drifts {values.shape} and times {moments.shape} must be (chains, times) and as many ascending times"
        )
    padded = np.append(moments, math.inf)

    def first(means: Floats, threshold: ArrayLike) -> Floats:
        above = means >= np.asarray(threshold)
        return padded[np.where(above.any(axis=-1), above.argmax(axis=-1), len(moments))]

    generator = np.random.Generator(np.random.Philox([seed, _HITTING]))
    chains = len(values)
    counts = generator.multinomial(chains, np.full(chains, 1 / chains), size=resamples)
    thresholds = level + level_error * generator.standard_normal((resamples, 1))
    found = np.sort(first(counts @ values / chains, thresholds))
    tail = (1 - confidence) / 2
    estimate = float(first(values.mean(axis=0), level))
    ends = (found[math.floor(tail * (resamples - 1))], found[math.ceil((1 - tail) * (resamples - 1))])
    return HittingTime(
        *(float(value) if math.isfinite(value) else None for value in (estimate, *ends)),
        float(np.isfinite(found).mean()),
    )


@checked(
    scores=finite(2),
    threshold=a_number(),
    exit_threshold=optional(a_number()),
    tail=a_number(above=0, most=1),
)
def recurrence(
    scores: ArrayLike, threshold: float, exit_threshold: float | None = None, tail: float = 0.1
) -> pd.DataFrame:
    """How often each chain enters a region, returns to it, and ends in it.

    A visit begins at a recorded time at which the score is above `threshold` and ends at one at which it is at or below `exit_threshold`. What happens
    between recorded times is not seen, so entries and returns depend on the recording interval; a lower `exit_threshold` keeps a score that hovers about the
    threshold from being counted as many visits. Shares of time ask only whether the score is above `threshold`, so that they compare with `null_share`.

    Parameters
    ----------
    scores : array, shape (chains, times)
        For instance the probability of politics.
    threshold : float
    exit_threshold : float, optional
        At most `threshold`, which is the default.
    tail : float
        Share of the record, in (0, 1], that makes its end; at least the last time.

    Returns
    -------
    DataFrame, a row for each chain
        `starts_inside`; `entries` (times at which it comes in from outside); `returns` (entries after it had been inside before, at the start included);
        `visited` (was ever above the threshold); `share` (of the recorded times above it); `ends_inside` (above it at the last time); `final_share` (of the
        times of the tail above it).
    """
    values = np.asarray(scores, dtype=np.float64)
    leave = threshold if exit_threshold is None else exit_threshold
    if leave > threshold:
        raise UserError(f"exit_threshold is {leave}, above the threshold {threshold}; give at most that")
    above = values > threshold
    decided = above | (values <= leave)
    decided[:, 0] = True  # between the thresholds at the start counts as outside
    latest = np.maximum.accumulate(np.where(decided, np.arange(values.shape[1]), 0), axis=1)
    inside = np.take_along_axis(above, latest, axis=1)
    entries = (inside[:, 1:] & ~inside[:, :-1]).sum(axis=1)
    visited = inside.any(axis=1)
    last = max(1, round(tail * values.shape[1]))
    return pd.DataFrame(
        {
            "starts_inside": inside[:, 0],
            "entries": entries,
            "returns": entries - (visited & ~inside[:, 0]),
            "visited": visited,
            "share": above.mean(axis=1),
            "ends_inside": above[:, -1],
            "final_share": above[:, -last:].mean(axis=1),
        }
    )


@checked(scores=finite(), threshold=a_number())
def null_share(scores: ArrayLike, threshold: float) -> tuple[float, float, float]:
    """Share of null texts (token-shuffled, or of the corpus) above `threshold`, with its Wilson interval; they must be independent of one another."""
    values = np.asarray(scores, dtype=np.float64).reshape(-1)
    above = int((values > threshold).sum())
    return above / values.size, *wilson_interval(above, values.size)


@checked(reference=finite(2))
def pca_plane(reference: ArrayLike) -> PCA:
    """The plane of the two leading principal components of reference embeddings, shape (k, d), k at least 3.

    Fitted by a full SVD; the entry of largest modulus of each component is positive, so the picture does not flip between runs. Fit it on texts that
    do not depend on the chains shown (the labelled passages), or axes of several figures are not comparable.
    """
    values = np.asarray(reference, dtype=np.float64)
    if len(values) < 3 or values.shape[1] < 2:
        raise UserError(
            f"a plane needs at least three reference embeddings of width 2 or more, not {values.shape}"
        )
    plane = PCA(n_components=2, svd_solver="full").fit(values)
    largest = np.abs(plane.components_).argmax(axis=1)
    plane.components_ *= np.sign(plane.components_[np.arange(2), largest])[:, None]
    return plane

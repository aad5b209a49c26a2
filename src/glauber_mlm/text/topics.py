"""A topic scorer on sentence embeddings that may answer "none of these", and how well it does."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold

from glauber_mlm.checks import LEVEL, a_mask, a_number, a_whole, checked, choice, optional, word_list
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import finite
from glauber_mlm.statistics.survival import wilson_interval

NONE_OF_THESE = "none of these"
Floats = NDArray[np.float64]


class TopicScorer:
    """Multinomial logistic regression with an explicit class for text that is of no topic.

    Glauber chains leave the texts the scorer was trained on; without such a class every text would be of some topic. What the class has not been shown it
    need not recognise: check `accuracy_report` on corrupted texts too.

    Parameters
    ----------
    strength : float
        Inverse of the ridge penalty (scikit-learn's ``C``), positive. Classes are weighted equally, whatever their sizes, so a probability is not a base rate.

    Attributes
    ----------
    classes : tuple of str
        The columns of `predict_proba`: the topics in alphabetical order, then ``"none of these"``. Set by `fit`.
    """

    @checked(strength=a_number(above=0))
    def __init__(self, strength: float = 10.0) -> None:
        self.strength = strength
        self.classes: tuple[str, ...] = ()
        self._model: LogisticRegression | None = None

    @checked(embeddings=finite(2), labels=word_list(), none_embeddings=finite(2))
    def fit(self, embeddings: ArrayLike, labels: Sequence[str], none_embeddings: ArrayLike) -> TopicScorer:
        """Train on labelled passages and on texts of no topic.

        Parameters
        ----------
        embeddings : array, shape (k, d)
        labels : sequence of str, length k
            At least two topics.
        none_embeddings : array, shape (l, d)
            At least one: token-shuffled passages, random tokens.
        """
        values, nothing = (np.asarray(part, dtype=np.float64) for part in (embeddings, none_embeddings))
        topics = list(labels)
        if len(values) != len(topics) or len(set(topics)) < 2 or NONE_OF_THESE in topics:
            raise UserError(
                f"give one label for each of {len(values)} embeddings, at least two topics, none of them {NONE_OF_THESE!r}"
            )
        if values.shape[1] != nothing.shape[1]:
            raise UserError(
                f"passages have {values.shape[1]} dimensions, texts of no topic {nothing.shape[1]}; "
                "embed both alike"
            )
        self.classes = (*sorted(set(topics)), NONE_OF_THESE)
        codes = {name: code for code, name in enumerate(self.classes)}
        targets = np.array([codes[topic] for topic in topics] + [codes[NONE_OF_THESE]] * len(nothing))
        self._model = LogisticRegression(C=self.strength, class_weight="balanced", max_iter=2000).fit(
            np.concatenate([values, nothing]), targets
        )
        return self

    @checked(embeddings=finite())
    def predict_proba(self, embeddings: ArrayLike) -> Floats:
        """Probabilities of `classes`, shape (..., number of classes), for embeddings of shape (..., d)."""
        if self._model is None:
            raise UserError("this topic scorer is not trained; call fit first")
        values = np.atleast_1d(np.asarray(embeddings, dtype=np.float64))
        if values.shape[-1] != self._model.n_features_in_:
            raise UserError(
                f"embeddings have {values.shape[-1]} dimensions; "
                f"this scorer was trained on {self._model.n_features_in_}"
            )
        flat = self._model.predict_proba(values.reshape(-1, values.shape[-1]))
        return flat.reshape(*values.shape[:-1], len(self.classes))

    def score(self, embeddings: ArrayLike, topic: str) -> Floats:
        """Probability of one topic, shape (...)."""
        probabilities = self.predict_proba(embeddings)
        choice("topic", topic, self.classes)
        return probabilities[..., self.classes.index(topic)]

    @checked(embeddings=finite(2))
    def predict(self, embeddings: ArrayLike) -> list[str]:
        """The most probable class of each row of embeddings, shape (k, d)."""
        return [self.classes[code] for code in self.predict_proba(embeddings).argmax(axis=1)]

    def accuracy_report(
        self, embeddings: ArrayLike, labels: Sequence[str], groups: Sequence[str] | None = None
    ) -> pd.DataFrame:
        """Accuracy on labelled texts, as `accuracy_table` gives it; the texts must not have been trained on, nor be made from ones that were."""
        return accuracy_table(self.predict(embeddings), labels, groups)


@checked(predicted=word_list(), labels=word_list(1), groups=optional(word_list()), level=LEVEL)
def accuracy_table(
    predicted: Sequence[str], labels: Sequence[str], groups: Sequence[str] | None = None, level: float = 0.95
) -> pd.DataFrame:
    """Share of right answers for each label and overall (row "all"), with Wilson intervals.

    Parameters
    ----------
    predicted, labels : sequence of str, length k
    groups : sequence of str, optional
        The passage each text comes from. Texts of one passage are not independent, so the interval then counts passages, not texts (safe: as if a passage's
        texts were all right or all wrong together). Each text is its own passage by default.
    level : float

    Returns
    -------
    DataFrame
        Columns `label`, `texts`, `passages`, `correct`, `accuracy`, `low`, `high`.
    """
    sources = [str(place) for place in range(len(labels))] if groups is None else groups
    if not len(predicted) == len(labels) == len(sources):
        raise UserError(
            f"{len(predicted)} answers, {len(labels)} labels and {len(sources)} passages must be as many"
        )
    frame = pd.DataFrame(
        {
            "label": list(labels),
            "passage": sources,
            "right": [a == b for a, b in zip(predicted, labels, strict=True)],
        }
    )
    parts = [(str(label), part) for label, part in frame.groupby("label", sort=True)] + [("all", frame)]
    rows = []
    for label, part in parts:
        accuracy, passages = float(part["right"].mean()), int(part["passage"].nunique())
        # With fewer passages than texts the effective count of successes need not be whole: round outwards.
        effective = accuracy * passages
        low = wilson_interval(math.floor(effective + 1e-9), passages, level)[0]
        high = wilson_interval(math.ceil(effective - 1e-9), passages, level)[1]
        rows.append((label, len(part), passages, int(part["right"].sum()), accuracy, low, high))
    return pd.DataFrame(rows, columns=["label", "texts", "passages", "correct", "accuracy", "low", "high"])


@checked(
    embeddings=finite(2),
    labels=word_list(),
    groups=word_list(),
    trained=optional(a_mask(1)),
    folds=a_whole(2),
    strength=a_number(above=0),
)
def cross_validated_probabilities(
    embeddings: ArrayLike,
    labels: Sequence[str],
    groups: Sequence[str],
    trained: ArrayLike | None = None,
    folds: int = 4,
    strength: float = 10.0,
) -> Floats:
    """Class probabilities of every text from a scorer that has seen neither it nor any other text of its passage.

    A passage and every text made from it are all in training or all held out, so no text is scored by words that the scorer has learnt. Folds are balanced over
    labels and do not depend on a seed.

    Parameters
    ----------
    embeddings : array, shape (k, d)
    labels : sequence of str, length k
        Topics and ``"none of these"``.
    groups : sequence of str, length k
        The passage each text was made from; one of its own for a random-token text.
    trained : array of bool, shape (k,), optional
        Texts that the scorers are trained on; the others are only scored. All by default.
    folds : int
        2 to the number of passages.
    strength : float
        Of `TopicScorer`.

    Returns
    -------
    float64 array, shape (k, number of classes)
        Columns as `TopicScorer.classes`: topics in alphabetical order, then ``"none of these"``.
    """
    values, topics, sources = (
        np.asarray(embeddings, dtype=np.float64),
        np.asarray(labels, dtype=str),
        np.asarray(groups, dtype=str),
    )
    learnt = np.ones(len(values), dtype=bool) if trained is None else np.asarray(trained, dtype=bool)
    if not len(values) == len(topics) == len(sources) == len(learnt):
        raise UserError(
            f"{len(values)} embeddings, {len(topics)} labels and {len(sources)} passages must be as many"
        )
    if NONE_OF_THESE not in topics:
        raise UserError(f"cross-validation needs texts labelled {NONE_OF_THESE!r} as well as topics")
    fewest = min(len(set(sources[learnt & (topics == topic)])) for topic in set(topics))
    if not 2 <= folds <= fewest:
        raise UserError(
            f"folds={folds} is out of range; give 2 to {fewest}, the passages of the smallest class"
        )
    classes = [*sorted(set(topics) - {NONE_OF_THESE}), NONE_OF_THESE]
    found = np.zeros((len(topics), len(classes)))
    for train, held_out in StratifiedGroupKFold(n_splits=folds).split(values, topics, sources):
        train = train[learnt[train]]
        nothing = topics[train] == NONE_OF_THESE
        scorer = TopicScorer(strength).fit(
            values[train][~nothing], topics[train][~nothing].tolist(), values[train][nothing]
        )
        found[np.ix_(held_out, [classes.index(name) for name in scorer.classes])] = scorer.predict_proba(
            values[held_out]
        )
    return found

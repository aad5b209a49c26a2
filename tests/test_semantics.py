"""Passages, drift, topic scores and recurrence, on synthetic embeddings."""

import math
import re
from collections import Counter

import numpy as np
import pytest
from by_hand import philox
from hypothesis import given, settings
from hypothesis import strategies as st

from glauber_mlm.errors import UserError
from glauber_mlm.passages import load_passages, pick
from glauber_mlm.statistics.survival import wilson_interval
from glauber_mlm.text.semantics import (
    cosine_distance,
    drift,
    null_share,
    pca_plane,
    recurrence,
    semantic_hitting_time,
    unrelated_level,
)
from glauber_mlm.text.topics import (
    NONE_OF_THESE,
    TopicScorer,
    accuracy_table,
    cross_validated_probabilities,
)


def unit(values: np.ndarray) -> np.ndarray:
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


# Passages


def test_the_shipped_passages():
    passages = load_passages()
    topics = Counter(passage.topic for passage in passages)
    assert len(passages) >= 96 and len(topics) >= 6 and set(topics.values()) == {16}
    assert {"health", "sports", "food", "politics", "science", "history"} <= set(topics)
    assert (
        len({passage.id for passage in passages})
        == len({passage.text for passage in passages})
        == len(passages)
    )
    for passage in passages:
        assert 40 <= len(passage.text.split()) <= 80, passage.id
        assert passage.text.isascii() and passage.text.endswith(".") and passage.question.isascii(), (
            passage.id
        )
        assert passage.id.startswith(passage.topic), passage.id


def test_only_politics_is_political():
    """Chains from the other topics are meant to start outside the political region."""
    words = re.compile(
        r"\b(government|parliament\w*|election\w*|president\w*|minister\w*|voters?|votes?|politic\w*|senat\w*|congress|legislat\w*)\b",
        re.IGNORECASE,
    )
    political = [passage.topic for passage in load_passages() if words.search(passage.text)]
    assert set(political) == {"politics"} and len(political) >= 14


def test_load_some_topics():
    assert {passage.topic for passage in load_passages(["food", "sports"])} == {"food", "sports"}
    assert len(load_passages("food")) == 16
    with pytest.raises(UserError, match="astrology.*food"):
        load_passages(["astrology"])


def test_pick_is_balanced_nested_and_reproducible():
    passages = load_passages()
    topics = {passage.topic for passage in passages}
    drawn = pick(passages, 25, 7)
    counts = Counter(passage.topic for passage in drawn)
    assert set(counts) == topics and max(counts.values()) - min(counts.values()) == 1
    assert len({passage.id for passage in drawn}) == 25
    assert drawn == pick(passages, 25, 7) and drawn[:9] == pick(passages, 9, 7)
    assert drawn != pick(passages, 25, 8)
    assert all(a.topic != b.topic for a, b in zip(drawn, drawn[1:], strict=False))
    assert sorted(passage.id for passage in pick(passages, len(passages), 1)) == sorted(
        passage.id for passage in passages
    )
    assert pick(passages, 0, 1) == pick([], 0, 1) == []
    for count in (-1, len(passages) + 1):
        with pytest.raises(UserError):
            pick(passages, count, 0)


def test_pick_gives_every_passage_its_chance():
    passages = load_passages(["food", "sports"])
    hits = Counter(passage.id for seed in range(1600) for passage in pick(passages, 2, seed))
    # Each of 32 passages is in a draw with probability 1/16: 100 of 1,600.
    assert len(hits) == 32 and max(abs(count - 100) for count in hits.values()) < 4.5 * math.sqrt(100)


# Distances


def test_cosine_distance():
    a = np.array([[1.0, 0], [0, 2.0], [-3.0, 0], [1, 1]])
    np.testing.assert_allclose(cosine_distance(a, [5.0, 0]), [0, 1, 2, 1 - math.sqrt(0.5)])
    np.testing.assert_allclose(cosine_distance(a[:, None], a[None])[0], [0, 1, 2, 1 - math.sqrt(0.5)])
    for bad in ([0.0, 0.0], [math.nan, 1.0]):
        with pytest.raises(UserError):
            cosine_distance([1.0, 0.0], bad)


def test_drift():
    angles = np.array([[0, 60, 90], [10, 10, 190]]) * math.pi / 180
    np.testing.assert_allclose(
        drift(np.stack([np.cos(angles), np.sin(angles)], axis=-1)), [[0, 0.5, 1], [0, 0, 2]], atol=1e-12
    )
    with pytest.raises(UserError):
        drift(np.ones((3, 4)))


def test_unrelated_level_by_hand():
    vectors = np.array([[1.0, 0], [1, 0], [0, 1], [-1, 0]])
    mean, error = unrelated_level(vectors, ["a", "a", "b", "b"])
    assert mean == pytest.approx((1 + 2 + 1 + 2) / 4)
    without = [1.5, 1.5, 2.0, 1.0]
    assert error == pytest.approx(math.sqrt(3 / 4 * sum((value - 1.5) ** 2 for value in without)))
    with pytest.raises(UserError):
        unrelated_level(vectors, ["a"] * 4)
    with pytest.raises(UserError):
        unrelated_level(vectors, ["a", "b", "b", "b"])


def test_unrelated_level_error_is_that_of_the_mean_over_samples():
    """The jackknife error against the spread over fresh samples of passages; the naive error over pairs is several times too small."""
    generator, labels = philox(3), np.repeat(["a", "b", "c"], 12)
    estimates = [
        unrelated_level(unit(generator.standard_normal((36, 5)) + [0.8, 0, 0, 0, 0]), labels)
        for _ in range(300)
    ]
    spread = np.std([mean for mean, _ in estimates], ddof=1)
    assert np.mean([error for _, error in estimates]) == pytest.approx(spread, rel=0.2)


# Hitting time of the ensemble mean


def test_hitting_time_is_of_the_mean_not_of_first_touches():
    # Each chain touches 0.9 early and falls back; the mean reaches 0.6 at time 30 only.
    drifts = np.array([[0, 0.9, 0.1, 0.6, 0.7], [0, 0.1, 0.9, 0.6, 0.7]])
    found = semantic_hitting_time(drifts, [0, 10, 20, 30, 40], 0.6)
    assert found.time == 30 and found.low <= 30 <= found.high
    assert semantic_hitting_time(drifts, [0, 10, 20, 30, 40], 0.8).time is None
    same = semantic_hitting_time(np.repeat(drifts[:1], 5, axis=0), [0, 10, 20, 30, 40], 0.6)
    assert (same.time, same.low, same.high, same.reached) == (10, 10, 10, 1.0)


def test_hitting_time_interval():
    times, generator = np.arange(0, 500, 10), philox(4)

    def ensemble(chains: int) -> np.ndarray:
        return 1 - np.exp(-times / 100) + 0.3 * generator.standard_normal((chains, len(times))) * (times > 0)

    few, many = (semantic_hitting_time(ensemble(chains), times, 0.8, seed=1) for chains in (20, 2000))
    exact = 100 * math.log(5)
    assert few.low <= exact <= few.high and many.low - 10 <= exact <= many.high + 10
    assert many.high - many.low < few.high - few.low
    noisy = ensemble(20)
    assert semantic_hitting_time(noisy, times, 0.8, seed=1) == semantic_hitting_time(
        noisy, times, 0.8, seed=1
    )
    certain, doubtful = (
        semantic_hitting_time(noisy, times, 0.8, seed=1, level_error=error) for error in (0.0, 0.1)
    )
    assert doubtful.high is None or doubtful.high - doubtful.low > certain.high - certain.low
    never = semantic_hitting_time(noisy, times, 1.5)
    assert (never.time, never.low, never.high, never.reached) == (None, None, None, 0.0)
    with pytest.raises(UserError):
        semantic_hitting_time(noisy, times[:-1], 0.8)


# Topics


def labelled(
    generator: np.random.Generator, each: int, noise: float
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Texts about three directions of twelve, and texts about none of them."""
    labels = [topic for topic in ("food", "politics", "sports") for _ in range(each)]
    centres = np.eye(12)[[("food", "politics", "sports").index(label) for label in labels]]
    values = unit(centres + noise * generator.standard_normal(centres.shape))
    nothing = unit(np.eye(12)[3] + noise * generator.standard_normal((2 * each, 12)))
    return values, labels, nothing


def test_topic_scorer():
    generator = philox(5)
    scorer = TopicScorer()
    with pytest.raises(UserError, match="not trained"):
        scorer.predict_proba(np.ones((1, 12)))
    scorer.fit(*labelled(generator, 20, 0.15))
    assert scorer.classes == ("food", "politics", "sports", NONE_OF_THESE)
    values, labels, nothing = labelled(generator, 30, 0.15)
    assert scorer.predict_proba(values.reshape(3, 30, 12)).shape == (3, 30, 4)
    np.testing.assert_allclose(scorer.predict_proba(values).sum(axis=-1), 1)
    report = scorer.accuracy_report(
        np.concatenate([values, nothing]), labels + [NONE_OF_THESE] * 60
    ).set_index("label")
    assert report.loc["all", "accuracy"] > 0.95 and report.loc["all", "texts"] == 150
    assert report.loc[NONE_OF_THESE, "accuracy"] > 0.9
    right = int(report.loc["food", "correct"])
    assert tuple(report.loc["food", ["low", "high"]]) == pytest.approx(wilson_interval(right, 30))
    assert (
        scorer.score(values, "politics")[30:60].mean()
        > 0.7
        > 0.2
        > scorer.score(values, "politics")[:30].mean()
    )
    again = TopicScorer().fit(*labelled(philox(5), 20, 0.15))
    np.testing.assert_array_equal(again.predict_proba(values), scorer.predict_proba(values))
    with pytest.raises(UserError, match="politics"):
        scorer.score(values, "weather")
    with pytest.raises(UserError):
        TopicScorer().fit(values, labels[:-1], nothing)
    with pytest.raises(UserError):
        TopicScorer().fit(values, labels, nothing[:0])
    with pytest.raises(UserError):
        TopicScorer(0.0)


def test_accuracy_counts_passages_where_texts_share_them():
    table = accuracy_table(
        ["a"] * 8 + ["b"] * 4, ["a"] * 12, groups=[f"p{place // 4}" for place in range(12)]
    ).set_index("label")
    assert (table.loc["a", "texts"], table.loc["a", "passages"], table.loc["a", "correct"]) == (12, 3, 8)
    assert tuple(table.loc["a", ["low", "high"]]) == pytest.approx(wilson_interval(2, 3))
    uneven = accuracy_table(["a", "a", "b"], ["a"] * 3, groups=["p", "p", "q"]).set_index("label").loc["a"]
    assert uneven["low"] == pytest.approx(wilson_interval(1, 2)[0]) and uneven["high"] == pytest.approx(
        wilson_interval(2, 2)[1]
    )
    with pytest.raises(UserError):
        accuracy_table(["a"], ["a", "b"])


def cross_validated(values: np.ndarray, labels: list[str], groups: list[str], strength: float = 10.0):
    """Accuracy by cross-validation, by label."""
    classes = [*sorted(set(labels) - {NONE_OF_THESE}), NONE_OF_THESE]
    found = cross_validated_probabilities(values, labels, groups, strength=strength)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    return accuracy_table([classes[code] for code in found.argmax(axis=1)], labels, groups).set_index("label")


def test_cross_validation_holds_out_whole_passages():
    """Each passage has its own direction and a label that is pure chance: texts of a passage give it away unless it is held out whole."""
    generator, passages, copies = philox(6), 40, 4
    own = unit(generator.standard_normal((passages, 60)))
    values = unit(np.repeat(own, copies, axis=0) + 0.05 * generator.standard_normal((passages * copies, 60)))
    labels = np.repeat(
        [("a", "b", NONE_OF_THESE)[code] for code in generator.integers(0, 3, passages)], copies
    ).tolist()
    groups = np.repeat([f"p{place}" for place in range(passages)], copies).tolist()
    honest = cross_validated(values, labels, groups, strength=1000).loc["all"]
    leaking = cross_validated(
        values, labels, [str(place) for place in range(len(values))], strength=1000
    ).loc["all"]
    assert honest["low"] < 1 / 3 < honest["high"] < 0.75 and honest["passages"] == passages
    assert leaking["accuracy"] > 0.95


def test_texts_that_are_only_scored_are_not_trained_on():
    values, labels, nothing = labelled(philox(9), 8, 0.1)
    everything, names = (
        np.concatenate([values, nothing, values]),
        labels + [NONE_OF_THESE] * (len(nothing) + len(values)),
    )
    groups = [str(place) for place in range(len(values) + len(nothing))] + [
        str(place) for place in range(len(values))
    ]
    trained = np.arange(len(names)) < len(values) + len(nothing)
    found = cross_validated_probabilities(everything, names, groups, trained)
    assert found[~trained] == pytest.approx(
        found[: len(values)]
    )  # the same text in the same fold; trained on as none of these it would read so
    assert (found[~trained].argmax(axis=1) < 3).all()


def test_cross_validation_on_separable_texts_and_refusals():
    values, labels, nothing = labelled(philox(7), 8, 0.1)
    everything, names = np.concatenate([values, nothing]), labels + [NONE_OF_THESE] * len(nothing)
    groups = [str(place) for place in range(len(names))]
    assert cross_validated(everything, names, groups).loc["all", "accuracy"] > 0.95
    with pytest.raises(UserError, match="folds"):
        cross_validated_probabilities(everything, names, groups, folds=9)
    with pytest.raises(UserError, match="none of these"):
        cross_validated_probabilities(values, labels, groups[: len(labels)])
    with pytest.raises(UserError, match="as many"):
        cross_validated_probabilities(everything, names, groups[:-1])


# Recurrence


def test_recurrence_by_hand():
    scores = np.array(
        [
            [0.1, 0.9, 0.2, 0.8, 0.1, 0.1],  # comes, goes, returns, goes
            [0.9, 0.1, 0.9, 0.9, 0.1, 0.9],  # starts inside, returns twice, ends inside
            [0.1, 0.1, 0.2, 0.1, 0.3, 0.2],  # never
            [0.9, 0.9, 0.9, 0.9, 0.9, 0.9],  # always
        ]
    )
    table = recurrence(scores, 0.5, tail=1 / 3)
    assert table["entries"].tolist() == [2, 2, 0, 0]
    assert table["returns"].tolist() == [1, 2, 0, 0]
    assert table["starts_inside"].tolist() == [False, True, False, True]
    assert table["visited"].tolist() == [True, True, False, True]
    assert table["ends_inside"].tolist() == [False, True, False, True]
    np.testing.assert_allclose(table["share"], [1 / 3, 2 / 3, 0, 1])
    np.testing.assert_allclose(table["final_share"], [0, 0.5, 0, 1])


def test_a_lower_exit_joins_visits_of_a_hovering_score():
    scores = np.array([[0.4, 0.6, 0.45, 0.6, 0.45, 0.1, 0.45]])
    assert recurrence(scores, 0.5)["entries"].item() == 2
    joined = recurrence(scores, 0.5, exit_threshold=0.3)
    assert (
        joined["entries"].item() == 1
        and joined["share"].item() == pytest.approx(2 / 7)
        and not joined["ends_inside"].item()
    )
    for arguments in ({"exit_threshold": 0.6}, {"tail": 0.0}):
        with pytest.raises(UserError):
            recurrence(scores, 0.5, **arguments)
    with pytest.raises(UserError):
        recurrence(scores[0], 0.5)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40), st.floats(0.1, 0.9), st.floats(0, 1))
@settings(max_examples=100, deadline=None)
def test_recurrence_against_a_plain_loop(scores, threshold, ratio):
    leave, inside, before, entries, returns = ratio * threshold, False, False, 0, 0
    for place, score in enumerate(scores):
        now = score > threshold or (inside and score > leave)
        if now and not inside and place > 0:
            entries += 1
            returns += before
        inside, before = now, before or now
    row = recurrence([scores], threshold, leave).iloc[0]
    assert (row["entries"], row["returns"], row["visited"], row["ends_inside"]) == (
        entries,
        returns,
        before,
        scores[-1] > threshold,
    )
    assert row["share"] == pytest.approx(np.mean(np.array(scores) > threshold))


def test_null_share():
    assert null_share([0.1, 0.9, 0.5, 0.2], 0.5) == (0.25, *wilson_interval(1, 4))
    with pytest.raises(UserError):
        null_share([], 0.5)


# Plane


def test_pca_plane_does_not_flip():
    values = philox(8).standard_normal((40, 6)) * [5, 3, 1, 1, 1, 1]
    plane = pca_plane(values)
    largest = np.abs(plane.components_).argmax(axis=1)
    assert largest.tolist() == [0, 1] and (plane.components_[[0, 1], largest] > 0).all()
    for other in (values[::-1], np.concatenate([values, values])):
        np.testing.assert_allclose(pca_plane(other).components_, plane.components_, atol=1e-10)
    assert plane.transform(values).shape == (40, 2)
    mirrored = pca_plane(-values)
    np.testing.assert_allclose(mirrored.components_, plane.components_, atol=1e-10)
    with pytest.raises(UserError):
        pca_plane(values[:2])

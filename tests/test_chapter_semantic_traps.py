"""What the chapter on traps computes, against brute force and hand-made records."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
import torch
import xarray
from by_hand import ROUNDING, escape_by_hand, laws_by_hand, letters, longest_by_hand, philox, states_of
from scipy import stats
from statistics_helpers import P_VALUE, SIGMAS, seed_of
from tiny_models import TinyModels
from torch import Tensor

from glauber_mlm.chapters.semantic_traps import study as landscape
from glauber_mlm.chapters.semantic_traps import words as landscape_words
from glauber_mlm.chapters.theory_checks import study as theory
from glauber_mlm.conditionals.masked_lm import HEAD_TOLERANCE, MaskedLanguageModel
from glauber_mlm.conditionals.solvable import RandomJoint
from glauber_mlm.conditionals.stubs import Counting
from glauber_mlm.kernels import plain
from glauber_mlm.passages import Passage, load_passages
from glauber_mlm.randomness import RandomStream
from glauber_mlm.readings.stays import longest_stays
from glauber_mlm.statistics.survival import wilson_interval
from glauber_mlm.text import starts
from glauber_mlm.text.semantics import recurrence
from glauber_mlm.text.topics import NONE_OF_THESE, TopicScorer

pytest_plugins = ("tiny_fixtures",)

# Landscape: runs


COLD = 0.45


@pytest.fixture(scope="module")
def cold(
    tiny: TinyModels, tmp_path_factory: pytest.TempPathFactory
) -> tuple[MaskedLanguageModel, xarray.Dataset]:
    """Five chains of 300 steps on a tiny model in float64."""
    conditionals = tiny.conditionals("bert", 5, dtype="float64")
    states, _ = starts.starting_states(conditionals, 5, 3)
    return conditionals, landscape.run(
        tmp_path_factory.mktemp("cold"), conditionals, states, COLD, 300, 3, {"model": "tiny"}
    )


def path_of(dataset: xarray.Dataset, chain: int) -> np.ndarray:
    return states_of(
        dataset["initial"].values[chain], dataset["site"].values[:, chain], dataset["token"].values[:, chain]
    )


def test_a_run_is_the_plain_chain_of_its_cell(cold):
    conditionals, dataset = cold
    assert (
        dataset.sizes["step"] == 300
        and dataset.sizes["chain"] == 5
        and '"model": "tiny"' in dataset.attrs["run"]
    )
    states = torch.from_numpy(dataset["initial"].values.astype(np.int64))
    assert torch.equal(states, starts.starting_states(conditionals, 5, 3)[0])
    stream = RandomStream(3, starts.cell_chains(5, COLD, 5))
    _, record = plain.walk(conditionals, plain.initial_state(conditionals, states, COLD), stream, 0, 300)
    assert np.array_equal(dataset["site"].values, record.sites) and np.array_equal(
        dataset["token"].values, record.tokens
    )


def test_runs_are_found_again_by_what_decides_them(tmp_path):
    model, start = Counting(RandomJoint(4, 3, 1)), torch.zeros(2, 4, dtype=torch.int64)

    def run(
        temperature: float = 1.0, steps: int = 30, seed: int = 1, starts: Tensor = start
    ) -> tuple[xarray.Dataset, int]:
        model.reset()
        return landscape.run(tmp_path, model, starts, temperature, steps, seed, {}), model.rows

    first, rows = run()
    again, none = run()
    assert rows > 0 and none == 0 and first.identical(again)
    shorter, none = run(steps=20)
    assert none == 0 and np.array_equal(shorter["token"], first["token"][:20])
    longer, _ = run(steps=40)
    assert longer.sizes["step"] == 40 and np.array_equal(longer["token"][:30], first["token"])
    assert len(list(tmp_path.iterdir())) == 1
    for other in (run(temperature=1.1), run(seed=2), run(starts=start + 1)):
        assert other[1] > 0 and not np.array_equal(other[0]["token"], first["token"])
    assert len(list(tmp_path.iterdir())) == 4


def test_trajectories_are_decoded_and_embedded_in_place(cold):
    conditionals, dataset = cold
    path = landscape.trajectories(dataset, conditionals, 50, letters)
    assert path.times.tolist() == [0, 50, 100, 150, 200, 250, 300] and path.states.shape == (7, 5, 5)
    for chain in range(5):
        states = path_of(dataset, chain)[::50]
        assert np.array_equal(path.states[:, chain], states)
        assert path.texts[chain] == [conditionals.decode(row) for row in states]
        assert path.embeddings[chain] == pytest.approx(letters(path.texts[chain]))
        assert landscape.hamming_to_start(path)[chain].tolist() == [
            int((row != states[0]).sum()) for row in states
        ]
        assert landscape.changes(path)[chain].tolist() == [
            int((after != before).sum()) for before, after in itertools.pairwise(states)
        ]
    assert landscape.changes(path).any()


def test_stays_are_those_of_the_chain_and_their_centres_are_described_exactly(cold):
    conditionals, dataset = cold
    radius, minimum, top = 1, 8, 2
    table = landscape.stay_table(dataset, conditionals, COLD, radius, minimum, top)
    assert len(table) and table["length"].is_monotonic_decreasing and table["length"].min() >= minimum
    assert table.groupby("chain").size().max() <= top
    for chain in range(5):
        states = path_of(dataset, chain)
        part = table[table["chain"] == chain]
        longest = longest_by_hand(states, radius)
        assert part["length"].max() == longest if longest >= minimum else part.empty
        every = longest_stays(
            states[0],
            dataset["site"].values[:, chain],
            dataset["token"].values[:, chain],
            radius,
            minimum=5,
            top=None,
        )
        typical = np.median([stay.length for stay in every])
        for row in part.itertuples():
            (stay,) = [stay for stay in every if stay.start == row.start]
            assert (
                np.abs(states[stay.start : stay.end] != np.array(stay.centre)).sum(axis=1) <= radius
            ).all()
            assert row.censored == stay.censored == (stay.end == 300)
            assert row.text == conditionals.decode(stay.centre) and row.ratio == pytest.approx(
                row.length / typical
            )
            laws = laws_by_hand(conditionals, stay.centre)
            own = laws[np.arange(5), stay.centre]
            laws[np.arange(5), stay.centre] = 0
            margins = np.log(own) - np.log(laws.max(axis=1))
            assert (
                row.local_margin == pytest.approx(margins.min(), abs=ROUNDING)
                and row.argmax_fraction == (margins >= 0).mean()
            )
            assert row.escape == pytest.approx(escape_by_hand(conditionals, stay.centre, COLD), rel=1e-6)
            assert row.predicted == pytest.approx(1 / row.escape)
            assert row.kind == ("perfect" if (margins >= 0).all() else "approximate")
    nothing = landscape.stay_table(dataset, conditionals, COLD, radius, 301, top)
    assert nothing.empty and nothing.columns.tolist() == table.columns.tolist()


def test_first_dwells_have_their_exact_escapes_and_are_chosen_by_order(cold):
    conditionals, dataset = cold
    test, table = landscape.first_dwells_test(dataset, conditionals, COLD, dwells=4)
    rows = []
    for chain in range(5):
        states = path_of(dataset, chain)
        start = 0
        for _ in range(4):
            left = next(
                (t for t in range(start + 1, len(states)) if (states[t] != states[start]).any()), None
            )
            rows.append(
                (
                    (left or len(states) - 1) - start,
                    escape_by_hand(conditionals, states[start], COLD),
                    left is None,
                )
            )
            if left is None:
                break
            start = left
    assert table["length"].tolist() == [row[0] for row in rows] and table["censored"].tolist() == [
        row[2] for row in rows
    ]
    assert table["escape"].tolist() == pytest.approx([row[1] for row in rows], rel=1e-6)
    assert test.escapes == sum(not row[2] for row in rows) and test.expected == pytest.approx(
        sum(length * escape for length, escape, _ in rows), rel=1e-6
    )


def test_first_dwells_of_right_chains_pass_and_of_a_wrong_temperature_fail():
    model, temperature, groups, chains, steps = RandomJoint(4, 3, 8), 0.5, 60, 12, 120
    start = model.states()[philox(9).integers(81, size=groups * chains)]
    stream = RandomStream(17, range(groups * chains))
    _, record = plain.walk(model, plain.initial_state(model, start, temperature), stream, 0, steps)
    dataset = xarray.Dataset(
        {
            "initial": (("chain", "position"), start.numpy()),
            "site": (("step", "chain"), record.sites.numpy()),
            "token": (("step", "chain"), record.tokens.numpy()),
        }
    )
    z = [
        landscape.first_dwells_test(
            dataset.isel(chain=slice(k * chains, (k + 1) * chains)), model, temperature, 6
        )[0].z
        for k in range(groups)
    ]
    assert abs(np.sum(z)) < SIGMAS * math.sqrt(groups)
    assert (
        stats.chi2.cdf(np.square(z).sum(), groups) > P_VALUE
        and stats.chi2.sf(np.square(z).sum(), groups) > P_VALUE
    )
    everything = landscape.first_dwells_test(dataset, model, 1.2 * temperature, 6)[0]
    assert everything.p_value < P_VALUE and everything.z < 0


# Landscape: drift towards "!"


@pytest.mark.parametrize(
    ("dtype", "accuracy"),
    [
        ("float32", 4 * HEAD_TOLERANCE),  # two logits, at a temperature of 0.7
        ("float64", ROUNDING),
    ],
)
def test_exclamation_drift_is_that_of_every_site_enumerated(tiny: TinyModels, dtype: str, accuracy: float):
    conditionals = tiny.conditionals("bert", 5, dtype=dtype)
    mark = conditionals.tokenizer.convert_tokens_to_ids("!")
    states = landscape.random_states(conditionals, 3, seed=6)
    assert not (states == mark).any()
    levels, temperatures = (0, 2, 5), (0.7, 1.5)
    table = landscape.exclamation_drift(conditionals, states, levels, temperatures, seed=4, batch=7)
    assert len(table) == len(levels) * len(temperatures) * len(states)
    for row in table.itertuples():
        matches = 0
        for places in itertools.combinations(range(5), row.level):
            state = states[row.state].clone()
            state[list(places)] = mark
            laws = laws_by_hand(conditionals, state, row.temperature)
            others = np.delete(laws, mark, axis=1).sum(axis=1)
            up = sum(laws[site, mark] for site in range(5) if site not in places) / 5
            down = sum(others[site] for site in places) / 5
            matches += row.up == pytest.approx(up, rel=accuracy) and row.down == pytest.approx(
                down, rel=accuracy
            )
        assert matches == 1
        assert row.ratio == (pytest.approx(row.up / row.down) if row.down else math.inf)
    assert (table[table["level"] == 5]["up"] == 0).all() and (table[table["level"] == 0]["down"] == 0).all()
    again = landscape.exclamation_drift(conditionals, states, levels, temperatures, seed=4)
    assert again["up"].tolist() == pytest.approx(table["up"].tolist(), rel=accuracy)
    places = [
        landscape.exclamation_drift(conditionals, states, (2,), (1.0,), seed=seed)["up"].tolist()
        for seed in range(4)
    ]
    assert len({row[0] for row in places}) > 1


def test_marks_that_were_there_are_counted_and_an_even_race_has_ratio_one(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 4)
    mark = conditionals.tokenizer.convert_tokens_to_ids("!")
    states = landscape.random_states(conditionals, 2, seed=6)
    states[1] = mark
    before = states.clone()
    table = landscape.exclamation_drift(conditionals, states, (0, 1), (1.0,), seed=1)
    assert table["level"].tolist() == [0, 4, 1, 4] and torch.equal(states, before)

    def certain(logit: float) -> pd.DataFrame:
        class Certain(Counting):
            def logits(self, states: Tensor, sites: Tensor) -> Tensor:
                rows = torch.zeros(len(sites), conditionals.vocabulary)
                rows[:, mark] = logit
                return rows

        return landscape.exclamation_drift(Certain(conditionals), before, (0, 2), (1.0,), seed=1)

    always, never = certain(1e4), certain(-1e4)
    assert always[["level", "up", "down", "ratio"]].to_numpy().tolist() == [
        [0, 1, 0, math.inf],
        [4, 0, 0, 1],
        [2, 0.5, 0, math.inf],
        [4, 0, 0, 1],
    ]
    assert never[["level", "up", "down", "ratio"]].to_numpy().tolist() == [
        [0, 0, 0, 1],
        [4, 0, 1, 0],
        [2, 0, 0.5, 0],
        [4, 0, 1, 0],
    ]


def test_a_drift_in_words():
    assert (
        landscape_words.describe_drift([], math.nan, 0.5)
        == 'at no level do all sampled states drift towards more "!"'
    )
    assert (
        landscape_words.describe_drift([4], 1.5, 0.5)
        == "level N = 4 at tau = 0.5, worst ratio r = 1.5, r^(w+1) = r^1 = 1.5"
    )
    assert (
        landscape_words.describe_drift([4, 5, 6], 2.0, 1.0)
        == "levels N = 4 to 6 at tau = 1, worst ratio r = 2, r^(w+1) = r^3 = 8"
    )
    assert landscape_words.describe_drift([1, 2], 1e200, 0.1).endswith("r^2 = inf")


# Landscape: identity


def test_random_states_and_shuffles(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 10)
    states = landscape.random_states(conditionals, 400, seed=1)
    assert states.shape == (400, 10) and not np.isin(states.numpy(), conditionals.barred).any()
    counts = np.bincount(states.flatten().numpy(), minlength=conditionals.vocabulary)[
        theory.allowed_tokens(conditionals).numpy()
    ]
    assert stats.chisquare(counts).pvalue > P_VALUE
    mixed = landscape.shuffled(conditionals, states, seed=2)
    assert torch.equal(mixed.sort(dim=1).values, states.sort(dim=1).values) and not torch.equal(mixed, states)
    assert torch.equal(landscape.shuffled(conditionals, states, seed=2), mixed) and not torch.equal(
        landscape.shuffled(conditionals, states, seed=3), mixed
    )
    assert torch.equal(landscape.random_states(conditionals, 400, seed=1), states)


def test_likelihoods_of_starts_ends_and_shuffled_ends(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 6, dtype="float64")
    first, second, third = (landscape.random_states(conditionals, 3, seed=seed) for seed in (1, 2, 3))

    def by_hand(states: Tensor) -> list[float]:
        return [
            float(np.log(laws_by_hand(conditionals, state)[np.arange(6), state.numpy()]).mean())
            for state in states
        ]

    assert landscape.mean_log_likelihood(conditionals, first, batch=4).tolist() == pytest.approx(
        by_hand(first), rel=ROUNDING
    )
    table = landscape.likelihoods(
        conditionals,
        first,
        {1.0: third.numpy().astype(np.int32), 0.5: second.numpy().astype(np.int32)},
        seed=4,
    )
    assert table["temperature"].tolist() == [0.5] * 9 + [1.0] * 9 and table["chain"].tolist() == [0, 1, 2] * 6
    for temperature, ends in ((0.5, second), (1.0, third)):
        part = table[table["temperature"] == temperature].groupby("texts")["value"].apply(list)
        assert part["starts"] == pytest.approx(by_hand(first), rel=ROUNDING) and part[
            "ends"
        ] == pytest.approx(by_hand(ends), rel=ROUNDING)
        assert part["ends, shuffled"] == pytest.approx(
            by_hand(landscape.shuffled(conditionals, ends, 4)), rel=ROUNDING
        )


def likelihood_frame(gains: dict[float, list[float]]) -> pd.DataFrame:
    parts = []
    for temperature, gain in gains.items():
        for kind, values in (
            ("starts", [-2.0] * len(gain)),
            ("ends", gain),
            ("ends, shuffled", [0.0] * len(gain)),
        ):
            parts.append(
                pd.DataFrame(
                    {"temperature": temperature, "texts": kind, "chain": range(len(gain)), "value": values}
                )
            )
    return pd.concat(parts, ignore_index=True)


def test_identity_is_lost_or_kept_by_two_standard_errors_and_coherence_is_paired():
    generator = philox(12)
    late = generator.normal(0.8, 0.1, size=(10, 2))
    mean, error = late.mean(axis=1).mean(), late.mean(axis=1).std(ddof=1) / math.sqrt(10)
    record = np.concatenate([np.zeros((10, 18)), late], axis=1)
    gains = generator.normal(1.0, 1.0, size=10)
    width = gains.std(ddof=1) / math.sqrt(10)
    frame = likelihood_frame(
        {
            0.5: (gains - gains.mean() + 2.01 * width).tolist(),
            1.0: (gains - gains.mean() + 1.99 * width).tolist(),
        }
    )
    assert landscape.late_distance(record) == pytest.approx((mean, error))
    drifts, share = {0.5: record, 1.0: record}, landscape.IDENTITY_SHARE
    for level_error in (0.0, 0.05):
        reach = 2 * math.hypot(error, share * level_error)
        for late_level, lost, kept in (
            (mean - 1.001 * reach, True, False),
            (mean - 0.999 * reach, False, False),
            (mean + 0.999 * reach, False, False),
            (mean + 1.001 * reach, False, True),
        ):
            reached, below, coherent = landscape.identity(drifts, late_level / share, level_error, frame)
            assert (
                reached == {0.5: lost, 1.0: lost}
                and below == {0.5: kept, 1.0: kept}
                and coherent == {0.5: True, 1.0: False}
            )
    table = landscape_words.identity_table({0.5: record[:, -3:], 1.0: record[:, -1:]}, frame)
    assert table["τ"].tolist() == [0.5, 1.0]
    assert table["distance to the start"].tolist() == pytest.approx([late[:, 1].mean()] * 2)
    assert table["its standard error"].tolist() == pytest.approx([late[:, 1].std(ddof=1) / math.sqrt(10)] * 2)
    assert table["starts (nats per token)"].tolist() == [-2.0, -2.0] and table[
        "ends, shuffled (nats per token)"
    ].tolist() == [0.0, 0.0]
    assert table["ends (nats per token)"].tolist() == pytest.approx([2.01 * width, 1.99 * width])
    words = landscape_words.describe_identity({1.0: record, 0.5: np.full((2, 5), 0.25)}, 0.875)
    assert (
        words
        == f"mean distance to the start, last tenth: 0.25 ± 0.00 (tau = 0.5), {mean:.2f} ± {2 * error:.2f} (tau = 1); unrelated passages 0.88, 0.9 of that 0.79"
    )


# Landscape: stays in words


def stays_frame() -> pd.DataFrame:
    frame = pd.DataFrame(
        {
            "temperature": [0.5, 0.5, 0.5, 0.8],
            "length": [120, 400, 150, 130],
            "kind": ["perfect", "approximate", "perfect", "perfect"],
        }
    )
    frame = frame.assign(ratio=[12.0, 20.0, 5.0, 11.0], censored=[False, True, False, False])
    return frame.assign(
        argmax_fraction=1.0, local_margin=0.5, predicted=99.0, text=["a", "b", "c", "d"], chain=0
    )


def test_stays_are_listed_and_counted():
    best = landscape_words.longest_for_reading(stays_frame(), top=2)
    assert (
        best["stay (steps)"].tolist() == [">400", "150", "130"]
        and best["τ"].tolist() == [0.5, 0.5, 0.8]
        and best["text of the centre"].tolist() == ["b", "c", "d"]
    )
    assert best["times the median stay of its chain"].tolist() == [20, 5, 11] and best["kind"].tolist() == [
        "approximate",
        "perfect",
        "perfect",
    ]
    words = landscape_words.describe_stays(stays_frame(), steps=3000, chains=14, radius=2, shortest=100)
    assert "at least 100 steps within Hamming distance 2" in words and "end at 3,000 steps" in words
    assert (
        "τ = 0.5, 2 perfect and 1 approximate, the longest >400 steps; at τ = 0.8, 1 perfect and 0 approximate, the longest 130 steps"
        in words
    )
    counted = landscape_words.count_stays(
        stays_frame()
    )  # the stay of 150 steps is no trap: only five times the median
    assert counted.startswith(
        "2 perfect and 1 approximate stays of at least 100 steps and 10 times"
    ) and counted.endswith("longest stay of all >400 steps")
    nothing = stays_frame().iloc[:0]
    assert landscape_words.describe_stays(nothing, 3000, 14, 2, 100).startswith(
        "No stay of at least 100 steps"
    )
    assert landscape_words.count_stays(nothing) == "no stay of at least the shortest length"


# Landscape: topics and politics


def by_words(texts: list[str]) -> np.ndarray:
    """An embedder that tells nothing of topics: a random direction for each bag of letters, so a shuffle stands where its passage does."""
    vectors = np.array(
        [
            philox(seed_of("".join(sorted(text.replace(" ", "").replace("#", ""))))).normal(size=200)
            for text in texts
        ]
    )
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_a_topic_study_scores_no_text_by_its_own_passage(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 16)
    passages = load_passages()
    states = starts.passage_states(conditionals, passages)
    study = landscape.topic_study(conditionals, states, passages, by_words, seed=3)
    topics, half = sorted({passage.topic for passage in passages}), len(passages) // 2
    assert study.scorer.classes == (*topics, NONE_OF_THESE)
    assert study.passage_scores.shape == (2 * half, len(topics) + 1) and study.shuffled_scores.shape == (
        half,
        len(topics) + 1,
    )
    assert study.passage_scores.sum(axis=1) == pytest.approx(1, abs=ROUNDING) and study.shuffled_scores.sum(
        axis=1
    ) == pytest.approx(1, abs=ROUNDING)

    mixed = by_words([conditionals.decode(row) for row in landscape.shuffled(conditionals, states, 3)])
    words = by_words([conditionals.decode(row) for row in states])
    noise = by_words([conditionals.decode(row) for row in landscape.random_states(conditionals, half, 3)])
    assert np.allclose(mixed, words)
    direct = TopicScorer().fit(
        words, [passage.topic for passage in passages], np.concatenate([mixed[::2], noise])
    )
    assert study.scorer.predict_proba(words) == pytest.approx(direct.predict_proba(words), abs=1e-6)

    def advantage(scores: np.ndarray, owners: list[Passage]) -> float:
        """How far the true topic is scored above the other topics, in standard errors."""
        own = np.array([[passage.topic == topic for topic in topics] for passage in owners])
        part = scores[:, :-1]
        gain = part[own] - (part * ~own).sum(axis=1) / (len(topics) - 1)
        return float(gain.mean() / (gain.std(ddof=1) / math.sqrt(len(gain))))

    for scores, owners, vectors in (
        (study.shuffled_scores, passages[1::2], mixed[1::2]),
        (study.passage_scores[1::2], passages[1::2], words[1::2]),
    ):
        assert advantage(scores, owners) < SIGMAS < advantage(study.scorer.predict_proba(vectors), owners)
    report = study.held_out.set_index("label")
    assert report.loc[topics, "texts"].tolist() == [2 * half // len(topics)] * len(topics)
    assert report.loc[NONE_OF_THESE, "texts"] == report.loc[NONE_OF_THESE, "passages"] == 2 * half
    assert (
        report.loc["all", "texts"] == 4 * half and report.loc["all", "passages"] == 3 * half
    )  # a shuffle belongs to its passage
    named = study.passage_scores.argmax(axis=1)
    assert [int(report.loc[topic, "correct"]) for topic in topics] == [
        sum(named[k] == code for k, passage in enumerate(passages) if passage.topic == topic)
        for code, topic in enumerate(topics)
    ]


@pytest.fixture(scope="module")
def separable() -> landscape.TopicStudy:
    """A scorer of politics, food and nothing on three axes, with scores of eight shuffles."""
    corners = np.repeat(np.eye(3), 6, axis=0)
    scorer = TopicScorer(1000.0).fit(corners[:12], ["politics"] * 6 + ["food"] * 6, corners[12:])
    column = scorer.classes.index("politics")
    shuffled, ordered = np.zeros((8, 3)), np.zeros((16, 3))
    shuffled[:, column] = [0.9, 0.1, 0.8, 0.2, 0.9, 0.1, 0.7, 0.9]
    ordered[[0, 1, 8], column] = 0.9  # a passage of politics, and two of food that read like it
    return landscape.TopicStudy(scorer, pd.DataFrame(), ordered, shuffled)


def test_accuracy_along_chains_is_read_at_the_nearest_record(separable):
    politics, food, nothing = np.eye(3)
    embeddings = np.array(
        [[politics, politics, food], [food, nothing, nothing], [politics, politics, politics]]
    )
    path = landscape.Trajectories(
        np.array([0, 100, 200]), np.zeros((3, 3, 2), dtype=np.int32), [[""] * 3] * 3, embeddings
    )
    table = landscape.accuracy_along(separable, path, ["politics", "food", "politics"], [0, 120, 999])
    assert table["steps"].tolist() == [0, 100, 200] and table["texts"].eq(3).all()
    assert table["topic of the start named (share)"].tolist() == pytest.approx([1, 2 / 3, 1 / 3])
    assert table["none of these named (share)"].tolist() == pytest.approx([0, 1 / 3, 1 / 3])
    assert (table["95 % from"][1], table["95 % to"][1]) == wilson_interval(2, 3)


def test_nulls_leave_political_passages_out(separable):
    topics = ["politics", "food"] * 4 + [
        "food",
        "politics",
    ] * 4  # shuffles 1::2 are of food four times, then of politics
    passages = [Passage(str(k), topic, "?", "") for k, topic in enumerate(topics)]
    nulls = landscape.politics_nulls(separable, passages, threshold=0.5)
    assert nulls == {
        "shuffled passages": (0.5, *wilson_interval(2, 4)),
        "other topics": (2 / 8, *wilson_interval(2, 8)),
    }
    words = landscape_words.describe_nulls(nulls)
    low, high = wilson_interval(2, 4)
    assert f"shuffled passages 50.0% (95 % interval {low:.1%} to {high:.1%}); other topics 25.0%" in words
    assert landscape_words.describe_null_intervals(nulls).startswith(
        f"null, shuffled passages: [{low:.1%}, {high:.1%}]; null, other topics: ["
    )


def test_visits_count_chains_from_other_topics_with_a_lower_exit():
    scores = {
        1.0: np.array([[0.1, 0.9, 0.1, 0.9], [0.9, 0.9, 0.9, 0.9], [0.1, 0.6, 0.3, 0.6]]),
        0.5: np.array([[0.1, 0.1, 0.1, 0.1], [0.9, 0.9, 0.9, 0.9], [0.1, 0.9, 0.2, 0.1]]),
    }
    topics = ["food", "politics", "science"]
    pooled = landscape.pooled_visits(scores, topics, 0.5)
    assert pooled["temperature"].tolist() == [0.5, 0.5, 1.0, 1.0]
    assert pooled["entries"].tolist() == [
        0,
        1,
        2,
        1,
    ]  # 0.3 is above the exit at 0.25, so the last chain never leaves
    assert pooled["returns"].tolist() == [0, 0, 1, 0] and pooled["ends_inside"].tolist() == [
        False,
        False,
        True,
        True,
    ]
    assert pooled["share"].tolist() == [0, 0.25, 0.5, 0.5] and pooled["passage"].tolist() == [0, 2, 0, 2]
    direct = recurrence(scores[1.0][[0, 2]], 0.5, 0.25)
    pd.testing.assert_frame_equal(pooled.iloc[2:][direct.columns].reset_index(drop=True), direct)
    table = landscape_words.politics_visits(scores, topics, 0.5)
    assert table["τ"].tolist() == [0.5, 1.0] and table["chains from other topics"].tolist() == [2, 2]
    assert table["entries a chain"].tolist() == [0.5, 1.5] and table["returns a chain"].tolist() == [0, 0.5]
    assert table["chains that visit (share)"].tolist() == [0.5, 1.0] and table[
        "chains that end above it (share)"
    ].tolist() == [0, 1]
    assert table["time above the threshold (share)"].tolist() == [0.125, 0.5]
    assert (
        landscape_words.describe_visits(pooled)
        == "75% of chains from other topics visit, 25% return, 50% end there; share of time 31.2%"
    )
    share = landscape.share_of_time(pooled, seed=1)
    assert share == (
        0.3125,
        0.25,
        0.375,
    )  # passages, not chains, are resampled: their means are 0.25 and 0.375
    assert landscape_words.describe_share(share) == "share of time 31.2% (95 % interval 25.0% to 37.5%)"

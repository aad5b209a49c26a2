"""The bootstrap interval of a mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats
from statistics_helpers import P_VALUE

from glauber_mlm.errors import UserError
from glauber_mlm.statistics.bootstrap import mean_interval


def test_intervals_cover_at_their_level():
    generator = np.random.default_rng(16)
    covered = 0
    for trial in range(200):
        mean, low, high = mean_interval(generator.normal(0.7, 1, 60), seed=trial, resamples=400)
        assert low < mean < high
        covered += low <= 0.7 <= high
    assert stats.binomtest(covered, 200, 0.95).pvalue > P_VALUE


def test_intervals_of_skew_values_cover_a_little_less():
    generator, hits = np.random.default_rng(11), 0
    for seed in range(400):
        values = generator.exponential(size=30)
        mean, low, high = mean_interval(values, seed, resamples=400)
        assert mean == pytest.approx(values.mean()) and low <= mean <= high
        hits += low <= 1 <= high
    assert (
        0.87 < hits / 400 < 0.98
    )  # the percentile interval of 30 skew values covers a little less than it says


def test_intervals_are_seeded_and_take_tensors():
    values = torch.linspace(-1, 2, 31)
    assert (
        mean_interval(values, seed=1)
        == mean_interval(values.numpy(), seed=1)
        != mean_interval(values, seed=2)
    )
    mean, low, high = mean_interval(values, seed=1)
    narrow = mean_interval(values, seed=1, level=0.5)
    assert mean == pytest.approx(0.5) and low < narrow[1] < narrow[2] < high
    error = float(values.std()) / math.sqrt(31)
    assert high - low == pytest.approx(2 * 1.96 * error, rel=0.1)


def test_whole_groups_are_resampled():
    generator, trials = np.random.default_rng(12), 200
    groups = np.repeat(np.arange(40), 5)
    covered = {"grouped": 0, "single": 0}
    for trial in range(trials):
        values = 0.7 + np.repeat(generator.normal(size=40), 5) + 0.1 * generator.normal(size=200)
        for name, labels in (("grouped", groups), ("single", None)):
            _, low, high = mean_interval(values, trial, labels, resamples=400)
            covered[name] += low <= 0.7 <= high
    assert stats.binomtest(covered["grouped"], trials, 0.95).pvalue > P_VALUE
    assert stats.binomtest(covered["single"], trials, 0.95).pvalue < 1e-12  # 200 values that are worth 40
    mean, low, high = mean_interval([1.0, 1.0, 1.0, 5.0], 1, ["a", "a", "a", "b"])
    assert (mean, low, high) == (2, 1, 5)  # the mean of the values, not of the groups


def test_each_value_is_its_own_group_by_default():
    values = np.random.default_rng(13).normal(size=20)
    assert (
        mean_interval(values, 4)
        == mean_interval(values, 4, np.arange(20))
        == mean_interval(values, 4, [f"{k:02}" for k in range(20)])
    )


def test_one_group_says_nothing_of_its_error():
    assert mean_interval([0.0, 0.0, 0.0]) == (0, 0, 0)
    assert mean_interval([0.25]) == (0.25, -math.inf, math.inf)
    assert mean_interval([1.0, 2.0], 0, ["a", "a"]) == (1.5, -math.inf, math.inf)


@pytest.mark.parametrize(
    ("values", "options"),
    [
        ([], {}),
        ([1.0, math.nan], {}),
        ([[1.0]], {}),
        ([1.0, 2.0], {"groups": [1]}),
        ([1.0, 2.0], {"level": 1.0}),
    ],
)
def test_what_has_no_interval_is_refused(values, options):
    with pytest.raises(UserError):
        mean_interval(values, **options)

"""The small validator: what passes, what is refused, and in which words."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from glauber_mlm import checks
from glauber_mlm.errors import UserError


@pytest.mark.parametrize("value", [3, np.int32(3), np.uint8(3)])
def test_whole_numbers_pass_as_ints(value):
    found = checks.whole("steps", value, 1, 5)
    assert found == 3 and type(found) is int


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.int64(3)])
def test_numbers_pass_as_floats(value):
    found = checks.number("level", value, above=0)
    assert found == 3.0 and type(found) is float


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: checks.whole("steps", 7.9, 1), "steps is 7.9; give a whole number at least 1"),
        (
            lambda: checks.whole("seed", -1, 0, 2**64 - 1),
            "seed is -1; give a whole number at least 0 and at most 18,446,744,073,709,551,615",
        ),
        (lambda: checks.whole("steps", np.bool_(True)), "steps is True; give a whole number"),
        (
            lambda: checks.number("level", math.nan, above=0, below=1),
            "level is nan; give a finite number above 0 and below 1",
        ),
        (
            lambda: checks.number("level", 1, above=0, below=1),
            "level is 1; give a finite number above 0 and below 1",
        ),
        (
            lambda: checks.choice("coupling", "comon", ("maximal", "common")),
            "coupling is 'comon'; did you mean 'common'? allowed: maximal, common",
        ),
        (
            lambda: checks.choice("coupling", 3, ("maximal", "common")),
            "coupling is 3; allowed: maximal, common",
        ),
        (lambda: checks.flag("read", 1), "read is 1; give True or False"),
        (lambda: checks.word("name", " "), "name is ' '; give a text that is not empty"),
        (lambda: checks.listed("chains", "12"), "chains is '12'; give a list"),
        (lambda: checks.listed("chains", [], 1), "chains has 0 members; give a list of at least 1"),
        (lambda: checks.whole_numbers("chains", [0, 0.5]), r"chains[1] is 0.5; give a whole number"),
        (lambda: checks.numbers("levels", [0.5, None]), r"levels[1] is None; give a finite number"),
        (lambda: checks.path("folder", 3), "folder is 3; give a path"),
    ],
)
def test_refusals_say_what_came_and_what_is_allowed(call, message):
    with pytest.raises(UserError) as refused:
        call()
    assert str(refused.value) == message


def test_lists_tuples_ranges_and_arrays_are_lists():
    for values in ([1, 2], (1, 2), range(1, 3), np.array([1, 2]), torch.tensor([1, 2])):
        assert checks.whole_numbers("chains", values) == [1, 2]
    with pytest.raises(UserError, match="chains is"):
        checks.listed("chains", np.array(3))


def test_a_value_is_shown_on_one_short_line():
    assert "\n" not in checks.shown(torch.zeros(100, 100)) and len(checks.shown("x" * 1000)) < 80


def test_a_folder_that_cannot_be_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert checks.writable_folder("output", tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert not (tmp_path / "a").exists()
    for bad in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="file is a file"):
            checks.writable_folder("output", bad)

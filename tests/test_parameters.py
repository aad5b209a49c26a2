"""Parameters of chapters: what is refused, and how clearly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, get_args

import numpy as np
import pytest
import yaml
from pydantic import Field

from glauber_mlm.chapters.base import parameters
from glauber_mlm.chapters.base.parameters import (
    CHAPTERS,
    ChapterParameters,
    ChapterSpec,
    chapter_spec,
    validate,
)
from glauber_mlm.checks import nearest
from glauber_mlm.errors import UserError
from glauber_mlm.exact import curie_weiss as calibration
from glauber_mlm.exact import enumeration
from glauber_mlm.layout import find_repository_root, profile_path, profiles, repository_root
from glauber_mlm.passages import load_passages
from glauber_mlm.text import starts

ROOT = Path(__file__).parents[1]


class Example(ChapterParameters):
    temperature: Annotated[float, Field(gt=0)] = 1.0
    lengths: Annotated[list[Annotated[int, Field(ge=2)]], Field(min_length=1)] = [8, 16]
    rule: str | None = None


@pytest.fixture
def example(monkeypatch) -> str:
    monkeypatch.setitem(CHAPTERS, "example", ChapterSpec("example", "99_example", "Example", Example))
    return "example"


def message(chapter: str, **mapping) -> str:
    with pytest.raises(UserError) as caught:
        validate(chapter, mapping)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_and_given_values(example):
    checked = validate(example, {"temperature": 2, "lengths": [4], "revision": None})
    assert (checked.temperature, checked.lengths, checked.seed, checked.dtype) == (2.0, [4], 20260, "float32")
    assert validate("02_rectangle_test", {}) == validate("rectangle_test", {})


def test_an_unknown_parameter_names_the_nearest():
    text = message("rectangle_test", sed=7)
    assert text.startswith(
        "unknown parameter 'sed' of chapter rectangle_test; did you mean 'seed'? allowed: model, revision, "
    )
    assert "rectangles" in text


def test_an_unknown_parameter_with_nothing_near():
    assert message("rectangle_test", qqq=7).startswith(
        "unknown parameter 'qqq' of chapter rectangle_test; allowed: "
    )


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        (
            {"seed": -1},
            "parameter 'seed' of chapter example: input should be greater than or equal to 0, not -1",
        ),
        ({"seed": "7"}, "parameter 'seed' of chapter example: input should be a valid integer, not '7'"),
        ({"seed": True}, "parameter 'seed' of chapter example: input should be a valid integer, not True"),
        ({"seed": 7.0}, "parameter 'seed' of chapter example: input should be a valid integer, not 7.0"),
        (
            {"temperature": "1"},
            "parameter 'temperature' of chapter example: input should be a valid number, not '1'",
        ),
        (
            {"temperature": math.nan},
            "parameter 'temperature' of chapter example: input should be a finite number, not nan",
        ),
        (
            {"temperature": True},
            "parameter 'temperature' of chapter example: input should be a valid number, not True",
        ),
        (
            {"lengths": [8, 1]},
            "parameter 'lengths[1]' of chapter example: input should be greater than or equal to 2, not 1",
        ),
        ({"lengths": 8}, "parameter 'lengths' of chapter example: input should be a valid list, not 8"),
        (
            {"dtype": "float16"},
            "parameter 'dtype' of chapter example: input should be 'float32', 'float64' or 'bfloat16', not 'float16'",
        ),
        (
            {"device": "gpu"},
            "parameter 'device' of chapter example: input should be cpu, cuda or cuda:<index>, not 'gpu'",
        ),
        (
            {"device": "mps"},
            "parameter 'device' of chapter example: input should be cpu, cuda or cuda:<index>, not 'mps'",
        ),
    ],
)
def test_a_bad_value_is_named(example, mapping, expected):
    assert message(example, **mapping) == expected


@pytest.mark.parametrize(
    ("mapping", "expected"),
    [
        (
            {"every": 21, "steps": 80},
            "parameter 'every' of chapter semantic_traps: input should be at most 20, a quarter of the steps, not 21",
        ),
        (
            {"steps": 79},
            "parameter 'every' of chapter semantic_traps: input should be at most 19, a quarter of the steps, not 20",
        ),
        (
            {"length": 2},
            "parameter 'radius' of chapter semantic_traps: input should be less than 2, the length, not 2",
        ),
        (
            {"exclamation_levels": [1, 25]},
            "parameter 'exclamation_levels' of chapter semantic_traps: levels should be at most 24, the length, not [1, 25]",
        ),
        (
            {"chains": 113},
            "parameter 'chains' of chapter semantic_traps: input should be less than or equal to 112, not 113",
        ),
        (
            {"length": "8"},
            "parameter 'length' of chapter semantic_traps: input should be a valid integer, not '8'",
        ),
    ],
)
def test_parameters_of_chapter_4_fit_one_another(mapping, expected):
    assert message("semantic_traps", **mapping) == expected


def test_all_problems_are_told_at_once(example):
    assert len(message(example, seed=-1, tau=1, lengths=[]).split("; ")) >= 3


def test_parameters_cannot_be_changed_later(example):
    with pytest.raises(ValueError, match="frozen"):
        validate(example, {}).seed = 8


def test_an_unknown_chapter_names_the_nearest():
    with pytest.raises(
        UserError,
        match=r"unknown chapter 'rectangles'; did you mean 'rectangle_test'\? chapters: theory_checks, ",
    ):
        chapter_spec("rectangles")


def test_names_stems_and_defaults_are_consistent():
    assert [spec.stem for spec in CHAPTERS.values()] == [
        f"{number:02d}_{name}" for number, name in enumerate(CHAPTERS, start=1)
    ]
    for name, spec in CHAPTERS.items():
        assert validate(name, spec.parameters_class().model_dump()) == spec.parameters_class()


def test_nearest_is_silent_when_nothing_is_near():
    assert nearest("zzz", ["seed"]) == ";"


@pytest.mark.parametrize(
    ("chapter", "mapping", "expected"),
    [
        ("theory_checks", {"length": 3}, "'restricted_free' .* at most 3, the length, not 4"),
        (
            "theory_checks",
            {"restricted_free": 5, "restricted_tokens": 6},
            "'restricted_tokens' .* at most 5, ",
        ),
        ("theory_checks", {"restricted_free": 12}, "'restricted_tokens' .* at most 2, .* not 4"),
        ("mixing_times", {"temperatures": [1.0, 1e400]}, r"'temperatures\[1\]' .* a finite number, not inf"),
        ("mixing_times", {"temperatures": [1.0, 1e5]}, r"'temperatures\[1\]' .* less than or equal to 4000"),
        (
            "mixing_times",
            {"temperatures": [0, 1.0]},
            r"'temperatures\[0\]' .* greater than or equal to 0.000001",
        ),
        ("mixing_times", {"lengths": [4, 8, 4]}, r"'lengths' .* hold each value once, not \[4, 8, 4\]"),
        ("mixing_times", {"calibration_lengths": [8, 10**9]}, r"'calibration_lengths\[1\]' .* equal to 1024"),
        (
            "mixing_times",
            {"cap_multiple": 1e308},
            "'cap_multiple' .* less than or equal to 1000000, not 1e.308",
        ),
        ("mixing_times", {"seed": np.bool_(True)}, "'seed' .* a valid integer, not True"),
        ("rectangle_test", {"more_models": ["a", " "]}, r"'more_models\[1\]' "),
        ("rectangle_test", {"device": "cuda:٣"}, "'device' .* cpu, cuda or cuda:<index>"),
        ("semantic_traps", {"exclamation_levels": [3, 3]}, "'exclamation_levels' .* hold each value once"),
    ],
)
def test_what_makes_no_sense_is_refused_before_a_kernel_starts(chapter, mapping, expected):
    with pytest.raises(UserError, match=f"^parameter {expected}"):
        validate(chapter, mapping)


def test_numbers_of_numpy_are_those_of_python():
    found = validate(
        "mixing_times", {"seed": np.int32(7), "level": np.float64(0.25), "lengths": [np.int64(4), 8]}
    )
    assert (found.seed, found.level, found.lengths) == (7, 0.25, [4, 8])
    assert {type(value) for value in (found.seed, *found.lengths)} == {int} and type(found.level) is float


def test_of_a_long_list_one_member_is_named():
    text = message("mixing_times", lengths=[1] * 500, seed=-1)
    assert text.count("parameter ") == 2 and "'lengths[0]'" in text and len(text) < 300


def test_bounds_are_those_of_what_is_called():
    assert len(load_passages()) == parameters.PASSAGES
    assert parameters.LARGEST_CHAIN == enumeration.LARGEST_CHAIN
    last = parameters.LONGEST_STATE
    assert len(starts.cell_chains(last, parameters.HOTTEST, 4096)) == 4096
    assert not set(starts.cell_chains(4, parameters.COLDEST, 1)) & set(starts.cell_chains(4, 0.0, 1))
    with pytest.raises(UserError, match="temperature is"):
        starts.cell_chains(last, parameters.HOTTEST + 1, 1)
    limits = {name: upper(name) for name in ("calibration_lengths", "calibration_pairs")}
    assert limits == {"calibration_lengths": [calibration.LONGEST], "calibration_pairs": [4096]}


def upper(name: str) -> list[float]:
    """Upper bounds of a parameter of chapter 3, or of the members of one that is a list."""
    field = CHAPTERS["mixing_times"].parameters_class.model_fields[name]
    inner = (
        get_args(get_args(field.annotation)[0])[1].metadata if get_args(field.annotation) else field.metadata
    )
    return [limit.le for limit in inner if hasattr(limit, "le")]


def test_the_root_is_found_from_inside_and_missed_outside(tmp_path, monkeypatch):
    (tmp_path / "_toc.yml").touch()
    (tmp_path / "book" / "profiles" / "smoke").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "book")
    assert repository_root() == tmp_path.resolve() and profiles(tmp_path) == ["smoke"]
    (tmp_path / "_toc.yml").unlink()
    assert find_repository_root() is None
    with pytest.raises(UserError, match="inside a clone of the repository"):
        repository_root()


@pytest.mark.parametrize(
    ("profile", "name"), [(profile, name) for profile in profiles(ROOT) for name in CHAPTERS]
)
def test_shipped_profiles_are_valid(profile, name):
    values = yaml.safe_load(profile_path(ROOT, profile, CHAPTERS[name].stem).read_text()) or {}
    checked = validate(name, values | {"profile": profile})
    if profile == "cpu":
        assert checked == CHAPTERS[name].parameters_class(), (
            "the defaults of a chapter are the values of the cpu profile"
        )

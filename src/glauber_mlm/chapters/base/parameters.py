"""The chapters and their parameters: names, types, ranges.

A notebook takes any name that papermill injects, so a misspelt parameter would run with the default unseen. Each
chapter therefore declares its parameters here, and both the command line and the notebook itself check them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from glauber_mlm.checks import LARGEST, nearest, shown
from glauber_mlm.errors import UserError

PASSAGES = 112  # those that are shipped: chains and pairs start from passages of their own
LONGEST_STATE = 2**19  # tokens; chains of a grid are numbered so far
LARGEST_CHAIN = 4096  # states of an exact chain
COLDEST, HOTTEST = 1e-6, 4000.0  # chains of a grid are numbered by temperature, to 1e-6 and up to 4000
LARGEST_COUNT = 10**6  # of what is held in memory at once

Count = Annotated[int, Field(ge=1, le=LARGEST_COUNT)]
Steps = Annotated[int, Field(ge=1, le=10**7)]
Starts = Annotated[int, Field(ge=1, le=PASSAGES, description="each from a passage of its own")]
Tokens = Annotated[int, Field(ge=2, le=LONGEST_STATE)]
Temperature = Annotated[float, Field(ge=COLDEST, le=HOTTEST)]
Share = Annotated[float, Field(gt=0, lt=1)]
Name = Annotated[str, Field(pattern=r"\S")]


def _plain(value: Any) -> Any:
    found = value.item() if isinstance(value, np.generic) else value
    if isinstance(found, int) and abs(found) > LARGEST:
        raise ValueError(f"input should be a number of at most {LARGEST:,} in size")
    return found


class ChapterParameters(BaseModel):
    """Parameters that every chapter has.

    Types are strict (an int may stand for a float, numbers of numpy for those of Python; "3" and True may not
    stand for 3), and so is the set of names. A list holds each value once.
    The defaults of a chapter are the values of the `cpu` profile.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _of_python(cls, value: Any) -> Any:
        """Numbers of numpy as those of Python, for pydantic takes its True for 1; none beyond 64 bits."""
        return [_plain(member) for member in value] if isinstance(value, list) else _plain(value)

    @field_validator("*")
    @classmethod
    def _each_once(cls, value: Any) -> Any:
        """A value that stands twice in a list would be computed twice, or counted as two."""
        if isinstance(value, list) and len(set(value)) < len(value):
            raise ValueError("input should hold each value once")
        return value

    model: Annotated[
        Name, Field(description="embedded, one of glauber-mlm models, a hub id or a local folder")
    ] = "embedded"
    revision: Annotated[Name | None, Field(description="revision of a hub model")] = None
    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    device: Annotated[
        str, Field(pattern=r"^(cpu|cuda(:[0-9]{1,3})?)$", description="cpu, cuda or cuda:<index>")
    ] = "cpu"
    attention: Literal["eager", "sdpa"] = "sdpa"
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 20260
    profile: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$", description="recorded with the results")] = (
        "cpu"
    )
    output: Annotated[
        str, Field(pattern=r"^[^\x00]*$", description="results folder; empty: _build/manual/results")
    ] = ""


Certificate = Literal["float32", "float64"]  # certificates are never computed in bfloat16
Temperatures = Annotated[list[Temperature], Field(min_length=1, max_length=1000)]
Lengths = Annotated[list[Tokens], Field(min_length=1, max_length=1000)]


class TheoryChecks(ChapterParameters):
    """Chapter 1."""

    model_config = ConfigDict(
        validate_default=True
    )  # the default free sites, say, must fit a length that was given

    dtype: Certificate = "float32"
    length: Annotated[int, Field(ge=3, le=LONGEST_STATE, description="tokens in a state")] = 16
    restricted_chains: Starts = 4
    restricted_free: Annotated[int, Field(ge=2, le=12, description="free sites of a restricted chain")] = 4
    restricted_tokens: Annotated[int, Field(ge=2, description="tokens allowed at a free site")] = 4
    restricted_temperatures: Temperatures = [0.15, 0.25, 0.4, 0.6, 0.8, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0]
    influence_contexts: Starts = 8
    influence_temperatures: Temperatures = [0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0]
    margin_states: Starts = 32
    settle_sweeps: Annotated[
        int, Field(ge=1, le=10**4, description="sweeps at temperature 0 before margins are read")
    ] = 20
    escape_temperatures: Temperatures = [0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0]

    @field_validator("restricted_free", "restricted_tokens")
    @classmethod
    def _fits(cls, value: Any, info: ValidationInfo) -> Any:
        """Free sites are sites of the state, and a chain is small enough to be written out."""
        length, free = info.data.get("length"), info.data.get("restricted_free")
        if info.field_name == "restricted_free" and length is not None and value > length:
            raise ValueError(f"input should be at most {length}, the length")
        if info.field_name == "restricted_tokens" and free is not None and value**free > LARGEST_CHAIN:
            most = max(number for number in range(1, 65) if number**free <= LARGEST_CHAIN)
            raise ValueError(
                f"input should be at most {most}, for {free} free sites make a chain of up to 4,096 states"
            )
        return value


class RectangleTest(ChapterParameters):
    """Chapter 2."""

    dtype: Certificate = "float32"
    length: Annotated[Tokens, Field(description="tokens in a state")] = 16
    rectangles: Annotated[int, Field(ge=2, le=LARGEST_COUNT)] = 512
    control: Annotated[Name, Field(description="left_to_right, or a causal model by hub id or folder")] = (
        "left_to_right"
    )
    control_rectangles: Annotated[int, Field(ge=2, le=LARGEST_COUNT)] = 32
    more_models: Annotated[list[Name], Field(description="masked models of other sizes, for claim R3")] = []


class MixingTimes(ChapterParameters):
    """Chapter 3."""

    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    lengths: Lengths = [4, 8, 12]
    temperatures: Temperatures = [1.0, 1.2, 1.4, 1.6, 1.8, 2.2]
    pairs: Annotated[int, Field(ge=2, le=PASSAGES // 2, description="each from two passages of its own")] = 20
    cap_multiple: Annotated[float, Field(gt=0, le=10**6, description="cap in units of n log n steps")] = 25.0
    level: Annotated[Share, Field(description="share of pairs that defines tau*(n)")] = 0.5
    calibration_lengths: Annotated[
        list[Annotated[int, Field(ge=2, le=1024)]], Field(min_length=1, max_length=1000)
    ] = [8, 16, 32, 64]
    calibration_pairs: Annotated[int, Field(ge=2, le=4096)] = 60
    scaling_lengths: Lengths = [4, 8, 16, 32]
    scaling_temperature: Temperature = 3.0
    semantic_level: Annotated[
        Share, Field(description="share of the unrelated level that stops the semantic clock")
    ] = 0.9
    lag_sweeps: Annotated[int, Field(ge=1, le=10**4, description="lag of the lagged coupling, in sweeps")] = (
        10
    )
    cold_temperature: Temperature = 0.1
    cold_length: Tokens = 16
    cold_chains: Starts = 14
    cold_steps: Steps = 3000
    radius: Annotated[int, Field(ge=0, validate_default=True, description="Hamming radius of a stay")] = 2
    divergence_steps: Annotated[Count, Field(description="steps over which trajectories are compared")] = 200

    @field_validator("temperatures", "radius")
    @classmethod
    def _fits(cls, value: Any, info: ValidationInfo) -> Any:
        """Two temperatures bracket a crossing; a stay within the length of a state would be the whole record."""
        length = info.data.get("cold_length")
        if info.field_name == "temperatures" and len(value) < 2:
            raise ValueError("input should be at least two distinct temperatures")
        if info.field_name == "radius" and length is not None and value >= length:
            raise ValueError(f"input should be less than {length}, the cold_length")
        return value


class SemanticTraps(ChapterParameters):
    """Chapter 4."""

    model_config = ConfigDict(
        validate_default=True
    )  # a default radius, say, must fit a length that was given

    dtype: Literal["float32", "float64", "bfloat16"] = "float32"
    length: Annotated[Tokens, Field(description="tokens in a state")] = 24
    temperatures: Temperatures = [0.5, 0.8, 1.1]
    chains: Annotated[Starts, Field(ge=2)] = 14
    steps: Steps = 2000
    every: Annotated[int, Field(ge=1, description="steps between embeddings")] = 20
    radius: Annotated[int, Field(ge=0, description="Hamming radius of a stay")] = 2
    shortest_stay: Annotated[
        int, Field(ge=1, le=100, description="steps; claim S2 is decided by stays from 100 on")
    ] = 100
    dwells: Annotated[Count, Field(description="dwells of each chain in the escape test")] = 12
    politics_threshold: Share = 0.5
    exclamation_levels: Annotated[
        list[Annotated[int, Field(ge=0)]], Field(description='numbers of "!"; empty: 1 to the length - 1')
    ] = []
    exclamation_states: Annotated[Starts, Field(ge=2)] = 8
    exclamation_temperatures: Temperatures = [0.5, 1.0, 1.5]

    @field_validator("every", "radius", "exclamation_levels")
    @classmethod
    def _fits(cls, value: Any, info: ValidationInfo) -> Any:
        """Bounds that depend on parameters declared before; those that are themselves in error are not in `info.data`."""
        length, steps = info.data.get("length"), info.data.get("steps")
        if info.field_name == "every" and steps is not None and 4 * value > steps:
            raise ValueError(f"input should be at most {steps // 4}, a quarter of the steps")
        if info.field_name == "radius" and length is not None and value >= length:
            raise ValueError(f"input should be less than {length}, the length")
        if info.field_name == "exclamation_levels" and length is not None and max(value, default=0) > length:
            raise ValueError(f"levels should be at most {length}, the length")
        return value


class Scoreboard(ChapterParameters):
    """The page made from the claims ledger."""


@dataclass(frozen=True)
class ChapterSpec:
    """One chapter: its name, the stem of its files in `book/`, its title and its parameters."""

    name: str
    stem: str
    title: str
    parameters_class: type[ChapterParameters]


CHAPTERS: dict[str, ChapterSpec] = {
    spec.name: spec
    for spec in (
        ChapterSpec("theory_checks", "01_theory_checks", "Theory checks", TheoryChecks),
        ChapterSpec("rectangle_test", "02_rectangle_test", "The rectangle test", RectangleTest),
        ChapterSpec("mixing_times", "03_mixing_times", "Mixing times", MixingTimes),
        ChapterSpec("semantic_traps", "04_semantic_traps", "Semantic traps", SemanticTraps),
        ChapterSpec("scoreboard", "05_scoreboard", "Scoreboard", Scoreboard),
    )
}


def chapter_spec(name: str) -> ChapterSpec:
    """Find a chapter by name or by stem.

    Raises
    ------
    UserError
        If there is none; names the nearest.
    """
    for spec in CHAPTERS.values():
        if isinstance(name, str) and name in (spec.name, spec.stem):
            return spec
    raise UserError(f"unknown chapter {shown(name)}{nearest(name, CHAPTERS)} chapters: {', '.join(CHAPTERS)}")


def validate(chapter_name: str, mapping: Mapping[str, Any]) -> ChapterParameters:
    """Check the parameters of a chapter; those not given take their defaults.

    Raises
    ------
    UserError
        One line that names every parameter at fault, and of a list the first member.
    """
    spec = chapter_spec(chapter_name)
    if not isinstance(mapping, Mapping):
        raise UserError(
            f"parameters of chapter {spec.name} are {shown(mapping)}; give them by name, in a dict"
        )
    try:
        return spec.parameters_class.model_validate(dict(mapping))
    except ValidationError as error:
        first: dict[Any, Any] = {}  # problem of each parameter: of a long list one member will do
        for item in error.errors():
            first.setdefault(item["loc"][:1], item)
        raise UserError("; ".join(_problem(spec, dict(item)) for item in first.values())) from None


def _problem(spec: ChapterSpec, error: dict[str, Any]) -> str:
    name, *inside = (str(part) for part in error["loc"])
    allowed = list(spec.parameters_class.model_fields)
    if error["type"] == "extra_forbidden":
        return f"unknown parameter {name!r} of chapter {spec.name}{nearest(name, allowed)} allowed: {', '.join(allowed)}"
    message = error["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if error["type"] == "string_pattern_mismatch":
        message = f"input should be {spec.parameters_class.model_fields[name].description or message}"
    place = "".join(f"[{part}]" for part in inside if part.isdigit())
    return f"parameter {name + place!r} of chapter {spec.name}: {message}, not {shown(error['input'])}"

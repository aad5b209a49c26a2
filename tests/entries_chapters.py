"""Every parameter of every chapter, as the command line and a notebook check it."""

from __future__ import annotations

import math
import tempfile
from typing import Any, Literal, get_args, get_origin

import numpy as np
import torch
from bad_values import NO_LISTS, NO_NUMBERS, NO_WORDS, Entry, Kind
from pydantic.fields import FieldInfo

from glauber_mlm.chapters.base.chapter import open_chapter
from glauber_mlm.chapters.base.ledger import read_ledger
from glauber_mlm.chapters.base.parameters import CHAPTERS, chapter_spec, validate

NO_TEXTS = (True, 3, 1.5, math.nan, [], {}, b"word", object(), np.bool_(True), ["cpu"])
SPOILT_LISTS = (
    *NO_LISTS,
    (1, 2),
    np.array([3, 4]),
    torch.tensor([3, 4]),
    range(3, 5),
    {3, 4},
    [None],
    [True],
    [np.bool_(True)],
    [""],
    [[3, 4]],
    [3, [4]],
    [math.nan],
    [math.inf],
    [3, -1],
    [1j],
    [object()],
    [3, 3],
    [3.0, 3.0],
    [10**400],
    list(range(3, 2000)),
    "3,4",
)
# What the types and bounds of a field do not tell: bounds by other parameters, patterns.
FURTHER: dict[str, tuple[Any, ...]] = {
    "model": ("", " ", "\t"),
    "control": ("", " "),
    "revision": ("", " "),
    "more_models": ([""], [" "], [3], ["a", "a"]),
    "output": ("a\0b",),
    "profile": ("", "a b", "../cpu", "cpu\n", "cpu/smoke"),
    "device": (
        "",
        "gpu",
        "CPU",
        "cuda:",
        "cuda:-1",
        "cuda:x",
        "cpu:0",
        "cuda:0 ",
        "cuda:٣",
        "cuda:99999",
        "mps",
    ),
    "restricted_free": (13, 17),
    "restricted_tokens": (9, 4097),
    "radius": (24, 10**6),
    "every": (501, 2000),
    "exclamation_levels": ([25], [1, 1]),
    "temperatures": ([1.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [1.0, 1e5], [1.0, 1e-300]),
    "calibration_lengths": ([1025], [10**9], [1]),
}


def beyond(field: FieldInfo) -> tuple[float, ...]:
    """Values just outside the bounds of a field."""
    steps = {"ge": -1, "gt": 0, "le": 1, "lt": 0}
    return tuple(
        getattr(bound, side) + step
        for bound in field.metadata
        for side, step in steps.items()
        if hasattr(bound, side)
    )


def kind_of(name: str, field: FieldInfo) -> Kind:
    """What a parameter must refuse, from its annotation."""
    optional = type(None) in get_args(field.annotation)
    annotation = next(iter(get_args(field.annotation))) if optional else field.annotation
    further = (*(() if optional else (None,)), *FURTHER.get(name, ()), *beyond(field))
    numbers = tuple(value for value in NO_NUMBERS if value is not None)
    if get_origin(annotation) is Literal:
        words = tuple(value for value in NO_WORDS if value is not None)
        return Kind(
            (
                *further,
                *words,
                *(wrong for word in get_args(annotation) for wrong in (f"{word}x", word.upper())),
            )
        )
    if annotation is int:
        return Kind((*further, *numbers, 0.5, 2.0, np.float64(3.0), -1, -(10**30), 10**400, "1e3"))
    if annotation is float:
        return Kind((*further, *numbers, -1.0, -math.inf, 1e300, 10**400, "0.5", np.float32(math.nan)))
    if get_origin(annotation) is list:
        texts = get_args(annotation)[0] is str or str in get_args(get_args(annotation)[0])
        return Kind((*further, *SPOILT_LISTS, *(() if texts else (["1", "2"], ["a"]))))
    assert annotation is str or str in get_args(annotation), annotation
    return Kind((*further, *NO_TEXTS))


def accepted(field: FieldInfo) -> tuple[Any, ...]:
    """The default as numpy and a hurried user would write it."""
    default = field.default
    if isinstance(default, bool | str | None):
        return ()
    if isinstance(default, list):
        return ([np.array(value)[()] for value in default], default[::-1])
    return (np.int64(default), np.int32(default)) if isinstance(default, int) else (np.float64(default),)


def entries_of(chapter: str) -> list[Entry]:
    return [
        Entry(
            f"glauber_mlm.chapters.base.parameters.validate:{chapter}.{name}",
            lambda value, name=name: validate(chapter, {name: value}),
            lambda field=field: {"value": field.default},
            {"value": kind_of(name, field)},
            {"value": accepted(field)},
        )
        for name, field in CHAPTERS[chapter].parameters_class.model_fields.items()
    ]


CHAPTER = Kind(
    ("scorebord", "", None, 3, [], True, math.nan, b"scoreboard", "Scoreboard", np.array(["scoreboard", "b"]))
)
OUTPUT = tempfile.mkdtemp()
ENTRIES = [
    *(entry for chapter in CHAPTERS for entry in entries_of(chapter)),
    Entry(
        "glauber_mlm.chapters.base.parameters.validate",
        validate,
        lambda: {"chapter_name": "mixing_times", "mapping": {}},
        {
            "chapter_name": CHAPTER,
            "mapping": Kind(
                (None, 3, "seed", [], [("seed", 7)], {3: 4}, {"sed": 7}, {"seed": None}, {None: 1})
            ),
        },
    ),
    Entry(
        "glauber_mlm.chapters.base.parameters.chapter_spec",
        chapter_spec,
        lambda: {"name": "scoreboard"},
        {"name": CHAPTER},
    ),
    Entry(
        "glauber_mlm.chapters.base.chapter.open_chapter",
        open_chapter,
        lambda: {"name": "scoreboard", "namespace": {"output": OUTPUT}},
        {
            "name": CHAPTER,
            "namespace": Kind(
                (
                    None,
                    3,
                    "seed",
                    [],
                    [("seed", 7)],
                    {"seeed": 7},
                    {"seed": 7.5},
                    {"seed": True},
                    {"output": __file__},
                    {"output": f"{__file__}/below"},
                    {"output": "a\0b"},
                    {"device": "cuda:x"},
                    {"profile": "a b"},
                    {"dtype": "float16"},
                    {"length": 16},
                )
            ),
        },
    ),
    Entry(
        "glauber_mlm.chapters.base.ledger.read_ledger",
        read_ledger,
        lambda: {"results": OUTPUT},
        {"results": Kind((None, 3, "", [], True))},
    ),
]

"""Values that a parameter of each kind must refuse, and the table of entry points they are tried on; see `test_bad_input`.

A parameter of some kind refuses what is of another kind. Hypothesis adds further ones of the kinds that it can draw.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import strategies

NO_NUMBERS = (
    None,
    True,
    "7",
    "",
    b"7",
    [],
    [1],
    (1, 2),
    {},
    1 + 2j,
    math.nan,
    math.inf,
    -math.inf,
    10**400,
    object(),
    np.bool_(True),
    torch.ones(2),
)
NO_WORDS = (None, True, 3, 1.5, math.nan, [], ["maximal"], {}, "", b"word", object())
NO_LISTS = (True, 3, 1.5, math.nan, "12", b"12", {}, object())


@dataclass(frozen=True)
class Kind:
    """Values that a parameter must refuse.

    Attributes
    ----------
    bad : tuple
    more : strategy, optional
        Draws further ones.
    """

    bad: tuple[Any, ...]
    more: strategies.SearchStrategy | None = None

    def but(self, *allowed: Any) -> Kind:
        """The same without `allowed`, compared by `is` or by type and value: None where a parameter may be left out, say."""
        kept = tuple(
            value
            for value in self.bad
            if not any(
                value is good or (type(value) is type(good) and not hasattr(value, "shape") and value == good)
                for good in allowed
            )
        )
        return Kind(kept, self.more)

    def also(self, *bad: Any) -> Kind:
        """The same with further values."""
        return Kind((*self.bad, *bad), self.more)


_FRACTIONS = strategies.floats(allow_nan=False, allow_infinity=False)
_TEXTS = strategies.text(max_size=12)


def whole(least: int | None = None, most: int | None = None) -> Kind:
    """A whole number in [least, most]. 2.0 is none."""
    beyond = [
        value
        for value in (None if least is None else least - 1, None if most is None else most + 1)
        if value is not None
    ]
    return Kind((*NO_NUMBERS, 0.5, 2.0, 10.5, np.float64(3.0), *beyond), _FRACTIONS | _TEXTS)


def number(*beyond: float) -> Kind:
    """A finite number; `beyond` are some out of range."""
    return Kind((*NO_NUMBERS, *beyond), _TEXTS)


def choice(*words: str) -> Kind:
    """One of some words: each misspelt is refused."""
    return Kind(
        (
            *NO_WORDS,
            *(
                wrong
                for word in words
                for wrong in (word[:-1], f"{word}{word[-1]}", word.upper(), f" {word}")
            ),
        ),
        _TEXTS.filter(lambda text: text not in words),
    )


def word() -> Kind:
    """A text that is not empty."""
    return Kind((*NO_WORDS, " "))


def listed(*bad_members: Any, least: int = 1) -> Kind:
    """A list of at least `least` members; each of `bad_members` spoils it."""
    short = ((), []) if least else ()
    return Kind((None, *NO_LISTS, *short, *([member] for member in bad_members)))


TEMPERATURE = Kind(
    (
        None,
        True,
        "1.0",
        "",
        1 + 2j,
        math.nan,
        math.inf,
        -1.0,
        -1,
        1e-300,
        {},
        object(),
        [],
        [[1.0]],
        [True],
        ["1"],
        [math.nan],
        [None],
        [1.0] * 7,
        torch.ones(1, 1),
    ),
    _TEXTS,
)


@dataclass(frozen=True)
class Entry:
    """A public entry point with arguments that work.

    Attributes
    ----------
    name : str
        As it is imported: module and name, for instance "glauber_mlm.randomness.RandomStream".
    call : callable
        Called with keyword arguments.
    good : callable
        Gives arguments that work, made afresh.
    kinds : mapping of str to Kind
        By parameter.
    accepts : mapping of str to tuple
        Values of other types that are documented to be taken: they must not be refused.
    """

    name: str
    call: Callable[..., Any]
    good: Callable[[], dict[str, Any]]
    kinds: Mapping[str, Kind]
    accepts: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)

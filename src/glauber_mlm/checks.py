"""What comes from outside, looked at once: a value of another kind is refused in one line, never turned into one that fits.

Public functions, the command line and the notebooks' parameters use these where a value enters. Inside the engine types are trusted.
Python's and numpy's numbers are numbers alike; True and "7" are none, and 7.0 is not the whole number 7.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import json
import math
import os
import reprlib
import sys
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from glauber_mlm.errors import UserError

Rule = Callable[[str, Any], Any]  # from the name of an argument and its value to the value, or a UserError
F = TypeVar("F", bound=Callable[..., Any])
LARGEST = 2**63 - 1  # of a whole number, where nothing less is said
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 60


def shown(value: Any) -> str:
    """A value as it would be typed, on one line and short."""
    return " ".join(_SHORT.repr(value.item() if isinstance(value, np.generic) else value).split())


def nearest(word: object, words: Iterable[str], cutoff: float = 0.5) -> str:
    """`"; did you mean '...'?"` for the word nearest to `word`, or `";"` if none is near."""
    close = difflib.get_close_matches(word, list(words), n=1, cutoff=cutoff) if isinstance(word, str) else []
    return f"; did you mean {close[0]!r}?" if close else ";"


def is_number(value: Any) -> bool:
    """Whether `value` is a real number of Python or numpy that a float can hold; True, NaN and 10**400 are none."""
    real = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    plain = value.item() if isinstance(value, np.generic) else value
    return real and (plain in (math.inf, -math.inf) or abs(plain) <= sys.float_info.max)


def whole(name: str, value: Any, least: int | None = None, most: int | None = None) -> int:
    """`value` as an int, if it is a whole number in [least, most]; of an end that is None, in 64 bits.

    Raises
    ------
    UserError
        For anything else: 7.0, "7", True, None, a list.
    """
    if not isinstance(value, int | np.integer) or isinstance(value, bool):
        raise UserError(f"{name} is {shown(value)}; give a whole number{_between(least, most)}")
    low, high = -LARGEST if least is None else least, LARGEST if most is None else most
    if not low <= value <= high:
        # An end that nobody set is told only where it is what was passed.
        beyond = (least if value > high else low, high if value > high else most)
        raise UserError(f"{name} is {shown(value)}; give a whole number{_between(*beyond)}")
    return int(value)


def number(
    name: str,
    value: Any,
    least: float | None = None,
    most: float | None = None,
    *,
    above: float | None = None,
    below: float | None = None,
) -> float:
    """`value` as a float, if it is a finite number in [least, most] and in (above, below).

    Raises
    ------
    UserError
        For anything else: NaN, infinity, "1.0", True, None, a complex number, a list.
    """
    real = is_number(value)
    ends = (
        (
            least is None or value >= least,
            most is None or value <= most,
            above is None or value > above,
            below is None or value < below,
        )
        if real
        else ()
    )
    if not real or not math.isfinite(value) or not all(ends):
        raise UserError(
            f"{name} is {shown(value)}; give a finite number{_between(least, most, above, below)}"
        )
    return float(value)


def choice(name: str, value: Any, allowed: Iterable[str]) -> str:
    """`value`, if it is one of the words `allowed`.

    Raises
    ------
    UserError
        Naming the nearest word.
    """
    words = list(allowed)
    if not isinstance(value, str) or value not in words:
        raise UserError(f"{name} is {shown(value)}{nearest(value, words)} allowed: {', '.join(words)}")
    return value


def flag(name: str, value: Any) -> bool:
    """`value`, if it is True or False.

    Raises
    ------
    UserError
    """
    if not isinstance(value, bool | np.bool_):
        raise UserError(f"{name} is {shown(value)}; give True or False")
    return bool(value)


def word(name: str, value: Any) -> str:
    """`value`, if it is a text that is not empty.

    Raises
    ------
    UserError
    """
    if not isinstance(value, str) or not value.strip():
        raise UserError(f"{name} is {shown(value)}; give a text that is not empty")
    return value


def listed(name: str, values: Any, least: int = 0) -> list[Any]:
    """The members of a list, tuple, range or array, at least `least` of them; a text is no list of its characters, and
    a set has no order.

    Raises
    ------
    UserError
    """
    if (
        isinstance(values, str | bytes | Mapping | Set)
        or not hasattr(values, "__iter__")
        or getattr(values, "ndim", 1) == 0
    ):
        raise UserError(f"{name} is {shown(values)}; give a list{_as_many(least)}")
    members = values.tolist() if hasattr(values, "tolist") else list(values)
    if len(members) < least:
        raise UserError(f"{name} has {len(members)} members; give a list{_as_many(least)}")
    return members


def whole_numbers(
    name: str, values: Any, least: int | None = None, most: int | None = None, *, members: int = 0
) -> list[int]:
    """A list of at least `members` whole numbers in [least, most]; see `whole`.

    Raises
    ------
    UserError
        Naming the first member that is none.
    """
    return [
        whole(f"{name}[{place}]", value, least, most)
        for place, value in enumerate(listed(name, values, members))
    ]


def numbers(
    name: str,
    values: Any,
    least: float | None = None,
    most: float | None = None,
    *,
    members: int = 0,
    **ends: float,
) -> list[float]:
    """A list of at least `members` finite numbers in [least, most]; see `number` for `ends`.

    Raises
    ------
    UserError
        Naming the first member that is none.
    """
    return [
        number(f"{name}[{place}]", value, least, most, **ends)
        for place, value in enumerate(listed(name, values, members))
    ]


def path(name: str, value: Any) -> Path:
    """`value` as a Path, if it is a text that is not empty or a path.

    Raises
    ------
    UserError
    """
    if not isinstance(value, str | os.PathLike) or not str(value).strip() or "\0" in str(value):
        raise UserError(f"{name} is {shown(value)}; give a path")
    return Path(value)


def writable_folder(name: str, value: Any) -> Path:
    """`value` as the path of a folder that is there and takes files, or that can be made; nothing is made.

    Raises
    ------
    UserError
        If it, or what it would lie in, is a file or refuses files.
    """
    folder = path(name, value)
    there = next(
        place
        for place in (folder.absolute(), *folder.absolute().parents)
        if place.exists() or place.is_symlink()
    )
    if not there.is_dir():
        raise UserError(f"{name} {folder} cannot be a folder, for {there} is a file; choose another place")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(
            f"{name} {folder} cannot be written, for {there} refuses files; choose another place, or change its permissions"
        )
    return folder


def _between(
    least: float | None, most: float | None, above: float | None = None, below: float | None = None
) -> str:
    """What is allowed, in words."""
    low = f"at least {least:,}" if least is not None else f"above {above:,}" if above is not None else ""
    high = f"at most {most:,}" if most is not None else f"below {below:,}" if below is not None else ""
    return "".join((" " if low or high else "", " and ".join(filter(None, (low, high)))))


def _as_many(least: int) -> str:
    return f" of at least {least}" if least else ""


def array(name: str, value: Any, ndim: int | None = None, kinds: str = "iuf", what: str = "numbers") -> Any:
    """`value` as it is, if it is an array (or nested list) of numbers with `ndim` axes.

    Raises
    ------
    UserError
        For text, objects, complex numbers, True and False, lists of unequal lengths, or another number of axes.
    """
    axes = "" if ndim is None else f" with {ndim} axes" if ndim > 1 else " with 1 axis"
    try:
        found = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        found = np.empty(0, dtype=object)
    if (
        found.dtype.kind not in kinds
        and not (found.size == 0 and found.dtype.kind == "f")
        or (ndim is not None and found.ndim != ndim)
    ):
        raise UserError(f"{name} is {shown(value)}; give an array of {what}{axes}")
    return value


def checked(**rules: Rule) -> Callable[[F], F]:
    """Look at named arguments of a public function before it runs; the function gets what the rules return.

    Parameters
    ----------
    **rules : callable
        By argument. Defaults that are not given are not looked at.
    """

    def guard(function: F) -> F:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            for name, rule in rules.items():
                if name in bound.arguments:
                    bound.arguments[name] = rule(name, bound.arguments[name])
            return function(*bound.args, **bound.kwargs)

        return guarded  # type: ignore[return-value]

    return guard


def a_whole(least: int | None = None, most: int | None = None) -> Rule:
    """Rule: see `whole`."""
    return lambda name, value: whole(name, value, least, most)


def a_number(least: float | None = None, most: float | None = None, **ends: float) -> Rule:
    """Rule: see `number`."""
    return lambda name, value: number(name, value, least, most, **ends)


def one_of(*words: str) -> Rule:
    """Rule: see `choice`."""
    return lambda name, value: choice(name, value, words)


def a_list(members: int = 0) -> Rule:
    """Rule: see `listed`."""
    return lambda name, values: listed(name, values, members)


def whole_list(least: int | None = None, most: int | None = None, *, members: int = 0) -> Rule:
    """Rule: see `whole_numbers`."""
    return lambda name, values: whole_numbers(name, values, least, most, members=members)


def number_list(
    least: float | None = None, most: float | None = None, *, members: int = 0, **ends: float
) -> Rule:
    """Rule: see `numbers`."""
    return lambda name, values: numbers(name, values, least, most, members=members, **ends)


def word_list(members: int = 0) -> Rule:
    """Rule: a list of texts that are not empty."""
    return lambda name, values: [
        word(f"{name}[{place}]", value) for place, value in enumerate(listed(name, values, members))
    ]


def an_array(ndim: int | None = None) -> Rule:
    """Rule: see `array`."""
    return lambda name, value: array(name, value, ndim)


def a_mask(ndim: int = 1) -> Rule:
    """Rule: an array of True and False, or of 1 and 0; see `array`."""

    def rule(name: str, value: Any) -> Any:
        array(name, value, ndim, "biu", "True and False")
        if not np.isin(np.asarray(value), (0, 1)).all():
            raise UserError(f"{name} is {shown(value)}; give an array of True and False")
        return value

    return rule


def an_instance(*types: type) -> Rule:
    """Rule: an instance of one of these types."""
    names = " or ".join(kind.__name__ for kind in types)

    def rule(name: str, value: Any) -> Any:
        if not isinstance(value, types):
            raise UserError(f"{name} is {shown(value)}; give a {names}")
        return value

    return rule


def optional(rule: Rule) -> Rule:
    """Rule: None, or what `rule` lets pass."""
    return lambda name, value: None if value is None else rule(name, value)


def a_json(name: str, value: Any) -> Any:
    """Rule: a dict that has a JSON form, as it reads back from it (tuples are lists there).

    Raises
    ------
    UserError
        For objects, NaN and infinity.
    """
    try:
        if not isinstance(value, Mapping):
            raise TypeError("no dict")
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(
            f"{name} is {shown(value)} ({error}); give a dict that can be written as JSON"
        ) from None


a_flag, a_word, a_path = flag, word, path
SEED = a_whole(0, 2**64 - 1)
BATCH = a_whole(1)
LEVEL = a_number(above=0, below=1)

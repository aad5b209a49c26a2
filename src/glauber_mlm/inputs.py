"""Rules for arrays and for what one study hands to the next, and generators of one seed for several purposes.

A rule is as in `glauber_mlm.checks`: from the name of an argument and its value to the value, or a UserError
of one line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch

from glauber_mlm.checks import Rule, array, listed, number, shown, whole
from glauber_mlm.conditionals.protocol import Conditionals, check_states, of_conditionals
from glauber_mlm.errors import UserError


def generator(seed: int, purpose: int) -> np.random.Generator:
    """A Philox generator for one purpose of a seed; both in [0, 2**64), neither rounded."""
    return np.random.Generator(np.random.Philox(key=np.array([seed, purpose], dtype=np.uint64)))


def finite(
    ndim: int | None = None, least: float | None = None, most: float | None = None, **ends: float
) -> Rule:
    """Rule: an array of finite numbers, at least one, in the range of `glauber_mlm.checks.number`."""

    def rule(name: str, value: Any) -> Any:
        found = np.asarray(array(name, value, ndim), dtype=np.float64)
        if found.size == 0:
            raise UserError(f"{name} is empty, of shape {found.shape}; give at least one number")
        for end in (found.min(), found.max()):  # NaN comes through either
            number(f"a value of {name}", end, least, most, **ends)
        return value

    return rule


def whole_array(ndim: int | None = None, least: int | None = None, members: int = 0) -> Rule:
    """Rule: an array of whole numbers of at least `least`, at least `members` of them."""

    def rule(name: str, value: Any) -> Any:
        found = np.asarray(array(name, value, ndim, "iu", "whole numbers"))
        if found.size < members:
            raise UserError(f"{name} has {found.size} members; give at least {members}")
        if found.size and least is not None:
            whole(f"a value of {name}", found.min(), least)
        return value

    return rule


def labels(name: str, value: Any) -> Any:
    """Rule: a list of names or of whole numbers."""
    return array(name, value, 1, "iuU", "names or whole numbers")


def a_callable(name: str, value: Any) -> Any:
    """Rule: something that can be called."""
    if not callable(value):
        raise UserError(f"{name} is {shown(value)}; give a function")
    return value


def a_state_list(name: str, value: Any) -> Any:
    """Rule: a tensor of at least one state, int64 of shape (K, n)."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.int64 or value.ndim != 2 or not len(value):
        raise UserError(f"{name} is {shown(value)}; give a tensor of token ids, int64 of shape (states, n)")
    return value


def a_text_model(name: str, value: Any) -> Any:
    """Rule: conditionals whose states are texts."""
    if not hasattr(of_conditionals(name, value), "decode"):
        raise UserError(
            f"{name} is {shown(value)}, whose states are no texts; "
            "give the conditionals of a masked language model"
        )
    return value


def check_some_states(conditionals: Conditionals, states: torch.Tensor) -> None:
    """Refuse states that the conditionals cannot take, and no states."""
    check_states(conditionals, states)
    if not len(states):
        raise UserError(f"states have shape {tuple(states.shape)}: there are none; give at least one state")


def check_together(**arrays: Any) -> None:
    """Refuse arrays whose shapes cannot be broadcast."""
    shapes = {name: np.shape(value) for name, value in arrays.items()}
    try:
        np.broadcast_shapes(*shapes.values())
    except ValueError:
        told = " and ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise UserError(
            f"the shapes of {told} do not go together; give equal ones, or axes of length 1"
        ) from None


def a_table(*columns: str) -> Rule:
    """Rule: a DataFrame of at least one row with these columns."""

    def rule(name: str, value: Any) -> Any:
        if not isinstance(value, pd.DataFrame):
            raise UserError(f"{name} is {shown(value)}; give a DataFrame with {', '.join(columns)}")
        missing = [column for column in columns if column not in value.columns]
        if missing or value.empty:
            raise UserError(
                f"{name} has {len(value)} rows and lacks {', '.join(missing) or 'rows'}; "
                f"give a DataFrame with {', '.join(columns)}"
            )
        return value

    return rule


def keyed(key: Rule, member: Rule, members: int = 1) -> Rule:
    """Rule: a dict of at least `members` values that `member` lets pass, by keys that `key` lets pass."""

    def rule(name: str, value: Any) -> Any:
        if not isinstance(value, Mapping) or len(value) < members:
            raise UserError(f"{name} is {shown(value)}; give a dict with at least {members} entries")
        for one, held in value.items():
            key(f"a key of {name}", one)
            member(f"{name}[{shown(one)}]", held)
        return value

    return rule


def record(**fields: Rule) -> Rule:
    """Rule: a dict that has these fields, each of which its rule lets pass."""

    def rule(name: str, value: Any) -> Any:
        if not isinstance(value, Mapping) or not set(fields) <= set(value):
            raise UserError(f"{name} is {shown(value)}; give a dict with {', '.join(fields)}")
        for field, member in fields.items():
            member(f"{name}[{field!r}]", value[field])
        return value

    return rule


def pair(first: Rule, second: Rule) -> Rule:
    """Rule: a tuple or list of two."""

    def rule(name: str, value: Any) -> Any:
        if not isinstance(value, tuple | list) or len(value) != 2:
            raise UserError(f"{name} is {shown(value)}; give a pair")
        first(f"{name}[0]", value[0])
        second(f"{name}[1]", value[1])
        return value

    return rule


def list_of(member: Rule, members: int = 0) -> Rule:
    """Rule: a list of at least `members` values that `member` lets pass."""
    return lambda name, values: [
        member(f"{name}[{place}]", value) for place, value in enumerate(listed(name, values, members))
    ]


def vectors_of(embed: Callable[[list[str]], np.ndarray], texts: Sequence[str]) -> np.ndarray:
    """What an embedder gives for texts: float of shape (texts, d), refused if it is anything else."""
    vectors = np.asarray(finite(2)("what the embedder gives", embed(list(texts))))
    if len(vectors) != len(texts):
        raise UserError(
            f"the embedder gives {len(vectors)} vectors for {len(texts)} texts; one is needed for each"
        )
    return vectors

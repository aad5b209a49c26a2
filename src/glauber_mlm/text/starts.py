"""Starting states from passages."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from glauber_mlm.checks import SEED, a_number, a_whole, an_instance, checked, listed
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.errors import UserError
from glauber_mlm.passages import Passage, load_passages, pick


def _passage_list(name: str, values: object) -> list[Passage]:
    """Rule of `checks.checked`: a list of passages."""
    one = an_instance(Passage)
    return [one(f"{name}[{place}]", value) for place, value in enumerate(listed(name, values))]


@checked(passages=_passage_list)
def passage_states(conditionals: MaskedLanguageModel, passages: Sequence[Passage]) -> Tensor:
    """The first n tokens of each passage; words that the model never samples are left out, with one warning.

    Returns
    -------
    Tensor of int64, shape (K, n)

    Raises
    ------
    UserError
        If a passage has fewer than n tokens.
    """
    rows = []
    with warnings.catch_warnings(record=True) as dropped:
        warnings.simplefilter("always")
        coded = [conditionals.encode(passage.text, unknown="drop") for passage in passages]
    if dropped:
        warnings.warn(
            f"{len(dropped)} of {len(passages)} passages have words that this model never samples; these were dropped",
            stacklevel=3,
        )
    for passage, tokens in zip(passages, coded, strict=True):
        if len(tokens) < conditionals.length:
            raise UserError(
                f"passage {passage.id} has {len(tokens)} tokens, fewer than the length {conditionals.length}; choose a "
                "smaller length"
            )
        rows.append(tokens[: conditionals.length])
    return torch.tensor(rows, dtype=torch.int64)


@checked(count=a_whole(0), seed=SEED)
def starting_states(conditionals: MaskedLanguageModel, count: int, seed: int) -> tuple[Tensor, list[Passage]]:
    """States from `count` distinct passages, balanced over topics; neighbours in the list differ in topic."""
    passages = pick(load_passages(), count, seed)
    return passage_states(conditionals, passages), passages


@checked(pairs=a_whole(1), seed=SEED)
def starting_pairs(conditionals: MaskedLanguageModel, pairs: int, seed: int) -> tuple[Tensor, Tensor]:
    """First and second states of `pairs` pairs, from 2 x `pairs` different passages, the two of a pair of different topics.

    Raises
    ------
    UserError
        If there are not so many passages, or a pair would share its topic.
    """
    states, passages = starting_states(conditionals, 2 * pairs, seed)
    if any(first.topic == second.topic for first, second in zip(passages[::2], passages[1::2], strict=True)):
        raise UserError(
            f"{pairs} pairs cannot be drawn from the passages with two topics in each; ask for fewer"
        )
    return states[::2], states[1::2]


@checked(length=a_whole(1, 2**19), temperature=a_number(0, 4000), count=a_whole(0, 2**12))
def cell_chains(length: int, temperature: float, count: int) -> range:
    """Chain numbers of a grid cell: cells of other lengths or temperatures (to 1e-6) have other randomness, whatever else is in the grid."""
    first = (length << 44) + (round(temperature * 1e6) << 12)
    return range(first, first + count)

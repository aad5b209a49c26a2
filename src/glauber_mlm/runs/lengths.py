"""Chains of different lengths: one batch, and one run on disk, for each length.

Sequences are never padded to a common length: a pad token is context, and a model asked with it answers for another sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import xarray
from torch import Tensor

from glauber_mlm.atomic import output_folder
from glauber_mlm.checks import SEED, a_list, a_whole, an_instance, checked, listed, whole_numbers
from glauber_mlm.conditionals.protocol import Conditionals, check_states, of_conditionals
from glauber_mlm.errors import UserError
from glauber_mlm.kernels.sampling import check_temperatures
from glauber_mlm.randomness import MOST_STEPS
from glauber_mlm.runs.chains import run_chains


@dataclass(frozen=True)
class Bucket:
    """The sequences of one length.

    Attributes
    ----------
    places : tuple of int
        Where they stood among all sequences, in increasing order.
    tokens : Tensor of int64, shape (B, n)
    """

    places: tuple[int, ...]
    tokens: Tensor


def bucket_by_length(sequences: Sequence[Sequence[int] | Tensor]) -> dict[int, Bucket]:
    """Group token sequences by length, shortest first.

    Raises
    ------
    UserError
        If a sequence is empty, or is not a sequence of whole numbers in [0, 2**31).
    """
    rows = [_token_ids(sequence, place) for place, sequence in enumerate(listed("sequences", sequences))]
    places: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(len(row), []).append(place)
    return {
        length: Bucket(tuple(places[length]), torch.stack([rows[place] for place in places[length]]))
        for length in sorted(places)
    }


def _token_ids(sequence: Sequence[int] | Tensor, place: int) -> Tensor:
    try:
        ids = whole_numbers(f"sequence {place}", sequence, 0, 2**31 - 1, members=1)
    except UserError as error:
        raise UserError(f"{error}; each sequence holds token ids, so encode texts first") from None
    return torch.tensor(ids, dtype=torch.int64)


@checked(
    folder=output_folder,
    conditionals_at=an_instance(Callable),
    sequences=a_list(),
    steps=a_whole(1, MOST_STEPS),
    seed=SEED,
)
def run_lengths(
    folder: Path,
    conditionals_at: Callable[[int], Conditionals],
    sequences: Sequence[Sequence[int] | Tensor],
    temperature: float | Sequence[float],
    *,
    seed: int,
    steps: int,
    **options: Any,
) -> dict[int, xarray.Dataset | None]:
    """Run chains from sequences of any lengths, those of one length together, in `folder`/length-<n>.

    Parameters
    ----------
    folder : Path
    conditionals_at : callable
        Conditionals on n sites, given n; for instance `models.load().conditionals`.
    sequences : sequence of token id sequences
        The chain from `sequences[k]` has number k, so it is the same chain whatever other sequences are given.
    temperature : float or sequence of float
        One for all chains, or one for each.
    seed : int
    steps : int
        Of each chain, in [1, 2**31): a longer one makes fewer sweeps.
    **options
        As of `run_chains`, but for `chains`.

    Returns
    -------
    dict
        Length to what `run_chains` returns; its `chain_number` is the place among `sequences`.

    Raises
    ------
    UserError
        As `bucket_by_length` and `run_chains` do; for what is wrong with any of the lengths, before the
        first chain starts.
    """
    if "chains" in options:
        raise UserError(
            "chains are numbered by the place of their sequence; leave out `chains`, or call run_chains for each length"
        )
    buckets = bucket_by_length(sequences)
    if not buckets:
        raise UserError("no starting sequences; give at least one")
    temperatures = check_temperatures(temperature, len(sequences)).tolist()
    folders = {
        length: output_folder("the folder of a run", folder / f"length-{length:03d}") for length in buckets
    }
    conditionals = {
        length: of_conditionals(f"conditionals_at({length})", conditionals_at(length)) for length in buckets
    }
    for length, bucket in buckets.items():  # all of them before the first chain starts
        check_states(conditionals[length], bucket.tokens)
    return {
        length: run_chains(
            folders[length],
            conditionals[length],
            bucket.tokens,
            [temperatures[place] for place in bucket.places],
            seed=seed,
            steps=steps,
            chains=bucket.places,
            **options,
        )
        for length, bucket in buckets.items()
    }

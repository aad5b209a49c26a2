"""Conditionals made to provoke: for tests of the engine and for benches, not models of anything."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from glauber_mlm.checks import (
    SEED,
    a_number,
    a_whole,
    an_instance,
    array,
    checked,
    optional,
    shown,
    whole,
    whole_list,
)
from glauber_mlm.conditionals.protocol import LARGEST_SIZE, Conditionals, check_device, of_conditionals
from glauber_mlm.errors import UserError


def _token_ids(name: str, value: Any) -> Any:
    return array(name, value, 2, "iu", "token ids")


class _Stub:
    """What the stubs have in common: all sites free, float32 or float64 rows."""

    @checked(length=a_whole(1, LARGEST_SIZE), vocabulary=a_whole(2, LARGEST_SIZE))
    def __init__(
        self, length: int, vocabulary: int, dtype: torch.dtype, device: torch.device | str, description: str
    ) -> None:
        if not isinstance(dtype, torch.dtype) or dtype not in (torch.float32, torch.float64):
            raise UserError(f"rows of {shown(dtype)} are not offered; take torch.float32 or torch.float64")
        self.length, self.vocabulary, self.dtype = length, vocabulary, dtype
        self.device = check_device("device", device)
        self.free_sites = torch.arange(self.length, device=self.device)
        self.fingerprint = hashlib.sha256(
            f"{type(self).__name__}|{length}|{vocabulary}|{dtype}|{description}".encode()
        ).hexdigest()

    def _check_token(self, token: int) -> int:
        return whole("token", token, 0, self.vocabulary - 1)


class _FixedRow(_Stub):
    """One row of logits for every site and context."""

    _row: Tensor

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        """See `Conditionals.logits`."""
        return self._row.expand(len(sites), -1).clone()


class MaskLover(_FixedRow):
    """Logit 10,000 on the favourites and 0 elsewhere: what is not barred is never drawn beside them.

    Parameters
    ----------
    length, vocabulary : int
    favourites : sequence of int
        Ids that a sampler must bar, such as [MASK] and [unused5].
    dtype : torch.dtype
        float32 or float64.
    device : torch.device or str
    """

    @checked(favourites=whole_list())
    def __init__(
        self,
        length: int,
        vocabulary: int,
        favourites: Sequence[int],
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(length, vocabulary, dtype, device, repr(sorted(favourites)))
        self._row = torch.zeros(self.vocabulary, dtype=dtype, device=self.device)
        self._row[[self._check_token(token) for token in favourites]] = 1e4


class RareToken(_FixedRow):
    """One token of a given probability at temperature 1, the others equally likely.

    Parameters
    ----------
    length, vocabulary : int
    token : int
    probability : float
        In (0, 1); realised up to the rounding of one logit (relative 1e-6 in float32).
    dtype : torch.dtype
        float32 or float64.
    device : torch.device or str
    """

    @checked(probability=a_number(above=0, below=1))
    def __init__(
        self,
        length: int,
        vocabulary: int,
        token: int,
        probability: float = 1e-7,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(length, vocabulary, dtype, device, f"{token}|{probability!r}")
        self._row = torch.zeros(self.vocabulary, dtype=dtype, device=self.device)
        self._row[self._check_token(token)] = (
            math.log(probability) - math.log1p(-probability) + math.log(self.vocabulary - 1)
        )


class PlantedMargins(_Stub):
    """Traps of known depth in a field of pseudo-random conditionals.

    Where all sites but the masked one agree with a pattern, the pattern's token stands exactly `margin` above the best other token. Everywhere, the
    tokens not planted have logits in [-2, 1) that are a fixed function of (masked context, site, token): 24-bit integers from a hash, scaled, so that
    a row is the same bit for bit in any batch, on any device and in both dtypes.

    Parameters
    ----------
    length, vocabulary : int
    margin : float
        Positive and finite in the rows' dtype; exact when it is a float of that dtype.
    patterns : Tensor of int64, shape (k, length)
        Any two differ at two sites or more: a margin at both would otherwise be asked of one row.
    seed : int
        Of the background.
    dtype : torch.dtype
        float32 or float64.
    device : torch.device or str

    Raises
    ------
    UserError
        For patterns of the wrong shape, out of range or too close to one another, or a margin that is not positive.
    """

    @checked(margin=a_number(above=0), seed=SEED, patterns=_token_ids)
    def __init__(
        self,
        length: int,
        vocabulary: int,
        margin: float,
        patterns: Tensor,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        patterns = torch.as_tensor(patterns, dtype=torch.int64).cpu()
        super().__init__(length, vocabulary, dtype, device, f"{margin!r}|{patterns.tolist()}|{seed}")
        if not 0 < float(torch.tensor(margin, dtype=dtype)) < math.inf:
            raise UserError(f"margin {margin!r} is 0 or infinite in {dtype}; give one that the rows can hold")
        if not len(patterns) or patterns.shape[1] != self.length:
            raise UserError(
                f"patterns have shape {tuple(patterns.shape)}; give at least one, as (patterns, {self.length})"
            )
        if not 0 <= int(patterns.min()) <= int(patterns.max()) < self.vocabulary:
            raise UserError(f"a pattern holds a token id outside [0, {self.vocabulary})")
        apart = (patterns[:, None] != patterns[None]).sum(dim=2) + 2 * torch.eye(
            len(patterns), dtype=torch.int64
        )
        if int(apart.min()) < 2:
            raise UserError(
                "two patterns differ at fewer than two sites; neighbouring states cannot both have a positive margin"
            )
        self.margin, self.patterns = float(margin), patterns.to(self.device)
        generator = np.random.default_rng(seed)

        def words(count: int) -> Tensor:  # odd, so that multiplication modulo 2**64 loses nothing
            return torch.from_numpy(generator.integers(-(2**62), 2**62, count) * 2 + 1).to(self.device)

        self._site_words, self._token_words = words(self.length), words(self.vocabulary)

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        """See `Conditionals.logits`."""
        column = sites[:, None]
        masked = (states + 1).scatter(1, column, 0)  # the 0 tells the site as well
        key = (masked * self._site_words).sum(dim=1)
        for _ in range(2):
            key = (key ^ (key >> 32)) * -7046029254386353131
        scaled = ((key | 1)[:, None] * self._token_words) >> 40
        rows = scaled.to(self.dtype).mul_(2.0**-23)
        agree = (
            (states[:, None] == self.patterns[None])
            .scatter(2, column[:, None].expand(-1, len(self.patterns), 1), True)
            .all(dim=2)
        )
        planted = self.patterns[agree.to(torch.int64).argmax(dim=1)].gather(1, column)
        others = rows.scatter(1, planted, float("-inf"))
        # The best other token is brought to 0, which makes the margin exact in floating point.
        raised = (others - others.amax(dim=1, keepdim=True)).scatter(1, planted, self.margin)
        return torch.where(agree.any(dim=1, keepdim=True), raised, rows)


class _Wrapper:
    """Conditionals seen through a wrapper: everything not redefined is the wrapped one's."""

    def __init__(self, conditionals: Conditionals) -> None:
        self.wrapped = conditionals

    def __getattr__(self, name: str) -> Any:
        if name == "wrapped":  # not there yet while a copy is being unpickled
            raise AttributeError(name)
        return getattr(self.wrapped, name)


class Counting(_Wrapper):
    """Counts what is asked of conditionals.

    Attributes
    ----------
    calls, rows : int
        Calls of `logits`, and rows asked in all.
    distinct : int
        Distinct (masked context, site) pairs among them.
    """

    @checked(conditionals=of_conditionals)
    def __init__(self, conditionals: Conditionals) -> None:
        super().__init__(conditionals)
        self.reset()

    def reset(self) -> None:
        """Start counting afresh."""
        self.calls = self.rows = 0
        self._seen: set[bytes] = set()

    @property
    def distinct(self) -> int:
        return len(self._seen)

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        """See `Conditionals.logits`."""
        self.calls += 1
        self.rows += len(sites)
        keys = torch.cat([states.scatter(1, sites[:, None], -1), sites[:, None]], dim=1).cpu().numpy()
        self._seen.update(key.tobytes() for key in keys)
        return self.wrapped.logits(states, sites)


class Faulty(_Wrapper):
    """Conditionals that break: a bad logit in one row.

    Parameters
    ----------
    conditionals : Conditionals
    chain_row : int or None
        Row of the batch that breaks; None for any.
    site : int or None
        Site at which it breaks; None for any.
    value : float
        What is written: NaN, +inf, -inf, or any other number.
    call : int
        Calls of `logits` are numbered from 0; rows break from this one on, so at this very call if the site fits.
    token : int or None
        Where in the row it is written; None for the whole row.
    """

    @checked(
        conditionals=of_conditionals,
        chain_row=optional(a_whole(0)),
        site=optional(a_whole(0)),
        value=an_instance(float, int),
        call=a_whole(0),
        token=optional(a_whole(0)),
    )
    def __init__(
        self,
        conditionals: Conditionals,
        chain_row: int | None,
        site: int | None,
        value: float = math.nan,
        call: int = 0,
        token: int | None = 0,
    ) -> None:
        super().__init__(conditionals)
        if token is not None:
            whole("token", token, 0, conditionals.vocabulary - 1)
        self.chain_row, self.site, self.value, self.call, self.token = chain_row, site, value, call, token
        self.calls = 0
        self.fingerprint = hashlib.sha256(
            f"Faulty|{conditionals.fingerprint}|{chain_row}|{site}|{value}|{call}|{token}".encode()
        ).hexdigest()

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        """See `Conditionals.logits`."""
        rows = self.wrapped.logits(states, sites).clone()
        if self.calls >= self.call:
            bad = (
                torch.ones(len(sites), dtype=torch.bool, device=rows.device)
                if self.site is None
                else sites == self.site
            )
            if self.chain_row is not None:
                bad = bad & (torch.arange(len(sites), device=rows.device) == self.chain_row)
            rows[bad, slice(None) if self.token is None else self.token] = self.value
        self.calls += 1
        return rows

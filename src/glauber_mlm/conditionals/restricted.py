"""Restriction of a family of conditionals: fewer free sites, fewer tokens, renormalised."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from glauber_mlm.checks import a_list, checked, optional, shown, whole_list, whole_numbers
from glauber_mlm.conditionals.protocol import Conditionals, of_conditionals
from glauber_mlm.errors import UserError


class Restricted:
    """The same conditionals with some sites frozen and some tokens ruled out.

    Parameters
    ----------
    conditionals : Conditionals
    free_sites : sequence of int, optional
        Sites left free, a subset of those of `conditionals`; all of them by default.
    allowed : sequence of sequences of int, optional
        Token ids allowed at each free site, in the order of `free_sites`; all by default. A softmax over what is left is the conditional
        renormalised.

    Raises
    ------
    UserError
        If no site is free, a site is unknown or repeated, or a site has no allowed token.
    """

    @checked(conditionals=of_conditionals, free_sites=optional(whole_list()), allowed=optional(a_list()))
    def __init__(
        self,
        conditionals: Conditionals,
        free_sites: Sequence[int] | None = None,
        allowed: Sequence[Sequence[int]] | None = None,
    ) -> None:
        before = conditionals.free_sites.tolist()
        sites = before if free_sites is None else free_sites
        if not sites or len(set(sites)) != len(sites) or not set(sites) <= set(before):
            raise UserError(
                f"free sites {shown(sites)} must be distinct, at least one, and among {shown(before)}"
            )
        if sites != sorted(sites):
            raise UserError(f"free sites {shown(sites)} must be in increasing order")
        self.inner = conditionals
        self.length, self.vocabulary = conditionals.length, conditionals.vocabulary
        self.device, self.dtype = conditionals.device, conditionals.dtype
        self.precision = getattr(conditionals, "precision", None) or conditionals.dtype
        self.free_sites = torch.tensor(sites, dtype=torch.int64, device=self.device)
        self.allowed = (
            None
            if allowed is None
            else tuple(
                tuple(whole_numbers(f"allowed[{place}]", tokens)) for place, tokens in enumerate(allowed)
            )
        )
        self._barred: Tensor | None = None
        if self.allowed is not None:
            if len(self.allowed) != len(sites) or any(not tokens for tokens in self.allowed):
                raise UserError("give one non-empty set of allowed tokens for each free site")
            barred = torch.zeros(self.length, self.vocabulary, dtype=torch.bool)
            for site, tokens in zip(sites, self.allowed, strict=True):
                if not all(0 <= token < self.vocabulary for token in tokens):
                    raise UserError(f"an allowed token at site {site} is outside [0, {self.vocabulary})")
                barred[site] = True
                barred[site, list(tokens)] = False
            self._barred = barred.to(self.device)
        text = f"{conditionals.fingerprint}|{sites}|{self.allowed}"
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        """See `Conditionals.logits`; tokens not allowed at the site are -inf."""
        rows = self.inner.logits(states, sites)
        return rows if self._barred is None else rows.masked_fill(self._barred[sites], float("-inf"))

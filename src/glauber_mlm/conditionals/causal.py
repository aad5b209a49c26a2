"""A causal language model as conditionals over candidate tokens.

An autoregressive model has a joint law, so p(x_i = a | rest) is proportional to the joint probability of the sequence with a at i.
A full row would take V forwards; a row over k candidates takes k. Its conditionals are compatible by construction, which is
what makes it the control of the rectangle test.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from glauber_mlm.checks import a_list, an_instance, checked, whole_numbers
from glauber_mlm.conditionals.masked_lm import (
    MaskedLanguageModel,
    check_evaluation_mode,
    check_shape,
    position_limit,
    rows_of,
    weights_digest,
)
from glauber_mlm.errors import UserError


class CausalCandidates:
    """Conditionals of a causal model, restricted to candidates at each site; see `Conditionals`.

    Parameters
    ----------
    model : PreTrainedModel
        With a causal language-model head, in evaluation mode.
    tokenizer : PreTrainedTokenizerBase
        Its beginning-of-sequence token stands before every state.
    candidates : sequence of sequences of int
        Token ids allowed at each of the n sites.

    Attributes
    ----------
    precision : torch.dtype
        Of the weights; see `require_certifiable`.

    Raises
    ------
    UserError
        For a model in training mode or one that gives rows of another shape or NaN, an empty candidate set, an
        unknown id, a tokenizer whose beginning-of-sequence token is missing or unknown to the model, or too long a
        sequence.
    """

    @checked(
        model=an_instance(PreTrainedModel),
        tokenizer=an_instance(PreTrainedTokenizerBase),
        candidates=a_list(),
        identity=an_instance(str),
    )
    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        candidates: Sequence[Sequence[int]],
        identity: str = "",
    ) -> None:
        check_evaluation_mode(model)
        self.model, self.candidates = (
            model,
            tuple(
                tuple(sorted(set(whole_numbers(f"candidates[{place}]", tokens))))
                for place, tokens in enumerate(candidates)
            ),
        )
        self.length, self.vocabulary = len(self.candidates), rows_of(model)
        limit = position_limit(model)
        if tokenizer.bos_token_id is None:
            raise UserError(
                "the tokenizer has no beginning-of-sequence token; the first token would have no probability"
            )
        if not 0 <= tokenizer.bos_token_id < self.vocabulary:
            raise UserError(
                f"the beginning-of-sequence token has the id {tokenizer.bos_token_id}, beyond the {self.vocabulary} "
                "tokens of the model; give the tokenizer that the model was trained with"
            )
        if not self.candidates or self.length + 1 > limit:
            raise UserError(
                f"{self.length} tokens and the beginning token do not fit the model; at least 1 and at most {limit - 1} tokens are allowed"
            )
        if any(
            not tokens or not all(0 <= token < self.vocabulary for token in tokens)
            for tokens in self.candidates
        ):
            raise UserError(f"give at least one candidate in [0, {self.vocabulary}) at each site")
        self.precision = model.dtype
        self.device, self.dtype = (
            model.device,
            torch.float64 if model.dtype == torch.float64 else torch.float32,
        )
        self.free_sites = torch.arange(self.length, device=self.device)
        self._start = torch.tensor([tokenizer.bos_token_id], device=self.device)
        widest = max(len(tokens) for tokens in self.candidates)
        self._candidates = torch.tensor(
            [tokens + tokens[-1:] * (widest - len(tokens)) for tokens in self.candidates], device=self.device
        )
        self._check_forward()
        self.fingerprint = hashlib.sha256(
            f"{identity or weights_digest(model)}|{self.candidates}".encode()
        ).hexdigest()

    def _check_forward(self) -> None:
        """Refuse a model that gives too few rows, or too short ones, for a sequence of this length."""
        ids = torch.cat([self._start, self._candidates[:, 0]])[None]
        with torch.inference_mode():
            check_shape(self.model(input_ids=ids).logits, ids, self.vocabulary)

    def log_joint(self, states: Tensor) -> Tensor:
        """Log probabilities of whole sequences, in nats: float64, shape (B,)."""
        ids = torch.cat([self._start.expand(len(states), 1), states], dim=1)
        with torch.inference_mode():
            logits = self.model(input_ids=ids).logits[:, :-1]
        return logits.double().log_softmax(dim=2).gather(2, states[:, :, None])[:, :, 0].sum(dim=1)

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        """See `Conditionals.logits`: the log joint at the candidates, -inf elsewhere."""
        candidates = self._candidates[sites]
        count, width = candidates.shape
        filled = (
            states[:, None]
            .expand(-1, width, -1)
            .scatter(2, sites[:, None, None].expand(-1, width, 1), candidates[:, :, None])
        )
        joint = self.log_joint(filled.reshape(count * width, -1)).reshape(count, width)
        joint = joint - joint.amax(dim=1, keepdim=True)  # in float64, before any rounding to float32
        rows = torch.full((count, self.vocabulary), float("-inf"), dtype=self.dtype, device=self.device)
        return rows.scatter_(1, candidates, joint.to(self.dtype))


class LeftToRight:
    """A joint law made from a masked language model: the chain rule with everything to the right masked.

    It is autoregressive by construction, so the conditionals of this joint are compatible: the control of the rectangle test at the
    size of the model itself, where no causal model is at hand.

    Parameters
    ----------
    conditionals : MaskedLanguageModel

    Attributes
    ----------
    precision : torch.dtype
        That of the model.
    """

    @checked(conditionals=an_instance(MaskedLanguageModel))
    def __init__(self, conditionals: MaskedLanguageModel) -> None:
        self.conditionals, self.precision = conditionals, conditionals.precision

    def log_joint(self, states: Tensor) -> Tensor:
        """Log probabilities of whole sequences, in nats: float64, shape (B,). Takes n rows a sequence."""
        inner = self.conditionals
        total = torch.zeros(len(states), dtype=torch.float64, device=inner.device)
        seen = torch.full_like(states, inner.mask_token)
        for site in range(inner.length):
            rows = inner.logits(
                seen, torch.full((len(states),), site, dtype=torch.int64, device=inner.device)
            )
            total += rows.double().log_softmax(dim=1).gather(1, states[:, site : site + 1])[:, 0]
            seen = seen.clone()
            seen[:, site] = states[:, site]
        return total

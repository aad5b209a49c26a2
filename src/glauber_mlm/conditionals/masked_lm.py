"""A masked language model as a family of conditionals on token ids.

Only the row of the masked site goes through the vocabulary projection: the encoder runs on the whole sequence, the head on one
hidden state. The head always runs in float32, or float64 in a float64 model; a bfloat16 model rounds in the encoder alone.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from glauber_mlm.errors import UserError

_UNUSED = re.compile(r"^(?:\[unused\d+\]|<unused\d+>|madeupword\d+)$")
HEAD_TOLERANCE = 1e-5
PROBED_TOKENS = 8  # of the sequence on which the head is compared with the full forward
# What a configuration says beside the law. The dtype is that of the weights, which are hashed with it.
_NO_PART_OF_THE_LAW = {
    "name_or_path",
    "dtype",
    "torch_dtype",
    "attn_implementation",
    "transformers_version",
    "architectures",
}


@dataclass(frozen=True)
class Frame:
    """Token ids that stand before and after every state and are never resampled."""

    before: tuple[int, ...]
    after: tuple[int, ...]


def default_frame(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """What the tokenizer puts around a single sequence: [CLS] and [SEP], or <s> and </s>."""
    around = tokenizer(tokenizer.mask_token)["input_ids"]
    place = around.index(tokenizer.mask_token_id)
    return Frame(tuple(around[:place]), tuple(around[place + 1 :]))


def barred_tokens(
    tokenizer: PreTrainedTokenizerBase, vocabulary: int, extra: Iterable[int] = ()
) -> list[int]:
    """Ids that are never sampled: special, unused, beyond the tokenizer, and those in `extra`.

    Parameters
    ----------
    tokenizer : PreTrainedTokenizerBase
    vocabulary : int
        Width of the model's rows; it may be padded beyond the tokenizer.

    Returns
    -------
    list of int, increasing
    """
    known = tokenizer.get_vocab()
    barred = set(range(vocabulary)) - set(known.values())
    barred |= set(tokenizer.all_special_ids) | {
        index for token, index in known.items() if _UNUSED.match(token)
    }
    barred |= {index for index, token in tokenizer.added_tokens_decoder.items() if token.special}
    return sorted(index for index in barred | set(extra) if 0 <= index < vocabulary)


def head_of(model: PreTrainedModel) -> Callable[[Tensor], Tensor] | None:
    """The map from hidden states to logits, for the architectures we know; None for others."""
    if hasattr(model, "cls") and hasattr(model.cls, "predictions"):  # BERT
        return model.cls
    if hasattr(model, "lm_head") and hasattr(model.lm_head, "decoder"):  # RoBERTa and its kin
        return model.lm_head
    if hasattr(model, "head") and hasattr(model, "decoder"):  # ModernBERT
        return nn.Sequential(model.head, model.decoder)
    return None


def longest_sequence(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens that the model takes, the frame counted."""
    limit = int(model.config.max_position_embeddings)
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            limit = min(
                limit, int(module.num_embeddings) - module.padding_idx - 1
            )  # RoBERTa and its kin: positions start after the padding index
    return min(limit, int(tokenizer.model_max_length))


class MaskedLanguageModel:
    """Conditionals p(x_i | x_{-i}) of a masked language model; see `Conditionals`.

    Parameters
    ----------
    model : PreTrainedModel
        With a trained MLM head, in evaluation mode, on its device and in its dtype.
    tokenizer : PreTrainedTokenizerBase
        With a mask token.
    length : int
        n, tokens of a state.
    frame : Frame, optional
        That of the tokenizer by default.
    allow_special : bool
        Let special and unused tokens be sampled. Ids beyond the tokenizer stay barred.
    extra_barred : iterable of int
        Further ids never to sample.
    identity : str
        Fingerprint of the weights and the configuration, from `glauber_mlm.models.load`; computed by `weights_digest` if empty.

    Attributes
    ----------
    precision : torch.dtype
        Of the weights. Rows are float32 for a bfloat16 model too, so `dtype` does not tell; see `require_certifiable`.

    Raises
    ------
    UserError
        If the model is in training mode, the tokenizer has no mask token, or the sequence is longer than the model takes.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        length: int,
        *,
        frame: Frame | None = None,
        allow_special: bool = False,
        extra_barred: Sequence[int] = (),
        identity: str = "",
    ) -> None:
        if tokenizer.mask_token_id is None:
            raise UserError(
                "the tokenizer has no mask token, so the model gives no conditionals; choose a masked language model"
            )
        check_evaluation_mode(model)
        self.model, self.tokenizer = model, tokenizer
        self.frame = default_frame(tokenizer) if frame is None else frame
        self.length = int(length)
        total, limit = (
            self.length + len(self.frame.before) + len(self.frame.after),
            longest_sequence(model, tokenizer),
        )
        if self.length < 1 or total > limit:
            raise UserError(
                f"{length} tokens make {total} with the frame; the model takes at least 1 free token and at most {limit} in all: "
                f"choose a length up to {limit - total + self.length}"
            )
        self.device, self.precision = model.device, model.dtype
        self.dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
        self.vocabulary = int(model.config.vocab_size)
        self.free_sites = torch.arange(self.length, device=self.device)
        self.mask_token = int(tokenizer.mask_token_id)
        barred = barred_tokens(tokenizer, self.vocabulary)
        if allow_special:
            beyond = set(range(self.vocabulary)) - set(tokenizer.get_vocab().values())
            barred = sorted(beyond)
        self.barred = sorted({*barred, *(int(token) for token in extra_barred)})
        if not all(
            0 <= token < self.vocabulary for token in (*self.barred, *self.frame.before, *self.frame.after)
        ):
            raise UserError(f"a token of the frame or of extra_barred is outside [0, {self.vocabulary})")
        if len(self.barred) == self.vocabulary:
            raise UserError("every token is barred; leave at least one that may be sampled")
        self._barred = torch.zeros(self.vocabulary, dtype=torch.bool, device=self.device)
        self._barred[self.barred] = True
        self._before = torch.tensor(self.frame.before, dtype=torch.int64, device=self.device)
        self._after = torch.tensor(self.frame.after, dtype=torch.int64, device=self.device)
        # "party ' s" is a trace of WordPiece; byte-level tokenizers keep their spaces.
        self._wordpiece = any(token.startswith("##") for token in tokenizer.get_vocab())
        self._head = self._checked_head()
        text = f"{identity or weights_digest(model)}|{model.dtype}|{self.frame}|{self.mask_token}|{self.barred}|{self.length}"
        self.fingerprint = hashlib.sha256(text.encode()).hexdigest()

    def _checked_head(self) -> Callable[[Tensor], Tensor] | None:
        """A head at full precision that agrees with the model's own forward, or None to use the full forward."""
        head = head_of(self.model)
        if head is None:
            return None
        short = min(self.length, PROBED_TOKENS)
        ids = self._inputs(
            torch.full((1, short), self.mask_token, device=self.device),
            torch.zeros(1, dtype=torch.int64, device=self.device),
        )
        with torch.inference_mode():
            ours = head(self.model.base_model(input_ids=ids).last_hidden_state)
            theirs = self.model(input_ids=ids).logits
        low = self.precision not in (torch.float32, torch.float64)
        # The same operations on the same shapes: what may differ is the last digit of the largest logit.
        tolerance = torch.finfo(self.precision).eps * float(theirs.abs().max()) if low else HEAD_TOLERANCE
        if ours.shape != theirs.shape or not float((ours - theirs).abs().max()) <= tolerance:
            return None
        return copy.deepcopy(head).to(torch.float32) if low else head

    def _inputs(self, states: Tensor, sites: Tensor) -> Tensor:
        count = len(states)
        masked = states.scatter(1, sites[:, None], self.mask_token)
        return torch.cat([self._before.expand(count, -1), masked, self._after.expand(count, -1)], dim=1)

    def hidden(self, states: Tensor, sites: Tensor) -> Tensor:
        """Last hidden states at the masked sites: shape (B, width), in the model's dtype."""
        ids = self._inputs(states, sites)
        with torch.inference_mode():
            hidden = self.model.base_model(input_ids=ids).last_hidden_state
        if hidden.ndim != 3 or hidden.shape[:2] != ids.shape:
            raise UserError(
                f"hidden states have shape {tuple(hidden.shape)}, not (batch, length, width); load the model with attention='sdpa' or 'eager'"
            )
        return hidden[torch.arange(len(ids), device=ids.device), sites + len(self.frame.before)]

    def logits(self, states: Tensor, sites: Tensor) -> Tensor:
        """See `Conditionals.logits`: float32 (float64 in a float64 model), shape (B, V), barred tokens -inf."""
        with torch.inference_mode():
            if self._head is None:
                rows = self.model(input_ids=self._inputs(states, sites)).logits
                rows = rows[torch.arange(len(rows), device=rows.device), sites + len(self.frame.before)].to(
                    self.dtype
                )
            else:
                rows = self._head(self.hidden(states, sites).to(self.dtype))
            return rows.masked_fill_(self._barred, float("-inf"))

    def encode(self, text: str) -> list[int]:
        """Token ids of a text without the frame, of any length."""
        return self.tokenizer.encode(text, add_special_tokens=False, verbose=False)

    def decode(self, tokens: Sequence[int] | Tensor) -> str:
        """A state as text, for reading and for sentence embeddings; never tokenized again."""
        return self.tokenizer.decode(
            [int(token) for token in tokens],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=self._wordpiece,
        )


def check_evaluation_mode(model: nn.Module) -> None:
    """Refuse a model any part of which is in training mode: with dropout a row would be another one each time.

    Raises
    ------
    UserError
    """
    training = [name for name, module in model.named_modules() if module.training]
    if training:
        raise UserError(
            f"the model is in training mode ({training[0] or type(model).__name__}), so its rows may be random; call model.eval() first"
        )


def weights_digest(model: PreTrainedModel) -> str:
    """SHA-256 of the parameters and buffers, names and dtypes included, and of what the configuration says of the law (heads, activation, ...)."""
    digest = hashlib.sha256()
    if getattr(model, "config", None) is not None:
        law = {
            key: value
            for key, value in model.config.to_dict().items()
            if key.lstrip("_") not in _NO_PART_OF_THE_LAW
        }
        digest.update(json.dumps(law, sort_keys=True, default=str).encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()

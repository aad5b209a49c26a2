"""A masked language model as a family of conditionals on token ids.

Only the row of the masked site goes through the vocabulary projection: the encoder runs on the whole sequence, the head on one
hidden state. The head always runs in float32, or float64 in a float64 model; a bfloat16 model rounds in the encoder alone.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from transformers import BatchEncoding, PreTrainedModel, PreTrainedTokenizerBase

from glauber_mlm.checks import (
    a_flag,
    a_whole,
    an_instance,
    checked,
    is_number,
    one_of,
    optional,
    shown,
    whole,
    whole_list,
    whole_numbers,
)
from glauber_mlm.errors import UserError

_UNUSED = re.compile(r"^(?:\[unused\d+\]|<unused\d+>|madeupword\d+)$")
Unknown = Literal["refuse", "drop"]
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

    def __post_init__(self) -> None:
        for side in ("before", "after"):
            object.__setattr__(self, side, tuple(whole_numbers(f"the frame's {side}", getattr(self, side))))


def _coded(tokenizer: PreTrainedTokenizerBase, text: str, **options: bool) -> BatchEncoding:
    """What a tokenizer makes of a text, with places in the text where it knows them."""
    try:
        return tokenizer(text, verbose=False, return_offsets_mapping=tokenizer.is_fast, **options)
    except (
        Exception
    ) as error:  # tokenizers raises what it likes: a bare Exception, a TypeError for half a character
        raise UserError(
            f"the tokenizer cannot read the text {shown(text)} ({type(error).__name__}: {error}); look for broken "
            "characters in it, and whether the tokenizer is the model's own"
        ) from error


def _words(read: BatchEncoding) -> list[int]:
    """The number of each token's word; a number of its own where the tokenizer does not tell words."""
    words = read.word_ids() if read.is_fast else [None] * len(read["input_ids"])
    return [-1 - place if word is None else word for place, word in enumerate(words)]


def _place(tokenizer: PreTrainedTokenizerBase, text: str, read: BatchEncoding, token: int) -> tuple[int, str]:
    """Where the word of a token begins in a text, and the word; number and name of the token if no places are told."""
    if not read.is_fast:
        return token, tokenizer.convert_ids_to_tokens(read["input_ids"][token])
    words = _words(read)
    spans = [span for word, span in zip(words, read["offset_mapping"], strict=True) if word == words[token]]
    start, end = min(start for start, _ in spans), max(end for _, end in spans)
    return start, text[start:end]


def _unread(text: str, read: BatchEncoding) -> list[tuple[int, str]]:
    """Words that a tokenizer made no token of, such as characters without width, and where they begin."""
    seen = bytearray(len(text))
    for start, end in read.get("offset_mapping", ()):
        seen[start:end] = b"\x01" * (end - start)
    if not any(seen):  # no places told
        return []
    return [
        (found.start(), found[0])
        for found in re.finditer(r"\S+", text)
        if not any(seen[found.start() : found.end()])
    ]


def _tell_of_strange_words(count: int, first: str, unknown: Unknown) -> None:
    """Refuse a text with words that are never sampled, or warn that they were dropped."""
    if unknown == "refuse":
        raise UserError(
            f"the word {first}{f', one of {count},' if count > 1 else ''} is never sampled, and a start may hold sampled "
            "tokens only; change the text, or encode it with unknown='drop'"
        )
    words = "1 word that is never sampled was" if count == 1 else f"{count} words that are never sampled were"
    warnings.warn(f"{words} dropped, the first {first}", stacklevel=4)


def default_frame(tokenizer: PreTrainedTokenizerBase) -> Frame:
    """What the tokenizer puts around a single sequence: [CLS] and [SEP], or <s> and </s>.

    Raises
    ------
    UserError
        If the tokenizer does not give its mask token back as one token.
    """
    around = _coded(tokenizer, tokenizer.mask_token)["input_ids"]
    if tokenizer.mask_token_id not in around:
        raise UserError(
            f"the tokenizer reads its mask token {shown(tokenizer.mask_token)} as {len(around)} other tokens; give "
            "the tokenizer that the model was trained with"
        )
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


def position_limit(model: PreTrainedModel) -> int:
    """Positions that a configuration allows; no limit if it names none, as of Bloom and Mamba, or -1."""
    limit = getattr(model.config, "max_position_embeddings", None)
    return int(limit) if limit is not None and limit > 0 else sys.maxsize


def rows_of(model: PreTrainedModel) -> int:
    """Width of a model's rows, which is that of its embedding.

    Raises
    ------
    UserError
        If the configuration gives none, or more than there are embeddings.
    """
    vocabulary = whole("the configuration's vocab_size", getattr(model.config, "vocab_size", None), 1)
    embeddings = int(model.get_input_embeddings().weight.shape[0])
    if vocabulary > embeddings:
        raise UserError(
            f"the configuration says vocab_size {vocabulary}, but the model has {embeddings} embeddings; mend the "
            "configuration"
        )
    return vocabulary


def check_shape(logits: Tensor, ids: Tensor, vocabulary: int) -> None:
    """Refuse logits that are not one row for each token, at least `vocabulary` wide, or that are NaN.

    Raises
    ------
    UserError
    """
    if logits.shape[:-1] != ids.shape or logits.shape[-1] < vocabulary:
        raise UserError(
            f"the model gives logits of shape {tuple(logits.shape)} for {tuple(ids.shape)} tokens, where "
            f"{vocabulary} are needed for each; check the model's head and vocab_size"
        )
    if bool(torch.isnan(logits).any()):
        raise UserError("the model gives logits that are NaN; check its weights and dtype")


def longest_sequence(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens that the model takes, the frame counted.

    Raises
    ------
    UserError
        If the tokenizer's own limit is no number.
    """
    limit = position_limit(model)
    if not is_number(tokenizer.model_max_length):
        raise UserError(
            f"the tokenizer's model_max_length is {shown(tokenizer.model_max_length)}; write a number in "
            "tokenizer_config.json"
        )
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
        If the model is in training mode, gives rows of another shape or NaN, or is too short for the sequence; if
        the tokenizer has no mask token, or one that the model has no embedding for; if a token to bar or of the
        frame is unknown, or none is left to sample.
    """

    @checked(
        model=an_instance(PreTrainedModel),
        tokenizer=an_instance(PreTrainedTokenizerBase),
        length=a_whole(most=2**31),
        frame=optional(an_instance(Frame)),
        allow_special=a_flag,
        extra_barred=whole_list(),
        identity=an_instance(str),
    )
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
        limit = longest_sequence(model, tokenizer)
        self.frame = default_frame(tokenizer) if frame is None else frame
        self.length = length
        total = self.length + len(self.frame.before) + len(self.frame.after)
        if self.length < 1 or total > limit:
            raise UserError(
                f"{length} tokens make {total} with the frame; the model takes at least 1 free token and at most {limit} in all: "
                f"choose a length up to {limit - total + self.length}"
            )
        self.device, self.precision = model.device, model.dtype
        self.dtype = torch.float64 if model.dtype == torch.float64 else torch.float32
        self.vocabulary = rows_of(model)
        self.free_sites = torch.arange(self.length, device=self.device)
        self.mask_token = int(tokenizer.mask_token_id)
        if not 0 <= self.mask_token < self.vocabulary:
            raise UserError(
                f"the mask token has the id {self.mask_token}, beyond the {self.vocabulary} tokens of the model; give "
                "the tokenizer that the model was trained with"
            )
        barred = barred_tokens(tokenizer, self.vocabulary)
        if allow_special:
            beyond = set(range(self.vocabulary)) - set(tokenizer.get_vocab().values())
            barred = sorted(beyond)
        self.barred = sorted({*barred, *extra_barred})
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
        length = self.length if head is None else min(self.length, PROBED_TOKENS)
        ids = self._inputs(
            torch.full((1, length), self.mask_token, device=self.device),
            torch.zeros(1, dtype=torch.int64, device=self.device),
        )
        with torch.inference_mode():
            theirs = self.model(input_ids=ids).logits
            check_shape(theirs, ids, self.vocabulary)
            if head is None or theirs.shape[-1] > self.vocabulary:
                return None
            ours = head(self.model.base_model(input_ids=ids).last_hidden_state)
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
                rows = rows[torch.arange(len(rows), device=rows.device), sites + len(self.frame.before)]
                rows = rows[:, : self.vocabulary].to(self.dtype)
            else:
                rows = self._head(self.hidden(states, sites).to(self.dtype))
            return rows.masked_fill_(self._barred, float("-inf"))

    @checked(text=an_instance(str), unknown=one_of(*get_args(Unknown)))
    def encode(self, text: str, unknown: Unknown = "refuse") -> list[int]:
        """Token ids of a text without the frame, of any length: a start, which may hold sampled tokens only.

        Parameters
        ----------
        text : str
        unknown : {"refuse", "drop"}
            What to do with words that are never sampled: those that the tokenizer does not know or reads as nothing,
            special tokens such as [MASK] or [SEP], and what else is barred. Refuse the text, or leave these words
            out and warn how many there were.

        Raises
        ------
        UserError
            For such a word, with its place; if no token is left; if the tokenizer cannot read the text.

        Warns
        -----
        UserWarning
            How many words were dropped, and the first with its place.
        """
        read = _coded(self.tokenizer, text, add_special_tokens=False)
        ids, words, barred = read["input_ids"], _words(read), set(self.barred)
        never = [place for place, token in enumerate(ids) if token in barred or token >= self.vocabulary]
        spoilt, unread = {words[place] for place in never}, _unread(text, read)
        if spoilt or unread:
            first = min([*unread[:1], *(_place(self.tokenizer, text, read, token) for token in never[:1])])
            told = f"{shown(first[1])} at {'character' if read.is_fast else 'token'} {first[0]}"
            _tell_of_strange_words(len(spoilt) + len(unread), told, unknown)
        kept = [token for word, token in zip(words, ids, strict=True) if word not in spoilt]
        if not kept:
            raise UserError(
                f"the text {shown(text)} holds no token that may be sampled; give at least one word"
            )
        return kept

    @checked(tokens=whole_list(0))
    def decode(self, tokens: Sequence[int] | Tensor) -> str:
        """A state as text, for reading and for sentence embeddings; never tokenized again.

        Raises
        ------
        UserError
            If `tokens` are no token ids of the model.
        """
        if max(tokens, default=0) >= self.vocabulary:
            raise UserError(f"the token id {shown(max(tokens))} is outside [0, {self.vocabulary})")
        return self.tokenizer.decode(
            tokens,
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

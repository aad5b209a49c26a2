"""Tokenizers of models whose tokens are single residues."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast


def residue_tokenizer(
    tokens: Sequence[str], *, begin: str, end: str, pad: str, unknown: str, mask: str, longest: int
) -> PreTrainedTokenizerFast:
    """A fast tokenizer that reads every letter as a token, spaces between them or not, and writes them without spaces.

    Parameters
    ----------
    tokens : sequence of str
        By id.
    begin, end : str
        Tokens around a sequence.
    pad, unknown, mask : str
        The other special tokens.
    longest : int
        Tokens that the model takes, those around the sequence counted.
    """
    core = Tokenizer(
        models.WordLevel({token: index for index, token in enumerate(tokens)}, unk_token=unknown)
    )
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex("."), "isolated")]
    )
    core.decoder = decoders.Fuse()
    core.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}", special_tokens=[(token, tokens.index(token)) for token in (begin, end)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token=begin,
        eos_token=end,
        cls_token=begin,
        sep_token=end,
        pad_token=pad,
        unk_token=unknown,
        mask_token=mask,
        model_max_length=longest,
    )

"""Tiny masked language models of an alphabet, of six architectures, saved as folders with tokenizers of their own."""

from __future__ import annotations

from pathlib import Path

from tiny_models import HEADS, LAYERS, WIDTH, randomise
from transformers import (
    BertConfig,
    BertForMaskedLM,
    DistilBertConfig,
    DistilBertForMaskedLM,
    ElectraConfig,
    ElectraForMaskedLM,
    EsmConfig,
    EsmForMaskedLM,
    EsmTokenizer,
    ModernBertConfig,
    ModernBertForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    RobertaConfig,
    RobertaForMaskedLM,
)

import glauber_mlm.models
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.domains import RESIDUES
from glauber_mlm.pretrained.residues import residue_tokenizer

ALPHABETS = ("bert", "roberta", "modernbert", "distilbert", "electra", "esm")
LONGEST = 130
# What ESM-2 has, in its order.
OF_ESM = (
    "<cls> <pad> <eos> <unk> L A G V S E R T I D P K Q N F Y M H W C X B U Z O . - <null_1> <mask>".split()
)


def letters(text: str = RESIDUES, longest: int = LONGEST) -> PreTrainedTokenizerBase:
    """In the manner of BERT: padding is 0."""
    special = {
        "pad": "[PAD]",
        "unknown": "[UNK]",
        "begin": "[CLS]",
        "end": "[SEP]",
        "mask": "[MASK]",
    }
    return residue_tokenizer([*special.values(), *text], **special, longest=longest)


def letters_of_roberta() -> PreTrainedTokenizerBase:
    """In the manner of fairseq: the mask comes last, and padding is 1."""
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *reversed(RESIDUES), "<mask>"]
    return residue_tokenizer(
        tokens, begin="<s>", end="</s>", pad="<pad>", unknown="<unk>", mask="<mask>", longest=LONGEST
    )


def _sizes(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    return {
        "vocab_size": len(tokenizer),
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * WIDTH,
        "max_position_embeddings": LONGEST,
        "pad_token_id": tokenizer.pad_token_id,
    }


def _esm(folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    vocabulary = folder.with_suffix(".txt")
    vocabulary.write_text("\n".join(OF_ESM))
    tokenizer = EsmTokenizer(str(vocabulary))
    config = EsmConfig(
        **_sizes(tokenizer) | {"max_position_embeddings": LONGEST + 2},
        mask_token_id=tokenizer.mask_token_id,
        position_embedding_type="rotary",
        token_dropout=True,
        emb_layer_norm_before=False,
    )
    return EsmForMaskedLM(config), tokenizer


def built(name: str, folder: Path) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a name of `ALPHABETS`, or "nucleotides"."""
    if name == "esm":
        return _esm(folder)
    if name == "roberta":
        tokenizer = letters_of_roberta()
        sizes = _sizes(tokenizer) | {"max_position_embeddings": LONGEST + 2}
        return RobertaForMaskedLM(RobertaConfig(**sizes, type_vocab_size=1)), tokenizer
    if name == "nucleotides":
        tokenizer = letters("ACGT")
        return BertForMaskedLM(BertConfig(**_sizes(tokenizer))), tokenizer
    tokenizer = letters()
    sizes = _sizes(tokenizer)
    if name == "bert":
        return BertForMaskedLM(BertConfig(**sizes)), tokenizer
    if name == "electra":
        return ElectraForMaskedLM(ElectraConfig(**sizes, embedding_size=WIDTH // 2)), tokenizer
    if name == "modernbert":
        special = {"bos_token_id": 2, "cls_token_id": 2, "eos_token_id": 3, "sep_token_id": 3}
        config = ModernBertConfig(
            **sizes, **special, local_attention=8, global_attn_every_n_layers=2, reference_compile=False
        )
        return ModernBertForMaskedLM(config), tokenizer
    config = DistilBertConfig(
        vocab_size=len(tokenizer),
        dim=WIDTH,
        n_layers=LAYERS,
        n_heads=HEADS,
        hidden_dim=2 * WIDTH,
        max_position_embeddings=LONGEST,
    )
    return DistilBertForMaskedLM(config), tokenizer


class TinyAlphabets:
    """Folders, each made once."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def folder(self, name: str) -> Path:
        folder = self.root / name
        if not folder.exists():
            model, tokenizer = built(name, folder)
            randomise(model, seed=1 + len(name)).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        return folder

    def conditionals(self, name: str, length: int, dtype: str = "float32") -> MaskedLanguageModel:
        """Through `glauber_mlm.models.load`."""
        return glauber_mlm.models.load(str(self.folder(name)), dtype=dtype).conditionals(length)

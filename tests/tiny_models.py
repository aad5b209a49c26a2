"""Tiny language models with tokenizers of their own, saved as folders: real architectures, random weights, no network.

The fixture `tiny` is in `tiny_fixtures`: a module that tests have imported cannot also be a plugin.
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # read when huggingface_hub is first imported

from collections.abc import Callable
from pathlib import Path

import huggingface_hub.constants
import torch
from tokenizers import (
    ByteLevelBPETokenizer,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)
from torch import Tensor
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertModel,
    DistilBertConfig,
    DistilBertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
    MPNetConfig,
    MPNetForMaskedLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForMaskedLM,
)

import glauber_mlm.models
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel

huggingface_hub.constants.HF_HUB_OFFLINE = True

KNOWN_HEADS = ("bert", "roberta", "modernbert")
LONGEST = 40  # positions, the frame counted, of every model here
PADDED = 24  # rows of the ModernBERT model beyond its tokenizer
WIDTH, LAYERS, HEADS = 32, 2, 4

TEXTS = (
    "the court said on tuesday that the new law would not stand , and the minister left the city before noon .",
    "a good team can win the game in the last minute ; the old coach knew that and kept his best player on the bench !",
    "doctors say that a long walk every day is good for the heart , and that sleep is the best medicine of all .",
    "water boils at a lower temperature on a high mountain because the air presses less on it .",
    "why does bread rise ? yeast eats sugar and makes gas , and the gas lifts the dough .",
    "the people voted in march and the government fell in april , which nobody had said would happen .",
)


def wordpiece() -> PreTrainedTokenizerFast:
    """In the manner of bert-base-uncased: [PAD] is 0, [unusedN] follow, then the other special tokens, characters and words."""
    words = sorted({word for text in TEXTS for word in text.split() if word.isalpha()})
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = ["[PAD]", *(f"[unused{number}]" for number in range(8)), "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens += [
        "!",
        "'",
        ",",
        ".",
        ";",
        "?",
        *letters,
        *(f"##{letter}" for letter in letters),
        "##ing",
        "##ed",
        *(word for word in words if len(word) > 1),
    ]
    core = Tokenizer(
        models.WordPiece({token: index for index, token in enumerate(tokens)}, unk_token="[UNK]")
    )
    core.normalizer = normalizers.BertNormalizer(lowercase=True)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece()
    core.post_processor = processors.BertProcessing(
        ("[SEP]", tokens.index("[SEP]")), ("[CLS]", tokens.index("[CLS]"))
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=512,
    )


def _byte_level(special: list[str], size: int) -> Tokenizer:
    core = ByteLevelBPETokenizer(add_prefix_space=False)
    core.train_from_iterator(TEXTS, vocab_size=size, special_tokens=special, show_progress=False)
    return core._tokenizer


def byte_pairs_of_roberta() -> PreTrainedTokenizerFast:
    """Byte-level BPE with <s>, </s> around a sequence and <mask>."""
    core = _byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"], 320)
    core.post_processor = processors.RobertaProcessing(
        ("</s>", core.token_to_id("</s>")), ("<s>", core.token_to_id("<s>")), add_prefix_space=False
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        unk_token="<unk>",
        mask_token="<mask>",
        model_max_length=512,
    )


def byte_pairs_of_modernbert() -> PreTrainedTokenizerFast:
    """Byte-level BPE with BERT's special tokens and some [unusedN], as ModernBERT has."""
    core = _byte_level(
        ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]", *(f"[unused{number}]" for number in range(4))], 320
    )
    core.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", core.token_to_id("[CLS]")), ("[SEP]", core.token_to_id("[SEP]"))],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        model_max_length=512,
    )


def byte_pairs_of_gpt2() -> PreTrainedTokenizerFast:
    """Byte-level BPE with <|endoftext|> alone."""
    core = _byte_level(["<|endoftext|>"], 300)
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        bos_token="<|endoftext|>",
        eos_token="<|endoftext|>",
        unk_token="<|endoftext|>",
        model_max_length=512,
    )


def _sizes(tokenizer: PreTrainedTokenizerFast, padded: int = 0) -> dict[str, int]:
    return {
        "vocab_size": len(tokenizer) + padded,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * WIDTH,
        "max_position_embeddings": LONGEST,
    }


def _bert() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    tokenizer = wordpiece()
    return BertForMaskedLM(BertConfig(**_sizes(tokenizer), pad_token_id=tokenizer.pad_token_id)), tokenizer


def _bert_without_head() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    tokenizer = wordpiece()
    return BertModel(BertConfig(**_sizes(tokenizer), pad_token_id=tokenizer.pad_token_id)), tokenizer


def _roberta() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    tokenizer = byte_pairs_of_roberta()
    sizes = _sizes(tokenizer) | {
        "max_position_embeddings": LONGEST + 2
    }  # positions start after the padding index, which is 1
    return RobertaForMaskedLM(
        RobertaConfig(**sizes, pad_token_id=1, bos_token_id=0, eos_token_id=2, type_vocab_size=1)
    ), tokenizer


def _mpnet() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    tokenizer = byte_pairs_of_roberta()
    sizes = _sizes(tokenizer) | {"max_position_embeddings": LONGEST + 2}
    return MPNetForMaskedLM(MPNetConfig(**sizes, pad_token_id=1, bos_token_id=0, eos_token_id=2)), tokenizer


def _modernbert() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    tokenizer = byte_pairs_of_modernbert()
    config = ModernBertConfig(
        **_sizes(tokenizer, PADDED),
        global_attn_every_n_layers=2,  # one layer of each kind
        local_attention=8,
        pad_token_id=tokenizer.pad_token_id,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        bos_token_id=tokenizer.cls_token_id,
        eos_token_id=tokenizer.sep_token_id,
        reference_compile=False,
    )
    return ModernBertForMaskedLM(config), tokenizer


def _distilbert() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    tokenizer = wordpiece()
    config = DistilBertConfig(
        vocab_size=len(tokenizer),
        dim=WIDTH,
        n_layers=LAYERS,
        n_heads=HEADS,
        hidden_dim=2 * WIDTH,
        max_position_embeddings=LONGEST,
        pad_token_id=0,
    )
    return DistilBertForMaskedLM(config), tokenizer


def _gpt2() -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    tokenizer = byte_pairs_of_gpt2()
    bos = tokenizer.bos_token_id
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=LONGEST,
        n_embd=WIDTH,
        n_layer=LAYERS,
        n_head=HEADS,
        bos_token_id=bos,
        eos_token_id=bos,
    )
    return GPT2LMHeadModel(config), tokenizer


BUILDERS: dict[str, Callable[[], tuple[PreTrainedModel, PreTrainedTokenizerFast]]] = {
    "bert": _bert,
    "bert_without_head": _bert_without_head,
    "roberta": _roberta,
    "modernbert": _modernbert,
    "distilbert": _distilbert,
    "mpnet": _mpnet,
    "gpt2": _gpt2,
}


def randomise(model: PreTrainedModel, seed: int) -> PreTrainedModel:
    """Fill every parameter, biases and gains included, so that nothing is hidden by a zero or a one; rows then spread over a few nats."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.2 * noise if parameter.ndim > 1 else parameter + 0.2 * noise)
    return model.eval()


class TinyModels:
    """Folders and loaded models, each made once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._loaded: dict[tuple, glauber_mlm.models.LoadedModel] = {}

    def folder(self, name: str) -> Path:
        """Folder with model and tokenizer, as save_pretrained leaves it."""
        folder = self.root / name
        if not folder.exists():
            model, tokenizer = BUILDERS[name]()
            randomise(model, seed=1 + list(BUILDERS).index(name)).save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        return folder

    def load(
        self, name: str, dtype: str = "float32", attention: str = "sdpa"
    ) -> glauber_mlm.models.LoadedModel:
        """Through `glauber_mlm.models.load`. Shared between tests: not to be changed."""
        key = (name, dtype, attention)
        if key not in self._loaded:
            kind = "causal" if name == "gpt2" else "masked"
            self._loaded[key] = glauber_mlm.models.load(
                str(self.folder(name)), dtype=dtype, attention=attention, kind=kind
            )
        return self._loaded[key]

    def conditionals(
        self, name: str, length: int = 10, dtype: str = "float32", attention: str = "sdpa", **options
    ) -> MaskedLanguageModel:
        return self.load(name, dtype, attention).conditionals(length, **options)


def random_states(conditionals: MaskedLanguageModel, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """States of tokens that may be drawn, and a site for each: int64, shapes (count, n) and (count,)."""
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.tensor(sorted(set(range(conditionals.vocabulary)) - set(conditionals.barred)))
    states = allowed[torch.randint(len(allowed), (count, conditionals.length), generator=generator)]
    return states, torch.randint(conditionals.length, (count,), generator=generator)

"""A user's text as a start: sampled tokens only, whatever the tokenizer; each other text is refused in one line."""

from __future__ import annotations

import warnings

import pytest
import torch
from tiny_models import TinyModels
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import Unigram
from transformers import EsmTokenizer, PreTrainedTokenizerFast

from glauber_mlm import models
from glauber_mlm.conditionals.masked_lm import Frame, MaskedLanguageModel
from glauber_mlm.errors import UserError
from glauber_mlm.passages import load_passages
from glauber_mlm.runs.chains import run_chains

pytest_plugins = ("tiny_fixtures",)


@pytest.fixture(scope="module")
def shipped() -> MaskedLanguageModel:
    return models.load().conditionals(8)


def refusal(conditionals: MaskedLanguageModel, text: str, **options: str) -> str:
    with pytest.raises(UserError) as caught:
        conditionals.encode(text, **options)
    message = str(caught.value)
    assert "\n" not in message and message.isprintable() and len(message) < 400
    return message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("the cat 🙂 sat", "the word '🙂' at character 8 is never sampled, and"),
        ("ᚠᚢ ᚦ the cat", "the word 'ᚠᚢ' at character 0, one of 2, is never sampled"),
        (f"the {'y' * 5000} sat", "at character 4"),
        ("the [MASK] [SEP]", "the word '[MASK]' at character 4, one of 2, is never sampled"),
        ("the cat\u200b \u200b\u200b sat 🙂", "at character 9, one of 2, is never sampled"),
        ("the \x07 cat", "the word '\\x07' at character 4 is never sampled, and"),
        ("the cat [UNK]", "'[UNK]' at character 8"),
        ("bank, [CLS]", "'[CLS]' at character 6"),
        ("a cat 🙂🙂 𓀀", "the word '🙂🙂' at character 6, one of 2, is never sampled"),
    ],
)
def test_words_that_are_never_sampled_are_counted_and_the_first_has_its_place(
    shipped: MaskedLanguageModel, text: str, told: str
):
    assert told in refusal(shipped, text)


def test_a_text_that_no_tokenizer_can_read_is_refused(shipped: MaskedLanguageModel):
    assert "cannot read the text 'the \\ud83d cat'" in refusal(shipped, "the \ud83d cat")
    assert "cannot read the text" in refusal(shipped, "the \ud83d cat", unknown="drop")


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "\u200b", "\x00", "\u200b \ufeff"])
def test_a_text_without_tokens_is_refused(shipped: MaskedLanguageModel, text: str):
    for unknown in ("refuse", "drop"):
        assert "holds no token that may be sampled" in refusal(shipped, text, unknown=unknown)


def test_nothing_is_left_when_every_word_is_dropped(shipped: MaskedLanguageModel):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert "holds no token that may be sampled" in refusal(shipped, "🙂 [MASK]", unknown="drop")


@pytest.mark.parametrize(
    ("text", "left", "count"),
    [
        ("the 🙂 cat [SEP] sat", "the cat sat", 2),
        ("the cat.🙂 it sat", "the cat. it sat", 1),
        ("[CLS] the cat \u200b sat", "the cat sat", 2),
        (f"the {'y' * 5000} cat", "the cat", 1),
        ("日本 cat 𓀀", "日本 cat", 1),
    ],
)
def test_dropped_words_leave_the_rest_as_it_is(
    shipped: MaskedLanguageModel, text: str, left: str, count: int
):
    with pytest.warns(
        UserWarning, match=f"^{count} words? that .* never sampled .* dropped, the first "
    ) as told:
        found = shipped.encode(text, unknown="drop")
    assert found == shipped.encode(left) and len(told) == 1
    assert told[0].filename == __file__  # the warning points at the line that asked


def test_a_text_of_known_words_is_read_as_its_tokenizer_reads_it(shipped: MaskedLanguageModel):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for passage in load_passages():
            ids = shipped.tokenizer.encode(passage.text, add_special_tokens=False)
            assert shipped.encode(passage.text) == shipped.encode(passage.text, unknown="drop") == ids


def test_what_a_user_bars_is_never_a_start_and_what_a_user_allows_is(tiny: TinyModels):
    plain = tiny.conditionals("bert", 5)
    game = plain.encode("game")
    barred = tiny.conditionals("bert", 5, extra_barred=game)
    assert "'game' at character 4" in refusal(barred, "the game")
    special = tiny.conditionals("bert", 5, allow_special=True)
    assert special.encode("the [SEP] game")[1] == special.tokenizer.sep_token_id


@pytest.mark.parametrize("name", ["roberta", "modernbert"])
def test_bytes_spell_every_word_and_special_tokens_are_refused_all_the_same(tiny: TinyModels, name: str):
    conditionals = tiny.conditionals(name, 5)
    ids = conditionals.encode("the cat 🙂 sat, ᚠᚢ")
    assert conditionals.decode(ids) == "the cat 🙂 sat, ᚠᚢ"
    mask = conditionals.tokenizer.mask_token
    assert f"{mask!r} at character 4" in refusal(conditionals, f"the {mask} cat")


def test_a_token_beyond_the_model_is_no_start(tiny: TinyModels):
    loaded = tiny.load("bert")
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tiny.folder("bert"))
    tokenizer.add_tokens(["qwerty"])
    conditionals = MaskedLanguageModel(loaded.model, tokenizer, 5)
    assert "'qwerty' at character 4" in refusal(conditionals, "the qwerty game")


def test_a_word_with_an_unknown_letter_is_dropped_whole(tiny: TinyModels):
    letters = [("<unk>", -9.0), ("<mask>", -9.0), *((letter, -1.0) for letter in "catsh")]
    core = Tokenizer(Unigram(letters, unk_id=0))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", mask_token="<mask>")
    conditionals = MaskedLanguageModel(tiny.load("bert").model, tokenizer, 5)
    assert conditionals.frame == Frame((), ())
    assert "'czt' at character 4" in refusal(conditionals, "cat czt sat")
    with pytest.warns(UserWarning, match="^1 word that is never sampled was dropped"):
        assert conditionals.encode("cat czt sat", unknown="drop") == conditionals.encode("cat sat")


def test_a_tokenizer_that_tells_no_places_names_the_token(tiny: TinyModels, tmp_path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["<cls>", "<pad>", "<eos>", "<unk>", "L", "A", "G", "<mask>"]))
    tokenizer = EsmTokenizer(str(vocabulary))
    assert not tokenizer.is_fast
    conditionals = MaskedLanguageModel(tiny.load("bert").model, tokenizer, 5)
    assert conditionals.encode("L A G") == [4, 5, 6]
    assert "the word '<mask>' at token 2" in refusal(conditionals, "L A <mask> G")
    with pytest.warns(UserWarning, match="^1 word that is never sampled was dropped"):
        assert conditionals.encode("L A <mask> G", unknown="drop") == [4, 5, 6]
    assert "holds no token" in refusal(conditionals, "")


@pytest.mark.parametrize(
    "tokens", [[-1], [10**6], [10**400], [30522], [0.5], [True], ["7"], "the", 7, None, [[5]]]
)
def test_ids_that_are_none_are_not_decoded(shipped: MaskedLanguageModel, tokens: object):
    with pytest.raises(UserError):
        shipped.decode(tokens)


def test_token_ids_that_are_never_sampled_start_no_chain(tmp_path):
    conditionals = models.load().conditionals(4)
    ids = conditionals.encode("the game was good")
    for barred in (conditionals.mask_token, conditionals.frame.after[0], conditionals.frame.before[0]):
        states = torch.tensor([ids, [*ids[:2], barred, ids[3]]])
        with pytest.raises(
            UserError, match=f"state 1 holds token {barred} at site 2, which is never sampled"
        ):
            run_chains(tmp_path / "run", conditionals, states, 1.0, seed=1, steps=1, progress=False)
    assert not (tmp_path / "run").exists()

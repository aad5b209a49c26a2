"""The masked-language-model adapter against the models' own full forward, on tiny models of each architecture."""

from __future__ import annotations

import copy
from types import SimpleNamespace

import pytest
import torch
from tiny_models import KNOWN_HEADS, LAYERS, LONGEST, PADDED, TinyModels, random_states
from torch import Tensor

from glauber_mlm.conditionals import Conditionals, Restricted, check_states
from glauber_mlm.conditionals.masked_lm import (
    Frame,
    MaskedLanguageModel,
    barred_tokens,
    default_frame,
    longest_sequence,
    weights_digest,
)
from glauber_mlm.conditionals.solvable import RandomJoint
from glauber_mlm.conditionals.stubs import Counting
from glauber_mlm.errors import UserError
from glauber_mlm.exact.enumeration import enumerate_logits
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.coupled import coalescence
from glauber_mlm.randomness import RandomStream
from glauber_mlm.readings.influence import sample_influence
from glauber_mlm.readings.margins import local_view
from glauber_mlm.readings.rectangle import defects, draw_rectangles

pytest_plugins = ("tiny_fixtures",)

ARCHITECTURES = (*KNOWN_HEADS, "distilbert")


def full_forward(conditionals: MaskedLanguageModel, states: Tensor, sites: Tensor) -> Tensor:
    """Rows as a user of transformers would compute them: one sequence at a time, all positions, one kept."""
    tokenizer, rows = conditionals.tokenizer, []
    for state, site in zip(states.tolist(), sites.tolist(), strict=True):
        masked = [*state[:site], tokenizer.mask_token_id, *state[site + 1 :]]
        ids = torch.tensor([[tokenizer.cls_token_id, *masked, tokenizer.sep_token_id]])
        with torch.no_grad():
            rows.append(
                conditionals.model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits[0, 1 + site]
            )
    return torch.stack(rows)


def allowed(conditionals: MaskedLanguageModel) -> Tensor:
    return torch.tensor(sorted(set(range(conditionals.vocabulary)) - set(conditionals.barred)))


def furthest(first: Tensor, second: Tensor) -> float:
    return float((first - second).abs().max())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_row_is_that_of_the_full_forward(tiny: TinyModels, name: str, attention: str):
    conditionals = tiny.conditionals(name, attention=attention)
    assert (conditionals._head is not None) == (name in KNOWN_HEADS)
    states, sites = random_states(conditionals, 40, seed=3)
    rows, keep = conditionals.logits(states, sites), allowed(conditionals)
    assert isinstance(conditionals, Conditionals)
    assert rows.dtype == conditionals.dtype == torch.float32 and rows.shape == (40, conditionals.vocabulary)
    expected = full_forward(conditionals, states, sites)[:, keep]
    assert furthest(rows[:, keep], expected) <= 1e-5
    assert (
        float(expected.std(dim=0).mean()) > 0.2
    )  # contexts matter, so a row of the wrong context would not pass
    neighbour = conditionals.logits(states, (sites + 1) % conditionals.length)
    assert furthest(neighbour[:, keep], expected) > 1.0  # nor one of the wrong site


@pytest.mark.parametrize("name", KNOWN_HEADS)
def test_in_float64_the_projection_is_exact(tiny: TinyModels, name: str):
    conditionals = tiny.conditionals(name, dtype="float64")
    states, sites = random_states(conditionals, 40, seed=4)
    rows, keep = conditionals.logits(states, sites), allowed(conditionals)
    assert rows.dtype == conditionals.dtype == torch.float64 and conditionals._head is not None
    assert furthest(rows[:, keep], full_forward(conditionals, states, sites)[:, keep]) <= 1e-12
    single = tiny.conditionals(name)
    assert 0 < furthest(single.logits(states, sites)[:, keep], rows[:, keep]) < 1e-4


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_attention_implementations_agree(tiny: TinyModels, name: str):
    sdpa, eager = tiny.conditionals(name), tiny.conditionals(name, attention="eager")
    states, sites = random_states(sdpa, 40, seed=5)
    keep = allowed(sdpa)
    assert furthest(sdpa.logits(states, sites)[:, keep], eager.logits(states, sites)[:, keep]) <= 1e-5
    assert sdpa.fingerprint == eager.fingerprint  # the same law


@pytest.mark.parametrize(
    ("dtype", "factor", "tolerance"),
    [("float32", 0.5, 1e-5), ("bfloat16", 0.5, 0.15), ("bfloat16", 0.97, 0.3)],
)
def test_a_head_that_does_more_than_project_is_not_cut_short(
    tiny: TinyModels, dtype: str, factor: float, tolerance: float
):
    loaded = tiny.load("bert", dtype)
    model = copy.deepcopy(loaded.model)
    forward = model.forward

    def tempered(**inputs):
        output = forward(**inputs)
        output.logits = output.logits * factor
        return output

    model.forward = tempered
    conditionals = MaskedLanguageModel(model, loaded.tokenizer, 10)
    assert conditionals._head is None
    states, sites = random_states(conditionals, 10, seed=6)
    keep = allowed(conditionals)
    rows, projected = (
        conditionals.logits(states, sites)[:, keep],
        tiny.conditionals("bert", dtype=dtype).logits(states, sites)[:, keep],
    )
    assert rows.dtype == torch.float32 and furthest(rows, factor * projected) <= tolerance


def test_hidden_states_without_a_batch_axis_are_refused(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch):
    conditionals = tiny.load("bert").conditionals(10)
    states, sites = random_states(conditionals, 4, seed=7)
    forward = conditionals.model.bert.forward

    def unpadded(**inputs):
        return SimpleNamespace(last_hidden_state=forward(**inputs).last_hidden_state.flatten(0, 1))

    monkeypatch.setattr(conditionals.model.bert, "forward", unpadded)
    with pytest.raises(UserError, match=r"not \(batch, length, width\)"):
        conditionals.logits(states, sites)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_row_ignores_the_token_at_its_site_and_nothing_is_changed(tiny: TinyModels, name: str):
    conditionals = tiny.conditionals(name)
    states, sites = random_states(conditionals, 30, seed=8)
    other, kept = states.clone(), states.clone()
    other.scatter_(1, sites[:, None], allowed(conditionals)[torch.arange(30) % 7][:, None])
    assert not torch.equal(other, states)
    rows = conditionals.logits(states, sites)
    assert torch.equal(rows, conditionals.logits(other, sites))
    assert torch.equal(states, kept)
    check_states(conditionals, states)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_special_unused_and_padding_ids_are_barred_and_no_others(tiny: TinyModels, name: str):
    conditionals = tiny.conditionals(name)
    tokenizer = conditionals.tokenizer
    names = {index: token for token, index in tokenizer.get_vocab().items()}
    special = {
        tokenizer.cls_token_id,
        tokenizer.sep_token_id,
        tokenizer.mask_token_id,
        tokenizer.pad_token_id,
        tokenizer.unk_token_id,
    }
    unused = {index for index, token in names.items() if "unused" in token}
    beyond = {index for index in range(conditionals.vocabulary) if index not in names}
    assert len(beyond) == (PADDED if name == "modernbert" else 0)
    assert len(unused) == {"bert": 8, "distilbert": 8, "modernbert": 4, "roberta": 0}[name]
    assert (
        set(conditionals.barred)
        == special | unused | beyond
        == set(barred_tokens(tokenizer, conditionals.vocabulary))
    )
    rows = conditionals.logits(*random_states(conditionals, 20, seed=9))
    barred = torch.isneginf(rows)
    assert torch.equal(
        barred,
        torch.isin(torch.arange(conditionals.vocabulary), torch.tensor(conditionals.barred)).expand(20, -1),
    )
    assert bool(torch.isfinite(rows[~barred]).all())


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_barred_sets_can_be_widened_and_lifted(tiny: TinyModels, name: str):
    plain, further = tiny.conditionals(name), tiny.conditionals(name, extra_barred=[40, 41])
    lifted = tiny.conditionals(name, allow_special=True)
    states, sites = random_states(further, 10, seed=10)
    rows = {
        label: one.logits(states, sites)
        for label, one in (("plain", plain), ("further", further), ("lifted", lifted))
    }
    assert set(further.barred) == set(plain.barred) | {40, 41}
    known = set(lifted.tokenizer.get_vocab().values())
    assert set(lifted.barred) == set(range(lifted.vocabulary)) - known  # ids without a token stay out
    assert torch.isfinite(rows["lifted"][:, sorted(known)]).all()
    keep = allowed(further)
    for label in ("further", "lifted"):
        assert torch.equal(rows[label][:, keep], rows["plain"][:, keep])


def test_impossible_barred_sets_and_frames_are_refused(tiny: TinyModels):
    loaded = tiny.load("bert")
    size = loaded.model.config.vocab_size
    for options in ({"extra_barred": [size]}, {"extra_barred": [-1]}, {"frame": Frame((size,), ())}):
        with pytest.raises(UserError, match=f"outside \\[0, {size}\\)"):
            loaded.conditionals(5, **options)
    with pytest.raises(UserError, match="every token is barred"):
        loaded.conditionals(5, extra_barred=range(size))


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("bert", "[CLS]", "[SEP]"), ("roberta", "<s>", "</s>"), ("modernbert", "[CLS]", "[SEP]")],
)
def test_the_default_frame_is_the_tokenizers(tiny: TinyModels, name: str, before: str, after: str):
    tokenizer = tiny.load(name).tokenizer
    assert default_frame(tokenizer) == Frame(
        (tokenizer.convert_tokens_to_ids(before),), (tokenizer.convert_tokens_to_ids(after),)
    )


@pytest.mark.parametrize("name", KNOWN_HEADS)
def test_a_frame_of_ones_own_stands_around_the_state(tiny: TinyModels, name: str):
    loaded = tiny.load(name)
    frame = Frame((50, 51, 52), (53,))
    conditionals = loaded.conditionals(6, frame=frame)
    bare = loaded.conditionals(10, frame=Frame((), ()))
    states, sites = random_states(conditionals, 12, seed=11)
    around = torch.cat(
        [torch.tensor(frame.before).expand(12, -1), states, torch.tensor(frame.after).expand(12, -1)], dim=1
    )
    keep = allowed(conditionals)
    rows = conditionals.logits(states, sites)[:, keep]
    assert furthest(rows, bare.logits(around, sites + 3)[:, keep]) <= 1e-5
    assert furthest(rows, tiny.conditionals(name, 6).logits(states, sites)[:, keep]) > 0.1


@pytest.mark.parametrize("name", [*ARCHITECTURES, "mpnet"])
def test_the_longest_sequence_is_taken_and_one_more_is_refused(tiny: TinyModels, name: str):
    loaded = tiny.load(name, attention="eager")
    assert longest_sequence(loaded.model, loaded.tokenizer) == LONGEST
    longest = loaded.conditionals(LONGEST - 2)
    rows = longest.logits(*random_states(longest, 3, seed=12))
    assert bool(torch.isfinite(rows[:, allowed(longest)]).all())
    if name != "modernbert":  # rotary positions have no table to run out of
        with pytest.raises((IndexError, RuntimeError)):
            loaded.model(input_ids=torch.full((1, LONGEST + 1), 30))
    with pytest.raises(
        UserError,
        match=rf"39 tokens make 41 with the frame.*at most {LONGEST} in all: choose a length up to 38",
    ):
        loaded.conditionals(LONGEST - 1)
    with pytest.raises(UserError, match=f"make {LONGEST + 1} with the frame.*up to {LONGEST - 5}$"):
        loaded.conditionals(LONGEST - 4, frame=Frame((20,) * 3, (21,) * 2))
    with pytest.raises(UserError, match="at least 1 free token"):
        loaded.conditionals(0)


def test_the_tokenizers_limit_counts_too(tiny: TinyModels):
    tokenizer = copy.deepcopy(tiny.load("bert").tokenizer)
    tokenizer.model_max_length = 16
    with pytest.raises(UserError, match="at most 16 in all: choose a length up to 14"):
        MaskedLanguageModel(tiny.load("bert").model, tokenizer, 15)


def test_a_tokenizer_without_a_mask_is_refused(tiny: TinyModels):
    with pytest.raises(UserError, match="no mask token"):
        MaskedLanguageModel(tiny.load("bert").model, tiny.load("gpt2").tokenizer, 5)


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float64", 1e-12)])
def test_batch_size_and_batch_mates_hardly_move_a_row(
    tiny: TinyModels, name: str, dtype: str, tolerance: float
):
    conditionals = tiny.conditionals(name, dtype=dtype)
    states, sites = random_states(conditionals, 64, seed=13)
    keep = allowed(conditionals)
    together = conditionals.logits(states, sites)[:, keep]
    for size in (1, 5, 32):
        cut = torch.cat(
            [
                conditionals.logits(states[start : start + size], sites[start : start + size])
                for start in range(0, 64, size)
            ]
        )
        assert furthest(cut[:, keep], together) <= tolerance
    order = torch.arange(64).flip(0)
    strangers, places = random_states(conditionals, 64, seed=14)
    mixed = conditionals.logits(torch.cat([states[order], strangers]), torch.cat([sites[order], places]))[
        :64
    ][order]
    assert furthest(mixed[:, keep], together) <= tolerance


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_bfloat16_costs_little_and_something(tiny: TinyModels, name: str):
    half, single = tiny.conditionals(name, dtype="bfloat16"), tiny.conditionals(name)
    assert half.model.dtype == torch.bfloat16
    if name in KNOWN_HEADS:  # the head runs in float32 on weights rounded once
        assert {parameter.dtype for parameter in half._head.parameters()} == {torch.float32}
    states, sites = random_states(half, 100, seed=15)
    rows = half.logits(states, sites)
    assert rows.dtype == half.dtype == torch.float32
    distance = 0.5 * (rows.softmax(dim=1) - single.logits(states, sites).softmax(dim=1)).abs().sum(dim=1)
    assert 1e-4 < float(distance.mean()) < 0.05 and float(distance.max()) < 0.2
    if name in KNOWN_HEADS:  # some logits need more digits than bfloat16 has
        finite = rows[:, allowed(half)]
        assert not torch.equal(finite, finite.bfloat16().float())


def test_a_bfloat16_head_is_the_models_own(tiny: TinyModels):
    for name in KNOWN_HEADS:
        conditionals = tiny.conditionals(name, dtype="bfloat16")
        states, sites = random_states(conditionals, 20, seed=16)
        keep = allowed(conditionals)
        ours, theirs = (
            conditionals.logits(states, sites)[:, keep],
            full_forward(conditionals, states, sites)[:, keep].float(),
        )
        assert furthest(ours, theirs) < 0.3 and float((ours - theirs).abs().mean()) < 0.03


def test_certificates_are_refused_in_bfloat16_and_chains_are_not(tiny: TinyModels):
    half = tiny.conditionals("bert", 4, dtype="bfloat16")
    states, _ = random_states(half, 3, seed=17)
    single = tiny.conditionals("bert", 4)
    assert (half.precision, half.dtype, single.precision) == (torch.bfloat16, torch.float32, torch.float32)
    assert (
        tiny.conditionals("bert", dtype="float64").precision
        == RandomJoint(2, 2, 0).precision
        == torch.float64
    )
    rectangles = draw_rectangles(single, states, seed=1)
    for conditionals in (half, Restricted(half, [0, 1], [states[0, :2].tolist()] * 2), Counting(half)):
        for certificate in (
            lambda: defects(conditionals, rectangles),  # noqa: B023 - called at once
            lambda: draw_rectangles(conditionals, states, seed=1),  # noqa: B023
            lambda: sample_influence(conditionals, states, [1.0], seed=1),  # noqa: B023
            lambda: enumerate_logits(conditionals, states),  # noqa: B023
            lambda: local_view(conditionals, states, [1.0]),  # noqa: B023
        ):
            with pytest.raises(
                UserError,
                match="certificates are computed in float32 or float64, not bfloat16; load the model with dtype float32",
            ):
                certificate()
    stream = RandomStream(1, range(3))
    state, _ = plain.walk(half, plain.initial_state(half, states, 1.0), stream, 0, 5)
    assert not torch.equal(state.tokens, states)
    coalescence(half, states, states.flip(0), 1.0, stream, 5)


def test_models_in_training_mode_are_refused(tiny: TinyModels):
    loaded = tiny.load("bert")
    model = copy.deepcopy(loaded.model)
    model.bert.encoder.layer[1].attention.train()
    with pytest.raises(
        UserError, match=r"training mode \(bert.encoder.layer.1.attention\).*call model.eval\(\) first"
    ):
        MaskedLanguageModel(model, loaded.tokenizer, 5)
    with pytest.raises(UserError, match=r"training mode \(BertForMaskedLM\)"):
        MaskedLanguageModel(model.train(), loaded.tokenizer, 5)
    MaskedLanguageModel(model.eval(), loaded.tokenizer, 5)


def test_rotary_frequencies_are_not_rounded_with_the_weights(tiny: TinyModels):
    names = [name for name, _ in tiny.load("modernbert").model.named_buffers() if "inv_freq" in name]
    assert names
    for dtype in ("bfloat16", "float64"):
        for name in names:
            assert torch.equal(
                tiny.load("modernbert", dtype).model.get_buffer(name).float(),
                tiny.load("modernbert").model.get_buffer(name),
            )


def reconfigured(loaded, **changes) -> MaskedLanguageModel:
    """The same weights under another configuration."""
    config = copy.deepcopy(loaded.model.config)
    for key, value in changes.items():
        setattr(config, key, value)
    model = type(loaded.model)(config)
    model.load_state_dict(loaded.model.state_dict())
    return MaskedLanguageModel(model.eval(), loaded.tokenizer, 10)


def test_fingerprints_change_with_the_law_and_with_nothing_else(tiny: TinyModels):
    loaded = tiny.load("bert")
    base = loaded.conditionals(10)
    nudged = copy.deepcopy(loaded.model)
    with torch.no_grad():
        nudged.cls.predictions.bias[77] += 1e-6
    others = {
        "weights": MaskedLanguageModel(nudged, loaded.tokenizer, 10),
        "architecture": tiny.conditionals("distilbert"),
        "float64": tiny.conditionals("bert", dtype="float64"),
        "bfloat16": tiny.conditionals("bert", dtype="bfloat16"),
        "frame": loaded.conditionals(10, frame=Frame((), ())),
        "side of the frame": loaded.conditionals(10, frame=Frame((10, 11), ())),
        "barred": loaded.conditionals(10, extra_barred=[60]),
        "special": loaded.conditionals(10, allow_special=True),
        "length": loaded.conditionals(11),
        "heads": reconfigured(loaded, num_attention_heads=2),
        "activation": reconfigured(loaded, hidden_act="relu"),
        "epsilon": reconfigured(loaded, layer_norm_eps=1e-5),
    }
    states, sites = random_states(base, 20, seed=18)
    for label in ("heads", "activation"):
        assert (
            furthest(
                others[label].logits(states, sites)[:, allowed(base)],
                base.logits(states, sites)[:, allowed(base)],
            )
            > 1e-3
        )
    fingerprints = [base.fingerprint, *(one.fingerprint for one in others.values())]
    assert len(set(fingerprints)) == len(fingerprints)
    same = {
        "again": loaded.conditionals(10),
        "hashed here": MaskedLanguageModel(copy.deepcopy(loaded.model), loaded.tokenizer, 10),
        "frame spelt out": loaded.conditionals(10, frame=default_frame(loaded.tokenizer)),
        "already barred": loaded.conditionals(10, extra_barred=[0, 0]),
        "attention": tiny.conditionals("bert", attention="eager"),
        "configuration": reconfigured(
            loaded,
            name_or_path="elsewhere",
            architectures=["BertModel"],
            transformers_version="0",
            dtype="float64",
        ),
    }
    assert {label: one.fingerprint for label, one in same.items()} == dict.fromkeys(same, base.fingerprint)


def test_the_digest_covers_names_and_values(tiny: TinyModels):
    first, second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
    second.load_state_dict(first.state_dict())
    assert weights_digest(first) == weights_digest(second)
    with torch.no_grad():
        second.bias[0] = torch.nextafter(second.bias[0], torch.tensor(9.0))
    assert weights_digest(first) != weights_digest(second)
    assert weights_digest(torch.nn.Sequential(first)) != weights_digest(first)


def test_text_and_ids(tiny: TinyModels):
    for name in KNOWN_HEADS:
        conditionals = tiny.conditionals(name)
        ids = conditionals.encode("the best player won the game")
        assert ids and not set(ids) & set(conditionals.barred)
        assert (
            conditionals.decode(torch.tensor(ids))
            == conditionals.decode(ids)
            == "the best player won the game"
        )
        long = conditionals.encode("the game " * 100)  # of any length, and quietly
        assert len(long) >= 200
        assert conditionals.tokenizer.mask_token in conditionals.decode(
            [conditionals.mask_token]
        )  # a wandering chain is shown as it is
    pieces = tiny.conditionals("bert")
    assert pieces.decode(pieces.encode("they said , don't stop!")).endswith("don't stop!")


def test_depth_is_what_the_tiny_models_say(tiny: TinyModels):
    assert {tiny.load(name).model.config.num_hidden_layers for name in ARCHITECTURES} == {LAYERS}

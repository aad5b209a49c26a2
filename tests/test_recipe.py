"""The training recipe: batches and rates by step, what is trained, and runs that go on where they were cut off."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_corpus import write_news
from tiny_models import BUILDERS, randomise, wordpiece
from transformers import BertForMaskedLM

from glauber_mlm import embedded
from glauber_mlm.errors import UserError
from glauber_mlm.training import recipe as recipe_module
from glauber_mlm.training.corpus import Packs, load_packs
from glauber_mlm.training.heldout import SITES_PER_PACK, held_out_loss
from glauber_mlm.training.recipe import Recipe, adapted_model, batches, rate_at, single_mask_loss, train

SMALL = Recipe(
    steps=12,
    batch=4,
    length=16,
    short_share=0.3,
    short_length=9,
    rank=2,
    alpha=4,
    rate=5e-3,
    warmup=0.2,
    held_out_share=0.3,
    seed=5,
)
TOKENIZER = wordpiece()
FRAME = (TOKENIZER.cls_token_id, TOKENIZER.sep_token_id)


def philox(*words: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(list(words)))


def tiny() -> BertForMaskedLM:
    model, _ = BUILDERS["bert"]()
    return randomise(model, seed=1)


def packs(count: int, width: int = 14, first: int = 40) -> Packs:
    """Every token of the stream is another one, so that it tells its place."""
    return Packs(np.arange(first, first + count * width).reshape(count, width), articles=3)


# Batches.

LONG = Recipe(
    steps=400, batch=4, length=16, short_share=0.25, short_length=9, mask_first=0.5, mask_last=0.1, seed=3
)


def whole(inputs: torch.Tensor, targets: torch.Tensor) -> np.ndarray:
    """The tokens before masking."""
    return np.where(targets.numpy() == -100, inputs.numpy(), targets.numpy())


@pytest.mark.parametrize("first", [1, 7, 23, 399])
def test_batches_depend_on_seed_and_step_alone(first: int):
    whole_run = list(batches(packs(30), LONG, TOKENIZER, 0))
    resumed = list(batches(packs(30), LONG, TOKENIZER, first))
    assert len(whole_run) == 400 and len(resumed) == 400 - first
    for once, again in zip(whole_run[first:], resumed, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


def test_another_seed_gives_other_batches():
    first, second = (next(batches(packs(30), replace(LONG, seed=seed), TOKENIZER, 0)) for seed in (3, 4))
    assert first[0].shape != second[0].shape or not torch.equal(first[0], second[0])


def test_masks_fall_on_tokens_of_the_text_only():
    for inputs, targets in batches(packs(30), LONG, TOKENIZER, 0):
        masked = targets != -100
        assert inputs.dtype == targets.dtype == torch.int64 and inputs.shape == targets.shape
        assert bool((inputs[:, 0] == FRAME[0]).all()) and bool((inputs[:, -1] == FRAME[1]).all())
        assert not bool(masked[:, [0, -1]].any())
        assert torch.equal(inputs == TOKENIZER.mask_token_id, masked)


def test_rows_are_stretches_of_the_text():
    for inputs, targets in batches(packs(30), LONG, TOKENIZER, 0):
        rows = whole(inputs, targets)[:, 1:-1]
        assert (np.diff(rows, axis=1) == 1).all() and rows.min() >= 40 and rows.max() < 40 + 30 * 14


def test_short_packs_come_at_their_share_with_as_much_text():
    shapes = [tuple(inputs.shape) for inputs, _ in batches(packs(30), LONG, TOKENIZER, 0)]
    assert set(shapes) == {(4, 16), (8, 9)}  # 14 tokens of text are two pieces of 7
    assert 60 < shapes.count((8, 9)) < 140  # 100 expected, standard deviation 9
    assert {
        inputs.shape for inputs, _ in batches(packs(30), replace(LONG, short_share=0.0), TOKENIZER, 0)
    } == {(4, 16)}


def test_the_masked_share_goes_from_first_to_last():
    shares = np.array(
        [
            float((targets[:, 1:-1] != -100).double().mean())
            for _, targets in batches(packs(30), LONG, TOKENIZER, 0)
        ]
    )
    for part, expected in ((shares[:100], 0.45), (shares[-100:], 0.15)):
        assert part.mean() == pytest.approx(expected, abs=0.025)  # standard error 0.006 at most


def test_an_epoch_repeats_nothing_and_the_next_cuts_elsewhere():
    plain = replace(LONG, short_share=0.0)
    starts = [whole(*batch)[:, 1] for batch in batches(packs(30), plain, TOKENIZER, 0)]
    epoch = np.concatenate(starts[:7])  # 28 packs, of 29 or 30
    assert len(set(epoch.tolist())) == 28 and len(set((epoch % 14).tolist())) == 1
    assert len({int(start[0] % 14) for start in starts}) > 10  # of 14, in 64 epochs
    assert len({start for row in starts for start in row.tolist()}) > 0.8 * 29 * 14


# Rates.


def test_the_rate_rises_to_its_peak_and_falls_to_zero():
    recipe = Recipe(steps=100, rate=2e-3, warmup=0.1)
    rates = np.array([rate_at(step, recipe) for step in range(100)])
    assert (
        rates[0] == pytest.approx(2e-4) and rates.argmax() in (9, 10) and rates.max() == pytest.approx(2e-3)
    )
    assert (np.diff(rates[:10]) > 0).all() and (np.diff(rates[10:]) < 0).all()
    assert np.ptp(np.diff(rates[:10])) < 1e-12 and np.ptp(np.diff(rates[10:])) < 1e-12
    assert 0 < rates[-1] < 2e-3 / 80


def test_the_rate_without_warmup_and_of_one_step():
    assert rate_at(0, Recipe(steps=10, rate=1.0, warmup=0.0)) == 1.0
    assert 0 < rate_at(0, Recipe(steps=1, rate=1.0)) <= 1.0


# What is trained.


def test_the_adapter_starts_at_nothing_and_the_head_at_the_identity():
    base = tiny()
    ids = torch.tensor([[FRAME[0], 40, 41, TOKENIZER.mask_token_id, 43, FRAME[1]]])
    hidden = base.bert(input_ids=ids).last_hidden_state
    act = torch.nn.functional.gelu(hidden)
    expected = (
        torch.nn.functional.layer_norm(act, act.shape[-1:], eps=base.config.layer_norm_eps)
        @ base.bert.embeddings.word_embeddings.weight.T
    )
    model, _ = adapted_model(base, SMALL)
    assert torch.allclose(model(input_ids=ids).logits, expected, atol=1e-5)


def test_trained_are_adapter_norms_transform_and_bias():
    model, trainable = adapted_model(tiny(), SMALL)
    shapes = {name: tuple(parameter.shape) for name, parameter in trainable.items()}
    pairs = [name for name in shapes if "lora_A" in name]
    assert len(pairs) == 12  # six linear maps in each of two layers
    assert all(shapes[name][0] == 2 and shapes[name.replace("lora_A", "lora_B")][1] == 2 for name in pairs)
    others = {name for name in shapes if "lora_" not in name}
    assert {name for name in others if "LayerNorm" not in name} == {
        "cls.predictions.bias",
        "cls.predictions.transform.dense.weight",
        "cls.predictions.transform.dense.bias",
    }
    assert len([name for name in others if "LayerNorm" in name]) == 2 * (1 + 2 * 2 + 1)
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == set(trainable)
    assert not model.bert.embeddings.word_embeddings.weight.requires_grad
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight


def test_the_seed_decides_the_adapter_and_nothing_else_is_drawn():
    bases = [tiny() for _ in range(3)]
    before = torch.get_rng_state()
    first, again, other = (
        adapted_model(base, replace(SMALL, seed=seed))[1] for base, seed in zip(bases, (5, 5, 6), strict=True)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


# Held-out loss.


def test_the_loss_is_that_of_one_masked_token():
    generator = philox(1)
    text = Packs(generator.integers(39, len(TOKENIZER), size=(6, 5)), articles=2)
    model = tiny()
    losses = np.zeros((6, 5))
    for row, site in np.ndindex(6, 5):
        ids = torch.tensor([[FRAME[0], *text.tokens[row], FRAME[1]]])
        ids[0, site + 1] = TOKENIZER.mask_token_id
        with torch.no_grad():
            losses[row, site] = -float(
                model(input_ids=ids).logits[0, site + 1].log_softmax(dim=0)[text.tokens[row, site]]
            )
    mean, error = single_mask_loss(model, text, TOKENIZER, sites_per_pack=5)
    assert mean == pytest.approx(losses.mean(), abs=1e-5)
    assert error == pytest.approx(losses.mean(axis=1).std(ddof=1) / np.sqrt(6), abs=1e-5)
    some = [single_mask_loss(model, text, TOKENIZER, 2, seed=9, batch=batch)[0] for batch in (1, 5, 128)]
    assert max(some) - min(some) < 1e-5 and losses.min() < some[0] < losses.max()


# Runs.


@pytest.fixture(scope="module")
def news(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_news(tmp_path_factory.mktemp("corpus") / "news.zip")


def run(folder: Path, news: Path, recipe: Recipe = SMALL, base: BertForMaskedLM | None = None) -> Path:
    return train(base or tiny(), TOKENIZER, news, folder, recipe, compile_encoder=False, save_every=4)


@dataclass(frozen=True)
class Run:
    folder: Path
    model: BertForMaskedLM


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, news: Path) -> Run:
    folder, model = tmp_path_factory.mktemp("run"), tiny()
    assert run(folder, news, base=model) == folder / "adapter.safetensors"
    return Run(folder, model)


class Cut(Exception):
    """Stands for whatever ends a process."""


@pytest.mark.parametrize("step", [2, 6, 8])
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, news: Path, finished: Run, step: int
):
    def cut(at: int, recipe: Recipe) -> float:
        if at == step:
            raise Cut
        return rate_at(at, recipe)

    with monkeypatch.context() as patch, pytest.raises(Cut):
        patch.setattr(recipe_module, "rate_at", cut)
        run(tmp_path, news)
    assert not (tmp_path / "adapter.safetensors").exists() and (tmp_path / "checkpoint.pt").exists() == (
        step >= 4
    )
    seen = []
    monkeypatch.setattr(recipe_module, "rate_at", lambda at, recipe: seen.append(at) or rate_at(at, recipe))
    run(tmp_path, news)
    assert sorted(set(seen)) == list(range(step // 4 * 4, 12))
    assert (tmp_path / "adapter.safetensors").read_bytes() == (
        finished.folder / "adapter.safetensors"
    ).read_bytes()
    probes = [
        [row["held_out_probe"] for row in json.loads((folder / "log.json").read_text())]
        for folder in (tmp_path, finished.folder)
    ]
    assert probes[0] == probes[1] and len(probes[0]) == 3
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_run_cut_off_after_its_last_checkpoint_takes_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, news: Path, finished: Run
):
    checkpoint = (finished.folder / "checkpoint.pt").read_bytes()
    (tmp_path / "checkpoint.pt").write_bytes(checkpoint)
    monkeypatch.setattr(recipe_module, "rate_at", lambda at, recipe: pytest.fail("a step was taken"))
    run(tmp_path, news)
    assert (tmp_path / "adapter.safetensors").read_bytes() == (
        finished.folder / "adapter.safetensors"
    ).read_bytes()
    written = [json.loads((folder / "training.json").read_text()) for folder in (tmp_path, finished.folder)]
    assert (
        written[0]["seconds"]
        == torch.load(tmp_path / "checkpoint.pt", weights_only=True)["seconds"]
        <= written[1]["seconds"]
    )
    assert written[0]["log"] == written[1]["log"]


def test_a_folder_of_another_recipe_is_refused(news: Path, finished: Run):
    before = {path.name: path.read_bytes() for path in finished.folder.iterdir()}
    with pytest.raises(
        UserError, match="holds a run of another recipe; choose another --out or remove the folder"
    ):
        run(finished.folder, news, replace(SMALL, rate=4e-3))
    assert {path.name: path.read_bytes() for path in finished.folder.iterdir()} == before


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"batch": 600}, "packs to train on and .* held out; at least 602 and 2 are needed"),
        ({"held_out_share": 0.0}, "and 0 held out"),
        ({"short_length": 17}, "short packs of 17 tokens are longer than packs of 16"),
    ],
)
def test_what_cannot_be_trained_on_is_refused(tmp_path: Path, news: Path, other: dict, message: str):
    with pytest.raises(UserError, match=message):
        run(tmp_path, news, replace(SMALL, **other))
    assert not list(tmp_path.iterdir())


def test_the_record_says_what_was_done(news: Path, finished: Run):
    record = json.loads((finished.folder / "training.json").read_text())
    training, held_out = load_packs(news, TOKENIZER, 16, 0.3)
    assert Recipe(**record["recipe"]) == SMALL
    assert (record["training_articles"], record["held_out_articles"]) == (
        training.articles,
        held_out.articles,
    )
    assert (record["training_tokens"], record["held_out_tokens"]) == (
        training.tokens.size,
        held_out.tokens.size,
    )
    tensors = load_file(finished.folder / "adapter.safetensors")
    assert record["trained_parameters"] == sum(tensor.numel() for tensor in tensors.values())
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16}
    assert [row["step"] for row in record["log"]] == [4, 8, 12] and record["log"] == json.loads(
        (finished.folder / "log.json").read_text()
    )
    assert record["seconds"] > 0


def test_a_run_may_end_before_its_schedule_and_another_start_from_it(tmp_path: Path, news: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    train(tiny(), TOKENIZER, news, first, SMALL, compile_encoder=False, save_every=4, stop=6)
    told = json.loads((first / "training.json").read_text())
    assert (
        told["steps_done"] == 6 and told["earlier"] is None and [row["step"] for row in told["log"]] == [4, 6]
    )
    # No step of the second run: its adapter is where it starts.
    _, trainable = adapted_model(tiny(), SMALL)
    assert recipe_module.start_from(first, trainable) == told
    begun = load_file(first / "adapter.safetensors")
    assert all(torch.equal(parameter, begun[name].float()) for name, parameter in trainable.items())
    train(tiny(), TOKENIZER, news, second, replace(SMALL, steps=3), compile_encoder=False, initial=first)
    record = json.loads((second / "training.json").read_text())
    assert record["earlier"] == told and record["steps_done"] == 3
    ended = load_file(second / "adapter.safetensors")
    moved = max(float((ended[name].float() - begun[name].float()).abs().max()) for name in begun)
    assert 0 < moved <= 3 * 3 * SMALL.rate  # AdamW moves a parameter by about the rate a step


@pytest.mark.parametrize(
    ("spoil", "message"),
    [("empty", "holds no run to start from"), ("rank", "use the rank it was trained with")],
)
def test_a_start_that_does_not_fit_is_refused(
    tmp_path: Path, news: Path, finished: Run, spoil: str, message: str
):
    initial = tmp_path if spoil == "empty" else finished.folder
    with pytest.raises(UserError, match=message):
        train(
            tiny(), TOKENIZER, news, tmp_path, replace(SMALL, rank=3), compile_encoder=False, initial=initial
        )


def test_training_lowers_the_loss(tmp_path: Path, news: Path, finished: Run):
    start, _ = adapted_model(tiny(), SMALL)
    _, held_out = load_packs(news, TOKENIZER, 16, 0.3)
    before, after = (
        single_mask_loss(model.eval(), held_out, TOKENIZER, 4)[0] for model in (start, finished.model)
    )
    assert after < before - 0.1


def states() -> Iterator[torch.Tensor]:
    generator = philox(3)
    for _ in range(4):
        ids = torch.from_numpy(generator.integers(39, len(TOKENIZER), size=(8, 16)))
        ids[:, 0], ids[:, -1] = FRAME
        ids[:, 5] = TOKENIZER.mask_token_id
        yield ids


def test_the_merged_adapter_gives_the_trained_model(finished: Run):
    merged = embedded.merge_adapter(tiny(), finished.folder / "adapter.safetensors")
    trained = finished.model.eval()
    rounded = copy.deepcopy(trained)
    with torch.no_grad():
        for parameter in rounded.parameters():
            if parameter.requires_grad:
                parameter.copy_(parameter.half().float())
        for ids in states():
            ours = merged(input_ids=ids).logits
            assert float((ours - rounded(input_ids=ids).logits).abs().max()) < 1e-4
            assert float((ours - trained(input_ids=ids).logits).abs().max()) < 0.02  # what float16 costs
            assert float((ours - tiny()(input_ids=ids).logits).abs().max()) > 0.5


def test_the_held_out_loss_is_that_of_the_merged_model(
    monkeypatch: pytest.MonkeyPatch, news: Path, finished: Run
):
    monkeypatch.setattr(embedded, "untrained_model", lambda attention: tiny())
    monkeypatch.setattr(embedded, "tokenizer", lambda: TOKENIZER)
    found = held_out_loss(news, finished.folder / "adapter.safetensors", SMALL)
    _, held_out = load_packs(news, TOKENIZER, 16, 0.3)
    merged = embedded.merge_adapter(tiny(), finished.folder / "adapter.safetensors")
    assert (found["nats"], found["standard_error"]) == single_mask_loss(
        merged, held_out, TOKENIZER, SITES_PER_PACK
    )
    assert (found["packs"], found["sites"], found["articles"]) == (
        len(held_out.tokens),
        len(held_out.tokens) * SITES_PER_PACK,
        held_out.articles,
    )

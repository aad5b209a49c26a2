"""Starts by kind of model: every architecture of an alphabet starts from germline domains, every model of text from passages."""

from __future__ import annotations

import re
from collections import Counter

import pytest
import torch
from antibody import Loader
from tiny_alphabets import ALPHABETS, TinyAlphabets
from tiny_models import TinyModels

from glauber_mlm.chapters.rectangle_test import study as rectangles
from glauber_mlm.domains import RESIDUES, load_domains
from glauber_mlm.errors import UserError
from glauber_mlm.kernels import plain
from glauber_mlm.models import LoadedModel
from glauber_mlm.passages import load_passages
from glauber_mlm.readings.rectangle import defects, draw_rectangles
from glauber_mlm.text.alphabets import alphabet, domain_states, pairs_for, random_sequences, starts_for
from glauber_mlm.text.starts import starting_pairs, starting_states

pytest_plugins = ("tiny_fixtures", "pretrained_fixtures")


@pytest.fixture(scope="module")
def alphabets(tmp_path_factory: pytest.TempPathFactory) -> TinyAlphabets:
    return TinyAlphabets(tmp_path_factory.mktemp("alphabets"))


# The domains


def test_there_are_a_dozen_domains_of_three_kinds_of_chain():
    domains = load_domains()
    assert Counter(domain.chain for domain in domains) == {"H": 6, "K": 4, "L": 2}
    assert len({domain.sequence for domain in domains}) == 12
    for domain in domains:
        assert domain.v_gene[:4] == f"IG{domain.chain}V" and domain.j_gene[:4] == f"IG{domain.chain}J"
        assert set(domain.sequence) <= set(RESIDUES) and 107 <= len(domain.sequence) <= 118
    assert [domain.chain for domain in load_domains("L")] == ["L", "L"]
    with pytest.raises(UserError, match="the chains are H, K and L"):
        load_domains("X")


@pytest.mark.parametrize("domain", load_domains(), ids=lambda domain: domain.v_gene)
def test_a_domain_has_what_every_variable_domain_has(domain):
    """The two cysteines of the disulfide bond, the tryptophan behind the first, and the motif of J: [WF]GxG."""
    v, j = domain.v, domain.j
    first, second = v.index("C", 18), v.rindex("C")
    assert 21 <= first <= 22 and "W" in v[first + 10 : first + 20]
    assert 60 <= second - first <= 80 and v[second - 2 : second] == "YY"
    assert len(re.findall("WG.G" if domain.chain == "H" else "FG.G", j)) == 1
    assert j.endswith({"H": "VTVSS", "K": "IK", "L": "TVL"}[domain.chain])


def least_likely(loaded: LoadedModel, v: str, j: str) -> float:
    """Least log-probability, given the rest of the domain, of a residue of V."""
    conditionals = loaded.conditionals(len(v + j))
    state = torch.tensor([conditionals.encode(v + j)])
    sites = torch.arange(len(v))
    rows = conditionals.logits(state.expand(len(v), -1), sites).log_softmax(dim=1)
    return float(rows.gather(1, state.T[: len(v)]).min())


@pytest.mark.parametrize(("name", "chains"), [("sapiens-vh", "H"), ("sapiens-vl", "KL")])
def test_germline_domains_are_likely_to_a_model_of_human_antibodies(
    pretrained: Loader, name: str, chains: str
):
    """A residue written wrongly would be a rare one: no residue is unheard of, and one changed on purpose is."""
    for domain in load_domains(chains):
        least = least_likely(pretrained(name), domain.v, domain.j)
        tryptophan = domain.v.index("W", 30)
        spoilt = domain.v[:tryptophan] + "A" + domain.v[tryptophan + 1 :]
        assert least_likely(pretrained(name), spoilt, domain.j) < -4 < -2 < least, domain.name


# Starts


@pytest.mark.parametrize("name", ALPHABETS)
def test_models_of_an_alphabet_start_from_domains(alphabets: TinyAlphabets, name: str):
    conditionals = alphabets.conditionals(name, 24)
    known = alphabet(conditionals)
    assert [conditionals.decode([token]).strip() for token in known] == list(RESIDUES)
    starts = starts_for(conditionals, 5, seed=3)
    assert starts.states.shape == (5, 24) and starts.states.dtype == torch.int64
    assert starts.kind == "germline domains" and len(set(starts.names)) == 5
    by_name = {domain.name: domain for domain in load_domains()}
    for row, domain in zip(starts.states, starts.names, strict=True):
        assert conditionals.decode(row).replace(" ", "") == by_name[domain].sequence[:24]
    assert torch.equal(starts_for(conditionals, 5, seed=3).states, starts.states)
    assert starts_for(conditionals, 5, seed=4).names != starts.names
    everything = starts_for(conditionals, 1000, seed=3)
    assert len(everything.states) == 12 and everything.names[:5] == starts.names
    assert set(starts_for(conditionals, 1000, 3, chains="KL").names) == {d.name for d in load_domains("KL")}


@pytest.mark.parametrize("name", ALPHABETS)
def test_models_of_an_alphabet_run_through_the_engine(alphabets: TinyAlphabets, name: str):
    conditionals = alphabets.conditionals(name, 12)
    starts = starts_for(conditionals, 4, seed=1).states
    delta = defects(conditionals, draw_rectangles(conditionals, starts, seed=1))
    assert torch.isfinite(delta).all() and float(delta.abs().max()) > 1e-3
    double = alphabets.conditionals(name, 12, dtype="float64")
    floor = rectangles.numerical_floor(
        conditionals, double, draw_rectangles(conditionals, starts, seed=1), delta, 1
    )
    assert floor.largest < 1e-3
    state = plain.initial_state(conditionals, starts, 1.0)
    assert torch.equal(state.tokens, starts)
    verdicts = rectangles.verdicts_of_models(
        [str(alphabets.folder(name))], 8, 6, 2, lambda low, high, floor: "seen"
    )
    assert [verdict for _, verdict in verdicts.values()] == ["seen"]


@pytest.mark.parametrize("name", ["bert", "roberta", "modernbert", "distilbert"])
def test_models_of_text_start_from_passages(tiny: TinyModels, name: str):
    conditionals = tiny.conditionals(name, 20)
    assert alphabet(conditionals) is None
    starts = starts_for(conditionals, 6, seed=2)
    states, passages = starting_states(conditionals, 6, seed=2)
    assert torch.equal(starts.states, states)
    assert starts.names == tuple(passage.id for passage in passages) and starts.kind == "passages"
    assert len(starts_for(conditionals, 1000, seed=2).states) == len(load_passages())
    for ours, theirs in zip(pairs_for(conditionals, 3, 5), starting_pairs(conditionals, 3, 5), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(UserError, match="start from passages"):
        random_sequences(conditionals, 2, seed=0)


def test_random_sequences_are_uniform_over_the_residues(alphabets: TinyAlphabets):
    conditionals = alphabets.conditionals("esm", 32)
    states = random_sequences(conditionals, 400, seed=7)
    counts = torch.bincount(states.flatten(), minlength=conditionals.vocabulary)[alphabet(conditionals)]
    assert int(counts.sum()) == states.numel() == 12_800
    expected = 12_800 / 20
    assert float(((counts - expected) ** 2).sum() / expected) < 43.8  # chi-squared of 19 degrees, p = 0.001
    assert torch.equal(random_sequences(conditionals, 5, seed=7), states[:5])
    assert not torch.equal(random_sequences(conditionals, 5, seed=8), states[:5])
    first, second = pairs_for(conditionals, 6, seed=7)
    assert first.shape == second.shape == (6, 32) and not (first == second).all(dim=1).any()


def test_an_alphabet_without_residues_starts_anywhere(alphabets: TinyAlphabets):
    conditionals = alphabets.conditionals("nucleotides", 24)
    assert conditionals.decode(alphabet(conditionals)) == "ACGT"
    starts = starts_for(conditionals, 5, seed=3)
    assert starts.kind == "random sequences" and len(starts.names) == 5
    assert torch.equal(starts.states, random_sequences(conditionals, 5, seed=3))


def test_states_longer_than_the_domains_are_refused(alphabets: TinyAlphabets):
    conditionals = alphabets.conditionals("bert", 108)
    with pytest.raises(UserError, match="has 107 residues, fewer than the length 108; choose a smaller"):
        starts_for(conditionals, 12, seed=0)
    assert domain_states(conditionals, load_domains("H")).shape == (6, 108)

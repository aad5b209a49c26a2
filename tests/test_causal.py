"""Causal models as conditionals, and the chain rule through a masked model: both have a joint law, checked by enumeration."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest
import torch
from tiny_models import LONGEST, TinyModels, random_states

from glauber_mlm.conditionals import Conditionals
from glauber_mlm.conditionals.causal import CausalCandidates, LeftToRight
from glauber_mlm.errors import UserError
from glauber_mlm.exact import glauber as exact
from glauber_mlm.readings.rectangle import Rectangles, defects, draw_rectangles, joint_defects

pytest_plugins = ("tiny_fixtures",)

CANDIDATES = ((40, 90, 41), (260, 7, 33, 8), (55, 270, 280))
GRID = torch.tensor(list(itertools.product(*(sorted(tokens) for tokens in CANDIDATES))))


@pytest.fixture(scope="module")
def control(tiny: TinyModels) -> CausalCandidates:
    loaded = tiny.load("gpt2")
    return CausalCandidates(loaded.model, loaded.tokenizer, CANDIDATES, loaded.digest)


@pytest.fixture(scope="module")
def exactly(tiny: TinyModels) -> CausalCandidates:
    loaded = tiny.load("gpt2", "float64")
    return CausalCandidates(loaded.model, loaded.tokenizer, CANDIDATES, loaded.digest)


def chain_rule(causal: CausalCandidates, state: list[int]) -> float:
    """One sequence, one forward a token, nothing batched."""
    seen, total = [0], 0.0  # <|endoftext|> is token 0
    for token in state:
        with torch.no_grad():
            row = causal.model(input_ids=torch.tensor([seen])).logits[0, -1].double()
        total += float(row[token] - row.logsumexp(0))
        seen.append(token)
    return total


def test_the_joint_is_the_chain_rule(exactly: CausalCandidates, control: CausalCandidates):
    expected = [chain_rule(exactly, state) for state in GRID.tolist()]
    assert exactly.log_joint(GRID).tolist() == pytest.approx(expected, abs=1e-12)
    assert control.log_joint(GRID).tolist() == pytest.approx(expected, abs=1e-4)
    assert np.std(expected) > 0.5


def test_rows_are_ratios_of_the_joint(exactly: CausalCandidates):
    assert isinstance(exactly, Conditionals)
    joint = {tuple(state): chain_rule(exactly, state) for state in GRID.tolist()}
    sites = torch.arange(3).repeat_interleave(len(GRID))
    states = GRID.repeat(3, 1)
    rows = exactly.logits(states, sites)
    assert rows.shape == (len(sites), 300) and rows.dtype == torch.float64
    for state, site, row in zip(states.tolist(), sites.tolist(), rows.softmax(dim=1), strict=True):
        weights = {
            token: np.exp(joint[tuple([*state[:site], token, *state[site + 1 :]])])
            for token in CANDIDATES[site]
        }
        for token, weight in weights.items():
            assert float(row[token]) == pytest.approx(weight / sum(weights.values()), rel=1e-10)
        assert int((row > 0).sum()) == len(CANDIDATES[site])


def test_rows_bar_what_is_no_candidate_and_ignore_the_site_itself(control: CausalCandidates):
    assert control.dtype == torch.float32 and control.free_sites.tolist() == [0, 1, 2]
    states = GRID[:12]
    for site, tokens in enumerate(CANDIDATES):
        sites = torch.full((12,), site)
        rows = control.logits(states, sites)
        assert torch.nonzero(torch.isfinite(rows[0]))[:, 0].tolist() == sorted(tokens)
        assert float(rows.max()) == 0  # rounded to float32 only after the largest is taken away
        changed = states.clone()
        changed[:, site] = 299
        assert torch.allclose(rows, control.logits(changed, sites), atol=1e-5)


def test_the_chain_on_the_candidates_has_the_joint_as_its_law(exactly: CausalCandidates):
    for temperature in (0.5, 1.0, 2.0):
        matrix = exact.transition_matrix(exactly, temperature, GRID)
        mu = torch.softmax(exactly.log_joint(GRID) / temperature, dim=0).numpy()
        assert exact.stationary(matrix) == pytest.approx(mu, rel=1e-9)
        flow = mu[:, None] * matrix
        assert flow == pytest.approx(flow.T, abs=1e-14)


def test_the_control_has_no_defect_and_a_masked_model_has(
    tiny: TinyModels, control: CausalCandidates, exactly: CausalCandidates
):
    states = GRID.repeat(4, 1)
    for causal, floor in ((control, 2e-5), (exactly, 1e-12)):
        rectangles = draw_rectangles(causal, states, seed=3)
        assert float(defects(causal, rectangles).abs().max()) < floor
        assert float(joint_defects(causal.log_joint, rectangles).abs().max()) < floor
    for name in ("bert", "roberta", "modernbert", "distilbert"):
        masked = tiny.conditionals(name)
        states, _ = random_states(masked, 100, seed=4)
        delta = defects(masked, draw_rectangles(masked, states, seed=3))
        assert float(delta.abs().mean()) > 0.01 and float((delta.abs() > 1e-3).double().mean()) > 0.9


def test_a_defect_put_into_the_control_is_seen(exactly: CausalCandidates, monkeypatch: pytest.MonkeyPatch):
    rectangles = draw_rectangles(exactly, GRID, seed=5)
    logits = exactly.logits

    def bent(states, sites):  # one conditional out of tune: site 0 leans on the token at site 2
        rows = logits(states, sites)
        rows[:, 40] += 0.01 * ((sites == 0) & (states[:, 2] == 55))
        return rows

    monkeypatch.setattr(exactly, "logits", bent)
    assert float(defects(exactly, rectangles).abs().max()) == pytest.approx(0.01, rel=1e-6)


def test_fingerprints(tiny: TinyModels, control: CausalCandidates, exactly: CausalCandidates):
    loaded = tiny.load("gpt2")
    other = CausalCandidates(loaded.model, loaded.tokenizer, [*CANDIDATES[:2], (55, 270, 281)], loaded.digest)
    shuffled = CausalCandidates(
        loaded.model, loaded.tokenizer, [tokens[::-1] + tokens[:1] for tokens in CANDIDATES]
    )
    assert len({control.fingerprint, exactly.fingerprint, other.fingerprint}) == 3
    assert (
        shuffled.fingerprint == control.fingerprint
    )  # candidates are sets, and the weights are hashed where no digest is given


def test_bad_candidates_and_tokenizers_are_refused(tiny: TinyModels):
    model, tokenizer = tiny.load("gpt2").model, tiny.load("gpt2").tokenizer
    for candidates, message in (
        ([[1], []], "at least one candidate"),
        ([[1], [300]], r"\[0, 300\)"),
        ([[-1]], r"\[0, 300\)"),
        ([], "at least 1"),
    ):
        with pytest.raises(UserError, match=message):
            CausalCandidates(model, tokenizer, candidates)
    with pytest.raises(UserError, match=f"40 tokens.*at most {LONGEST - 1}"):
        CausalCandidates(model, tokenizer, [[1]] * LONGEST)
    longest = CausalCandidates(model, tokenizer, [[1, 2]] * (LONGEST - 1))
    assert bool(torch.isfinite(longest.log_joint(torch.ones(1, LONGEST - 1, dtype=torch.int64))).all())
    with pytest.raises(UserError, match="no beginning-of-sequence token"):
        CausalCandidates(model, tiny.load("bert").tokenizer, [[1]])


def test_controls_are_refused_in_bfloat16_and_in_training_mode(tiny: TinyModels):
    loaded, masked = tiny.load("gpt2", "bfloat16"), tiny.conditionals("bert", 3, "bfloat16")
    half, left = CausalCandidates(loaded.model, loaded.tokenizer, CANDIDATES), LeftToRight(masked)
    assert half.precision == left.precision == torch.bfloat16 and half.dtype == torch.float32
    one = torch.tensor([0])
    rectangle = Rectangles(GRID[:1], one, one + 2, torch.tensor([90]), torch.tensor([280]))
    for certificate in (
        lambda: joint_defects(half.log_joint, rectangle),
        lambda: joint_defects(left.log_joint, rectangle),
        lambda: defects(half, rectangle),
    ):
        with pytest.raises(UserError, match="float32 or float64, not bfloat16"):
            certificate()
    with pytest.raises(UserError, match=r"training mode \(GPT2LMHeadModel\)"):
        CausalCandidates(copy.deepcopy(loaded.model).train(), loaded.tokenizer, CANDIDATES)


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_left_to_right_is_a_law(tiny: TinyModels, name: str):
    loaded = tiny.load(name)
    kept = [60, 61, 62, 63]
    conditionals = loaded.conditionals(
        3, extra_barred=sorted(set(range(loaded.model.config.vocab_size)) - set(kept))
    )
    states = torch.tensor(list(itertools.product(kept, repeat=3)))
    joint = LeftToRight(conditionals).log_joint(states)
    assert joint.dtype == torch.float64 and joint.shape == (64,)
    assert float(joint.exp().sum()) == pytest.approx(1, abs=1e-6)
    assert float(joint.exp().max() / joint.exp().min()) > 2


def test_left_to_right_is_the_chain_rule_with_the_rest_masked(tiny: TinyModels):
    conditionals = tiny.conditionals("bert", 5)
    states, _ = random_states(conditionals, 6, seed=6)
    kept = states.clone()
    mask, barred = conditionals.mask_token, conditionals.barred
    expected = []
    for state in states.tolist():
        total = 0.0
        for site, token in enumerate(state):
            ids = torch.tensor([[10, *state[:site], *[mask] * (5 - site), 11]])
            with torch.no_grad():
                row = conditionals.model(input_ids=ids).logits[0, 1 + site].double()
            row[barred] = float("-inf")
            total += float(row[token] - row.logsumexp(0))
        expected.append(total)
    assert LeftToRight(conditionals).log_joint(states).tolist() == pytest.approx(expected, abs=1e-4)
    assert torch.equal(states, kept)


def test_left_to_right_has_no_defect_on_the_rectangles_where_its_model_has(tiny: TinyModels):
    for dtype, floor in (("float32", 2e-5), ("float64", 1e-12)):
        conditionals = tiny.conditionals("bert", 6, dtype)
        states, _ = random_states(conditionals, 60, seed=7)
        rectangles = draw_rectangles(conditionals, states, seed=8)
        assert float(joint_defects(LeftToRight(conditionals).log_joint, rectangles).abs().max()) < floor
        assert float(defects(conditionals, rectangles).abs().mean()) > 0.01


def test_rectangles_can_be_written_out(exactly: CausalCandidates):
    one = torch.tensor([0])
    rectangle = Rectangles(GRID[:1], one, one + 2, torch.tensor([90]), torch.tensor([280]))
    assert abs(float(defects(exactly, rectangle))) < 1e-12

"""Influence c_ij(tau): how much the token at j can move the conditional at i.

Sampled influences are lower bounds on maxima over all contexts: no mixing bound may be drawn from them. The bound from the
head's last LayerNorm holds for every pair of contexts of the model at hand, and does give one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from glauber_mlm.checks import BATCH, SEED, a_list, a_number, a_whole, an_instance, checked, shown
from glauber_mlm.conditionals.protocol import (
    Conditionals,
    check_rows,
    of_conditionals,
    require_certifiable,
)
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import check_some_states, check_together, finite
from glauber_mlm.kernels.sampling import check_temperatures, draw, prepare
from glauber_mlm.randomness import RandomStream


@dataclass(frozen=True)
class SampledInfluence:
    """Total variations caused by single-token changes, over sampled contexts.

    Attributes
    ----------
    temperatures : ndarray, shape (T,)
    worst : ndarray, shape (T, m, m)
        Largest TV seen at free site i (first index) when j changed: a lower bound on c_ij. The diagonal is 0.
    mean : ndarray, shape (T, m, m)
        Average over sampled contexts and changes: typical, not a bound.
    changes : int
        Sampled changes for each ordered pair of sites.
    """

    temperatures: np.ndarray
    worst: np.ndarray
    mean: np.ndarray
    changes: int

    @property
    def alpha_row(self) -> np.ndarray:
        """Lower bound on max_i sum_j c_ij (Dobrushin), shape (T,)."""
        return self.worst.sum(axis=2).max(axis=1)

    @property
    def alpha_column(self) -> np.ndarray:
        """Lower bound on max_j sum_i c_ij (path coupling), shape (T,)."""
        return self.worst.sum(axis=1).max(axis=1)

    @property
    def alpha_typical(self) -> np.ndarray:
        """Smaller of the two maxima of summed *mean* influences, shape (T,); what chains feel, not a bound."""
        return np.minimum(self.mean.sum(axis=2).max(axis=1), self.mean.sum(axis=1).max(axis=1))


@checked(conditionals=of_conditionals, temperatures=a_list(1), seed=SEED, batch=BATCH)
def sample_influence(
    conditionals: Conditionals, states: Tensor, temperatures: Sequence[float], *, seed: int, batch: int = 256
) -> SampledInfluence:
    """Measure influences at given states; each free site is changed once to a token drawn uniformly and once to one from its conditional.

    Parameters
    ----------
    states : Tensor of int64, shape (K, n)
        At least one.
    temperatures : sequence of float
        Above 0. All are computed from the same logits.
    seed : int

    Returns
    -------
    SampledInfluence

    Raises
    ------
    UserError
        With fewer than two free sites, where a free site has only one token that may be drawn, for weights in bfloat16, or for logits that are NaN, +inf or
        all -inf.
    """
    require_certifiable(conditionals)
    check_some_states(conditionals, states)
    states = states.to(conditionals.device)
    taus = check_temperatures(list(temperatures), len(temperatures))
    free = conditionals.free_sites.tolist()
    if len(free) < 2:
        raise UserError("influence needs two free sites")
    worst = np.zeros((len(taus), len(free), len(free)))
    total = np.zeros_like(worst)
    sites = torch.tensor(free, device=states.device)

    def rows(tokens: Tensor, places: Tensor, context: int) -> Tensor:
        found = torch.cat(
            [
                conditionals.logits(tokens[s : s + batch], places[s : s + batch])
                for s in range(0, len(tokens), batch)
            ]
        )
        check_rows(found, places, "context", [context] * len(found))
        return found

    for k, state in enumerate(states):
        uniforms = RandomStream(seed, [k]).blocks(0, len(free), states.device)[:, 0]
        base = rows(state.expand(len(free), -1), sites, k)
        own = base.scatter(1, state[sites][:, None], float("-inf"))
        uniform_rows = torch.where(torch.isfinite(own), torch.zeros_like(own), own)
        one = torch.ones(len(free), dtype=torch.float64, device=states.device)
        likely, uniform = prepare(own, one), prepare(uniform_rows, one)
        if not bool((likely.usable & uniform.usable).all()):
            raise UserError(
                f"context {k}: a free site has no second token that may be drawn; free only sites with two allowed tokens or more"
            )
        laws = [_law(base, tau) for tau in taus.tolist()]
        changes = torch.stack([draw(likely, uniforms[:, 0]), draw(uniform, uniforms[:, 1])])
        for column, site in enumerate(free):
            others = [index for index in range(len(free)) if index != column]
            changed = state.repeat(2 * len(others), 1)
            changed[:, site] = changes[:, column].repeat_interleave(len(others))
            moved = rows(changed, sites[others].repeat(2), k)
            for t, tau in enumerate(taus.tolist()):
                after = _law(moved, tau).view(2, len(others), -1)
                distance = 0.5 * (after - laws[t][others]).abs().sum(dim=2, dtype=torch.float64).cpu().numpy()
                worst[t, others, column] = np.maximum(worst[t, others, column], distance.max(axis=0))
                total[t, others, column] += distance.sum(axis=0)
    return SampledInfluence(taus.numpy(), worst, total / (2 * len(states)), 2 * len(states))


def _law(rows: Tensor, temperature: float) -> Tensor:
    """Conditional probabilities, in the dtype of the rows; their rounding (about 1e-7 each) is far below any influence of interest."""
    weights = prepare(rows, torch.full((len(rows),), temperature, dtype=torch.float64, device=rows.device))
    return weights.values / weights.blocks[:, -1:].to(weights.values.dtype)


@checked(oscillation=finite(least=0), temperature=finite(above=0))
def total_variation_bound(oscillation: float | np.ndarray, temperature: float | np.ndarray) -> np.ndarray:
    """Largest TV of two softmaxes whose logits differ by a vector of this oscillation (max - min): tanh(w / 4 tau), sharp."""
    check_together(oscillation=oscillation, temperature=temperature)
    return np.tanh(np.asarray(oscillation) / (4 * np.asarray(temperature)))


def _allowed(name: str, value: Any) -> Tensor:
    """Rule: a tensor of bool; numbers would pick rows by their place."""
    if not isinstance(value, Tensor) or value.dtype != torch.bool or value.ndim != 1:
        raise UserError(f"{name} is {shown(value)}; give a tensor of bool of shape (V,)")
    return value


@checked(model=an_instance(PreTrainedModel), allowed=_allowed, block=a_whole(1))
def logit_oscillation_bound(model: PreTrainedModel, allowed: Tensor, block: int = 2048) -> float:
    """A proved bound on the oscillation of the logit difference between *any* two contexts.

    The head ends in a LayerNorm of gain g and a linear decoder with rows W_a. The normalised vector has mean 0 and norm at most sqrt(d), so
    for two contexts |(s_a - s_b)(x) - (s_a - s_b)(y)| <= 2 sqrt(d) ||g * (W_a - W_b)||, the projection along (1, ..., 1) removed. Biases cancel.

    Parameters
    ----------
    model : PreTrainedModel
        BERT, RoBERTa or ModernBERT with its masked-LM head.
    allowed : Tensor of bool, shape (V,)
        Tokens that may be sampled; the maximum is over pairs of these.

    Returns
    -------
    float
        w, in nats at temperature 1. The maximum over pairs, rounded up: by less than 2e-4 of it for widths up to 1024.

    Raises
    ------
    UserError
        If the head does not end in a LayerNorm and a linear decoder.
    """
    norm, decoder = _last_norm_and_decoder(model)
    if len(allowed) != len(decoder.weight) or not bool(allowed.any()):
        raise UserError(
            f"allowed has {len(allowed)} entries, {int(allowed.sum())} of them True; give one for each "
            f"of the {len(decoder.weight)} rows of the decoder, at least one of them True"
        )
    gain = norm.weight.detach().double()
    rows = decoder.weight.detach().double()[allowed.to(decoder.weight.device)] * gain
    rows = rows - rows.mean(dim=1, keepdim=True)
    rows = rows - rows.mean(dim=0)  # distances stay, and what is common to all rows no longer costs digits
    squares = (rows**2).sum(dim=1)
    single, single_squares = rows.float(), squares.float()
    best = 0.0
    for start in range(0, len(rows), block):
        part = slice(start, start + block)
        rest = torch.addmm(single_squares[start:], single[part], single[start:].T, alpha=-2)  # each pair once
        best = max(best, float((rest.amax(dim=1) + single_squares[part]).max()))
    # The search is in float32: no true square is further above `best` than its rounding, of which this is a bound.
    slack = (rows.shape[1] + 10) * torch.finfo(torch.float32).eps * float(squares.max())
    return 2 * math.sqrt(rows.shape[1]) * math.sqrt(best + slack)


def _last_norm_and_decoder(model: PreTrainedModel) -> tuple[nn.Module, nn.Linear]:
    if hasattr(model, "cls") and hasattr(model.cls, "predictions"):
        norm, decoder = model.cls.predictions.transform.LayerNorm, model.cls.predictions.decoder
    elif hasattr(model, "lm_head") and hasattr(model.lm_head, "layer_norm"):
        norm, decoder = model.lm_head.layer_norm, model.lm_head.decoder
    elif hasattr(model, "head") and hasattr(model.head, "norm"):
        norm, decoder = model.head.norm, model.decoder
    else:
        raise UserError(
            f"no bound is known for the head of {type(model).__name__}: it must end in a LayerNorm and a linear decoder"
        )
    if not isinstance(norm, nn.LayerNorm):
        raise UserError(
            f"no bound is known for the head of {type(model).__name__}: it ends in {type(norm).__name__}, not LayerNorm"
        )
    return norm, decoder


@checked(oscillation=a_number(0), sites=a_whole(1))
def contraction_temperature(oscillation: float, sites: int) -> float:
    """Temperature above which (n - 1) tanh(w / 4 tau) < 1, so that contraction and n log n mixing are proved (n >= 3)."""
    if sites < 3:
        raise UserError("with fewer than 3 sites (n - 1) tanh(.) is below 1 at every temperature")
    return oscillation / (4 * math.atanh(1 / (sites - 1)))


@checked(alpha=an_instance(float, int), sites=a_whole(1), epsilon=a_number(above=0, below=1))
def mixing_bound(alpha: float, sites: int, epsilon: float = 0.25) -> float:
    """Steps by which the chain is mixed to epsilon: ceil(n / (1 - alpha) (log n + log 1/epsilon)); infinite unless alpha < 1.

    A theorem only for a proved (upper bound on) alpha, never for a sampled one.
    """
    if not alpha < 1:
        return math.inf
    return math.ceil(sites / (1 - alpha) * (math.log(sites) + math.log(1 / epsilon)))

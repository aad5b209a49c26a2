"""The deterministic core: a row of logits, a temperature and a uniform give a token.

Weights are exponentials relative to the largest logit, summed in float64 over blocks of `BLOCK` tokens. A uniform is first
placed among the block sums, then inside one block, so that a token of probability 1e-7 comes at its rate even in a float32
row of 30,000 tokens, and a token of weight zero never comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glauber_mlm.checks import a_whole, checked, is_number, shown
from glauber_mlm.errors import UserError

BLOCK = 128
SMALLEST_TEMPERATURE = torch.finfo(torch.float32).tiny
LARGEST_TEMPERATURE = torch.finfo(torch.float32).max  # beyond it a barred token's weight is NaN in float32


@checked(count=a_whole(0))
def check_temperatures(temperature: float | Sequence[float] | Tensor, count: int) -> Tensor:
    """Validate temperatures and give each chain its own.

    Parameters
    ----------
    temperature : float, sequence or Tensor
        One for all chains or one for each; ints and numpy's numbers too. 0 means the argmax (the lowest id
        among ties).
    count : int
        Number of chains.

    Returns
    -------
    Tensor of float64, shape (count,), on the CPU

    Raises
    ------
    UserError
        For what is no number, a temperature that is negative, NaN, or outside float32's normal numbers,
        nested lists, or a wrong number of them.
    """
    plain = temperature.tolist() if isinstance(temperature, Tensor | np.ndarray | np.generic) else temperature
    members = list(plain) if isinstance(plain, list | tuple | range) else [plain]
    if len(members) not in (1, count):
        raise UserError(f"{len(members)} temperatures for {count} chains; give one, or one for each chain")
    for value in members:
        if not is_number(value) or not (value == 0 or SMALLEST_TEMPERATURE <= value <= LARGEST_TEMPERATURE):
            raise UserError(
                f"temperature {shown(value)} is refused; allowed are 0 (argmax) and values from "
                f"{SMALLEST_TEMPERATURE:.3g} to {LARGEST_TEMPERATURE:.3g}"
            )
    values = torch.tensor([float(value) for value in members], dtype=torch.float64)
    return values.expand(count).clone()


@dataclass(frozen=True)
class Weights:
    """Unnormalised probabilities of B rows, ready to be drawn from.

    Attributes
    ----------
    values : Tensor, shape (B, padded V)
        float32 or float64, in [0, 1], zero for barred tokens and for the padding to a multiple of `BLOCK`.
    blocks : Tensor of float64, shape (B, padded V / BLOCK)
        Cumulative sums of `values` at the ends of blocks; the last column is the total.
    """

    values: Tensor
    blocks: Tensor

    @property
    def usable(self) -> Tensor:
        """Tensor of bool, shape (B,): False where the logits had a NaN, a +inf, or no finite entry."""
        total = self.blocks[:, -1]
        return torch.isfinite(total) & (total > 0)


def prepare(logits: Tensor, temperature: Tensor) -> Weights:
    """Weights of `softmax(logits / temperature)`, row by row.

    Parameters
    ----------
    logits : Tensor, shape (B, V)
        float64 rows are kept; all others are computed in float32.
    temperature : Tensor of float64, shape (B,)
        Checked by `check_temperatures`; 0 puts all weight on the first largest logit.

    Returns
    -------
    Weights
    """
    rows, width = logits.shape
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    logits = logits.to(dtype)
    padded = -(-width // BLOCK) * BLOCK
    values = torch.zeros(rows, padded, dtype=dtype, device=logits.device)
    active = values[:, :width]
    divisor = torch.where(temperature == 0, torch.ones_like(temperature), temperature).to(
        device=logits.device, dtype=dtype
    )
    torch.sub(logits, logits.amax(dim=1, keepdim=True), out=active)
    active.div_(divisor[:, None]).exp_()
    greedy = (temperature == 0).to(logits.device)
    if temperature.device.type != "cpu" or bool(greedy.any()):
        top = torch.zeros_like(active).scatter_(1, logits.argmax(dim=1, keepdim=True), 1.0)
        top = torch.where(
            torch.isfinite(logits.amax(dim=1, keepdim=True)), top, torch.full_like(top, float("nan"))
        )
        active.copy_(torch.where(greedy[:, None], top, active))
    blocks = values.view(rows, -1, BLOCK).sum(dim=2, dtype=torch.float64).cumsum(dim=1)
    return Weights(values, blocks)


def draw(weights: Weights, uniform: Tensor) -> Tensor:
    """Inverse of the cumulative law in id order.

    Parameters
    ----------
    weights : Weights
        B rows; rows that are not `usable` give an arbitrary id.
    uniform : Tensor of float64, shape (B,)
        In [0, 1).

    Returns
    -------
    Tensor of int64, shape (B,)
        Token ids, never of weight zero.
    """
    return _draw_from_blocks(weights.values, weights.blocks, uniform)


def _draw_from_blocks(values: Tensor, blocks: Tensor, uniform: Tensor) -> Tensor:
    rows = values.shape[0]
    target = uniform[:, None] * blocks[:, -1:]
    block = torch.searchsorted(blocks, target, right=True)
    # Rounding can place the target at the total: fall back on the block where the total is first reached.
    last = torch.searchsorted(blocks, blocks[:, -1:].contiguous())
    block = torch.minimum(block, last).clamp_(max=blocks.shape[1] - 1)
    before = torch.where(block > 0, blocks.gather(1, (block - 1).clamp_(min=0)), torch.zeros_like(target))
    inside = (
        values.view(rows, -1, BLOCK)
        .gather(1, block[:, :, None].expand(-1, 1, BLOCK))[:, 0]
        .double()
        .cumsum(dim=1)
    )
    place = torch.searchsorted(inside, target - before, right=True)
    place = torch.minimum(place, torch.searchsorted(inside, inside[:, -1:].contiguous())).clamp_(
        max=BLOCK - 1
    )
    return (block * BLOCK + place)[:, 0]


def probability(weights: Weights, tokens: Tensor) -> Tensor:
    """Probabilities of given tokens: float64, shape (B,)."""
    return weights.values.gather(1, tokens[:, None])[:, 0].double() / weights.blocks[:, -1]


def maximal_partner(
    first: Weights, second: Weights, tokens: Tensor, accept: Tensor, residual: Tensor
) -> Tensor:
    """Given X's token drawn from p, the token of Y under the maximal coupling of p and q.

    Y takes X's token with probability min(1, q/p) and otherwise draws from the normalised positive part of q - p,
    so that P(different) = TV(p, q), the least possible (Levin, Peres and Wilmer, Proposition 4.7).

    Parameters
    ----------
    first, second : Weights
        Laws p of X and q of Y, B rows each.
    tokens : Tensor of int64, shape (B,)
        X's tokens, drawn from p.
    accept, residual : Tensor of float64, shape (B,)
        Uniforms in [0, 1), independent of the one that drew `tokens`.

    Returns
    -------
    Tensor of int64, shape (B,)
    """
    p, q = probability(first, tokens), probability(second, tokens)
    keep = (p <= q) | (accept * p < q)
    if keep.device.type == "cpu":
        rows = torch.nonzero(~keep)[:, 0]
        if not len(rows):
            return tokens
    else:  # choosing rows would wait for the device
        rows = torch.arange(len(keep), device=keep.device)
    values, sums = second.values[rows], second.blocks[rows]
    excess = values.double() / sums[:, -1:] - first.values[rows].double() / first.blocks[rows, -1:]
    excess.clamp_(min=0)
    blocks = excess.view(len(rows), -1, BLOCK).sum(dim=2).cumsum(dim=1)
    fresh = _draw_from_blocks(excess, blocks, residual[rows])
    # No positive part is left only where the laws are equal up to rounding: then q itself is drawn from, for it may bar X's token.
    fresh = torch.where(blocks[:, -1] > 0, fresh, _draw_from_blocks(values, sums, residual[rows]))
    partner = tokens.clone()
    partner[rows] = torch.where(keep[rows], tokens[rows], fresh)
    return partner


def total_variation(first: Weights, second: Weights) -> Tensor:
    """Total-variation distances of rows: float64, shape (B,), in [0, 1]."""
    p = first.values.double() / first.blocks[:, -1:]
    q = second.values.double() / second.blocks[:, -1:]
    return 0.5 * (p - q).abs().sum(dim=1)

"""The rectangle test of compatibility (the paper's Section on incompatibility; Kolmogorov's criterion on a 4-cycle).

A rectangle is a state x with tokens a at i and b at j, and alternatives a', b'. Its defect delta is the difference of the log-probability
ratios along the two paths from (a, b) to (a', b'). If one joint law had the conditionals, both paths would telescope and delta would
be zero; at temperature tau the statistic is exactly delta / tau.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from glauber_mlm.checks import BATCH, SEED, an_instance, checked, one_of, shown
from glauber_mlm.conditionals.protocol import (
    Conditionals,
    check_rows,
    of_conditionals,
    require_certifiable,
)
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import a_callable, check_some_states
from glauber_mlm.kernels.sampling import draw, prepare
from glauber_mlm.randomness import RandomStream

Alternatives = Literal["conditional", "top", "uniform"]
ALTERNATIVES = get_args(Alternatives)


@dataclass(frozen=True)
class Rectangles:
    """R rectangles on states of n tokens.

    Attributes
    ----------
    states : Tensor of int64, shape (R, n)
        The corners x, with a at i and b at j.
    i, j : Tensor of int64, shape (R,)
        Two different sites.
    a_new, b_new : Tensor of int64, shape (R,)
        a' and b', different from the tokens that stand there.
    """

    states: Tensor
    i: Tensor
    j: Tensor
    a_new: Tensor
    b_new: Tensor

    def corner(self, new_a: bool, new_b: bool) -> Tensor:
        """States with a or a' at i and b or b' at j."""
        states = self.states.clone()
        if new_a:
            states.scatter_(1, self.i[:, None], self.a_new[:, None])
        if new_b:
            states.scatter_(1, self.j[:, None], self.b_new[:, None])
        return states

    def __len__(self) -> int:
        return len(self.states)

    def take(self, rows: Tensor | slice) -> Rectangles:
        """Some of the rectangles."""
        return Rectangles(self.states[rows], self.i[rows], self.j[rows], self.a_new[rows], self.b_new[rows])


@checked(conditionals=of_conditionals, seed=SEED, alternatives=one_of(*ALTERNATIVES), batch=BATCH)
def draw_rectangles(
    conditionals: Conditionals,
    states: Tensor,
    *,
    seed: int,
    alternatives: Alternatives = "conditional",
    batch: int = 256,
) -> Rectangles:
    """One rectangle on each state: two distinct free sites at random, alternatives by `alternatives`.

    Parameters
    ----------
    states : Tensor of int64, shape (R, n)
        At least one.
    seed : int
        Rectangle r uses chain r of this seed: sites do not depend on how alternatives are drawn.
    alternatives : {"conditional", "top", "uniform"}
        a' is drawn from p(. given x_{-i}) without a; or is the most likely token other than a; or is uniform among the
        tokens that may be drawn, without a. The same for b', given x_{-j}.

    Raises
    ------
    UserError
        With fewer than two free sites, for an unknown way to draw, where only one token may be drawn, for weights in bfloat16, or for logits that are NaN, +inf
        or all -inf.
    """
    require_certifiable(conditionals)
    check_some_states(conditionals, states)
    free = conditionals.free_sites
    if len(free) < 2:
        raise UserError("a rectangle needs two free sites")
    states = states.to(conditionals.device)
    uniforms = RandomStream(seed, range(len(states))).blocks(0, 1, conditionals.device)[0]
    first = (uniforms[:, 0] * len(free)).long()
    second = (first + 1 + (uniforms[:, 1] * (len(free) - 1)).long()) % len(free)
    i, j = free[first], free[second]

    def alternative(sites: Tensor, uniform: Tensor) -> Tensor:
        chosen = []
        for start in range(0, len(states), batch):
            part = slice(start, start + batch)
            rows = conditionals.logits(states[part], sites[part])
            check_rows(rows, sites[part], "rectangle", range(start, start + len(rows)))
            rows = rows.scatter(1, states[part].gather(1, sites[part, None]), float("-inf"))
            if alternatives == "uniform":
                rows = torch.where(torch.isfinite(rows), torch.zeros_like(rows), rows)
            temperature = (
                torch.zeros(len(rows), dtype=torch.float64)
                if alternatives == "top"
                else torch.ones(len(rows), dtype=torch.float64)
            )
            weights = prepare(rows, temperature.to(rows.device))
            if not bool(weights.usable.all()):
                raise UserError("a site of a rectangle has no second token that may be drawn")
            chosen.append(draw(weights, uniform[part]))
        return torch.cat(chosen)

    return Rectangles(states, i, j, alternative(i, uniforms[:, 2]), alternative(j, uniforms[:, 3]))


def _check_rectangles(conditionals: Conditionals, rectangles: Rectangles) -> None:
    """Refuse rectangles that are not on states of these conditionals."""
    check_some_states(conditionals, rectangles.states)
    ends = {"i": conditionals.length, "j": conditionals.length}
    ends |= {"a_new": conditionals.vocabulary, "b_new": conditionals.vocabulary}
    for name, end in ends.items():
        values = getattr(rectangles, name)
        fits = isinstance(values, Tensor) and values.dtype == torch.int64
        if (
            not fits
            or values.shape != (len(rectangles),)
            or not 0 <= int(values.min()) <= int(values.max()) < end
        ):
            raise UserError(
                f"{name} of the rectangles is {shown(values)}; give a tensor of int64, "
                f"shape ({len(rectangles)},), in [0, {end})"
            )


@checked(conditionals=of_conditionals, rectangles=an_instance(Rectangles), batch=BATCH)
def defects(conditionals: Conditionals, rectangles: Rectangles, batch: int = 256) -> Tensor:
    """delta of each rectangle at temperature 1, from four rows of conditionals.

    Differences of logits are formed in float64; the rows have the precision of the model.

    Returns
    -------
    Tensor of float64, shape (R,), on the CPU
        In nats. `delta != 0` beyond the numerical floor certifies that no joint law has these conditionals.

    Raises
    ------
    UserError
        For no rectangles, or rectangles of another model: see `Rectangles` for what they hold. If a
        conditional of a rectangle gives one of its tokens probability zero: delta is not defined there. For weights
        in bfloat16, or logits that are NaN, +inf or all -inf.
    """
    require_certifiable(conditionals)
    _check_rectangles(conditionals, rectangles)
    results = []
    for start in range(0, len(rectangles), batch):
        part = rectangles.take(slice(start, start + batch))
        numbers = range(start, start + len(part))
        a, b = part.states.gather(1, part.i[:, None]), part.states.gather(1, part.j[:, None])

        def odds(states: Tensor, sites: Tensor, new: Tensor, old: Tensor, numbers: range = numbers) -> Tensor:
            rows = conditionals.logits(states, sites)
            check_rows(rows, sites, "rectangle", numbers)
            return rows.gather(1, new[:, None])[:, 0].double() - rows.gather(1, old)[:, 0].double()

        first = odds(part.corner(False, False), part.i, part.a_new, a) + odds(
            part.corner(True, False), part.j, part.b_new, b
        )
        second = odds(part.corner(False, False), part.j, part.b_new, b) + odds(
            part.corner(False, True), part.i, part.a_new, a
        )
        results.append((first - second).cpu())
    delta = torch.cat(results)
    undefined = torch.nonzero(~torch.isfinite(delta))[:, 0].tolist()
    if undefined:
        raise UserError(
            f"rectangle {undefined[0]} uses a token that may not be drawn at its site, so it has no defect; start from states of allowed tokens"
        )
    return delta


@checked(log_joint=a_callable, rectangles=an_instance(Rectangles), batch=BATCH)
def joint_defects(log_joint: Callable[[Tensor], Tensor], rectangles: Rectangles, batch: int = 64) -> Tensor:
    """delta of each rectangle when conditionals are ratios of a joint law: the control, zero up to rounding.

    Each of the four log-ratios is formed from two evaluations of its own, in batches of other sizes, so that what
    is left shows the rounding and not an algebraic identity.

    Parameters
    ----------
    log_joint : callable
        States, int64 of shape (B, n), to log probabilities in nats, shape (B,).

    Returns
    -------
    Tensor of float64, shape (R,), on the CPU

    Raises
    ------
    UserError
        If it is a method of conditionals in bfloat16.
    """
    owner = getattr(log_joint, "__self__", None)
    if hasattr(owner, "precision"):
        require_certifiable(owner)
    corners = {(p, q): rectangles.corner(p, q) for p in (False, True) for q in (False, True)}
    edges = (
        ((True, False), (False, False)),
        ((True, True), (True, False)),
        ((False, True), (False, False)),
        ((True, True), (False, True)),
    )
    ratios = []
    for index, (new, old) in enumerate(edges):
        rows = max(1, batch // (index + 1))  # other batch shapes for each edge
        both = torch.cat([corners[new], corners[old]])
        values = torch.cat(
            [log_joint(both[start : start + rows]).double().cpu() for start in range(0, len(both), rows)]
        )
        ratios.append(values[: len(rectangles)] - values[len(rectangles) :])
    return ratios[0] + ratios[1] - ratios[2] - ratios[3]

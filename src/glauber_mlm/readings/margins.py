"""Local margins and exact one-step escape probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glauber_mlm.checks import BATCH, a_list, a_whole, checked
from glauber_mlm.conditionals.protocol import (
    Conditionals,
    check_rows,
    of_conditionals,
    require_certifiable,
)
from glauber_mlm.inputs import check_some_states, check_together, finite
from glauber_mlm.kernels.sampling import check_temperatures, prepare


@dataclass(frozen=True)
class LocalView:
    """What the n conditionals of a state say of it.

    Attributes
    ----------
    margins : ndarray of float64, shape (K, m)
        Logit of the token that stands at each free site minus the best other one, in nats at temperature 1. Positive: it is the argmax.
    escapes : ndarray of float64, shape (T, K)
        Exact probability that one step leaves the state.
    temperatures : ndarray, shape (T,)
    """

    margins: np.ndarray
    escapes: np.ndarray
    temperatures: np.ndarray

    @property
    def local_margin(self) -> np.ndarray:
        """gamma of each state, shape (K,): the least margin; `gamma > 0` makes it a local maximum of every conditional."""
        return self.margins.min(axis=1)

    @property
    def argmax_fraction(self) -> np.ndarray:
        """Share of sites whose token is the argmax of its conditional, shape (K,)."""
        return (self.margins >= 0).mean(axis=1)


@checked(conditionals=of_conditionals, temperatures=a_list(1), batch=BATCH)
def local_view(
    conditionals: Conditionals, states: Tensor, temperatures: Sequence[float], batch: int = 256
) -> LocalView:
    """Margins, and escape probabilities `1 - (1/m) sum_i p_tau(x_i given x_{-i})`, from m rows for each state.

    The probability of leaving is summed over the other tokens, so that it keeps its digits when it is tiny.

    Parameters
    ----------
    states : Tensor of int64, shape (K, n)
        At least one.
    temperatures : sequence of float

    Raises
    ------
    UserError
        For weights in bfloat16, states or temperatures out of range, or logits that are NaN, +inf or all -inf.
    """
    require_certifiable(conditionals)
    check_some_states(conditionals, states)
    states = states.to(conditionals.device)
    taus = check_temperatures(list(temperatures), len(temperatures))
    free = conditionals.free_sites
    count, sites = len(states), len(free)
    tokens = states.repeat_interleave(sites, dim=0)
    places = free.repeat(count)
    margins, leaving = [], []
    for start in range(0, len(tokens), batch):
        part = slice(start, start + batch)
        rows = conditionals.logits(tokens[part], places[part])
        check_rows(rows, places[part], "state", torch.arange(start, start + len(rows)) // sites)
        own = tokens[part].gather(1, places[part, None])
        others = rows.scatter(1, own, float("-inf"))
        margins.append((rows.gather(1, own)[:, 0].double() - others.amax(dim=1).double()).cpu())
        by_temperature = []
        for tau in taus.tolist():
            weights = prepare(rows, torch.full((len(rows),), tau, dtype=torch.float64, device=rows.device))
            rest = weights.values.double().scatter(1, own, 0.0).sum(dim=1)
            by_temperature.append((rest / (rest + weights.values.gather(1, own)[:, 0].double())).cpu())
        leaving.append(torch.stack(by_temperature))
    escapes = torch.cat(leaving, dim=1).reshape(len(taus), count, sites).mean(dim=2)
    return LocalView(torch.cat(margins).reshape(count, sites).numpy(), escapes.numpy(), taus.numpy())


@checked(margin=finite(), temperature=finite(above=0), tokens=a_whole(1))
def escape_bound(margin: np.ndarray, temperature: np.ndarray, tokens: int) -> np.ndarray:
    """The paper's bound on leaving a state of local margin gamma in one step: (|V| - 1) exp(-gamma / tau).

    Parameters
    ----------
    margin : array of float
        Finite, in nats at temperature 1.
    temperature : array of float
        Above 0; of a shape that goes with that of `margin`.
    tokens : int
        |V|, tokens that may be drawn at a site.

    Notes
    -----
    It is above 1, and says nothing, unless gamma > tau log(|V| - 1).
    """
    check_together(margin=margin, temperature=temperature)
    with np.errstate(over="ignore"):  # the bound of a negative margin in the cold is infinite
        return (tokens - 1) * np.exp(-np.asarray(margin) / np.asarray(temperature))

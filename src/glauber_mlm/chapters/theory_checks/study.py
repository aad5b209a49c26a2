"""Chapter 1: exact restricted chains, and states of positive margin."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from glauber_mlm.checks import SEED, a_whole, an_instance, checked, number_list
from glauber_mlm.conditionals import Restricted
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.conditionals.protocol import Conditionals, check_states, of_conditionals
from glauber_mlm.errors import UserError
from glauber_mlm.exact import finite_chain
from glauber_mlm.exact import glauber as exact
from glauber_mlm.exact.enumeration import enumerate_logits, enumerate_states
from glauber_mlm.inputs import a_state_list, a_text_model, generator
from glauber_mlm.kernels import plain
from glauber_mlm.randomness import RandomStream
from glauber_mlm.readings.influence import mixing_bound

LONGEST_RESOLVED = 2**40
ROUNDED_PRODUCTION = 1e-12  # nats a step; tests/test_exact.py holds reversible chains to it


@checked(conditionals=of_conditionals, free=a_whole(2), tokens=a_whole(2), seed=SEED)
def restrict_to_likely(
    conditionals: Conditionals, state: Tensor, free: int, tokens: int, seed: int
) -> Restricted:
    """Free `free` random sites of a state and allow there its own token and the `tokens` - 1 most likely others.

    Parameters
    ----------
    state : Tensor of int64, shape (n,)
    free, tokens : int
        The chain has `tokens ** free` states.
    """
    check_states(conditionals, state[None] if isinstance(state, Tensor) else state)
    if free > len(conditionals.free_sites):
        raise UserError(
            f"{free} free sites is out of range; free at least 2 and at most {len(conditionals.free_sites)}"
        )
    order = generator(seed, 2**35).permutation(conditionals.free_sites.cpu().numpy())
    sites = sorted(int(site) for site in order[:free])
    places = torch.tensor(sites, device=conditionals.device)
    state = state.to(conditionals.device)
    rows = conditionals.logits(state.expand(free, -1), places)
    own = state[places]
    others = rows.scatter(1, own[:, None], float("-inf"))
    if (fewest := int(torch.isfinite(others).sum(dim=1).min()) + 1) < tokens:
        raise UserError(f"{tokens} tokens are asked for at a site that has {fewest}; allow at most {fewest}")
    best = others.topk(tokens - 1, dim=1).indices
    allowed = torch.cat([own[:, None], best], dim=1)
    return Restricted(conditionals, sites, allowed.tolist())


@checked(restricted=an_instance(Restricted), temperatures=number_list(above=0, members=1))
def restricted_chain(restricted: Restricted, base: Tensor, temperatures: Sequence[float]) -> pd.DataFrame:
    """Everything about a restricted chain that can be computed exactly, by temperature.

    Parameters
    ----------
    restricted : Restricted
    base : Tensor of int64, shape (n,)
        Tokens of the frozen sites.
    temperatures : sequence of float
        All from one set of logits.

    Returns
    -------
    DataFrame
        `temperature`; `alpha_row`, `alpha_column`, `alpha` (exact for this chain); `mixing_time` (t_mix(1/4) in steps, NaN above 2**40); `bound`
        (path-coupling bound in steps, infinite unless alpha < 1); `gap`, `gap_resolved`; `lower_bound` (1 / (4 Phi) in steps, from a sweep cut);
        `entropy_production` (nats a step); `largest_mass` (of one state under mu).

    Notes
    -----
    The chain with all tokens at all sites is another chain; nothing here bounds it.
    """
    table = enumerate_logits(restricted, enumerate_states(restricted, base))
    sites = len(restricted.free_sites)
    rows = []
    for temperature in temperatures:
        matrix = exact.transition_matrix(table, temperature)
        mu = finite_chain.stationary(matrix)
        row, column = exact.dobrushin(exact.influence_matrix(table, temperature))
        mixing = finite_chain.mixing_time(matrix, mu, 0.25, LONGEST_RESOLVED)
        gap = finite_chain.spectral_gap(matrix)
        cut = finite_chain.sweep_cut(matrix, mu)[0]
        rows.append(
            {
                "temperature": float(temperature),
                "alpha_row": row,
                "alpha_column": column,
                "alpha": min(row, column),
                "mixing_time": math.nan if mixing is None else float(mixing),
                "bound": mixing_bound(min(row, column), sites),
                "gap": gap.value,
                "gap_resolved": gap.resolved,
                "lower_bound": 1 / (4 * cut),
                "entropy_production": exact.entropy_production(table, temperature, mu),
                "largest_mass": float(mu.max()),
            }
        )
    return pd.DataFrame(rows)


@checked(conditionals=of_conditionals, states=a_state_list, sweeps=a_whole(0), seed=SEED)
def descend(conditionals: Conditionals, states: Tensor, sweeps: int, seed: int) -> Tensor:
    """Run chains at temperature 0 for `sweeps` sweeps: each visited site takes its argmax.

    Returns
    -------
    Tensor of int64, shape (K, n), on the CPU
        Most are local maxima of every conditional if `sweeps` is large; `local_view` says which.
    """
    state = plain.initial_state(conditionals, states, 0.0)
    stream = RandomStream(seed, range(len(states)))
    final, _ = plain.walk(conditionals, state, stream, 0, sweeps * conditionals.length)
    return final.tokens.cpu()


@checked(conditionals=a_text_model)
def allowed_tokens(conditionals: MaskedLanguageModel) -> Tensor:
    """Which tokens may be sampled: bool, shape (V,)."""
    allowed = torch.ones(conditionals.vocabulary, dtype=torch.bool)
    allowed[conditionals.barred] = False
    return allowed

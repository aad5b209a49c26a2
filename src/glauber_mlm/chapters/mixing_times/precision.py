"""What floating point does to conditionals and to trajectories."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch
from torch import Tensor

from glauber_mlm.checks import SEED, a_whole, a_word, checked, number_list
from glauber_mlm.conditionals.protocol import Conditionals, of_conditionals
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import a_state_list, check_some_states, keyed
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.event import EventDriven
from glauber_mlm.kernels.sampling import prepare, total_variation
from glauber_mlm.randomness import RandomStream


@checked(
    low=of_conditionals,
    high=of_conditionals,
    temperatures=number_list(0, members=1),
)
def precision_cost(
    low: Conditionals, high: Conditionals, states: Tensor, temperatures: Sequence[float]
) -> pd.DataFrame:
    """Total variation between the conditionals of one model in two precisions, at the sites of given states.

    Parameters
    ----------
    low, high : Conditionals
        One model in two precisions.
    states : Tensor of int64, shape (K, n)
        At least one.
    temperatures : sequence of float
        At least 0.

    Returns
    -------
    DataFrame
        `temperature`, `mean TV of one step`, `largest seen` (over sites and states).
    """
    check_some_states(low, states)
    if (high.length, high.vocabulary) != (low.length, low.vocabulary):
        raise UserError(
            "low and high are conditionals of other lengths or vocabularies; give one model in two precisions"
        )
    free = low.free_sites
    tokens, sites = states.to(low.device).repeat_interleave(len(free), dim=0), free.repeat(len(states))
    rows = [
        torch.cat([model.logits(tokens[s : s + 256], sites[s : s + 256]) for s in range(0, len(tokens), 256)])
        for model in (low, high)
    ]
    table = []
    for tau in temperatures:
        at = torch.full((len(tokens),), float(tau), dtype=torch.float64, device=low.device)
        distance = total_variation(prepare(rows[0], at), prepare(rows[1].to(rows[0].dtype), at)).cpu()
        table.append(
            {
                "temperature": float(tau),
                "mean TV of one step": float(distance.mean()),
                "largest seen": float(distance.max()),
            }
        )
    return pd.DataFrame(table)


@checked(models=keyed(a_word, of_conditionals), states=a_state_list, steps=a_whole(1), seed=SEED)
def divergence(
    models: dict[str, Conditionals], states: Tensor, temperature: float, steps: int, seed: int
) -> pd.DataFrame:
    """When trajectories with the same randomness part, by what differs: batch mates, kernel, or precision.

    Each chain of the reference runs in one batch with the plain kernel. It is compared with the chains run one by one, run by the event-driven kernel, and run in
    each other model of `models`.

    Parameters
    ----------
    models : dict of str to Conditionals
        The first is the reference; the others are the same model in other precisions.

    Returns
    -------
    DataFrame
        `compared with`, `chains`, `chains that part` (within `steps`), `first at step` (earliest at which one does; missing if none).
    """
    names = list(models)
    reference = models[names[0]]
    stream = RandomStream(seed, range(len(states)))

    def trajectory(conditionals: Conditionals) -> Tensor:
        return plain.walk(
            conditionals, plain.initial_state(conditionals, states, temperature), stream, 0, steps
        )[1].tokens

    base = trajectory(reference)
    alone = torch.cat(
        [
            plain.walk(
                reference,
                plain.initial_state(reference, states[k : k + 1], temperature),
                stream.subset([k]),
                0,
                steps,
            )[1].tokens
            for k in range(len(states))
        ],
        dim=1,
    )
    event = (
        EventDriven(reference)
        .walk(plain.initial_state(reference, states, temperature), stream, 0, steps)[1]
        .tokens
    )
    others = {f"{names[0]}, each chain alone": alone, f"{names[0]}, event-driven": event} | {
        name: trajectory(models[name]) for name in names[1:]
    }
    rows = []
    for name, tokens in others.items():
        differs = tokens != base
        parted = differs.any(dim=0)
        first = int(torch.nonzero(differs.any(dim=1))[0]) if bool(parted.any()) else None
        rows.append(
            {
                "compared with": name,
                "chains": len(states),
                "chains that part": int(parted.sum()),
                "first at step": first,
            }
        )
    return pd.DataFrame(rows).astype({"first at step": "Int64"})

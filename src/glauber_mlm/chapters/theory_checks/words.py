"""Chapter 1 in words: contraction of the exact chains, and the margins of settled states."""

from __future__ import annotations

import numpy as np
import pandas as pd
from torch import Tensor

from glauber_mlm.chapters.theory_checks.study import ROUNDED_PRODUCTION
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.readings.margins import LocalView


def _tightest(chains: pd.DataFrame) -> float:
    """Smallest ratio of the path-coupling bound to the exact mixing time, where alpha is below 1."""
    return float((chains["bound"] / chains["mixing_time"])[chains["alpha"] < 1].min())


def count_contraction(chains: pd.DataFrame) -> str:
    """For the ledger."""
    proved = int((chains["alpha"] < 1).sum())
    return (
        f"bound / exact mixing time at least {_tightest(chains):.2f} in {proved} contracting cases"
        if proved
        else "no case with alpha below 1"
    )


def describe_contraction(chains: pd.DataFrame) -> str:
    """What the exact restricted chains show, as a paragraph; see `restricted_chain` for the columns."""
    proved, ratio, production = (
        int((chains["alpha"] < 1).sum()),
        _tightest(chains),
        chains["entropy_production"],
    )
    text = f"α is below 1 in {proved} of {len(chains)} cases (chain and temperature)"
    if not proved:
        text += ", so the theorem has nothing to say here."
    elif ratio >= 1:
        text += f", and in each of them the exact mixing time is within the bound, which is at best {ratio:.1f} times too long."
    else:
        text += f", and in one of them the exact mixing time is **beyond the bound**: bound over time is {ratio:.3f}."
    text += f" Entropy production is between {production.min():.1e} and {production.max():.1e} nats a step; a reversible chain has 0 and shows up to {ROUNDED_PRODUCTION:.0e} from rounding."
    return (
        text
        + f" The spectral gap is below what float64 resolves in {int((~chains['gap_resolved']).sum())} of {len(chains)} cases."
    )


def settled_table(
    view: LocalView, conditionals: MaskedLanguageModel, states: Tensor, top: int
) -> pd.DataFrame:
    """The local maxima of largest margin: margin, mean dwell at the coldest and the hottest temperature (1 / escape, in steps), text."""
    ends = {int(np.argmin(view.temperatures)), int(np.argmax(view.temperatures))}
    dwells = {
        f"mean dwell at τ = {view.temperatures[k]:g} (steps)": 1 / np.maximum(view.escapes[k], 1e-300)
        for k in sorted(ends, key=lambda k: view.temperatures[k])
    }
    frame = pd.DataFrame(
        {"margin (nats)": view.local_margin, **dwells, "text": [conditionals.decode(row) for row in states]}
    )
    return frame[view.local_margin > 0].sort_values("margin (nats)", ascending=False, kind="stable").head(top)


def describe_margins(before: LocalView, after: LocalView, informative: int, verdict: str) -> str:
    """How many states are local maxima, and where the margin bound says something; Markdown."""
    maxima = int((after.local_margin > 0).sum())
    cases = maxima * len(after.temperatures)
    text = f"{maxima} of {len(after.local_margin)} settled states are local maxima of every conditional; of the passages they came from, {int((before.local_margin > 0).sum())} were."
    if not maxima:
        return text + " The margin theorem has nothing to say here."
    return (
        text
        + f" Of {cases} cases (state and temperature) the bound is below 1 in {informative}; elsewhere it says nothing. Verdict of the comparison with the exact escape probabilities: **{verdict}**."
    )

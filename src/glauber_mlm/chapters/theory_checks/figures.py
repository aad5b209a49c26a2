"""Figures of chapter 1."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from glauber_mlm.chapters.base.show import WIDTH
from glauber_mlm.readings.influence import SampledInfluence, total_variation_bound
from glauber_mlm.readings.margins import LocalView, escape_bound


def restricted_chains(frame: pd.DataFrame) -> Figure:
    """Exact mixing time with its bounds, exact influence, and entropy production, against temperature.

    There is a line for each chain. Left: the exact time, dashed the path-coupling bound where it is finite,
    dotted the lower bound from a sweep cut. Middle: below the dashed line contraction is proved. All axes are
    logarithmic but that of the influence.

    Parameters
    ----------
    frame : DataFrame
        As `restricted_chain` gives it, with the column `chain`.
    """
    figure, axes = plt.subplots(1, 3, figsize=(WIDTH * 1.25, 3.4))
    for index, (_, part) in enumerate(frame.groupby("chain")):
        label = (
            {
                "exact": "exact $t_{mix}(1/4)$",
                "upper": "path-coupling bound",
                "lower": r"$1/(4\Phi)$, sweep cut",
            }
            if index == 0
            else {}
        )
        axes[0].plot(
            part["temperature"],
            part["mixing_time"],
            "o-",
            color="C0",
            ms=3,
            lw=1,
            alpha=0.8,
            label=label.get("exact"),
        )
        proved = part[np.isfinite(part["bound"])]
        axes[0].plot(
            proved["temperature"],
            proved["bound"],
            "s--",
            color="C3",
            ms=3,
            lw=1,
            alpha=0.8,
            label=label.get("upper"),
        )
        axes[0].plot(
            part["temperature"],
            part["lower_bound"],
            ":",
            color="C2",
            lw=1.2,
            alpha=0.8,
            label=label.get("lower"),
        )
        axes[1].plot(part["temperature"], part["alpha"], "o-", color="C0", ms=3, lw=1, alpha=0.8)
        axes[2].plot(part["temperature"], part["entropy_production"], "o-", color="C0", ms=3, lw=1, alpha=0.8)
    axes[1].axhline(1, color="0.4", lw=0.8, ls="--")
    axes[0].set(xscale="log", yscale="log", xlabel=r"temperature $\tau$", ylabel="steps")
    axes[0].set_ylim(top=8 * axes[0].get_ylim()[1])  # room for the legend
    axes[1].set(xscale="log", xlabel=r"temperature $\tau$", ylabel=r"exact influence $\alpha(\tau)$")
    axes[2].set(
        xscale="log", yscale="log", xlabel=r"temperature $\tau$", ylabel="entropy production (nats a step)"
    )
    axes[0].legend(fontsize=8)
    return figure


def influences(sampled: SampledInfluence, oscillation: float, sites: int, threshold: float) -> Figure:
    """Sampled lower bounds, typical values and the proved upper bound of alpha against temperature.

    Both axes are logarithmic. An upper bound below the dashed line, 1, proves contraction; the dotted line is
    the temperature from which on that holds.

    Parameters
    ----------
    sampled : SampledInfluence
    oscillation : float
        Proved bound on that of the logits, in nats.
    sites : int
    threshold : float
        Temperature at which the proved bound is 1.
    """
    figure, axis = plt.subplots(figsize=(WIDTH * 0.8, 3.8))
    taus = sampled.temperatures
    axis.plot(
        taus,
        np.minimum(sampled.alpha_row, sampled.alpha_column),
        "o-",
        ms=4,
        color="C0",
        label="worst sampled (lower bound)",
    )
    axis.plot(taus, sampled.alpha_typical, "^-", ms=4, color="C2", label="typical (average)")
    fine = np.geomspace(taus.min(), max(taus.max(), 1.5 * threshold), 200)
    axis.plot(
        fine,
        (sites - 1) * total_variation_bound(oscillation, fine),
        color="C3",
        label=r"proved: $(n-1)\tanh(w/4\tau)$",
    )
    axis.axhline(1, color="0.4", lw=0.8, ls="--")
    axis.axvline(threshold, color="C3", lw=0.8, ls=":")
    axis.set(xscale="log", yscale="log", xlabel=r"temperature $\tau$", ylabel=r"$\alpha(\tau)$")
    axis.legend(fontsize=8)
    return figure


def escapes(passages: LocalView, settled: LocalView, tokens: int) -> Figure:
    """Margins of passages and settled states (left), and escapes from the latter of positive margin (right).

    Margins are those of all sites. The histograms are densities; the dashed line is margin 0. The
    probabilities are exact and on a logarithmic axis, one line a state, against *inverse* temperature; the
    dashed line is the margin bound of the state of largest margin, drawn at 1 where it is above.

    Parameters
    ----------
    passages, settled : LocalView
    tokens : int
        Tokens that may be drawn at a site.
    """
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH * 1.1, 3.6))
    bins = np.linspace(
        min(passages.margins.min(), settled.margins.min()),
        max(passages.margins.max(), settled.margins.max()),
        50,
    )
    axes[0].hist(passages.margins.ravel(), bins, color="C1", alpha=0.6, density=True, label="passages")
    axes[0].hist(
        settled.margins.ravel(),
        bins,
        color="C0",
        alpha=0.6,
        density=True,
        label=r"after descent at $\tau = 0$",
    )
    axes[0].axvline(0, color="0.4", lw=0.8, ls="--")
    axes[0].set(xlabel="margin of the token that stands there (nats)", ylabel="density over sites")
    axes[0].legend(fontsize=8)
    taus = settled.temperatures
    positive = np.nonzero(settled.local_margin > 0)[0]
    for index, state in enumerate(positive):
        axes[1].plot(
            1 / taus,
            settled.escapes[:, state],
            color="C0",
            lw=0.9,
            alpha=0.7,
            label="exact, one state a line" if index == 0 else None,
        )
    if len(positive):
        best = positive[np.argmax(settled.local_margin[positive])]
        bound = escape_bound(settled.local_margin[best], taus, tokens)
        axes[1].plot(
            1 / taus,
            np.minimum(bound, 1),
            color="C3",
            ls="--",
            label=r"bound $(|V|-1)e^{-\gamma/\tau}$, largest $\gamma$",
        )
        axes[1].set(yscale="log")
        axes[1].legend(fontsize=8)
    else:
        axes[1].text(0.5, 0.5, "no state of positive margin", ha="center", transform=axes[1].transAxes)
    axes[1].set(xlabel=r"inverse temperature $1/\tau$", ylabel="probability of leaving in one step")
    return figure

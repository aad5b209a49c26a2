"""Figures of chapter 4."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn
from matplotlib.figure import Figure

from glauber_mlm.chapters.base.show import WIDTH, plain_ticks


def pca_trajectories(
    passages: np.ndarray,
    topics: Sequence[str],
    paths: np.ndarray,
    path_topics: Sequence[str],
    explained: Sequence[float],
    shown: int,
) -> Figure:
    """Passages in the plane of their first two components (left), and some chains through it (right).

    Each topic has a colour. A chain has the colour of the topic of its start, a circle at its start and a
    cross at its end. Both panels have the same axes.

    Parameters
    ----------
    passages : ndarray, shape (K, 2)
    topics : sequence of str, length K
    paths : ndarray, shape (chains, times, 2)
    path_topics : sequence of str, length chains
        Topic of each start.
    explained : sequence of two floats
        Shares of the variance of the passages.
    shown : int
        The first so many chains are drawn.
    """
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH * 1.2, 4.3), sharex=True, sharey=True)
    order = sorted(set(topics))
    colours = dict(zip(order, seaborn.color_palette("colorblind", len(order)), strict=True))
    for topic in order:
        chosen = np.array([name == topic for name in topics])
        axes[0].scatter(*passages[chosen].T, s=14, color=colours[topic], label=topic)
    for chain in range(min(shown, len(paths))):
        colour = colours[path_topics[chain]]
        axes[1].plot(*paths[chain].T, color=colour, lw=0.6, alpha=0.6)
        axes[1].scatter(*paths[chain, 0], color=colour, marker="o", s=36, edgecolor="k", lw=0.6, zorder=3)
        axes[1].scatter(*paths[chain, -1], color=colour, marker="X", s=36, edgecolor="k", lw=0.6, zorder=3)
    axes[0].set(
        title="passages",
        xlabel=f"first component ({explained[0]:.0%})",
        ylabel=f"second component ({explained[1]:.0%})",
    )
    axes[1].set(title="chains (circle: start, cross: end)", xlabel=f"first component ({explained[0]:.0%})")
    axes[0].legend(fontsize=7, loc="best")
    return figure


def drift_and_likelihood(
    times: np.ndarray, drifts: dict[float, np.ndarray], level: float, share: float, likelihood: pd.DataFrame
) -> Figure:
    """Distance to the start (left), and pseudo-log-likelihood of starts, ends and shuffled ends (right).

    Left, a line a temperature is the mean over chains, its band two standard errors on either side; the
    unrelated level is dashed, a share of it dotted. Right, a point is one chain; temperatures are spaced
    evenly, and the three kinds of text stand side by side.

    Parameters
    ----------
    times : ndarray, shape (k,)
        In steps.
    drifts : dict of float to ndarray, shape (chains, k)
        By temperature; at least two chains.
    level, share : float
    likelihood : DataFrame
        `temperature`, `texts`, `value` (nats a token).
    """
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH * 1.1, 3.5))
    for index, (temperature, values) in enumerate(sorted(drifts.items())):
        mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
        axes[0].plot(times, mean, color=f"C{index}", label=rf"$\tau$ = {temperature:g}")
        axes[0].fill_between(times, mean - 2 * error, mean + 2 * error, color=f"C{index}", alpha=0.15, lw=0)
    axes[0].axhline(level, color="0.4", lw=0.8, ls="--", label="unrelated passages")
    axes[0].axhline(share * level, color="0.4", lw=0.8, ls=":", label=f"{share:g} of that")
    axes[0].set(xlabel="steps", ylabel="mean cosine distance to the start")
    axes[0].legend(fontsize=8)
    temperatures = sorted(likelihood["temperature"].unique())
    for kind, (texts, rows) in enumerate(likelihood.groupby("texts", sort=False)):
        # Points lie side by side in the order of their chains: a jitter would draw other pictures of the same run.
        chain = rows.groupby("temperature").cumcount()
        beside = 0.27 * (kind - (likelihood["texts"].nunique() - 1) / 2) + 0.16 * (
            chain / max(chain.max(), 1) - 0.5
        )
        axes[1].plot(
            rows["temperature"].map(temperatures.index) + beside, rows["value"], "o", ms=3.5, label=texts
        )
    axes[1].set_xticks(range(len(temperatures)), [f"{temperature:g}" for temperature in temperatures])
    axes[1].set(xlabel=r"temperature $\tau$", ylabel="pseudo-log-likelihood\nper token (nats)")
    axes[1].legend(fontsize=8, title=None)
    return figure


def hamming_raster(paths: dict[str, np.ndarray], times: np.ndarray) -> Figure:
    """Tokens changed between records, a row a chain: dark where a chain is held, light where it moves.

    Each run has a panel. The darkest colour is no change; the lightest is the most that a chain of that panel
    changed, as its colour bar says.

    Parameters
    ----------
    paths : dict of str to ndarray of int, shape (chains, k - 1)
        By label of the panel.
    times : ndarray, shape (k,)
        In steps, of the records.
    """
    figure, axes = plt.subplots(
        len(paths), 1, figsize=(WIDTH * 1.1, 1.0 + 1.5 * len(paths)), sharex=True, squeeze=False
    )
    for axis, (label, values) in zip(axes[:, 0], paths.items(), strict=True):
        image = axis.imshow(
            values,
            aspect="auto",
            interpolation="nearest",
            cmap="viridis",
            extent=(times[0], times[-1], len(values) - 0.5, -0.5),
            vmin=0,
        )
        axis.set(ylabel=f"chain\n({label})")
        figure.colorbar(image, ax=axis, label="tokens changed")
    axes[-1, 0].set_xlabel("steps")
    return figure


def dwells(table: pd.DataFrame) -> Figure:
    """Observed dwell times against the means predicted from exact escape probabilities, on logarithmic axes.

    A faint point is one dwell. Large points are the means of eighths of the dwells, in the order of their
    prediction, with bars of two standard errors; on the dashed line the observed time is the predicted one.
    Dwells cut by the end of the run are left out.

    Parameters
    ----------
    table : DataFrame
        `length` (steps), `escape` (probability of a step), `censored`.
    """
    figure, axis = plt.subplots(figsize=(WIDTH * 0.62, 3.8))
    axis.set(xlabel="predicted mean dwell, 1 / escape (steps)", ylabel="observed dwell (steps)")
    whole = table[~table["censored"]]
    if whole.empty:
        axis.text(
            0.5, 0.5, "no dwell ended within the run", ha="center", va="center", transform=axis.transAxes
        )
        return figure
    predicted = 1 / whole["escape"]
    axis.scatter(predicted, whole["length"], s=9, alpha=0.4, color="C0", label="dwells in single states")
    eighth = predicted.rank(method="first").sub(1).mul(8).floordiv(len(predicted))
    means = (
        pd.DataFrame({"predicted": predicted, "length": whole["length"]}).groupby(eighth).agg(["mean", "sem"])
    )
    axis.errorbar(
        means["predicted", "mean"],
        means["length", "mean"],
        2 * means["length", "sem"],
        fmt="o",
        color="C3",
        ms=5,
        capsize=3,
        label="means of eighths, ± 2 s.e.",
    )
    line = np.array([predicted.min(), predicted.max()])
    axis.plot(line, line, color="0.3", lw=0.8, ls="--", label="observed = predicted")
    axis.set(xscale="log", yscale="log")
    plain_ticks(axis.xaxis)
    plain_ticks(axis.yaxis)
    axis.legend(fontsize=8)
    return figure


def politics(times: np.ndarray, scores: np.ndarray, topics: Sequence[str], threshold: float) -> Figure:
    """Political score of every chain over time, a row a chain: light at 0, dark at 1.

    Chains are in the order of the topics of their starts. A line on the colour bar marks the threshold.

    Parameters
    ----------
    times : ndarray, shape (k,)
        In steps.
    scores : ndarray, shape (chains, k)
        In [0, 1].
    topics : sequence of str, length chains
    threshold : float
    """
    order = np.argsort(np.array(topics), kind="stable")
    figure, axis = plt.subplots(figsize=(WIDTH * 1.1, 0.8 + 0.2 * len(order)))
    image = axis.imshow(
        scores[order],
        aspect="auto",
        interpolation="nearest",
        cmap="magma_r",
        vmin=0,
        vmax=1,
        extent=(times[0], times[-1], len(order) - 0.5, -0.5),
    )
    axis.set_yticks(range(len(order)), [topics[k] for k in order], fontsize=7)
    axis.set(xlabel="steps", ylabel="topic of the start")
    bar = figure.colorbar(image, ax=axis, label="score of politics")
    bar.ax.axhline(threshold, color="k", lw=1)
    return figure


def exclamation(frame: pd.DataFrame) -> Figure:
    """Ratio p_up / p_down by number of "!", on a logarithmic axis, a panel a temperature and a point a state.

    The line joins the medians over states; on the dashed line both are equally likely. Ratios that are 0 or
    infinite are drawn at the least and the largest of the others.

    Parameters
    ----------
    frame : DataFrame
        `level`, `temperature`, `ratio`.
    """
    temperatures = sorted(frame["temperature"].unique())
    figure, axes = plt.subplots(1, len(temperatures), figsize=(WIDTH * 1.15, 3.4), sharey=True, squeeze=False)
    positive = frame.loc[(frame["ratio"] > 0) & np.isfinite(frame["ratio"]), "ratio"]
    low, high = (float(positive.min()), float(positive.max())) if len(positive) else (1e-3, 1e3)
    for axis, temperature in zip(axes[0], temperatures, strict=True):
        part = frame[frame["temperature"] == temperature]
        axis.scatter(part["level"], part["ratio"].clip(low, high), s=9, alpha=0.4, color="C0")
        medians = part.groupby("level")["ratio"].median().clip(low, high)
        axis.plot(medians.index, medians, color="C3", lw=1.2)
        axis.axhline(1, color="0.4", lw=0.8, ls="--")
        axis.set(yscale="log", title=rf"$\tau$ = {temperature:g}", xlabel='number of "!"')
    axes[0, 0].set_ylabel(r"$p_{up} / p_{down}$ of one step")
    return figure

"""Figures of chapter 3."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from glauber_mlm.chapters.base.show import WIDTH, plain_ticks
from glauber_mlm.statistics.survival import kaplan_meier, wilson_interval


def met_fractions(calibration: pd.DataFrame, model: pd.DataFrame, level: float) -> Figure:
    """Share of pairs that met by the cap against temperature, for Curie-Weiss (left) and the model (right).

    There is a line for each length. Bars are 95 % Wilson intervals; the dashed line is the share `level`.

    Parameters
    ----------
    calibration, model : DataFrame
        `n`, `temperature`, `met`, `pairs`.
    level : float
    """
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH * 1.1, 3.6), sharey=True)
    for axis, frame, title in (
        (axes[0], calibration, "Curie–Weiss (known: 1)"),
        (axes[1], model, "the model"),
    ):
        for index, (length, part) in enumerate(frame.groupby("n")):
            share = part["met"] / part["pairs"]
            limits = np.array(
                [
                    wilson_interval(int(met), int(pairs))
                    for met, pairs in zip(part["met"], part["pairs"], strict=True)
                ]
            )
            errors = np.abs(limits.T - share.to_numpy())
            axis.errorbar(
                part["temperature"],
                share,
                errors,
                color=f"C{index}",
                marker="o",
                ms=4,
                lw=1,
                capsize=2,
                label=f"n = {length}",
            )
        axis.axhline(level, color="0.4", lw=0.8, ls="--")
        axis.set(title=title, xlabel=r"temperature $\tau$", ylim=(-0.03, 1.03))
        axis.legend(fontsize=8)
    axes[0].set_ylabel("share of pairs that met by the cap")
    return figure


def survivals(cells: dict[tuple[int, float], dict], length: int) -> Figure:
    """Kaplan-Meier curves of the meeting time at one length, from dark (cold) to light (hot).

    Bands are pointwise 95 % limits. Steps are on a logarithmic axis; the dashed line is the cap, which all
    temperatures share.

    Parameters
    ----------
    cells : dict of (int, float) to dict
        By length and temperature: `times`, `met`, `cap`.
    length : int
    """
    figure, axis = plt.subplots(figsize=(WIDTH * 0.85, 3.8))
    chosen = sorted((temperature, cell) for (n, temperature), cell in cells.items() if n == length)
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(chosen)))
    for colour, (temperature, cell) in zip(colours, chosen, strict=True):
        curve = kaplan_meier(cell["times"], cell["met"])
        times, values = np.concatenate([[0.5], curve.times]), np.concatenate([[1.0], curve.survival])
        axis.step(times, values, where="post", color=colour, label=rf"$\tau$ = {temperature:g}")
        axis.fill_between(curve.times, curve.lower, curve.upper, step="post", color=colour, alpha=0.12, lw=0)
    earliest = min(min(cell["times"]) for _, cell in chosen)
    axis.set_xlim(left=max(0.5, earliest / 2))
    axis.axvline(chosen[0][1]["cap"], color="0.4", lw=0.8, ls="--")
    axis.set(
        xscale="log",
        xlabel="steps (dashed: the cap)",
        ylabel="share of pairs not yet met",
        ylim=(-0.03, 1.03),
    )
    plain_ticks(axis.xaxis)
    axis.legend(fontsize=8)
    return figure


def boundaries(
    frame: pd.DataFrame, known: pd.DataFrame, grid: Sequence[float], known_grid: Sequence[float]
) -> Figure:
    """tau*(n) with its interval against n, model and Curie-Weiss.

    A point is a crossing that the grid brackets, a thick line its interval; where that runs off the grid of
    temperatures there is an arrow head at the grid's end. Dotted: 1, to which Curie-Weiss tends. Grey: the
    paper's window for its own models. Lengths are on a logarithmic axis.

    Parameters
    ----------
    frame, known : DataFrame
        `n`, `tau_star`, `low`, `high` of the model and of Curie-Weiss; NaN where it is off the grid.
    grid, known_grid : sequence of float
        Their temperatures.
    """
    figure, axis = plt.subplots(figsize=(WIDTH * 0.7, 3.5))
    for table, temperatures, colour, label in (
        (frame, grid, "C0", "the model"),
        (known, known_grid, "C1", "Curie–Weiss"),
    ):
        inside = table[table["tau_star"].notna()]
        axis.plot(inside["n"], inside["tau_star"], "o-", color=colour, ms=5, lw=1, label=label)
        for _, row in table.iterrows():
            _interval(axis, row, min(temperatures), max(temperatures), colour)
    axis.axhline(1, color="C1", lw=0.8, ls=":")
    axis.axhspan(1.5, 2, color="0.85", zorder=0, label="paper, its models")
    axis.set(xscale="log", xlabel="length n (tokens)", ylabel=r"$\tau^*(n)$")
    axis.set_xticks(sorted(set(frame["n"]) | set(known["n"])))
    axis.get_xaxis().set_major_formatter(plt.ScalarFormatter())
    axis.minorticks_off()
    axis.legend(fontsize=8)
    return figure


def _interval(axis: Axes, row: pd.Series, lowest: float, highest: float, colour: str) -> None:
    """The interval of one crossing, with an arrow head at each end of the grid that it runs off."""
    low, high = (
        (lowest if pd.isna(row["low"]) else row["low"]),
        (highest if pd.isna(row["high"]) else row["high"]),
    )
    axis.plot([row["n"]] * 2, [low, high], color=colour, lw=2, alpha=0.5)
    for end, place, marker in (("low", lowest, "v"), ("high", highest, "^")):
        if pd.isna(row[end]):
            axis.plot(row["n"], place, marker=marker, color=colour, ms=7, alpha=0.7)


def scalings(points: pd.DataFrame, laws: dict[str, pd.DataFrame]) -> Figure:
    """Times against n on logarithmic axes, a panel for each clock in `laws`, with the laws of one constant.

    These are C n log n, C n and C n^2. Bars are two standard errors of the logarithm on either side. The free
    power C n^a is not drawn.

    Parameters
    ----------
    points : DataFrame
        `clock`, `n`, `time`, `low`, `high`; NaN where a time or its error is not known.
    laws : dict of str to DataFrame
        By clock: `law`, `constant`, `p_value`.
    """
    figure, axes = plt.subplots(1, max(1, len(laws)), figsize=(WIDTH * 1.1, 3.5), squeeze=False)
    for axis, (clock, table) in zip(axes[0], laws.items(), strict=True):
        part = points[points["clock"] == clock]
        axis.errorbar(
            part["n"],
            part["time"],
            [part["time"] - part["low"], part["high"] - part["time"]],
            fmt="ko",
            ms=5,
            capsize=3,
            label="measured, ± 2 s.e.",
        )
        n = np.geomspace(part["n"].min(), part["n"].max(), 60)
        shapes = {"n log n": n * np.log(n), "n": n, "n^2": n**2}
        for index, (law, shape) in enumerate(shapes.items()):
            row = table[table["law"] == law].iloc[0]
            axis.plot(
                n,
                row["constant"] * shape,
                color=f"C{index}",
                lw=1.2,
                label=f"C {law}  (p = {row['p_value']:.2g})",
            )
        axis.set(xscale="log", yscale="log", title=clock, xlabel="length n (tokens)", ylabel="steps")
        axis.set_xticks(sorted(part["n"]))
        axis.get_xaxis().set_major_formatter(plt.ScalarFormatter())
        axis.minorticks_off()
        axis.legend(fontsize=8)
    return figure


def drifts(cells: dict[tuple[int, float], dict], level: float, length: int) -> Figure:
    """Mean cosine distance to the start against steps at one length, with bands of two standard errors.

    There is a line for each temperature. The dashed line is the level of the semantic clock.

    Parameters
    ----------
    cells : dict of (int, float) to dict
        By length and temperature: `times` (steps), `drift` of shape (chains, times), at least two chains.
    level : float
    length : int
    """
    figure, axis = plt.subplots(figsize=(WIDTH * 0.85, 3.5))
    for index, (temperature, cell) in enumerate(
        sorted((tau, cell) for (n, tau), cell in cells.items() if n == length)
    ):
        values = np.asarray(cell["drift"])
        mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
        axis.plot(cell["times"], mean, color=f"C{index}", label=rf"$\tau$ = {temperature:g}")
        axis.fill_between(
            cell["times"], mean - 2 * error, mean + 2 * error, color=f"C{index}", alpha=0.15, lw=0
        )
    axis.axhline(level, color="0.4", lw=0.8, ls="--", label="level of the semantic clock")
    axis.set(xlabel="steps", ylabel="mean cosine distance to the start")
    axis.legend(fontsize=8)
    return figure

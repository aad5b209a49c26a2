"""Figures of chapter 2."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn
from matplotlib.figure import Figure

from glauber_mlm.chapters.base.show import WIDTH
from glauber_mlm.chapters.rectangle_test.study import Floor


def defects_and_floor(delta: np.ndarray, floor: Floor, control: np.ndarray) -> Figure:
    """Numbers of rectangles by |delta| on a logarithmic axis, of the model, the control and two roundings.

    Values below 1e-9 nats are drawn there. The bins end at 1.5 times the largest |delta| of the model, or at
    1.5 nats.

    Parameters
    ----------
    delta : ndarray, shape (R,)
        In nats, of the model.
    floor : Floor
        How far another batch and float64 move it.
    control : ndarray, shape (C,)
        In nats; C need not be R.
    """
    figure, axis = plt.subplots(figsize=(WIDTH * 0.9, 3.6))
    series = {
        "model: $|\\delta|$": np.abs(delta),
        "autoregressive control: $|\\delta|$": np.abs(control),
        "rounding: other batch": floor.batch,
        "rounding: float64": floor.double,
    }
    smallest = 1e-9
    bins = np.geomspace(smallest, max(np.abs(delta).max(), 1.0) * 1.5, 70)
    for index, (label, values) in enumerate(series.items()):
        axis.hist(
            np.maximum(values, smallest * 1.01),
            bins,
            histtype="stepfilled",
            alpha=0.45,
            color=f"C{index}",
            label=label,
        )
    axis.set(xscale="log", xlabel=f"nats (values below {smallest:.0e} are drawn there)", ylabel="rectangles")
    axis.legend(fontsize=8)
    return figure


def defects_by_protocol(frame: pd.DataFrame) -> Figure:
    """Density of delta (left), and mean |delta| by distance (right), for each way to draw alternatives.

    The density is smoothed, and values beyond the 99 % quantile of |delta| are drawn at it; the dashed line
    is 0. Distances are in bands. Bars are 1.96 standard errors on either side of a mean.

    Parameters
    ----------
    frame : DataFrame
        `protocol`, `delta` (nats), `distance` (tokens).
    """
    figure, axes = plt.subplots(1, 2, figsize=(WIDTH * 1.1, 3.5))
    limit = float(np.quantile(frame["delta"].abs(), 0.99))
    for index, (protocol, part) in enumerate(frame.groupby("protocol", sort=False)):
        seaborn.kdeplot(
            x=part["delta"].clip(-limit, limit),
            ax=axes[0],
            color=f"C{index}",
            label=protocol,
            cut=0,
            bw_adjust=0.6,
        )
        bands = part.assign(
            size=part["delta"].abs(),
            band=pd.cut(
                part["distance"], [0, 1, 2, 4, 8, 16, 1000], labels=["1", "2", "3–4", "5–8", "9–16", ">16"]
            ),
        )
        means = bands.groupby("band", observed=True)["size"].agg(["mean", "sem"])
        axes[1].errorbar(
            means.index.astype(str),
            means["mean"],
            1.96 * means["sem"].fillna(0),
            color=f"C{index}",
            marker="o",
            ms=4,
            lw=1,
            capsize=2,
            label=protocol,
        )
    axes[0].axvline(0, color="0.4", lw=0.8, ls="--")
    axes[0].set(xlabel=r"$\delta$ (nats; beyond the 99 % quantile drawn there)", ylabel="density")
    axes[1].set(
        xlabel="distance $|i - j|$ of the two sites (tokens)", ylabel=r"mean $|\delta|$ (nats), 95 % interval"
    )
    axes[0].legend(title="alternatives drawn", fontsize=8)
    return figure

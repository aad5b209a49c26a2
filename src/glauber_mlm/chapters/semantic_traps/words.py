"""Chapter 4 in words: drift, identity, stays and visits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from glauber_mlm.chapters.semantic_traps.study import IDENTITY_SHARE, late_distance, pooled_visits
from glauber_mlm.readings.stays import TRAP_RATIO, TRAP_STEPS


def describe_drift(levels: Sequence[int], worst: float, temperature: float) -> str:
    """The run of consecutive levels that `book.rules.drift_upwards` found, in words."""
    if not levels:
        return 'at no level do all sampled states drift towards more "!"'
    with np.errstate(over="ignore"):
        bound = float(np.float64(worst) ** len(levels))
    named = f"level N = {levels[0]}" if len(levels) == 1 else f"levels N = {levels[0]} to {levels[-1]}"
    return f"{named} at tau = {temperature:g}, worst ratio r = {worst:.3g}, r^(w+1) = r^{len(levels)} = {bound:.3g}"


def identity_table(drifts: dict[float, np.ndarray], likelihood: pd.DataFrame) -> pd.DataFrame:
    """Late mean distance and mean pseudo-log-likelihoods by temperature, columns named for a reader."""
    wide = likelihood.groupby(["temperature", "texts"])["value"].mean().unstack().reset_index()
    late = [late_distance(drifts[temperature]) for temperature in wide["temperature"]]
    wide.insert(1, "distance to the start", [mean for mean, _ in late])
    wide.insert(2, "its standard error", [error for _, error in late])
    return wide.rename(
        columns={
            "temperature": "τ",
            **{kind: f"{kind} (nats per token)" for kind in ("starts", "ends", "ends, shuffled")},
        }
    )


def describe_identity(drifts: dict[float, np.ndarray], level: float) -> str:
    """Late mean distances in words."""
    late = {temperature: late_distance(values) for temperature, values in sorted(drifts.items())}
    parts = ", ".join(f"{mean:.2f} ± {2 * error:.2f} (tau = {tau:g})" for tau, (mean, error) in late.items())
    return f"mean distance to the start, last tenth: {parts}; unrelated passages {level:.2f}, {IDENTITY_SHARE:g} of that {IDENTITY_SHARE * level:.2f}"


def _length(steps: int, censored: bool) -> str:
    return f"{'>' if censored else ''}{steps:,}"


def longest_for_reading(stays: pd.DataFrame, top: int) -> pd.DataFrame:
    """The `top` longest stays at each temperature, columns named for a reader; the length of one that the end of the record cut begins with ">"."""
    best = (
        stays.sort_values("length", ascending=False, kind="stable")
        .groupby("temperature")
        .head(top)
        .sort_values(["temperature", "length"], ascending=[True, False])
    )
    best = best.assign(length=[_length(*stay) for stay in zip(best["length"], best["censored"], strict=True)])
    names = {
        "temperature": "τ",
        "length": "stay (steps)",
        "ratio": "times the median stay of its chain",
        "kind": "kind",
        "argmax_fraction": "argmax share",
        "local_margin": "local margin (nats)",
        "predicted": "predicted dwell of the centre (steps)",
        "text": "text of the centre",
    }
    return best[list(names)].rename(columns=names)


def describe_stays(stays: pd.DataFrame, steps: int, chains: int, radius: int, shortest: int) -> str:
    """One paragraph of Markdown about the stays found."""
    if stays.empty:
        return f"No stay of at least {shortest} steps within Hamming distance {radius} was found in {chains} chains of {steps:,} steps at any temperature."
    parts = []
    for temperature, part in stays.groupby("temperature"):
        kinds, longest = part["kind"].value_counts(), part.loc[part["length"].idxmax()]
        parts.append(
            f"at τ = {temperature:g}, {kinds.get('perfect', 0)} perfect and {kinds.get('approximate', 0)} approximate, "
            f"the longest {_length(int(longest['length']), bool(longest['censored']))} steps"
        )
    return (
        f"Among the five longest stays of each chain, those of at least {shortest} steps within Hamming distance {radius} are: "
        + "; ".join(parts)
        + f". Runs end at {steps:,} steps, so longer stays could not be seen."
    )


def count_stays(stays: pd.DataFrame) -> str:
    """Counts of the stays that claim S2 calls traps, for the ledger."""
    if stays.empty:
        return "no stay of at least the shortest length"
    kinds = stays.loc[(stays["length"] >= TRAP_STEPS) & (stays["ratio"] >= TRAP_RATIO), "kind"].value_counts()
    longest = stays.loc[stays["length"].idxmax()]
    return (
        f"{kinds.get('perfect', 0)} perfect and {kinds.get('approximate', 0)} approximate stays of at least {TRAP_STEPS} steps and {TRAP_RATIO:g} times the "
        f"median stay of their chain; longest stay of all {_length(int(longest['length']), bool(longest['censored']))} steps"
    )


def politics_visits(scores: dict[float, np.ndarray], topics: Sequence[str], threshold: float) -> pd.DataFrame:
    """Means of the recurrence counts by temperature, chains from other topics."""
    groups = pooled_visits(scores, topics, threshold).groupby("temperature")
    named = {
        "entries": "entries a chain",
        "returns": "returns a chain",
        "visited": "chains that visit (share)",
        "share": "time above the threshold (share)",
        "ends_inside": "chains that end above it (share)",
    }
    table = groups[list(named)].mean().rename(columns=named)
    table.insert(0, "chains from other topics", groups.size())
    return table.reset_index(names="τ")


def describe_visits(pooled: pd.DataFrame) -> str:
    """For the ledger."""
    visit, back, end = pooled["visited"].mean(), pooled["returns"].gt(0).mean(), pooled["ends_inside"].mean()
    return f"{visit:.0%} of chains from other topics visit, {back:.0%} return, {end:.0%} end there; share of time {pooled['share'].mean():.1%}"


def describe_share(share: tuple[float, float, float]) -> str:
    """The share of time with its interval."""
    mean, low, high = share
    return f"share of time {mean:.1%} (95 % interval {low:.1%} to {high:.1%})"


def describe_nulls(nulls: dict[str, tuple[float, float, float]]) -> str:
    """The nulls as a sentence of Markdown."""
    return (
        "Single texts above the threshold: "
        + "; ".join(
            f"{name} {share:.1%} (95 % interval {low:.1%} to {high:.1%})"
            for name, (share, low, high) in nulls.items()
        )
        + "."
    )


def describe_null_intervals(nulls: dict[str, tuple[float, float, float]]) -> str:
    """The nulls for the ledger."""
    return "; ".join(f"null, {name}: [{low:.1%}, {high:.1%}]" for name, (_, low, high) in nulls.items())

"""Chapter 3 in words: calibration, medians, boundaries, laws and stays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from glauber_mlm.chapters.mixing_times.study import Variation
from glauber_mlm.exact.curie_weiss import is_inside
from glauber_mlm.statistics.scaling import Crossing
from glauber_mlm.statistics.survival import lag_bound

READABLE = {
    "n": "n (tokens)",
    "tau_star": "τ*(n)",
    "low": "low (95 %)",
    "high": "high (95 %)",
    "exact": "exact τ*(n)",
    "side": "crossing",
    "constant": "C (steps)",
    "chi_square": "chi-square",
    "freedom": "degrees of freedom",
    "p_value": "p-value",
    "exponent_low": "exponent, low (95 %)",
    "exponent_high": "exponent, high (95 %)",
}


def pivot_medians(table: pd.DataFrame) -> pd.DataFrame:
    """Medians as text, a row a temperature and a column a length."""
    wide = table.pivot(index="temperature", columns="n", values="median")
    wide.columns = [f"n = {n} (cap {table.loc[table['n'] == n, 'cap'].iloc[0]:,})" for n in wide.columns]
    return wide.reset_index()


def variation_table(variations: Sequence[Variation]) -> pd.DataFrame:
    """Readings with their intervals as text; columns `apparatus` and one for each length."""
    rows = []
    for variation in variations:
        texts = {
            f"n = {n}": _reading(variation.found[n]) if n in variation.found else "–"
            for n in variations[0].found
        }
        rows.append({"apparatus": variation.name, **texts})
    return pd.DataFrame(rows)


def describe_variations(variations: Sequence[Variation]) -> str:
    """By how much tau*(n) moves from the first reading with the share, the cap and the coupling, in words."""
    first, parts, compared, apart = variations[0].found, [], 0, 0
    for varied in ("share", "cap", "coupling"):
        pairs = [
            (first[n], crossing) for v in variations if v.varied == varied for n, crossing in v.found.items()
        ]
        moves = [
            other.temperature - base.temperature
            for base, other in pairs
            if None not in (base.temperature, other.temperature)
        ]
        parts.append(
            f"with the {varied} "
            + (f"by {min(moves):+.2f} to {max(moves):+.2f}" if moves else "by an unknown amount")
        )
        compared += len(moves)
        apart += sum(_apart(base, other) for base, other in pairs)
    total = sum(len(v.found) for v in variations[1:])
    return f"The boundary moves from the first row {', '.join(parts)}, where both cross on the grid ({compared} of {total} readings); {apart} of the {total} {'has' if apart == 1 else 'have'} an interval apart from the first row's."


def _reading(crossing: Crossing) -> str:
    """A crossing with its interval, as text."""
    value = crossing.side if crossing.temperature is None else f"{crossing.temperature:.2f}"
    return f"{value} {_interval(crossing)}"


def _interval(crossing: Crossing) -> str:
    """Interval of a crossing as text; an open end is off the grid."""
    low, high = ("off the grid" if end is None else f"{end:g}" for end in (crossing.low, crossing.high))
    return f"[{low}, {high}]"


def _apart(one: Crossing, other: Crossing) -> bool:
    """Whether two intervals, open where they run off the grid, have no point in common."""
    return any(
        a.high is not None and b.low is not None and a.high < b.low for a, b in ((one, other), (other, one))
    )


def lag_table(cells: dict[tuple[int, float], dict[str, Any]], length: int) -> pd.DataFrame:
    """Bounds on TV(law of X_t, mu) at times in sweeps, by temperature, with two standard errors; nothing where a pair was censored."""
    sweeps = [5, 10, 15, 20, 30, 40]
    rows = []
    for (_, tau), cell in sorted(cells.items()):
        bound = lag_bound(
            cell["times"], cell["lag"], [length * sweep for sweep in sweeps], ~np.asarray(cell["met"])
        )
        texts = {
            f"t = {sweep} sweeps": "says nothing"
            if not bound.informative
            else f"{min(1.0, value):.2f} ± {2 * error:.2f}"
            if count
            else f"0 of {bound.pairs} pairs later: no estimate"
            for sweep, value, error, count in zip(
                sweeps, bound.bound, bound.standard_error, bound.contributing, strict=True
            )
        }
        rows.append({"temperature": tau, "pairs": bound.pairs, "censored pairs": bound.censored, **texts})
    return pd.DataFrame(rows)


def describe_longest(holding: dict[str, Any], length: int) -> str:
    """The range over chains of the longest stay, in words; '>' where the end of the record cut it, '<' where no stay reaches n steps."""
    longest = []
    for stays, cut in zip(holding["stays"], holding["cut"], strict=True):
        place = int(np.argmax(stays)) if stays else None
        longest.append(
            (0, f"< {length:,}")
            if place is None
            else (stays[place], f"> {stays[place]:,}" if cut[place] else f"{stays[place]:,}")
        )
    return f"{min(longest)[1]} to {max(longest)[1]}"


def describe_laws(laws: dict[str, pd.DataFrame]) -> str:
    """The p-value of each law on each clock, in words."""
    parts = []
    for clock, table in laws.items():
        tested = table.dropna(subset=["p_value"])
        power = table[table["law"] == "n^a"].iloc[0]
        parts.append(
            f"{clock}: "
            + ", ".join(f"{row.law} p = {row.p_value:.2g}" for row in tested.itertuples())
            + f"; free exponent {power['exponent']:.2f}"
        )
    return "; ".join(parts) or "no clock with three usable lengths"


def describe_crossings(found: dict[int, Crossing]) -> str:
    """tau*(n) in words."""
    return "; ".join(
        f"tau*({n}) = {c.temperature:.2f}" if c.temperature is not None else f"tau*({n}) {c.side}"
        for n, c in sorted(found.items())
    )


def describe_intervals(found: dict[int, Crossing]) -> str:
    """Intervals of tau*(n) in words; an open end is off the grid."""
    return "; ".join(f"n = {n}: {_interval(c)}" for n, c in sorted(found.items()))


def describe_off_grid(found: dict[int, Crossing], name: str) -> str:
    """The lengths without a crossing on the grid, in words."""
    missing = [f"n = {n} ({c.side})" for n, c in sorted(found.items()) if c.temperature is None]
    return (
        f"No crossing on the grid for {name} at {', '.join(missing)}."
        if missing
        else f"Every length of {name} has its crossing on the grid."
    )


def describe_ratios(ratios: dict[int, float]) -> str:
    """Proved contraction temperature over observed tau*(n), in words."""
    if not ratios:
        return "tau*(n) lies outside the grid at every length"
    return "proved / observed temperature: " + ", ".join(
        f"{ratio:.0f} (n = {n})" for n, ratio in ratios.items()
    )


def describe_ratio_intervals(ratios: dict[int, float], found: dict[int, Crossing]) -> str | None:
    """Intervals of these ratios from those of tau*(n), in words; None without a ratio."""
    parts = []
    for n, ratio in ratios.items():
        proved = ratio * found[n].temperature
        low, high = (
            "tau*(n) off the grid" if end is None else f"{proved / end:.0f}"
            for end in (found[n].high, found[n].low)
        )
        parts.append(f"n = {n}: [{low}, {high}]")
    return ", ".join(parts) + ", 95 %" if parts else None


def describe_exponents(laws: dict[str, pd.DataFrame]) -> str | None:
    """Intervals of the free exponent on each clock, in words; None without a clock."""
    powers = {clock: table[table["law"] == "n^a"].iloc[0] for clock, table in laws.items()}
    parts = [
        f"{clock} [{power['exponent_low']:.2f}, {power['exponent_high']:.2f}]"
        for clock, power in powers.items()
    ]
    return f"free exponent: {', '.join(parts)}, 95 %" if parts else None


def calibration_table(found: dict[int, Crossing], exact: dict[int, float | None]) -> pd.DataFrame:
    """`n`, `tau_star`, `low`, `high`, `exact`, and whether the exact one lies `inside` the interval."""
    rows = []
    for n, crossing in sorted(found.items()):
        verdict = (
            "no exact crossing"
            if exact[n] is None
            else "inside"
            if is_inside(crossing, exact[n])
            else "outside"
        )
        rows.append(
            {
                "n": n,
                "tau_star": crossing.temperature,
                "low": crossing.low,
                "high": crossing.high,
                "exact": exact[n],
                "exact value is": verdict,
            }
        )
    return pd.DataFrame(rows).astype({"tau_star": float, "low": float, "high": float, "exact": float})


def describe_calibration(found: dict[int, Crossing], exact: dict[int, float | None]) -> str:
    """At how many lengths the exact crossing lies inside the interval, in words."""
    inside = sum(is_inside(crossing, exact[n]) for n, crossing in found.items())
    return f"Calibration on Curie-Weiss: the exact temperature lies inside the 95 % interval at {inside} of {len(found)} lengths"

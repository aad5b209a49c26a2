"""Chapter 3: cells of the mixing grid, on two clocks, and their calibration on a model with a known transition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor
from tqdm.auto import tqdm

from glauber_mlm.checks import (
    LEVEL,
    SEED,
    Rule,
    a_mask,
    a_number,
    a_whole,
    a_word,
    an_array,
    an_instance,
    checked,
    whole_list,
)
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.conditionals.protocol import Conditionals
from glauber_mlm.conditionals.solvable import CurieWeiss
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import (
    a_callable,
    a_table,
    a_text_model,
    finite,
    generator,
    keyed,
    list_of,
    pair,
    record,
    vectors_of,
)
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.coupled import coalescence, steps_at_scale
from glauber_mlm.kernels.event import EventDriven
from glauber_mlm.passages import load_passages
from glauber_mlm.randomness import RandomStream
from glauber_mlm.readings.stays import longest_stays
from glauber_mlm.runs.cells import CellStore
from glauber_mlm.statistics.scaling import Crossing, crossing_temperature, fit_scaling
from glauber_mlm.statistics.survival import kaplan_meier
from glauber_mlm.text.alphabets import pairs_for
from glauber_mlm.text.semantics import drift, semantic_hitting_time, unrelated_level
from glauber_mlm.text.starts import cell_chains, passage_states, starting_states

_MEDIANS = 2**37
_DRIFT_CHAINS = 2048  # drift cells use the upper half of the 4,096 chain numbers of a length and temperature
_MISSING = 0.025  # share of bootstrap resamples that may have no time within the record
DRIFT_SWEEPS = 8  # length of a drift cell
READINGS_PER_SWEEP = 8
_POINT = pair(a_whole(1), a_number(0))  # n and temperature
_OUTCOMES = record(times=finite(1, 0), met=a_mask(1), cap=a_whole(1))
_DRIFT = record(times=finite(1, 0), drift=finite(2))


def _cell(name: str, value: Any) -> dict[str, Any]:
    """Rule: a cell of coalescence."""
    if len(_OUTCOMES(name, value)["times"]) != len(value["met"]):
        raise UserError(
            f"{name} has {len(value['times'])} times and {len(value['met'])} outcomes; give as many"
        )
    return value


def _drift_cell(name: str, value: Any) -> dict[str, Any]:
    """Rule: a cell of drifts with at least two times."""
    if not np.shape(_DRIFT(name, value)["drift"])[1] == len(value["times"]) >= 2:
        raise UserError(
            f"{name} has {len(value['times'])} times; give at least two, and as many drifts of each chain"
        )
    return value


def _some_cells(members: int = 1) -> Rule:
    return keyed(_POINT, _cell, members)


def coalescence_cell(
    conditionals: Conditionals,
    first: Tensor,
    second: Tensor,
    temperature: float,
    seed: int,
    cap: int,
    *,
    lag: int = 0,
    coupling: str = "maximal",
    progress: Callable[[int], object] | None = None,
) -> dict[str, Any]:
    """Meeting times of coupled pairs at one length and temperature; see `kernels.coupled.coalescence`.

    Returns
    -------
    dict
        `times` (steps), `met`, `cap`, `lag`.
    """
    chains = cell_chains(conditionals.length, temperature, len(first))
    result = coalescence(
        conditionals,
        first,
        second,
        temperature,
        RandomStream(seed, chains),
        cap,
        lag=lag,
        coupling=coupling,
        progress=progress,
    )
    return {"times": result.times.tolist(), "met": result.met.tolist(), "cap": cap, "lag": lag}


@checked(conditionals=a_text_model)
def model_cell(
    conditionals: MaskedLanguageModel, temperature: float, pairs: int, seed: int, cap: int, **options: Any
) -> dict[str, Any]:
    """A cell from pairs of passages of different topics, or of random sequences for a model of an alphabet."""
    first, second = pairs_for(conditionals, pairs, seed)
    return coalescence_cell(conditionals, first, second, temperature, seed, cap, **options)


@checked(pairs=a_whole(1))
def curie_weiss_cell(
    length: int, temperature: float, pairs: int, seed: int, multiple: float
) -> dict[str, Any]:
    """The same on Curie-Weiss from opposite starts (all minus, all plus), in units where tau_c = 1."""
    model = CurieWeiss(length)
    start = torch.zeros(pairs, length, dtype=torch.int64)
    return coalescence_cell(model, start, 1 - start, temperature, seed, steps_at_scale(length, multiple))


@checked(
    conditionals=a_text_model,
    temperature=a_number(0),
    chains=a_whole(1, _DRIFT_CHAINS),
    steps=a_whole(1),
    every=a_whole(1),
    embed=a_callable,
)
def drift_cell(
    conditionals: MaskedLanguageModel,
    temperature: float,
    chains: int,
    steps: int,
    every: int,
    seed: int,
    embed: Callable[[list[str]], np.ndarray],
) -> dict[str, Any]:
    """Cosine distance of the text to its start, along plain chains from passages.

    The chains share passages with the coalescence cell of this length and temperature, and no randomness.

    Returns
    -------
    dict
        `times` (steps), `drift` (chains, times).
    """
    states, _ = starting_states(conditionals, chains, seed)
    stream = RandomStream(
        seed, cell_chains(conditionals.length, temperature, _DRIFT_CHAINS + chains)[_DRIFT_CHAINS:]
    )
    state = plain.initial_state(conditionals, states, temperature)
    times, texts = [0], [[conditionals.decode(row) for row in states]]
    while times[-1] < steps:
        taken = min(every, steps - times[-1])
        state, _ = plain.walk(conditionals, state, stream, times[-1], taken)
        times.append(times[-1] + taken)
        texts.append([conditionals.decode(row) for row in state.tokens])
    vectors = vectors_of(embed, [text for row in texts for text in row]).reshape(len(times), chains, -1)
    return {"times": times, "drift": drift(vectors.transpose(1, 0, 2)).tolist()}


@checked(cells=_some_cells())
def grid_table(cells: dict[tuple[int, float], dict[str, Any]]) -> pd.DataFrame:
    """One row a cell: pairs, met by the cap, cap, Kaplan-Meier median as text and as a number (NaN where censored)."""
    rows = []
    for (length, temperature), cell in sorted(cells.items()):
        curve = kaplan_meier(cell["times"], cell["met"])
        rows.append(
            {
                "n": length,
                "temperature": temperature,
                "pairs": len(cell["times"]),
                "met": int(sum(cell["met"])),
                "cap": cell["cap"],
                "median": curve.median_text,
                "median_steps": math.nan if curve.median is None else curve.median,
            }
        )
    return pd.DataFrame(rows)


@checked(cell=_cell, seed=SEED, resamples=a_whole(1))
def median_logs(cell: dict[str, Any], seed: int, resamples: int = 1000) -> tuple[float, float]:
    """Logarithm of the median meeting time (NaN where more than half are censored) and its bootstrap standard error (see `_log_error`)."""
    times = np.where(cell["met"], cell["times"], np.inf)
    if not np.isfinite(np.median(times)):
        return math.nan, math.nan
    draws = generator(seed, _MEDIANS).integers(len(times), size=(resamples, len(times)))
    return float(np.log(np.median(times))), _log_error(np.median(times[draws], axis=1), cell["cap"])


@checked(cell=_drift_cell, level=a_number(), level_error=a_number(0), seed=SEED, resamples=a_whole(1))
def drift_logs(
    cell: dict[str, Any], level: float, level_error: float, seed: int, resamples: int = 1000
) -> tuple[float, float]:
    """The same for the semantic clock: first time at which the ensemble mean reaches `level`, which is itself known to `level_error` (one s.e.)."""
    drifts, times = np.asarray(cell["drift"]), np.asarray(cell["times"], dtype=np.float64)
    hit = semantic_hitting_time(drifts, times, level, seed)
    if hit.time is None or hit.time <= 0:
        return math.nan, math.nan
    draws = generator(seed, _MEDIANS + 1)
    chains = len(drifts)
    means = draws.multinomial(chains, np.full(chains, 1 / chains), size=resamples) @ drifts / chains
    above = means >= level + level_error * draws.standard_normal((resamples, 1))
    hits = np.where(above.any(axis=1), np.maximum(times[above.argmax(axis=1)], times[1]), np.inf)
    spacing = (times[1] - times[0]) / hit.time / math.sqrt(12)  # reading off a grid of times
    return math.log(hit.time), float(math.hypot(_log_error(hits, times[-1]), spacing))


def _log_error(resampled: np.ndarray, end: float) -> float:
    """Standard deviation of the logarithms of resampled times; NaN where over 2.5 % of them lie beyond the record's end, for then it is not known."""
    if np.isinf(resampled).mean() > _MISSING:
        return math.nan
    return float(np.log(np.minimum(resampled, end)).std())


@checked(lengths=finite(1, 2), logs=an_array(1), errors=an_array(1))
def law_tests(lengths: Sequence[int], logs: Sequence[float], errors: Sequence[float]) -> pd.DataFrame:
    """Chi-square tests of T = C n log n, C n and C n^2 at fixed temperature, beside the fitted exponent of C n^a.

    Parameters
    ----------
    logs, errors : sequences of float
        Logarithms of times and their standard errors; lengths with NaN are left out.

    Returns
    -------
    DataFrame
        `law`, `constant` (steps), `chi_square`, `freedom`, `p_value`, `exponent` with its interval for the free power.

    Raises
    ------
    UserError
        With fewer than three usable lengths.
    """
    n, log_t, error = (np.asarray(values, dtype=np.float64) for values in (lengths, logs, errors))
    if not n.shape == log_t.shape == error.shape:
        raise UserError(f"{len(n)} lengths, {len(log_t)} times and {len(error)} errors must be as many")
    usable = np.isfinite(log_t) & np.isfinite(error) & (error > 0)
    if usable.sum() < 3:
        raise UserError(
            f"only {int(usable.sum())} lengths have a time within the record with a known error; a scaling test needs three"
        )
    n, log_t, error = n[usable], log_t[usable], error[usable]
    fits = fit_scaling(n, np.exp(log_t).tolist(), weights=1 / error**2).set_index("law")
    offsets = {"n log n": np.log(n) + np.log(np.log(n)), "n": np.log(n), "n^2": 2 * np.log(n)}
    rows = []
    for law, offset in offsets.items():
        constant = np.average(log_t - offset, weights=1 / error**2)
        chi_square = float((((log_t - offset - constant) / error) ** 2).sum())
        rows.append(
            {
                "law": law,
                "constant": math.exp(constant),
                "chi_square": chi_square,
                "freedom": len(n) - 1,
                "p_value": float(stats.chi2.sf(chi_square, len(n) - 1)),
            }
        )
    free = fits.loc["n^a"]
    rows.append(
        {
            "law": "n^a",
            "constant": free["constant"],
            "exponent": free["exponent"],
            "exponent_low": free["exponent_low"],
            "exponent_high": free["exponent_high"],
        }
    )
    return pd.DataFrame(rows)


CALIBRATION_TEMPERATURES = (0.3, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 1.0, 1.2)


@checked(
    store=an_instance(CellStore),
    name=a_word,
    points=list_of(_POINT),
    parameters=an_instance(dict),
    compute=a_callable,
    fingerprint=a_callable,
)
def grid(
    store: CellStore,
    name: str,
    points: Sequence[tuple[int, float]],
    parameters: dict[str, Any],
    compute: Callable[[int, float], dict],
    fingerprint: Callable[[int], str],
) -> dict[tuple[int, float], dict[str, Any]]:
    """Compute the cells of a grid that are not stored yet, with a progress bar.

    Parameters
    ----------
    points : sequence of (n, temperature)
    parameters : dict
        All else that decides a cell.
    compute : callable
        From n and temperature to a cell.
    fingerprint : callable
        From n to the fingerprint of the conditionals.
    """
    cells = {}
    for n, tau in tqdm(points, desc=name, unit="cell"):
        cells[n, tau] = store.result(
            name,
            {**parameters, "n": n, "temperature": float(tau)},
            lambda n=n, tau=tau: compute(n, tau),
            fingerprint=fingerprint(n),
        )
    return cells


@checked(cells=_some_cells())
def crossings(cells: dict[tuple[int, float], dict[str, Any]], level: float, seed: int) -> dict[int, Crossing]:
    """tau*(n) of each length; see `statistics.scaling.crossing_temperature`."""
    found = {}
    for length in sorted({n for n, _ in cells}):
        part = sorted(
            (tau, sum(cell["met"]), len(cell["met"])) for (n, tau), cell in cells.items() if n == length
        )
        taus, met, number = zip(*part, strict=True)
        found[length] = crossing_temperature(taus, met, number, level, seed)
    return found


@checked(found=keyed(a_whole(1), an_instance(Crossing)))
def crossing_table(found: dict[int, Crossing]) -> pd.DataFrame:
    """`n`, `tau_star`, `low`, `high`, `side`."""
    return pd.DataFrame(
        [
            {"n": n, "tau_star": c.temperature, "low": c.low, "high": c.high, "side": c.side}
            for n, c in sorted(found.items())
        ]
    ).astype({"tau_star": float, "low": float, "high": float})


@checked(table=a_table("temperature", "met", "pairs"))
def censored_share(table: pd.DataFrame) -> float:
    """Share of pairs censored at the lowest temperature, all lengths together."""
    coldest = table[table["temperature"] == table["temperature"].min()]
    return float(1 - coldest["met"].sum() / coldest["pairs"].sum())


def _shortened(cell: dict[str, Any], cap: int) -> dict[str, Any]:
    """The same pairs as if the cap had been lower."""
    met = [bool(seen and time <= cap) for time, seen in zip(cell["times"], cell["met"], strict=True)]
    return {**cell, "times": [min(time, cap) for time in cell["times"]], "met": met, "cap": cap}


@dataclass(frozen=True)
class Variation:
    """tau*(n) read with one thing changed.

    Attributes
    ----------
    varied : str
        "" for the reading as it stands, else "share", "cap" or "coupling".
    name : str
    found : dict of int to Crossing
        By length; the other coupling is run at one length only.
    """

    varied: str
    name: str
    found: dict[int, Crossing]


@checked(cells=_some_cells(), common=_some_cells(), multiple=a_number(above=0), level=LEVEL)
def vary_apparatus(
    cells: dict[tuple[int, float], dict],
    common: dict[tuple[int, float], dict],
    multiple: float,
    level: float,
    seed: int,
) -> list[Variation]:
    """tau*(n) as it stands, then under other shares, caps and couplings."""
    variations = [
        Variation(
            "",
            f"as above: {level:.0%} met by {multiple:g} n log n, maximal coupling",
            crossings(cells, level, seed),
        )
    ]
    for other in (0.2, 0.8):
        variations.append(Variation("share", f"share {other:.0%}", crossings(cells, other, seed)))
    for factor in (0.2, 0.5):
        shorter = {
            key: _shortened(cell, steps_at_scale(key[0], factor * multiple)) for key, cell in cells.items()
        }
        variations.append(
            Variation("cap", f"cap {factor * multiple:g} n log n", crossings(shorter, level, seed))
        )
    return [*variations, Variation("coupling", "common random numbers", crossings(common, level, seed))]


@checked(conditionals=a_text_model, embed=a_callable)
def unrelated(
    conditionals: MaskedLanguageModel, embed: Callable[[list[str]], np.ndarray]
) -> tuple[float, float]:
    """Mean cosine distance of passages of different topics, cut to n tokens, and its standard error."""
    passages = load_passages()
    vectors = vectors_of(embed, [conditionals.decode(row) for row in passage_states(conditionals, passages)])
    return unrelated_level(vectors, [passage.topic for passage in passages])


@checked(
    coalescing=_some_cells(0),
    drifting=keyed(_POINT, _drift_cell, 0),
    levels=keyed(a_whole(1), pair(a_number(), a_number(0)), 0),
    seed=SEED,
)
def clock_points(
    coalescing: dict[tuple[int, float], dict],
    drifting: dict[tuple[int, float], dict],
    levels: dict[int, tuple[float, float]],
    seed: int,
) -> pd.DataFrame:
    """Times on both clocks: `clock`, `n`, `log`, `error`, `time`, `low`, `high` (steps, two standard errors of the logarithm).

    Parameters
    ----------
    levels : dict of int to (float, float)
        Level of the semantic clock at each length and its standard error. The errors come from the same passages at every length, and are taken
        as independent.
    """
    if missing := sorted({n for n, _ in drifting} - set(levels)):
        raise UserError(
            f"levels lacks the length {missing[0]}; give the level of the semantic clock at each length"
        )
    rows = []
    for (n, _), cell in sorted(coalescing.items()):
        rows.append(("coalescence", n, *median_logs(cell, seed)))
    for (n, _), cell in sorted(drifting.items()):
        rows.append(("semantic", n, *drift_logs(cell, *levels[n], seed)))
    frame = pd.DataFrame(rows, columns=["clock", "n", "log", "error"])
    return frame.assign(
        time=np.exp(frame["log"]),
        low=np.exp(frame["log"] - 2 * frame["error"]),
        high=np.exp(frame["log"] + 2 * frame["error"]),
    )


@checked(points=a_table("clock", "n", "log", "error"))
def laws_by_clock(points: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """`law_tests` on each clock that has three usable lengths."""
    usable = points[np.isfinite(points["log"]) & (points["error"] > 0)]
    return {
        clock: law_tests(part["n"], part["log"], part["error"])
        for clock, part in usable.groupby("clock")
        if len(part) >= 3
    }


@checked(conditionals=a_text_model, chains=a_whole(1), steps=a_whole(1))
def holding_cell(
    conditionals: MaskedLanguageModel, temperature: float, chains: int, steps: int, radius: int, seed: int
) -> dict[str, Any]:
    """Stays of event-driven chains from passages.

    Returns
    -------
    dict
        `stays`: for each chain the lengths of its five longest stays in steps, those of at least n; `cut`: whether the end of the record cut each;
        `rows`: rows of conditionals computed.
    """
    states, _ = starting_states(conditionals, chains, seed)
    kernel = EventDriven(conditionals)
    stream = RandomStream(seed, cell_chains(conditionals.length, temperature, chains))
    state = plain.initial_state(conditionals, states, temperature)
    _, record = kernel.walk(state, stream, 0, steps)
    found = [
        longest_stays(
            states[k].numpy(),
            record.sites[:, k].numpy(),
            record.tokens[:, k].numpy(),
            radius,
            minimum=conditionals.length,
            top=5,
        )
        for k in range(chains)
    ]
    lengths, cut = (
        [[getattr(stay, name) for stay in stays] for stays in found] for name in ("length", "censored")
    )
    return {"stays": lengths, "cut": cut, "rows": kernel.forward_rows}


@checked(holding=record(stays=list_of(whole_list(0), 1)))
def longest_of_each(holding: dict[str, Any]) -> np.ndarray:
    """Length of the longest stay of each chain, in steps."""
    return np.array([max(stays, default=0) for stays in holding["stays"]])

"""Long chains, streamed to disk in chunks and resumable after any interruption.

A run is a folder: `run.json` says what the run is, `chunk-000000.nc`, ... hold the updates of consecutive steps as
labelled arrays (netCDF 3), and `chunk-000000.sha256`, ... seal them. A chunk is a function of the run and of the state at its
beginning: the randomness is counter-based, and batches and caches are made afresh at chunk boundaries. So a run that was
killed and called again leaves the same bytes as one that was not, and a torn or altered chunk is computed again alone. A chunk
also says from which state it started: should a recomputed chunk end elsewhere (another processor rounds otherwise), what follows is computed again too.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pandas as pd
import torch
import xarray
from filelock import FileLock
from torch import Tensor
from tqdm.auto import tqdm

from glauber_mlm.atomic import output_folder, replacing, write_json, write_text, writing
from glauber_mlm.checks import (
    a_flag,
    a_json,
    a_path,
    a_whole,
    array,
    checked,
    one_of,
    optional,
    shown,
    whole,
)
from glauber_mlm.conditionals.protocol import Conditionals, of_conditionals
from glauber_mlm.errors import UserError
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.event import DEFAULT_CACHE_BYTES, EventDriven
from glauber_mlm.randomness import MOST_STEPS, RandomStream
from glauber_mlm.runs.cells import engine_digest

if TYPE_CHECKING:
    import arviz

Kernel = Literal["plain", "event"]
KERNELS = get_args(Kernel)
_STEPS_BETWEEN_TICKS = 200
_CHUNK = re.compile(r"chunk-(\d{6,})\.nc")


@checked(
    folder=output_folder,
    conditionals=of_conditionals,
    steps=a_whole(1, MOST_STEPS),
    chunk_steps=a_whole(1, MOST_STEPS),
    kernel=one_of(*KERNELS),
    cache_bytes=a_whole(0),
    model=optional(a_json),
    progress=a_flag,
    read=a_flag,
)
def run_chains(
    folder: Path,
    conditionals: Conditionals,
    tokens: Tensor,
    temperature: float | Sequence[float],
    *,
    seed: int,
    steps: int,
    chains: Sequence[int] | None = None,
    chunk_steps: int = 1000,
    kernel: Kernel = "event",
    cache_bytes: int = DEFAULT_CACHE_BYTES,
    model: dict[str, Any] | None = None,
    progress: bool = True,
    read: bool = True,
) -> xarray.Dataset | None:
    """Run chains to `steps` steps, going on from whatever `folder` already holds.

    Parameters
    ----------
    folder : Path
        Made if missing; a text is a path too. A second process that runs the same folder waits for the first.
    tokens : Tensor of int64, shape (B, n)
        Starting sequences.
    temperature : float or sequence of float
    seed, chains
        Key of the randomness; chains are numbered 0 ... B-1 by default.
    steps, chunk_steps : int
        Steps in all, and steps in one chunk: what an interruption can cost. In [1, 2**31), for steps are
        numbered in int32.
    kernel : {"event", "plain"}
        Same law and same random stream; "event" computes each distinct (masked context, site) once in a chunk.
    cache_bytes : int
        Bound on the cache of the event-driven kernel, at least 0.
    model : dict, optional
        What to record of the model, for instance `LoadedModel.describe()`: anything with a JSON form, so no
        set, object or NaN.
    progress : bool
        Show a bar with steps/s and time left.
    read : bool
        Read the run back when it is complete. False keeps memory flat in `steps`; `read_chains` reads it later.

    Returns
    -------
    Dataset or None
        See `read_chains`; None unless `read`.

    Raises
    ------
    UserError
        If the folder holds another run, cannot be written or has no space left, or an argument is of another
        type or out of range: before a kernel starts. If the disk fills midway: naming the chunk; the same
        call made again goes on from there.
    NonFiniteLogits
        Chunks already written are kept.
    """
    state = plain.initial_state(conditionals, tokens, temperature)
    if not len(state.tokens):
        raise UserError("no starting sequences; give at least one")
    stream = RandomStream(seed, range(len(state.tokens)) if chains is None else chains)
    if len(stream.chains) != len(state.tokens):
        raise UserError(f"{len(stream.chains)} chain numbers for {len(state.tokens)} starting sequences")
    run = {
        "engine": engine_digest(),
        "conditionals": conditionals.fingerprint,
        "model": model or {},
        "seed": stream.seed,
        "chains": list(stream.chains),
        "temperature": state.temperature.cpu().tolist(),
        "initial": state.tokens.cpu().tolist(),
        "chunk_steps": chunk_steps,
        "kernel": kernel,
        "versions": {
            "torch": torch.__version__.split("+")[0],
            "numpy": np.__version__,
            "transformers": version("transformers"),
        },
    }
    with _held(folder):
        _claim(folder, run)
        for leftover in (
            *folder.glob(".chunk-*"),
            *folder.glob(".run.json.*"),
        ):  # what a kill left half written; nobody else writes here under the lock
            leftover.unlink()
        identity = hashlib.sha256((folder / "run.json").read_bytes()).hexdigest()
        with tqdm(total=steps, unit="step", desc="chains", disable=not progress, mininterval=0.5) as bar:
            # What is found finished is no work done: it counts as where the bar begins, not in its speed.
            for first in range(0, steps, chunk_steps):
                taken = min(chunk_steps, steps - first)
                # The last chunk may hold more steps than are asked for now; then its final state is not needed.
                start = _state_digest(state.tokens.cpu().numpy())
                chunk = _read_sealed(folder, first // chunk_steps, identity, first, taken, start)
                if chunk is None:
                    walk = (
                        EventDriven(conditionals, cache_bytes).walk
                        if kernel == "event"
                        else _plain_walk(conditionals)
                    )
                    state, record = _walk_in_parts(walk, state, stream, first, taken, bar)
                    _write_sealed(
                        folder,
                        first // chunk_steps,
                        _dataset(stream.chains, first, record, state, identity, start),
                    )
                else:
                    if progress:
                        bar.initial += taken
                    bar.update(taken)
                    state = plain.ChainState(
                        torch.from_numpy(chunk["final"].values.astype(np.int64)).to(conditionals.device),
                        state.temperature,
                    )
        return read_chains(folder, steps) if read else None


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Make the folder of a run and hold it; who comes second waits."""
    lock = FileLock(folder / ".lock")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _plain_walk(conditionals: Conditionals) -> Callable[..., tuple[plain.ChainState, plain.Record]]:
    return lambda state, stream, first, steps: plain.walk(conditionals, state, stream, first, steps)


def _walk_in_parts(
    walk: Callable[..., tuple[plain.ChainState, plain.Record]],
    state: plain.ChainState,
    stream: RandomStream,
    first: int,
    steps: int,
    bar: tqdm,
) -> tuple[plain.ChainState, plain.Record]:
    """`walk`, a few steps at a time, so that the bar moves within a chunk."""
    records = []
    for done in range(0, steps, _STEPS_BETWEEN_TICKS):
        taken = min(_STEPS_BETWEEN_TICKS, steps - done)
        state, record = walk(state, stream, first + done, taken)
        records.append(record)
        bar.update(taken)
    return state, plain.Record(
        torch.cat([record.sites for record in records]), torch.cat([record.tokens for record in records])
    )


def _state_digest(tokens: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(tokens.astype("<i4")).tobytes()).hexdigest()


def _claim(folder: Path, run: dict[str, Any]) -> None:
    """Write `run.json`, or check that it says the same."""
    path = folder / "run.json"
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except ValueError:
            found = None
        if found == run:
            return
        if found is not None and not isinstance(found, dict):
            raise UserError(f"{path} is no record of a run; choose another folder")
        if found is not None:
            differing = sorted(key for key in run if found.get(key) != run[key])
            raise UserError(
                f"{folder} holds another run (different: {', '.join(differing)}); choose another folder, or remove this one"
            )
    elif list(folder.glob("chunk-*.nc")):
        raise UserError(f"{folder} holds chunks without run.json; choose another folder, or remove this one")
    write_json(path, run)


def _names(folder: Path, index: int) -> tuple[Path, Path]:
    return folder / f"chunk-{index:06d}.nc", folder / f"chunk-{index:06d}.sha256"


def _dataset(
    chains: Sequence[int],
    first: int,
    record: plain.Record,
    state: plain.ChainState,
    identity: str,
    start: str,
) -> xarray.Dataset:
    return xarray.Dataset(
        {
            "site": (
                ("step", "chain"),
                record.sites.numpy().astype(np.int32),
                {"long_name": "resampled site"},
            ),
            "token": (
                ("step", "chain"),
                record.tokens.numpy().astype(np.int32),
                {"long_name": "token id put at the site"},
            ),
            "final": (
                ("chain", "position"),
                state.tokens.cpu().numpy().astype(np.int32),
                {"long_name": "state after the last step"},
            ),
        },
        coords={
            "step": np.arange(first, first + len(record.sites), dtype=np.int32),
            "chain_number": ("chain", [str(chain) for chain in chains]),
        },
        attrs={"run": identity, "start": start},
    )


def _write_sealed(folder: Path, index: int, chunk: xarray.Dataset) -> None:
    data, seal = _names(folder, index)
    seal.unlink(missing_ok=True)
    with replacing(data) as temporary:
        chunk.to_netcdf(temporary, engine="scipy", format="NETCDF3_64BIT")
    write_text(seal, hashlib.sha256(data.read_bytes()).hexdigest() + "\n")


def _read_sealed(
    folder: Path, index: int, identity: str, first: int, steps: int, start: str
) -> xarray.Dataset | None:
    """A chunk that begins at step `first` in the state of digest `start`, or None if it is missing, torn, altered, of another run or place, or has fewer than `steps` steps."""
    data, seal = _names(folder, index)
    if not data.exists() or not seal.exists():
        return None
    if hashlib.sha256(data.read_bytes()).hexdigest().encode() != seal.read_bytes().strip():
        return None
    with xarray.open_dataset(data, engine="scipy") as opened:
        chunk = opened.load()
    if (
        chunk.attrs["run"] != identity
        or chunk.attrs["start"] != start
        or chunk.sizes["step"] < steps
        or int(chunk["step"][0]) != first
    ):
        return None
    return chunk


@checked(folder=a_path, steps=optional(a_whole(1)))
def read_chains(folder: Path, steps: int | None = None) -> xarray.Dataset:
    """Read a run into memory.

    Parameters
    ----------
    folder : Path
    steps : int, optional
        Read this many of the first steps, at least 1; all by default.

    Returns
    -------
    Dataset
        `site`, `token` of int32 with dimensions (step, chain): at step t, `token[t]` was put at `site[t]`. `initial` of int32,
        (chain, position). Attributes: `run.json` under "run".

    Raises
    ------
    UserError
        If there is no run, `run.json` is torn, it has fewer steps, or a chunk is not the one that was sealed.
    """
    text, size, initial = _recorded(folder)
    identity, state, chunks = hashlib.sha256(text.encode()).hexdigest(), initial, []
    written = [int(found[1]) for path in folder.iterdir() if (found := _CHUNK.fullmatch(path.name))]
    if not written:
        raise UserError(f"no finished chunk in {folder}")
    last = max(written) if steps is None else min(max(written), (steps - 1) // size)
    for index in range(last + 1):
        chunk = _read_sealed(
            folder, index, identity, index * size, size if index < last else 1, _state_digest(state)
        )
        if chunk is None:
            raise UserError(
                f"{_names(folder, index)[0].name} in {folder} is torn, altered or missing; run the chains again to mend it"
            )
        chunks.append(chunk[["site", "token"]])
        state = chunk["final"].values
    reached = last * size + chunks[-1].sizes["step"]
    if steps is not None and reached < steps:
        raise UserError(
            f"{folder} holds {reached} steps, {steps} were asked for; run the chains that far first"
        )
    joined = xarray.concat(
        chunks, dim="step", data_vars="minimal", coords="minimal", compat="override", join="override"
    )
    joined["initial"] = (("chain", "position"), initial)
    joined.attrs = {"run": text}
    return joined if steps is None else joined.isel(step=slice(steps))


def _recorded(folder: Path) -> tuple[str, int, np.ndarray]:
    """`run.json` as text, and of it the steps in a chunk and the starting states."""
    if not os.path.exists(folder / "run.json"):
        raise UserError(f"no run in {folder}")
    try:
        text = (folder / "run.json").read_text(encoding="utf-8")
        run = json.loads(text)
        return text, whole("chunk_steps", run["chunk_steps"], 1), np.array(run["initial"], dtype=np.int32)
    except (ValueError, KeyError, TypeError, OverflowError):
        raise UserError(f"run.json in {folder} is torn or altered; run the chains again to mend it") from None


def of_run(name: str, value: Any) -> xarray.Dataset:
    """Rule of `checks.checked`: a run as `read_chains` gives it.

    Raises
    ------
    UserError
    """
    if not isinstance(value, xarray.Dataset) or not {"initial", "site", "token"} <= set(value.data_vars):
        raise UserError(f"{name} is {shown(value)}; give a run, as read_chains gives it")
    return value


@checked(dataset=of_run, every=a_whole(1))
def states_along(dataset: xarray.Dataset, every: int) -> Iterator[tuple[int, np.ndarray]]:
    """States of all chains at times 0, every, 2 every, ...

    Parameters
    ----------
    dataset : Dataset
        See `read_chains`.
    every : int
        Steps, at least 1.

    Yields
    ------
    time : int
        Steps taken.
    states : ndarray of int32, shape (B, n)
        A copy.

    Raises
    ------
    UserError
        At the call, not at the first state.
    """
    states = dataset["initial"].values.copy()
    sites, tokens = dataset["site"].values, dataset["token"].values
    rows = np.arange(states.shape[0])
    yield 0, states.copy()
    for step in range(len(sites)):
        states[rows, sites[step]] = tokens[step]
        if (step + 1) % every == 0:
            yield step + 1, states.copy()


def series(name: str, value: Any) -> dict[str, np.ndarray]:
    """Rule of `checks.checked`: observables by name, each of shape (chains, draws).

    Raises
    ------
    UserError
    """
    if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
        raise UserError(f"{name} is {shown(value)}; give a dict of arrays of shape (chains, draws) by name")
    found = {
        key: np.asarray(array(f"{name}[{key!r}]", values, 2), dtype=float) for key, values in value.items()
    }
    shapes = {values.shape for values in found.values()}
    if len(shapes) > 1 or 0 in next(iter(shapes)):
        raise UserError(
            f"{name} have shapes {', '.join(map(str, sorted(shapes)))}; "
            "give arrays of one shape (chains, draws), none of them empty"
        )
    return found


@checked(observables=series)
def to_arviz(observables: dict[str, np.ndarray]) -> arviz.InferenceData:
    """Observables of the chains as an ArviZ posterior group; each of shape (chains, draws)."""
    import arviz  # here, for it takes seconds and most runs need none of it

    return arviz.from_dict(posterior=observables)


@checked(observables=series)
def diagnostics(observables: dict[str, np.ndarray]) -> pd.DataFrame:
    """Effective sample size and split R-hat of observables, each of shape (chains, draws).

    Says nothing about what no chain has visited: R-hat near 1 is not a proof of mixing.
    """
    import arviz

    return arviz.summary(to_arviz(observables), kind="diagnostics", round_to="none")[
        ["ess_bulk", "ess_tail", "r_hat"]
    ]

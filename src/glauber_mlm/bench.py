"""Performance as ratios, each pair measured side by side in one run.

Absolute times of a shared machine drift; so A and B take turns, A B A B ..., and what is reported is the median of the ratios of neighbours with their
spread. Targets stand beside the figures, and a figure that misses its target is profiled.
"""

from __future__ import annotations

import cProfile
import pstats
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor
from tqdm.auto import tqdm

from glauber_mlm import checks, models
from glauber_mlm.atomic import output_file, write_json
from glauber_mlm.chapters.semantic_traps.study import random_states
from glauber_mlm.chapters.theory_checks.study import descend
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.conditionals.protocol import Conditionals
from glauber_mlm.conditionals.stubs import Counting, PlantedMargins
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.event import EventDriven
from glauber_mlm.passages import load_passages
from glauber_mlm.randomness import RandomStream

REPEATS = 5
BUDGET = 40.0  # seconds for one ratio; where the hardware is so slow that it takes longer, fewer repeats
SETTLING_SWEEPS = 40  # at temperature 0, to a state that cold chains hardly leave
MEMORY_LENGTH, MEMORY_CHAINS, MEMORY_TEMPERATURE = (
    16,
    4,
    0.03,
)  # settled: moving chains would need a forward pass at most steps
PLANTED_LENGTH, PLANTED_CHAINS, PLANTED_STEPS, PLANTED_TEMPERATURE = 64, 16, 2000, 0.5
TARGETS = {
    "loop_over_plain.float32": ">= 1.8",
    "loop_over_plain.bfloat16": ">= 6",
    "step_over_forward.float32": "<= 1.15",
    "step_over_forward.bfloat16": "<= 1.3",
    "event_rows_over_pairs": "<= 1.05",
    "event_speedup_over_ideal": ">= 0.8",
    "event_speedup_over_ideal.settled": ">= 0.8",
    "event_speedup_over_ideal.planted": ">= 0.8",
    "event_worst_over_plain": ">= 0.95",
    "memory_1e5_over_1e3": "<= 1.05",
}


@dataclass(frozen=True)
class EventCase:
    """A size at which the event-driven kernel walks beside the plain one, from windows of the passages.

    Attributes
    ----------
    length, chains, steps : int
    temperatures : tuple of float
    settled : bool
        Whether the chains first run `SETTLING_SWEEPS` sweeps at temperature 0.
    target : str or None
        Name of the target that the worst share of the ideal saving counts towards; None for a size that is shown alone.
    """

    length: int
    chains: int
    steps: int
    temperatures: tuple[float, ...]
    settled: bool = False
    target: str | None = None

    def problem(self) -> tuple[MaskedLanguageModel, Tensor]:
        """The embedded model's conditionals and the starting states, shape (chains, length)."""
        conditionals = models.load().conditionals(self.length)
        states = windows(conditionals, self.chains)
        return conditionals, descend(
            conditionals, states, SETTLING_SWEEPS, seed=0
        ) if self.settled else states

    def __str__(self) -> str:
        return (
            f"n = {self.length}, batch {self.chains}, {self.steps} steps{', settled' if self.settled else ''}"
        )


# On two cores one plain step of the first size takes seconds: hence few temperatures and steps, in which few pairs recur.
EVENT_CASES = (
    EventCase(64, 256, 96, (0.05, 0.3, 1.0), target="event_speedup_over_ideal"),
    EventCase(16, 16, 200, (0.05, 0.1, 0.2, 0.5, 1.0)),
    EventCase(16, 16, 200, (0.05,), settled=True, target="event_speedup_over_ideal.settled"),
)
QUICK_CASES = tuple(
    replace(case, length=16, chains=4, steps=20, temperatures=case.temperatures[:1])
    for case in EVENT_CASES
    if case.target
)


@dataclass(frozen=True)
class Ratio:
    """Median, smallest and largest of the ratios of neighbouring measurements, and how many there are."""

    median: float
    low: float
    high: float
    repeats: int

    def __str__(self) -> str:
        return f"{self.median:7.3f}   [{self.low:.3f}, {self.high:.3f}] of {self.repeats}"


def side_by_side(first: Callable[[], object], second: Callable[[], object], repeats: int = REPEATS) -> Ratio:
    """Time `first` over `second`, taking turns; stops early once it took `BUDGET` seconds. Warming both up is the caller's."""
    ratios: list[float] = []
    begun = time.perf_counter()
    for _ in range(repeats):
        if ratios and time.perf_counter() - begun > BUDGET:
            break
        times = []
        for work in (first, second):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        ratios.append(times[0] / times[1])
    return Ratio(statistics.median(ratios), min(ratios), max(ratios), len(ratios))


def public_loop_step(
    conditionals: MaskedLanguageModel,
    states: Tensor,
    sites: Tensor,
    temperature: float,
    generator: torch.Generator,
) -> Tensor:
    """One step as public samplers write it: vocabulary logits at every position, a softmax at one, a multinomial draw."""
    before = len(conditionals.frame.before)
    ids = conditionals._inputs(states, sites)
    rows = torch.arange(len(ids))
    with torch.inference_mode():
        logits = conditionals.model(input_ids=ids).logits[rows, sites + before].float()
        logits[:, conditionals.barred] = float("-inf")
    drawn = torch.multinomial(torch.softmax(logits / temperature, dim=1), 1, generator=generator)[:, 0]
    return states.scatter(1, sites[:, None], drawn[:, None])


def windows(conditionals: MaskedLanguageModel, count: int) -> Tensor:
    """`count` evenly spaced windows of n tokens of the passages, written one after another: int64, shape (count, n)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # words that another model than the embedded one never samples
        coded = [conditionals.encode(passage.text, unknown="drop") for passage in load_passages()]
    tokens = torch.cat([torch.as_tensor(tokens, dtype=torch.int64) for tokens in coded])
    stride = (len(tokens) - conditionals.length) // max(count - 1, 1)
    return tokens.unfold(0, conditionals.length, stride)[:count].contiguous()


def plain_ratios(length: int, batch: int, repeats: int) -> dict[str, Ratio]:
    """Loop over plain kernel and kernel step over bare encoder forward, for both dtypes, at one size."""
    by_dtype = {dtype: models.load(dtype=dtype).conditionals(length) for dtype in ("float32", "bfloat16")}
    states = random_states(by_dtype["float32"], batch, seed=0)
    blocks = RandomStream(0, range(batch)).blocks(0, 1)
    generator = torch.Generator().manual_seed(0)
    sites = plain.choose_sites(by_dtype["float32"], blocks[0, :, 0])
    found = {}
    for dtype, conditionals in by_dtype.items():
        state = plain.initial_state(conditionals, states, 1.0)
        ids = conditionals._inputs(states, sites)

        def step(conditionals: MaskedLanguageModel = conditionals, state: plain.ChainState = state) -> None:
            plain.step(conditionals, state, blocks[0])

        def forward(conditionals: MaskedLanguageModel = conditionals, ids: Tensor = ids) -> None:
            with torch.inference_mode():
                conditionals.model.base_model(input_ids=ids)

        def loop() -> None:  # in float32 in both ratios: what a user gains over the public kind
            public_loop_step(by_dtype["float32"], states, sites, 1.0, generator)

        loop(), step(), forward()
        found[f"loop_over_plain.{dtype}"] = side_by_side(loop, step, repeats)
        found[f"step_over_forward.{dtype}"] = side_by_side(step, forward, repeats)
    return found


@dataclass(frozen=True)
class EventFigures:
    """Event-driven against plain on one chain of work.

    Attributes
    ----------
    rows_over_pairs : float
        Rows computed over distinct (masked context, site) pairs that the plain chain visits.
    ideal : float
        Steps over distinct pairs: the most that caching can save.
    speedup : Ratio
        Wall time of plain over event-driven.
    """

    rows_over_pairs: float
    ideal: float
    speedup: Ratio

    @property
    def share(self) -> float:
        """How much of the ideal saving the wall time shows."""
        return self.speedup.median / self.ideal

    def __str__(self) -> str:
        return f"rows / pairs {self.rows_over_pairs:.3f}, ideal {self.ideal:6.2f}, speed-up {self.speedup}"


def distinct_pairs(start: Tensor, record: plain.Record) -> int:
    """Distinct (masked context, site) pairs that chains visit from the states `start`, shape (B, n), by the updates of `record`."""
    tokens, seen = start.numpy().copy(), set()
    chains = np.arange(len(tokens))
    for sites, drawn in zip(record.sites.numpy(), record.tokens.numpy(), strict=True):
        tokens[chains, sites] = -1  # no token is -1, so it tells the site
        seen.update(row.tobytes() for row in tokens)
        tokens[chains, sites] = drawn
    return len(seen)


def event_figures(
    conditionals: Conditionals, states: Tensor, temperature: float, steps: int, repeats: int
) -> EventFigures:
    """Walk the same steps with both kernels."""
    state = plain.initial_state(conditionals, states, temperature)
    stream = RandomStream(0, range(len(states)))
    records, kernels = [], []

    def by_plain() -> None:
        records.append(plain.walk(conditionals, state, stream, 0, steps)[1])

    def by_event() -> None:
        kernels.append(EventDriven(conditionals))
        kernels[-1].walk(state, stream, 0, steps)

    plain.walk(conditionals, state, stream, 0, 1)
    speedup = side_by_side(by_plain, by_event, repeats)
    distinct = distinct_pairs(states, records[-1])
    return EventFigures(kernels[-1].forward_rows / distinct, steps * len(states) / distinct, speedup)


def model_figures(case: EventCase, repeats: int) -> list[EventFigures]:
    """Event-driven against plain on the embedded model, one figure a temperature."""
    conditionals, states = case.problem()
    figures = []
    for temperature in tqdm(case.temperatures, desc=f"event-driven, n = {case.length}", unit="temperature"):
        figures.append(event_figures(conditionals, states, temperature, case.steps, repeats))
        tqdm.write(f"{f'{case}, tau = {temperature:g}':50s} {figures[-1]}")
    return figures


def planted() -> tuple[PlantedMargins, Tensor]:
    """The planted-margin stub and its patterns, from which chains start."""
    patterns = torch.stack([torch.arange(PLANTED_LENGTH) * (k + 3) % 997 for k in range(PLANTED_CHAINS)])
    return PlantedMargins(PLANTED_LENGTH, 997, 8.0, patterns), patterns


def peak_memory(steps: int) -> float:
    """Peak resident memory in MiB of a fresh process that streams `steps` steps of frozen chains of the embedded model to disk, event-driven."""
    # Linux carries the peak of the process that started another one over into the latter's ru_maxrss; VmHWM is the new process's own.
    program = (
        "import re, sys, resource, torch\n"
        "from pathlib import Path\n"
        "from glauber_mlm import models\n"
        "from glauber_mlm.runs.chains import run_chains\n"
        "from glauber_mlm.bench import windows\n"
        "from glauber_mlm.chapters.theory_checks.study import descend\n"
        f"conditionals = models.load().conditionals({MEMORY_LENGTH})\n"
        f"states = descend(conditionals, windows(conditionals, {MEMORY_CHAINS}), {SETTLING_SWEEPS}, seed=0)\n"
        f"run_chains(Path(sys.argv[1]), conditionals, states, {MEMORY_TEMPERATURE}, seed=0, steps={steps}, chunk_steps=1000, progress=False, read=False)\n"
        "status = Path('/proc/self/status')\n"
        "own = re.search(r'VmHWM:\\s*(\\d+) kB', status.read_text()) if status.exists() else None\n"
        "print(own[1] if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    with TemporaryDirectory() as folder:
        finished = subprocess.run(
            [sys.executable, "-c", program, str(Path(folder) / "run")],
            check=True,
            capture_output=True,
            text=True,
        )
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return int(finished.stdout.split()[-1]) / unit


def print_step_profile(dtype: str, length: int = 64, batch: int = 256, rows: int = 8) -> None:
    """Where a step of the plain kernel spends its time, by operator."""
    conditionals = models.load(dtype=dtype).conditionals(length)
    state = plain.initial_state(conditionals, random_states(conditionals, batch, seed=0), 1.0)
    block = RandomStream(0, range(batch)).blocks(0, 1)[0]
    plain.step(conditionals, state, block)
    with torch.profiler.profile() as profiler:
        plain.step(conditionals, state, block)
    print(f"\nThe plain step, by operator (n = {length}, batch {batch}, {dtype}):")
    print(
        profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=rows, max_name_column_width=40)
    )


def print_walk_profile(
    name: str, conditionals: Conditionals, states: Tensor, temperature: float, steps: int, rows: int = 10
) -> None:
    """Where an event-driven walk spends its time, by function, and in how many forwards its rows come.

    The chain that needs most rows gets them one after another: as many forwards, however few rows there are in all.
    """
    state, stream = (
        plain.initial_state(conditionals, states, temperature),
        RandomStream(0, range(len(states))),
    )
    counted = Counting(conditionals)
    with cProfile.Profile() as profiler:
        EventDriven(counted).walk(state, stream, 0, steps)
    print(
        f"\nThe event-driven walk, by function ({name}, tau = {temperature:g}, {steps} steps of {len(states)} chains):"
    )
    print(
        f"{counted.rows} rows in {counted.calls} forwards, where the plain walk takes {steps * len(states)} rows in {steps}"
    )
    pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(rows)


def print_profiles(names: set[str]) -> None:
    """A profile of why, for each ratio missed."""
    for dtype in ("float32", "bfloat16"):
        if {f"loop_over_plain.{dtype}", f"step_over_forward.{dtype}"} & names:
            print_step_profile(dtype)
    if "event_speedup_over_ideal.planted" in names:
        print_walk_profile("planted margins", *planted(), PLANTED_TEMPERATURE, PLANTED_STEPS)
    for case in EVENT_CASES:
        # Rows and the worst ratio are over all cases; the settled one, where most rows come from the cache, tells where the rest of the time goes.
        if case.target in names or (
            case.settled and {"event_rows_over_pairs", "event_worst_over_plain"} & names
        ):
            print_walk_profile(f"embedded model, {case}", *case.problem(), case.temperatures[0], case.steps)


def missed(name: str, value: float) -> bool:
    """Whether a median misses its target."""
    sign, limit = TARGETS[name].split()
    return {">=": value < float(limit), "<=": value > float(limit)}[sign]


def run_bench(output: Path, quick: bool = False) -> dict[str, float]:
    """Measure everything, print ratios with their spread, and write the medians to `output`.

    Parameters
    ----------
    output : Path
        JSON, one flat object.
    quick : bool
        Few repeats of small sizes, to see that it runs; the figures then mean nothing.

    Returns
    -------
    dict
        Name to median.

    Raises
    ------
    UserError
        If `output` cannot be written, before anything is measured.
    """
    output, quick = output_file("output", output), checks.flag("quick", quick)
    repeats = 1 if quick else REPEATS
    sizes = [(16, 4)] if quick else [(16, 16), (16, 256), (64, 16), (64, 256)]
    medians: dict[str, float] = {}
    print(
        f"torch {torch.__version__}, {torch.get_num_threads()} threads; ratios: median [smallest, largest] of how many"
    )
    for length, batch in tqdm(sizes, desc="plain", unit="size"):
        for name, ratio in plain_ratios(length, batch, repeats).items():
            tqdm.write(f"{name:30s} n = {length:3d}, batch {batch:3d}   {ratio}")
            medians[name] = ratio.median  # the last size, n = 64 and batch 256, is the one that counts
    every = []
    for case in QUICK_CASES if quick else EVENT_CASES:
        figures = model_figures(case, 1 if quick else 2)
        every += figures
        if case.target is not None:
            medians[case.target] = min(figure.share for figure in figures)
    stub = event_figures(
        *planted(), PLANTED_TEMPERATURE, 50 if quick else PLANTED_STEPS, 1 if quick else REPEATS
    )
    print(f"{f'planted margins, {PLANTED_CHAINS} chains, tau = {PLANTED_TEMPERATURE:g}':50s} {stub}")
    every.append(stub)
    medians["event_rows_over_pairs"] = max(figure.rows_over_pairs for figure in every)
    medians["event_speedup_over_ideal.planted"] = stub.share
    medians["event_worst_over_plain"] = min(figure.speedup.median for figure in every)
    few, many = (200, 400) if quick else (10**3, 10**5)
    small, large = peak_memory(few), peak_memory(many)
    print(f"peak memory: {small:.1f} MiB at {few} steps, {large:.1f} MiB at {many} steps")
    medians["memory_1e5_over_1e3"] = large / small
    print()
    for name, value in medians.items():
        print(f"{name:34s} {value:8.3f}   target {TARGETS[name]}{'   missed' if missed(name, value) else ''}")
    if not quick:
        print_profiles({name for name, value in medians.items() if missed(name, value)})
    print(
        f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB"
    )
    write_json(output, medians)
    return medians

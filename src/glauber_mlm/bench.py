"""Performance as ratios, each pair measured side by side in one run.

Absolute times of a shared machine drift; so A and B take turns, A B A B ..., and what is reported is the median of the ratios of neighbours with their
spread. Nothing here judges: the targets stand beside the figures.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor
from tqdm.auto import tqdm

from glauber_mlm import models
from glauber_mlm.atomic import write_json
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.conditionals.protocol import Conditionals
from glauber_mlm.conditionals.stubs import Counting, PlantedMargins
from glauber_mlm.kernels import plain
from glauber_mlm.kernels.event import EventDriven
from glauber_mlm.randomness import RandomStream
from glauber_mlm.studies.landscape import random_states
from glauber_mlm.studies.starts import starting_states

REPEATS = 5
BUDGET = 40.0  # seconds for one ratio; where the hardware is so slow that it takes longer, fewer repeats
EVENT_LENGTH, EVENT_CHAINS, EVENT_STEPS = 16, 16, 200  # at n = 64 with 256 chains one plain step takes seconds on two cores
MEMORY_CHAINS, MEMORY_TEMPERATURE, MEMORY_SWEEPS = 4, 0.03, 40  # sweeps at temperature 0 before: moving chains would need a forward pass at most steps
EVENT_TEMPERATURES = (0.05, 0.1, 0.2, 0.5, 1.0)
PLANTED_LENGTH, PLANTED_CHAINS, PLANTED_STEPS = 64, 16, 2000
TARGETS = {
    "loop_over_plain.float32": ">= 1.8",
    "loop_over_plain.bfloat16": ">= 6",
    "step_over_forward.float32": "<= 1.15",
    "step_over_forward.bfloat16": "<= 1.3",
    "event_rows_over_pairs": "<= 1.05",
    "event_speedup_over_ideal": ">= 0.8",
    "event_speedup_over_ideal.planted": ">= 0.8",
    "event_worst_over_plain": ">= 0.95",
    "memory_1e5_over_1e3": "about 1",
}


@dataclass(frozen=True)
class Ratio:
    """Median, smallest and largest of the ratios of neighbouring measurements."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:7.3f}   [{self.low:.3f}, {self.high:.3f}]"


def side_by_side(first: Callable[[], object], second: Callable[[], object], repeats: int = REPEATS) -> Ratio:
    """Time `first` over `second`, taking turns, after one uncounted call of each; stops early once it took `BUDGET` seconds."""
    first(), second()
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
    return Ratio(statistics.median(ratios), min(ratios), max(ratios))


def public_loop_step(conditionals: MaskedLanguageModel, states: Tensor, sites: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """One step as public samplers write it: vocabulary logits at every position, a softmax at one, a multinomial draw."""
    before = len(conditionals.frame.before)
    ids = conditionals._inputs(states, sites)
    rows = torch.arange(len(ids))
    with torch.inference_mode():
        logits = conditionals.model(input_ids=ids).logits[rows, sites + before].float()
        logits[:, conditionals.barred] = float("-inf")
    drawn = torch.multinomial(torch.softmax(logits / temperature, dim=1), 1, generator=generator)[:, 0]
    return states.scatter(1, sites[:, None], drawn[:, None])


def _states(conditionals: MaskedLanguageModel, count: int) -> Tensor:
    return random_states(conditionals, count, seed=0)


def plain_ratios(length: int, batch: int, repeats: int) -> dict[str, Ratio]:
    """Loop over plain kernel and kernel step over bare encoder forward, for both dtypes, at one size."""
    by_dtype = {dtype: models.load(dtype=dtype).conditionals(length) for dtype in ("float32", "bfloat16")}
    states = _states(by_dtype["float32"], batch)
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

        # The loop is in float32 in both ratios: what a user gains over the public kind.
        found[f"loop_over_plain.{dtype}"] = side_by_side(lambda: public_loop_step(by_dtype["float32"], states, sites, 1.0, generator), step, repeats)
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


def event_figures(conditionals: Conditionals, states: Tensor, temperature: float, steps: int, repeats: int) -> EventFigures:
    """Walk the same steps with both kernels."""
    state = plain.initial_state(conditionals, states, temperature)
    stream = RandomStream(0, range(len(states)))
    counted = Counting(conditionals)
    plain.walk(counted, state, stream, 0, steps)
    kernel = EventDriven(conditionals)
    kernel.walk(state, stream, 0, steps)
    speedup = side_by_side(lambda: plain.walk(conditionals, state, stream, 0, steps), lambda: EventDriven(conditionals).walk(state, stream, 0, steps), repeats)
    return EventFigures(kernel.forward_rows / counted.distinct, counted.rows / counted.distinct, speedup)


def peak_memory(steps: int) -> float:
    """Peak resident memory in MiB of a fresh process that streams `steps` steps of frozen chains of the embedded model to disk, event-driven."""
    # Linux carries the peak of the process that started another one over into the latter's ru_maxrss; VmHWM is the new process's own.
    program = (
        "import re, sys, resource, torch\n"
        "from pathlib import Path\n"
        "from glauber_mlm import models\n"
        "from glauber_mlm.runs.chains import run_chains\n"
        "from glauber_mlm.studies.starts import starting_states\n"
        "from glauber_mlm.studies.theory import descend\n"
        f"conditionals = models.load().conditionals({EVENT_LENGTH})\n"
        f"states = descend(conditionals, starting_states(conditionals, {MEMORY_CHAINS}, seed=0)[0], {MEMORY_SWEEPS}, seed=0)\n"
        f"run_chains(Path(sys.argv[1]), conditionals, states, {MEMORY_TEMPERATURE}, seed=0, steps={steps}, chunk_steps=1000, progress=False, read=False)\n"
        "status = Path('/proc/self/status')\n"
        "own = re.search(r'VmHWM:\\s*(\\d+) kB', status.read_text()) if status.exists() else None\n"
        "print(own[1] if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)\n"
    )
    with TemporaryDirectory() as folder:
        finished = subprocess.run([sys.executable, "-c", program, str(Path(folder) / "run")], check=True, capture_output=True, text=True)
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return int(finished.stdout.split()[-1]) / unit


def print_profile(length: int, batch: int, rows: int = 8) -> None:
    """Where a float32 step of the plain kernel spends its time, by operator."""
    conditionals = models.load().conditionals(length)
    state = plain.initial_state(conditionals, _states(conditionals, batch), 1.0)
    block = RandomStream(0, range(batch)).blocks(0, 1)[0]
    plain.step(conditionals, state, block)
    with torch.profiler.profile() as profiler:
        plain.step(conditionals, state, block)
    print(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=rows, max_name_column_width=40))


def missed(name: str, value: float) -> bool:
    """Whether a median misses its target; targets that are no inequality are for the reader to judge."""
    sign, _, limit = TARGETS[name].partition(" ")
    return {">=": value < float(limit), "<=": value > float(limit)}[sign] if sign in (">=", "<=") else False


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
    """
    repeats = 1 if quick else REPEATS
    sizes = [(16, 4)] if quick else [(16, 16), (16, 256), (64, 16), (64, 256)]
    steps = 20 if quick else EVENT_STEPS
    medians: dict[str, float] = {}
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads; ratios: median [smallest, largest] of {repeats}")
    for length, batch in tqdm(sizes, desc="plain", unit="size"):
        for name, ratio in plain_ratios(length, batch, repeats).items():
            tqdm.write(f"{name:30s} n = {length:3d}, batch {batch:3d}   {ratio}")
            medians[name] = ratio.median  # the last size, n = 64 and batch 256, is the one that counts
    conditionals = models.load().conditionals(EVENT_LENGTH)
    states = starting_states(conditionals, EVENT_CHAINS, seed=0)[0]
    figures = {}
    for temperature in tqdm(EVENT_TEMPERATURES[:1] if quick else EVENT_TEMPERATURES, desc="event-driven", unit="temperature"):
        figures[f"tau = {temperature:g}"] = event_figures(conditionals, states, temperature, steps, 1 if quick else 2)
    patterns = torch.stack([torch.arange(PLANTED_LENGTH) * (k + 3) % 997 for k in range(PLANTED_CHAINS)])
    planted = PlantedMargins(PLANTED_LENGTH, 997, 8.0, patterns)
    figures["planted margins"] = event_figures(planted, patterns, 0.5, 50 if quick else PLANTED_STEPS, 1 if quick else 2)
    for name, figure in figures.items():
        print(f"event-driven, {name:16s} rows / pairs {figure.rows_over_pairs:.3f}, ideal saving {figure.ideal:8.2f}, speed-up {figure.speedup}")
    medians["event_speedup_over_ideal.planted"] = figures["planted margins"].speedup.median / figures["planted margins"].ideal
    of_model = [figure for name, figure in figures.items() if name.startswith("tau")]
    medians["event_rows_over_pairs"] = max(figure.rows_over_pairs for figure in figures.values())
    medians["event_speedup_over_ideal"] = min(figure.speedup.median / figure.ideal for figure in of_model)
    medians["event_worst_over_plain"] = min(figure.speedup.median for figure in figures.values())
    small, large = peak_memory(200 if quick else 10**3), peak_memory(400 if quick else 10**5)
    print(f"peak memory: {small:.0f} MiB at 10^3 steps, {large:.0f} MiB at 10^5 steps")
    medians["memory_1e5_over_1e3"] = large / small
    print()
    for name, value in medians.items():
        print(f"{name:34s} {value:8.3f}   target {TARGETS[name]}{'   missed' if missed(name, value) else ''}")
    if any(missed(name, value) for name, value in medians.items()) and not quick:
        print("\nThe plain step, by operator (n = 64, batch 256, float32), to see why:")
        print_profile(64, 256)
    print(f"peak memory of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10:.0f} MiB")
    write_json(output, medians)
    return medians

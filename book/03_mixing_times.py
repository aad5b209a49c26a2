# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Mixing times
#
# How many steps until a chain forgets where it began? Two clocks are used. The **coalescence** clock runs two chains from passages of different topics, resamples the same site in both, and draws the two tokens from a
# *maximal coupling*: a joint draw in which the two tokens agree with the largest probability that their laws allow, 1 − TV. It stops when the sequences agree, at $T_c$. The first chain is, token for token, the plain Glauber chain. The **semantic** clock follows sentence embeddings and stops when the mean distance of an ensemble to
# its starts comes near that of unrelated passages.
#
# What a meeting time says: $P_{xy}(T_c > t)$ bounds $\mathrm{TV}(P^t(x, \cdot), P^t(y, \cdot))$ for that pair of starts. Averaged over pairs it bounds the mean of these, not $d(t)$, which is a maximum over all pairs.
# Slow coalescence does not prove slow mixing. Caps are fixed before a run; a pair that reaches one is **censored**: its meeting time is known only to lie beyond the cap, and it stays in every estimate. A *sweep* is $n$ steps.

# %% tags=["parameters"]
model = "embedded"  # or a hub id, or a local folder
revision = None
dtype = "float32"  # or float64, or bfloat16: what that costs is below
device = "cpu"
attention = "sdpa"
seed = 20260
profile = "cpu"
output = ""
lengths = [4, 8, 12]
temperatures = [1.0, 1.2, 1.4, 1.6, 1.8, 2.2]
pairs = 20
cap_multiple = 25.0  # caps in units of n log n steps
level = 0.5  # share of pairs that defines tau*(n)
calibration_lengths = [8, 16, 32, 64]
calibration_pairs = 60
scaling_lengths = [4, 8, 16, 32]
scaling_temperature = 3.0
semantic_level = 0.9  # share of the unrelated level; stops that clock
lag_sweeps = 10
cold_temperature = 0.1  # cold on the scale of the margins of chapter 1
cold_length = 16
cold_chains = 14
cold_steps = 3000
radius = 2  # Hamming radius of a stay
divergence_steps = 200

# %% tags=["hide-input"]
from glauber_mlm.chapters.base.chapter import open_chapter

chapter = open_chapter("mixing_times", globals())
p = chapter.parameters

# %% tags=["hide-input"]
from glauber_mlm import embedded, models
from glauber_mlm.chapters.base import rules
from glauber_mlm.chapters.base.show import number, say, set_style, show, table
from glauber_mlm.chapters.mixing_times import figures, precision, study, words
from glauber_mlm.chapters.theory_checks.study import allowed_tokens
from glauber_mlm.exact import curie_weiss as calibration
from glauber_mlm.kernels.coupled import steps_at_scale
from glauber_mlm.passages import load_passages
from glauber_mlm.readings import influence
from glauber_mlm.statistics.survival import wilson_interval
from glauber_mlm.text.starts import passage_states, starting_states

set_style()
loaded = models.load(p.model, dtype=p.dtype, device=p.device, attention=p.attention, revision=p.revision)
conditionals = {n: loaded.conditionals(n) for n in sorted({*p.lengths, *p.scaling_lengths, p.cold_length})}
passage_states(conditionals[max(conditionals)], load_passages())  # refuses here, before any cell runs, a length beyond the passages
say(f"Model `{loaded.name}`: {loaded.describe()['parameters']:,} parameters, {p.dtype}, on {p.device}.")

# %% [markdown]
# ## What the precision costs
#
# Chains may run in bfloat16 where the hardware multiplies it fast; the head that turns a hidden state into 30,000 logits stays in float32. The table gives the total variation between the conditionals of this model in bfloat16 and in float32, at the
# sites of passages: the error that one step would make, to be compared with 1. Certificates (rectangles, influence, exact chains) are never computed in bfloat16.

# %% tags=["hide-input"]
length = max(p.lengths)
source = {"device": p.device, "attention": p.attention, "revision": p.revision}
precisions = {dtype: (loaded if dtype == p.dtype else models.load(p.model, dtype=dtype, **source)).conditionals(length) for dtype in ("float32", "float64", "bfloat16")}
probes = starting_states(precisions["float32"], 12, p.seed)[0]
cost = precision.precision_cost(precisions["bfloat16"], precisions["float32"], probes[:6], sorted(set(p.temperatures) | {p.cold_temperature}))
rows = len(probes[:6]) * length
table(cost, f"Total variation between the bfloat16 and the float32 law of one step, over {rows} rows: every site of {len(probes[:6])} passages cut to {length} tokens.")

# %% [markdown]
# The same chain comes out whatever the batch, the chunking or the kernel, *up to floating point*. How far is that? Below, chains with the same randomness are run in other company, by the other kernel and in other precisions; a chain parts from
# its reference at the first draw that falls between two roundings. A draw inverts the cumulative law in the order of token ids, so a small shift of the cumulative sum can give another token while it hardly changes the law, which is what
# the table above measures.

# %% tags=["hide-input"]
parting = precision.divergence(precisions, probes[:6], max(p.temperatures), p.divergence_steps, p.seed)
table(parting, f"Chains with the same randomness at τ = {max(p.temperatures):g}, n = {length}, over {p.divergence_steps:,} steps, compared with the plain kernel in float32.")
worst = parting.set_index("compared with").loc["bfloat16", "chains that part"]
moved = cost.set_index("temperature").loc[max(p.temperatures), "mean TV of one step"]
say(f"In bfloat16 {worst} of {len(probes[:6])} chains part from the reference within {p.divergence_steps:,} steps, while the law of one step moves by a mean TV of {number(moved)} at this temperature.")

# %% [markdown]
# ## The pipeline on a model with a known transition
#
# Before a transition is claimed on a language model, the same code must find the known one. Curie–Weiss is a Glauber chain with a slow-to-fast transition at $\tau_c = 1$ in the limit; from opposite starts the
# temperature at which the share `level` of the pairs meets by the cap rises towards it with $n$. Here that temperature is also known exactly at each $n$: the coupling keeps the two chains in order, and the numbers of sites where both
# are plus and where they differ form a small Markov chain. The measured interval should hold it; where it does not, claim M3 is left undecided.

# %% tags=["hide-input"]
known_cells = study.grid(
    chapter.cells, "curie-weiss", [(n, tau) for n in p.calibration_lengths for tau in study.CALIBRATION_TEMPERATURES], {"pairs": p.calibration_pairs, "seed": p.seed, "multiple": p.cap_multiple},
    lambda n, tau: study.curie_weiss_cell(n, tau, p.calibration_pairs, p.seed, p.cap_multiple), lambda n: f"curie-weiss-{n}",
)
known = study.crossings(known_cells, p.level, p.seed)
exact = {
    n: chapter.cells.result(
        "curie-weiss-exact", {"n": n, "level": p.level, "multiple": p.cap_multiple}, lambda n=n: {"temperature": calibration.exact_crossing(n, p.level, p.cap_multiple)}, fingerprint=f"curie-weiss-{n}"
    )["temperature"]
    for n in p.calibration_lengths
}
calibrated = all(calibration.is_inside(known[n], exact[n]) for n in known)
table(
    words.calibration_table(known, exact).rename(columns=words.READABLE),
    f"Curie–Weiss: temperature τ*(n) at which {p.level:.0%} of the pairs meet within {p.cap_multiple:g} n log n steps, from {p.calibration_pairs} simulated pairs a temperature and exactly (to 0.005); low and high are the ends of a 95 % interval.",
)
say(f"{words.describe_calibration(known, exact)}.")

# %% [markdown]
# ## The grid
#
# *Our protocol.* Pairs of passages of different topics, cut to their first $n$ tokens; all sites free; special and unused tokens barred; a cap of `cap_multiple` $n \log n$ steps; every cell has randomness of its own.
#
# Shares come with *Wilson intervals*, which stay within 0 and 1. A *Kaplan–Meier* curve estimates the share of pairs that have not met by each time; a censored pair counts in it as not met up to its cap.

# %% tags=["hide-input"]
caps = {n: steps_at_scale(n, p.cap_multiple) for n in conditionals}
cells = study.grid(
    chapter.cells, "coalescence", [(n, tau) for n in p.lengths for tau in p.temperatures], {"pairs": p.pairs, "seed": p.seed, "multiple": p.cap_multiple},
    lambda n, tau: study.model_cell(conditionals[n], tau, p.pairs, p.seed, caps[n]), lambda n: conditionals[n].fingerprint,
)
grid = study.grid_table(cells)
crossings = study.crossings(cells, p.level, p.seed)

# %% tags=["hide-input"]
show(
    figures.met_fractions(study.grid_table(known_cells), grid, p.level),
    f"Share of pairs that met within {p.cap_multiple:g} n log n steps, with 95 % Wilson intervals. Left: Curie–Weiss from opposite starts, {p.calibration_pairs} pairs a point. Right: the model, {p.pairs} pairs a point.",
)
show(
    figures.survivals(cells, max(p.lengths)),
    f"Kaplan–Meier curves of the meeting time at n = {max(p.lengths)} with 95 % limits; cap {caps[max(p.lengths)]:,} steps.",
)

# %% tags=["hide-input"]
table(
    words.pivot_medians(grid),
    f"Median meeting times in steps, with 95 % intervals, by temperature and length; caps in steps; '>' marks a time beyond the cap. At the coldest temperature {study.censored_share(grid):.0%} of the pairs are censored.",
)

# %% [markdown]
# ## The boundary
#
# $\tau^*(n)$ is the temperature at which the share `level` of the pairs meets by the cap. It is read off an *isotonic fit*, the closest curve to the measured shares that never falls as the temperature rises; its interval comes from a
# parametric bootstrap of that fit and is never narrower than the grid.

# %% tags=["hide-input"]
boundary = study.crossing_table(crossings)
table(boundary.rename(columns=words.READABLE), f"The boundary: τ*(n) at {p.level:.0%} of the pairs met, with the ends of its 95 % interval; a dash is an end off the grid of temperatures.")
show(
    figures.boundaries(boundary, study.crossing_table(known), p.temperatures, study.CALIBRATION_TEMPERATURES),
    "The boundary τ*(n) with its 95 % interval, for the model and for Curie–Weiss (which tends to 1, dotted); an arrow head at the end of the grid where the interval runs off it. "
    f"{words.describe_off_grid(crossings, 'the model')} {words.describe_off_grid(known, 'Curie–Weiss')} Grey: the window that the paper gives for its own, larger models.",
)

# %% [markdown]
# **Which readings move?** The model is held fixed and the apparatus varied: the share that defines the boundary, the cap, and the coupling. Cap and share are read off the same runs; the other coupling (common random numbers: the inverse
# of the cumulative law in id order, same uniform for both chains) is run anew at one length and the hotter half of the temperatures.

# %% tags=["hide-input"]
middle = sorted(p.lengths)[len(p.lengths) // 2]
hotter = sorted(p.temperatures)[len(p.temperatures) // 2 :]
common = study.grid(
    chapter.cells, "coalescence-common", [(middle, tau) for tau in hotter], {"pairs": p.pairs, "seed": p.seed, "multiple": p.cap_multiple},
    lambda n, tau: study.model_cell(conditionals[n], tau, p.pairs, p.seed, caps[n], coupling="common"), lambda n: conditionals[n].fingerprint,
)
variations = study.vary_apparatus(cells, common, p.cap_multiple, p.level, p.seed)
table(words.variation_table(variations), f"τ*(n) under other apparatus, each with its 95 % interval; common random numbers at n = {middle} and τ = {', '.join(f'{tau:g}' for tau in hotter)} only, where {sum(sum(cell['met']) for cell in common.values())} of {p.pairs * len(common)} pairs met.")
say(words.describe_variations(variations))

# %% [markdown]
# ## Distance to stationarity, from simulation alone
#
# A *lagged* coupling {cite:p}`biswas2019estimating` starts both chains from the law of passages, lets $X$ run $L$ steps ahead, and couples $(X_{t+L}, Y_t)$. With $T_L$ the time they meet,
# $\mathrm{TV}(\text{law of } X_t, \mu) \le \mathbb{E}[\max(0, \lceil (T_L - L - t)/L \rceil)]$: a bound on the distance to a stationary law that nobody can write down, reversible or not. Where one pair does not meet, it says nothing.

# %% tags=["hide-input"]
hottest = max(p.temperatures)
lag = p.lag_sweeps * middle
lagged = study.grid(
    chapter.cells, "lagged", [(middle, tau) for tau in sorted(p.temperatures)[-3:]], {"pairs": p.pairs, "seed": p.seed, "multiple": p.cap_multiple, "lag": lag},
    lambda n, tau: study.model_cell(conditionals[n], tau, p.pairs, p.seed, caps[n] + lag, lag=lag), lambda n: conditionals[n].fingerprint,
)
table(
    words.lag_table(lagged, middle),
    f"Bounds on the TV distance to stationarity after t sweeps, ± 2 standard errors, at n = {middle} with lag L = {lag} steps ({p.lag_sweeps} sweeps) and a cap of {caps[middle] + lag:,} steps. "
    f"Where none of the {p.pairs} pairs meets later, they give no estimate; where a pair is censored, the bound says nothing.",
)

# %% [markdown]
# ## Scaling with the length, on both clocks
#
# At a fixed high temperature the paper expects $T = C n \log n$. Over $n$ = 4 to 32 the power law $n^{1.44}$ stays within 5.4 % of it, so rivals must be excluded by the data, not by eye; each law is tested by chi-square against the
# measured times and their bootstrap errors. On the coalescence clock a time is the median over pairs; on the semantic clock it is the first reading at which the *mean* over chains reaches the level, and its error includes that of the level.
# The two clocks share passages and no randomness. A length of which more than 2.5 % of the bootstrap resamples have no time within the record has no known error and is left out of the tests.

# %% tags=["hide-input"]
embed = embedded.embed_texts
tau = p.scaling_temperature
coalescing = study.grid(
    chapter.cells, "coalescence", [(n, tau) for n in p.scaling_lengths], {"pairs": p.pairs, "seed": p.seed, "multiple": p.cap_multiple},
    lambda n, tau: study.model_cell(conditionals[n], tau, p.pairs, p.seed, caps[n]), lambda n: conditionals[n].fingerprint,
)
drifting = study.grid(
    chapter.cells, "drift", [(n, tau) for n in p.scaling_lengths], {"chains": p.pairs, "seed": p.seed, "sweeps": study.DRIFT_SWEEPS, "readings_per_sweep": study.READINGS_PER_SWEEP},
    lambda n, tau: study.drift_cell(conditionals[n], tau, p.pairs, study.DRIFT_SWEEPS * n, max(1, n // study.READINGS_PER_SWEEP), p.seed, embed), lambda n: conditionals[n].fingerprint,
)
levels = {n: tuple(p.semantic_level * value for value in study.unrelated(conditionals[n], embed)) for n in p.scaling_lengths}
points = study.clock_points(coalescing, drifting, levels, p.seed)
laws = study.laws_by_clock(points)

# %% tags=["hide-input"]
show(
    figures.drifts(drifting, levels[max(p.scaling_lengths)][0], max(p.scaling_lengths)),
    f"Semantic clock at n = {max(p.scaling_lengths)}: mean cosine distance to the start over {p.pairs} chains, ± 2 standard errors; dashed, {p.semantic_level:.0%} of the mean distance between passages of different topics (known to ± {levels[max(p.scaling_lengths)][1]:.3f}, one standard error).",
)
if laws:
    show(figures.scalings(points, laws), f"Times on each clock at τ = {tau:g} against n, with three one-constant laws fitted to them and the p-value of each. A point without a bar has no known error and is not in the fits.")
for clock, law in laws.items():
    table(
        law.rename(columns=words.READABLE),
        f"The {clock} clock at τ = {tau:g}: one-constant laws with their chi-square tests, and the free power C n^a with the 95 % interval of its exponent; C in steps.",
    )
if missing := [clock for clock in ("coalescence", "semantic") if clock not in laws]:
    say(f"No test on the {' and the '.join(missing)} clock: fewer than three lengths have a time within the record with a known error.")

# %% [markdown]
# ## In the cold
#
# The event-driven kernel walks the same random stream as the plain one but computes each pair of masked context and site once, so that long cold chains are cheap. A *stay* is a stretch within a Hamming ball around one state,
# that is, with at most `radius` tokens other than its own.

# %% tags=["hide-input"]
cold = conditionals[p.cold_length]
holding = chapter.cells.result(
    "holding",
    {"temperature": p.cold_temperature, "chains": p.cold_chains, "steps": p.cold_steps, "radius": p.radius, "seed": p.seed},
    lambda: study.holding_cell(cold, p.cold_temperature, p.cold_chains, p.cold_steps, p.radius, p.seed),
    fingerprint=cold.fingerprint,
)
longest = study.longest_of_each(holding)
held = int((longest >= 1000).sum())
low, high = wilson_interval(held, p.cold_chains)
say(
    f"At τ = {p.cold_temperature:g} and n = {p.cold_length}, {held} of {p.cold_chains} chains of {p.cold_steps:,} steps have a stay of at least 1,000 steps within Hamming distance {p.radius} of one state (95 % Wilson interval {low:.0%} to {high:.0%}); "
    f"the longest stay of a chain lasts {words.describe_longest(holding, p.cold_length)} steps, where '>' marks one that the end of the record cut: it is censored. {p.cold_steps * p.cold_chains:,} steps took {holding['rows']:,} rows of conditionals, {holding['rows'] / (p.cold_steps * p.cold_chains):.1%} of what the plain kernel computes."
)

# %% [markdown]
# ## Verdicts

# %% tags=["hide-input"]
reference = precisions["float32"]
oscillation = influence.logit_oscillation_bound(reference.model, allowed_tokens(reference))
ratios = {n: influence.contraction_temperature(oscillation, n) / crossings[n].temperature for n in p.lengths if n >= 3 and crossings[n].temperature is not None}
for n, ratio in ratios.items():
    chapter.headline(f"pessimism_{n}", ratio)
chapter.headline("tau_star", {str(n): crossing.temperature for n, crossing in crossings.items()})
at_level = f"level = {p.level:g}, cap {p.cap_multiple:g} n log n steps, {p.pairs} pairs"
chapter.ledger.record("T3", words.describe_ratios(ratios), rules.pessimistic(list(ratios.values())), interval=words.describe_ratio_intervals(ratios, crossings), note=at_level)
chapter.ledger.record("M1", words.describe_laws(laws), rules.scaling(laws), interval=words.describe_exponents(laws), note=f"tau = {tau:g}, n = {p.scaling_lengths}")
chapter.ledger.record(
    "M2",
    f"{held} of {p.cold_chains} chains held for at least 1000 steps at tau = {p.cold_temperature:g}",
    rules.held(longest, p.cold_steps),
    interval=f"share of chains [{low:.2f}, {high:.2f}], 95 % (Wilson)",
    note=f"n = {p.cold_length}, {p.cold_steps} steps, radius {p.radius}",
)
chapter.ledger.record(
    "M3",
    words.describe_crossings(crossings),
    rules.transition(crossings, calibrated),
    interval=f"{words.describe_intervals(crossings)}, 95 %",
    note=f"{at_level}; {words.describe_calibration(known, exact)}",
)
table(chapter.ledger.frame().query("claim in ['T3', 'M1', 'M2', 'M3']")[["claim", "statement", "paper", "ours", "interval", "verdict"]])
chapter.finish()

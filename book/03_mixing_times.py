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
# *maximal coupling*; it stops when the sequences agree, at $T_c$. The first chain is, token for token, the plain Glauber chain. The **semantic** clock follows sentence embeddings and stops when the mean distance of an ensemble to
# its starts comes near that of unrelated passages.
#
# What a meeting time says: $P_{xy}(T_c > t)$ bounds $\mathrm{TV}(P^t(x, \cdot), P^t(y, \cdot))$ for that pair of starts. Averaged over pairs it bounds the mean of these, not $d(t)$, which is a maximum over all pairs.
# Slow coalescence does not prove slow mixing. Caps are fixed before a run; pairs that reach one are **censored** and stay in every estimate.

# %% tags=["parameters"]
model = "embedded"  # or a hub id, or a local folder
revision = None
dtype = "float32"  # or bfloat16, several times faster on hardware that has it; what that costs is measured below
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
semantic_level = 0.9  # share of the unrelated level that stops the semantic clock
lag_sweeps = 10
cold_temperature = 0.3
cold_length = 16
cold_chains = 14
cold_steps = 3000
radius = 2  # Hamming radius of a stay
divergence_steps = 200

# %% tags=["hide-input"]
from glauber_mlm.book.chapter import open_chapter

chapter = open_chapter("mixing_times", globals())
p = chapter.parameters

# %% tags=["hide-input"]
from glauber_mlm import embedded, models
from glauber_mlm.book import rules
from glauber_mlm.figures import mixing as figures
from glauber_mlm.figures.show import say, set_style, show, table
from glauber_mlm.kernels.coupled import steps_at_scale
from glauber_mlm.observables import influence
from glauber_mlm.studies import mixing as study
from glauber_mlm.studies import precision
from glauber_mlm.studies.starts import starting_states
from glauber_mlm.studies.theory import allowed_tokens

set_style()
loaded = models.load(p.model, dtype=p.dtype, device=p.device, attention=p.attention, revision=p.revision)
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
table(cost)

# %% [markdown]
# The same chain comes out whatever the batch, the chunking or the kernel, *up to floating point*. How far is that? Below, chains with the same randomness are run in other company, by the other kernel and in other precisions; a chain parts from
# its reference at the first draw that falls between two roundings. A draw inverts the cumulative law in the order of token ids, and where it is hot 30,000 tokens share that line: a shift of $10^{-3}$ in the cumulative sum, far too small
# to change the law noticeably, then moves most draws to another token. So precision changes *which* chain is run long before it changes its law, which is what the table above measures.

# %% tags=["hide-input"]
parting = precision.divergence(precisions, probes[:6], max(p.temperatures), p.divergence_steps, p.seed)
table(parting)

# %% [markdown]
# ## The pipeline on a model with a known transition
#
# Before a transition is claimed on a language model, the same code must find the known one. Curie–Weiss is a Glauber chain with a slow-to-fast transition at $\tau_c = 1$ in the limit; from opposite starts the
# temperature at which half of the pairs meet by the cap rises towards it with $n$.

# %% tags=["hide-input"]
known_cells = study.grid(
    chapter.cells, "curie-weiss", [(n, tau) for n in p.calibration_lengths for tau in study.CALIBRATION_TEMPERATURES], {"pairs": p.calibration_pairs, "seed": p.seed, "multiple": p.cap_multiple},
    lambda n, tau: study.curie_weiss_cell(n, tau, p.calibration_pairs, p.seed, p.cap_multiple), lambda n: f"curie-weiss-{n}",
)
known = study.crossings(known_cells, p.level, p.seed)
table(study.crossing_table(known))

# %% [markdown]
# ## The grid
#
# *Our protocol.* Pairs of passages of different topics, cut to their first $n$ tokens; all sites free; special and unused tokens barred; a cap of 25 $n \log n$ steps unless another multiple is given; every cell has randomness of its own.

# %% tags=["hide-input"]
conditionals = {n: loaded.conditionals(n) for n in sorted({*p.lengths, *p.scaling_lengths})}
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
table(study.pivot_medians(grid))
say(f"Median meeting times in steps, with 95 % intervals; '>' marks a median beyond the cap. At the coldest temperature {study.censored_share(grid):.0%} of the pairs are censored.")

# %% [markdown]
# ## The boundary
#
# $\tau^*(n)$ is the temperature at which a share of one half of the pairs (parameter `level`) meets by the cap; its interval comes from a parametric bootstrap of an isotonic fit and is never narrower than the grid.

# %% tags=["hide-input"]
boundary = study.crossing_table(crossings)
table(boundary)
show(
    figures.boundaries(boundary, study.crossing_table(known)),
    "The boundary τ*(n) with its 95 % interval, for the model and for Curie–Weiss (which tends to 1, dotted). Grey: the window that the paper gives for its own, larger models.",
)

# %% [markdown]
# **Which readings move?** The model is held fixed and the apparatus varied: the share that defines the boundary, the cap, and the coupling. Cap and share are read off the same runs; the other coupling (common random numbers: the inverse
# of the cumulative law in id order, same uniform for both chains) is run anew at one length.

# %% tags=["hide-input"]
middle = sorted(p.lengths)[len(p.lengths) // 2]
common = study.grid(
    chapter.cells, "coalescence-common", [(middle, tau) for tau in p.temperatures], {"pairs": p.pairs, "seed": p.seed, "multiple": p.cap_multiple},
    lambda n, tau: study.model_cell(conditionals[n], tau, p.pairs, p.seed, caps[n], coupling="common"), lambda n: conditionals[n].fingerprint,
)
variations = study.vary_apparatus(cells, common, p.cap_multiple, p.level, p.seed)
table(variations)

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
table(study.lag_table(lagged, middle))

# %% [markdown]
# ## Scaling with the length, on both clocks
#
# At a fixed high temperature the paper expects $T = C n \log n$. Over $n$ = 4 to 32 the power law $n^{1.44}$ stays within 5.4 % of it, so rivals must be excluded by the data, not by eye; each law is tested against the
# measured medians and their bootstrap errors.

# %% tags=["hide-input"]
embed = embedded.embed_texts
tau = p.scaling_temperature
coalescing = study.grid(
    chapter.cells, "coalescence", [(n, tau) for n in p.scaling_lengths], {"pairs": p.pairs, "seed": p.seed, "multiple": p.cap_multiple},
    lambda n, tau: study.model_cell(conditionals[n], tau, p.pairs, p.seed, caps[n]), lambda n: conditionals[n].fingerprint,
)
drifting = study.grid(
    chapter.cells, "drift", [(n, tau) for n in p.scaling_lengths], {"chains": p.pairs, "seed": p.seed},
    lambda n, tau: study.drift_cell(conditionals[n], tau, p.pairs, 8 * n, max(1, n // 8), p.seed, embed), lambda n: conditionals[n].fingerprint,
)
levels = {n: p.semantic_level * study.unrelated(conditionals[n], embed)[0] for n in p.scaling_lengths}
points = study.clock_points(coalescing, drifting, levels, p.seed)
laws = study.laws_by_clock(points)

# %% tags=["hide-input"]
show(
    figures.drifts(drifting, levels[max(p.scaling_lengths)], max(p.scaling_lengths)),
    f"Semantic clock at n = {max(p.scaling_lengths)}: mean cosine distance to the start over {p.pairs} chains, ± 2 standard errors; dashed, {p.semantic_level:.0%} of the mean distance between passages of different topics.",
)
if laws:
    show(figures.scalings(points, laws), f"Times on each clock at τ = {tau:g} against n, with three one-constant laws fitted to them and the p-value of each.")
for clock, law in laws.items():
    say(f"**{clock}**")
    table(law)
if missing := [clock for clock in ("coalescence", "semantic") if clock not in laws]:
    say(f"No test on the {' and the '.join(missing)} clock: fewer than three lengths have a time within the record.")

# %% [markdown]
# ## In the cold
#
# The event-driven kernel walks the same random stream as the plain one but computes each pair of masked context and site once, so that long cold chains are cheap. A *stay* is a stretch within a Hamming ball around one state.

# %% tags=["hide-input"]
cold = loaded.conditionals(p.cold_length)
holding = chapter.cells.result(
    "holding",
    {"temperature": p.cold_temperature, "chains": p.cold_chains, "steps": p.cold_steps, "radius": p.radius, "seed": p.seed},
    lambda: study.holding_cell(cold, p.cold_temperature, p.cold_chains, p.cold_steps, p.radius, p.seed),
    fingerprint=cold.fingerprint,
)
longest = study.longest_of_each(holding)
say(
    f"At τ = {p.cold_temperature:g} and n = {p.cold_length}, {int((longest >= 1000).sum())} of {p.cold_chains} chains of {p.cold_steps:,} steps have a stay of at least 1,000 steps within Hamming distance {p.radius} of one state; "
    f"the longest stays last {int(longest.min()):,} to {int(longest.max()):,} steps. {p.cold_steps * p.cold_chains:,} steps took {holding['rows']:,} rows of conditionals, {holding['rows'] / (p.cold_steps * p.cold_chains):.1%} of what the plain kernel computes."
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
chapter.ledger.record("T3", study.describe_ratios(ratios), rules.pessimistic(list(ratios.values())))
chapter.ledger.record("M1", study.describe_laws(laws), rules.scaling(laws), note=f"tau = {tau:g}, n = {p.scaling_lengths}")
chapter.ledger.record("M2", f"{int((longest >= 1000).sum())} of {p.cold_chains} chains held for at least 1000 steps at tau = {p.cold_temperature:g}", rules.held(longest, p.cold_steps))
chapter.ledger.record("M3", study.describe_crossings(crossings), rules.transition(crossings), interval=study.describe_intervals(crossings))
table(chapter.ledger.frame().query("claim in ['T3', 'M1', 'M2', 'M3']")[["claim", "statement", "paper", "ours", "interval", "verdict"]])
chapter.finish()

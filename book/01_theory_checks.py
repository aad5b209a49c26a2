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
# # Theory checks
#
# The paper has two theorems. *Contraction*: if every token moves the conditionals of the others little enough, in total less than one, the chain mixes in $O(n \log n)$
# steps. *Margin*: if the token at every site beats its rivals by a margin, the chain leaves that state with a probability exponentially small in $1/\tau$. Both are checked here where every
# quantity in them can be computed exactly, and then confronted with the embedded model, where some can be bounded and some only sampled.
#
# A model gives each token $a$ at a masked site $i$ a logit $s_i(a; x_{-i})$ that depends on all other tokens $x_{-i}$. At **temperature** $\tau$ the conditional is
# $p_\tau(a \mid x_{-i}) \propto \exp(s_i(a; x_{-i})/\tau)$: a small $\tau$ favours the likeliest token, a large one flattens the law. Distances between laws are total variations,
# $\mathrm{TV}(p, q) = \tfrac12 \sum_a |p(a) - q(a)|$.
#
# Notation follows {cite:t}`levin2017markov`: $P_\tau$ is the Glauber chain (a uniform free site, its token resampled from $p_\tau(\cdot \mid x_{-i})$), $\mu_\tau$ its stationary law,
# $d(t) = \max_x \mathrm{TV}(P^t(x, \cdot), \mu)$. Time is in steps, one site each.

# %% tags=["parameters"]
model = "embedded"  # or a hub id, or a local folder
revision = None
dtype = "float32"  # or float64: certificates are never computed in bfloat16
device = "cpu"
attention = "sdpa"
seed = 20260
profile = "cpu"
output = ""
length = 16  # tokens in a state
restricted_chains = 4  # passages with an exact restricted chain
restricted_free = 4  # free sites of a restricted chain
restricted_tokens = 4  # tokens allowed at a free site
restricted_temperatures = [0.15, 0.25, 0.4, 0.6, 0.8, 1.0, 1.4, 2.0, 3.0, 5.0, 10.0]
influence_contexts = 8
influence_temperatures = [0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0]
margin_states = 32
settle_sweeps = 20  # sweeps at temperature 0 before margins are read
escape_temperatures = [0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0]

# %% tags=["hide-input"]
from glauber_mlm.chapters.base.chapter import open_chapter

chapter = open_chapter("theory_checks", globals())
p = chapter.parameters

# %% tags=["hide-input"]
import numpy as np
import pandas as pd

from glauber_mlm import models
from glauber_mlm.chapters.base import rules
from glauber_mlm.chapters.base.show import say, set_style, show, table
from glauber_mlm.chapters.theory_checks import figures, study, words
from glauber_mlm.readings import influence
from glauber_mlm.readings.margins import escape_bound, local_view
from glauber_mlm.text.starts import starting_states

set_style()
loaded = models.load(p.model, dtype=p.dtype, device=p.device, attention=p.attention, revision=p.revision)
conditionals = loaded.conditionals(p.length)
tokens = conditionals.vocabulary - len(conditionals.barred)
states, passages = starting_states(conditionals, max(p.restricted_chains, p.influence_contexts, p.margin_states), p.seed)
say(f"Model `{loaded.name}`: {loaded.describe()['parameters']:,} parameters, {p.dtype}; {tokens:,} tokens may be sampled; states are the first {p.length} tokens of passages.")

# %% [markdown]
# ## Exact chains of the model itself
#
# Free a few sites of a passage, allow at each its own token and the most likely others, and renormalise. What is left is a Glauber chain with so few states that its whole transition matrix
# can be written down, for every temperature, from one set of logits. Its stationary law comes from the Grassmann–Taksar–Heyman algorithm, which subtracts nothing and so survives the cold; its influence
# coefficients are exact maxima; its mixing time is exact. It says nothing about the full chain, but it is a real masked language model in which each term of the theorem can be seen.
#
# The **influence** $c_{ij}$ is the largest $\mathrm{TV}(p_\tau(\cdot \mid x_{-i}), p_\tau(\cdot \mid y_{-i}))$ over contexts that differ at site $j$ only: how far token $j$ can move the conditional at $i$.
# With $\alpha = \min(\max_i \sum_j c_{ij}, \max_j \sum_i c_{ij})$, path coupling proves, for conditionals that need fit no joint law,
#
# $$ \alpha < 1 \;\Longrightarrow\; t_{\mathrm{mix}}(\varepsilon) \le \Big\lceil \frac{n}{1 - \alpha} \big(\log n + \log \tfrac{1}{\varepsilon}\big) \Big\rceil . $$

# Two more exact quantities are shown. The bottleneck ratio $\Phi(A)$ is the probability that the stationary chain, given that it is in the set $A$ of at most half the mass, leaves it in one step; $1/(4\Phi)$ bounds the mixing time from
# below, and a *sweep cut* tries the sets along one ordering of the states. Entropy production compares the stationary flows $x \to y$ and $y \to x$; it is 0 exactly where the chain is reversible.

# %% tags=["hide-input"]
chains = []
for index in range(p.restricted_chains):
    restricted = study.restrict_to_likely(conditionals, states[index], p.restricted_free, p.restricted_tokens, p.seed + index)
    chains.append(study.restricted_chain(restricted, states[index], p.restricted_temperatures).assign(chain=passages[index].id))
chains = pd.concat(chains, ignore_index=True)
contraction, proved = rules.contraction(chains)

# %% tags=["hide-input"]
show(
    figures.restricted_chains(chains),
    f"{p.restricted_chains} restricted chains of {p.restricted_tokens ** p.restricted_free} states each, one line a passage. Left: exact mixing time, the path-coupling bound where it exists, and the lower bound from a sweep cut. "
    f"Middle: exact influence; below the dashed line contraction is proved. Right: entropy production, which would be zero if the conditionals fitted a joint law.",
)

# %% tags=["hide-input"]
say(words.describe_contraction(chains))

# %% [markdown]
# ## Influence in the full model
#
# In the full model $c_{ij}(\tau)$ is a maximum over all contexts, beyond enumeration. Sampled contexts give **lower bounds**, from which no mixing bound may be drawn; averages along
# contexts tell what chains feel; and the head of the model gives a **proved upper bound**. The logits end in a LayerNorm of gain $g$ and width $d$ and a decoder with rows $W_a$, so between *any* two
# contexts the logits differ by a vector of oscillation at most
#
# $$ w \le 2 \sqrt{d}\, \max_{a, b} \lVert g \odot (W_a - W_b) \rVert, \qquad \mathrm{TV} \le \tanh\frac{w}{4\tau}, \qquad \alpha \le (n - 1) \tanh\frac{w}{4\tau}. $$

# %% tags=["hide-input"]
sampled = influence.sample_influence(conditionals, states[: p.influence_contexts], p.influence_temperatures, seed=p.seed)
oscillation = influence.logit_oscillation_bound(loaded.model, study.allowed_tokens(conditionals))
threshold = influence.contraction_temperature(oscillation, p.length)
chapter.headline("contraction_temperature", threshold)
chapter.headline("oscillation_bound", oscillation)
lower = np.minimum(sampled.alpha_row, sampled.alpha_column)
below = sampled.temperatures[lower < 1]

# %% tags=["hide-input"]
show(
    figures.influences(sampled, oscillation, p.length, threshold),
    f"α(τ) at n = {p.length}: worst over {sampled.changes} sampled changes of each site (a lower bound), the average of the same samples, and the proved upper bound, which falls below 1 at τ = {threshold:.0f}.",
)

# %% tags=["hide-input"]
say(
    f"The oscillation of the logits is proved to be at most w = {oscillation:.1f} nats, so contraction, and with it mixing in O(n log n) steps, is **proved for τ > {threshold:.0f}** and n = {p.length}. "
    + (f"The sampled lower bound falls below 1 already at τ = {below.min():g}: between the two nothing is proved." if len(below) else "The sampled lower bound stays above 1 on the whole grid.")
    + " Chapter 3 shows where chains in fact meet."
)

# %% [markdown]
# ## Margins and escape
#
# A state has local margin $\gamma$ if at every site the logit of its token beats every other by at least $\gamma$. One step then leaves it with probability at most $(|V| - 1) e^{-\gamma/\tau}$, which says something only
# when $\gamma > \tau \log(|V| - 1)$. The exact probability needs no simulation: $1 - \frac1n \sum_i p_\tau(x_i \mid x_{-i})$, from $n$ rows of conditionals. A passage need not be a local maximum of anything; so chains at
# temperature 0 (each visited site takes its argmax) are run from them first.

# %% tags=["hide-input"]
starts = states[: p.margin_states]
settled = study.descend(conditionals, starts, p.settle_sweeps, p.seed)
before = local_view(conditionals, starts, p.escape_temperatures)
after = local_view(conditionals, settled, p.escape_temperatures)
bounds = escape_bound(after.local_margin[None, :], after.temperatures[:, None], tokens)
margin, informative = rules.margin_bound(after.local_margin, after.escapes, bounds)
positive = after.local_margin > 0

# %% tags=["hide-input"]
show(
    figures.escapes(before, after, tokens),
    f"Left: margins at all sites of {len(starts)} passages and of the states reached after {p.settle_sweeps} sweeps at temperature 0. Right: exact one-step escape probabilities of the "
    f"{int(positive.sum())} states that became local maxima of every conditional, and the margin bound of the best of them. The largest local margin of a settled state is {after.local_margin.max():.2f} nats.",
)

# %% tags=["hide-input"]
table(words.settled_table(after, conditionals, settled, 6))
say(words.describe_margins(before, after, informative, margin))

# %% [markdown]
# ## Verdicts

# %% tags=["hide-input"]
chapter.ledger.record("T1", words.count_contraction(chains), contraction)
chapter.ledger.record("T2", f"{int(positive.sum())} states, {informative} cases with a bound below 1", margin)
chapter.headline("positive_margins", int(positive.sum()))
table(chapter.ledger.frame().query("claim in ['T1', 'T2']")[["claim", "statement", "paper", "ours", "verdict"]])
chapter.finish()

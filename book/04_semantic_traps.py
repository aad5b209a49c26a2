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
# # Semantic traps
#
# Long chains from passages of several topics, read as text. Where do they go, what holds them, and do they come back to politics? Everything below is read off the same runs: a fixed number of chains at each of
# a few temperatures, every site free, the state embedded at regular times with the sentence encoder as its authors shipped it.

# %% tags=["parameters"]
model = "embedded"  # or a hub id, or a local folder
revision = None
dtype = "float32"  # or bfloat16, for the chains only; escape probabilities are computed in float32
device = "cpu"
attention = "sdpa"
seed = 20260
profile = "cpu"
output = ""
length = 24  # tokens in a state
temperatures = [0.5, 0.8, 1.1]
chains = 14
steps = 3000
every = 20  # steps between embeddings
radius = 2  # Hamming radius of a stay
shortest_stay = 100  # steps
dwells = 12  # dwells of each chain in the escape test
politics_threshold = 0.5
exclamation_levels = [1, 2, 4, 8, 12, 16, 20, 23]
exclamation_states = 12
exclamation_temperatures = [0.5, 1.0, 1.5]

# %% tags=["hide-input"]
from glauber_mlm.book.chapter import open_chapter

chapter = open_chapter("semantic_traps", globals())
p = chapter.parameters

# %% tags=["hide-input"]
import pandas as pd

from glauber_mlm import embedded, models
from glauber_mlm.book import rules
from glauber_mlm.figures import landscape as figures
from glauber_mlm.figures.show import number, say, set_style, show, table
from glauber_mlm.observables.semantics import drift, pca_plane, unrelated_level
from glauber_mlm.passages import load_passages
from glauber_mlm.runs.chains import diagnostics
from glauber_mlm.studies import landscape as study
from glauber_mlm.studies.starts import passage_states, starting_states

set_style()
options = {"device": p.device, "attention": p.attention, "revision": p.revision}
loaded = models.load(p.model, dtype=p.dtype, **options)
certified = models.load(p.model, dtype="float32", **options).conditionals(p.length)
conditionals = loaded.conditionals(p.length)
starts, passages = starting_states(conditionals, p.chains, p.seed)
topics = [passage.topic for passage in passages]
say(f"Model `{loaded.name}` in {p.dtype}; {p.chains} chains of {p.steps:,} steps ({p.steps / p.length:.0f} sweeps) at each temperature; n = {p.length}.")

# %% [markdown]
# ## The runs
#
# Chains stream to disk in chunks and resume after any interruption. Effective sample size and R-hat are those of the number of tokens that differ from the start; they say whether the chains agree with
# each other in that one observable, not whether they have mixed.

# %% tags=["hide-input"]
runs = {tau: study.run(chapter.results / f"chains-{tau:g}", conditionals, starts, tau, p.steps, p.seed, loaded.describe()) for tau in p.temperatures}
paths = {tau: study.trajectories(run, conditionals, p.every, embedded.embed_texts) for tau, run in runs.items()}
checks = pd.concat([diagnostics({f"Hamming distance to the start, τ = {tau:g}": study.hamming_to_start(path)}) for tau, path in paths.items()])
table(checks.reset_index(names="observable"))

# %% [markdown]
# ## Identity is lost
#
# Left: cosine distance of the embedding to the start, averaged over chains; dashed, the mean distance between passages of different topics. Losing one's start is easy for noise, so the right panel asks whether the text
# is still text: the mean log-probability the model gives to each token from all others, for the starts, the ends, and the ends with their tokens shuffled.

# %% tags=["hide-input"]
every_passage = load_passages()
passage_tokens = passage_states(conditionals, every_passage)
passage_vectors = embedded.embed_texts([conditionals.decode(row) for row in passage_tokens])
level, level_error = unrelated_level(passage_vectors, [passage.topic for passage in every_passage])
drifts = {tau: drift(path.embeddings) for tau, path in paths.items()}
likelihood = study.likelihoods(certified, starts, {tau: path.states[-1] for tau, path in paths.items()}, p.seed)
show(
    figures.drift_and_likelihood(next(iter(paths.values())).times, drifts, level, likelihood),
    f"Left: mean distance to the start, ± 2 standard errors over {p.chains} chains; the unrelated level is {level:.3f} ± {level_error:.3f}. Right: log-likelihood per token of starts, ends and shuffled ends.",
)
reached, coherent = study.identity(drifts, level, level_error, likelihood)
table(study.identity_table(drifts, likelihood))

# %% [markdown]
# ## The landscape in two dimensions

# %% tags=["hide-input"]
plane = pca_plane(passage_vectors)
middle = sorted(p.temperatures)[len(p.temperatures) // 2]
show(
    figures.pca_trajectories(
        plane.transform(passage_vectors), [passage.topic for passage in every_passage], plane.transform(paths[middle].embeddings.reshape(-1, passage_vectors.shape[1])).reshape(p.chains, -1, 2),
        topics, plane.explained_variance_ratio_, 7,
    ),
    f"The plane of the first two principal components of the {len(every_passage)} passages, which hold {plane.explained_variance_ratio_.sum():.0%} of their variance, and chains at τ = {middle:g} in it. Two dimensions of 384 show little: distances are judged above, not here.",
)

# %% [markdown]
# ## Where chains are held
#
# A **stay** is a stretch in which a chain keeps within a small Hamming distance of one of its own states. A long one, far longer than its neighbours, is a **trap**: *perfect* if every token of its centre is the argmax of its
# conditional, *approximate* if it held although some are not. The table gives, for the centre, the exact margin and the mean dwell in that single state that its exact escape probability predicts.

# %% tags=["hide-input"]
stays = pd.concat([study.stay_table(run, certified, tau, p.radius, p.shortest_stay, 5).assign(temperature=tau) for tau, run in runs.items()], ignore_index=True)
show(
    figures.hamming_raster({f"τ = {tau:g}": study.changes(path) for tau, path in paths.items()}, next(iter(paths.values())).times),
    f"Tokens that changed between records {p.every} steps apart, a row a chain. Dark stretches are stays.",
)

# %% tags=["hide-input"]
table(study.longest_for_reading(stays, 4))
say(study.describe_stays(stays, p.steps, p.chains, p.radius, p.shortest_stay))

# %% [markdown]
# **Are dwell times what the escape probabilities say?** A state with one-step escape probability $e$ is left after a geometric time of mean $1/e$, whatever the chain did before. The longest stays would fail such a test by
# being chosen; so the first dwells of every chain are taken, long or short.

# %% tags=["hide-input"]
coldest = min(p.temperatures)
dwell, dwell_frame = study.first_dwells_test(runs[coldest], certified, coldest, p.dwells)
show(
    figures.dwells(dwell_frame),
    f"The first {p.dwells} dwells of each chain at τ = {coldest:g} against the means predicted without simulation. {dwell.escapes} escapes were seen where {dwell.expected:.1f} were expected (z = {dwell.z:+.2f}, p = {dwell.p_value:.2g}).",
)

# %% [markdown]
# ## Politics
#
# A logistic regression on embeddings scores each text as one of the topics or as *none of these*, a class trained on random tokens and on shuffled passages. Its accuracy on passages it has not seen is in the table; on text that a chain has worn down it is
# measured on the chains' own early states, whose topic is still known. The nulls are the other half of the shuffled passages, and whole passages of other topics.

# %% tags=["hide-input"]
scoring = study.topic_study(conditionals, passage_tokens, every_passage, embedded.embed_texts, p.seed)
table(scoring.held_out)
corrupted = study.accuracy_along(scoring, paths[middle], topics, [0, p.length, 4 * p.length])
table(corrupted)

# %% tags=["hide-input"]
scores = {tau: scoring.scorer.score(path.embeddings, "politics") for tau, path in paths.items()}
nulls = study.politics_nulls(scoring, passage_vectors, every_passage, p.politics_threshold)
visits = study.politics_visits(scores, topics, p.politics_threshold)
show(
    figures.politics(paths[middle].times, scores[middle], topics, p.politics_threshold),
    f"Score of politics along every chain at τ = {middle:g}; a chain is in the region above {p.politics_threshold:g} (line on the colour bar).",
)
table(visits)
say(study.describe_nulls(nulls))

# %% [markdown]
# ## Many exclamation marks
#
# The paper's example of a slow basin is text full of "!". With $N(x)$ the number of "!", the probabilities that the next step raises or lowers $N$ are exact sums over sites. If $p_{up}/p_{down} \ge r > 1$ on $w + 1$ consecutive levels, leaving from above them takes at
# least $r^{w+1}$ steps on average. States are sampled: passages with $N$ random sites overwritten. That is **sampled evidence**: with $M$ states and no violation, at most $3/M$ of the sampling law's mass violates (95 %).

# %% tags=["hide-input"]
levels = [level for level in p.exclamation_levels if level <= p.length]
marks = study.exclamation_drift(certified, passage_tokens[: p.exclamation_states], levels, p.exclamation_temperatures, p.seed)
drift_verdict, worst, run_of_levels = rules.drift_upwards(marks)
show(
    figures.exclamation(marks),
    f'Ratio of the exact probabilities that one step raises or lowers the number of "!", {p.exclamation_states} states a level; the line joins medians. Above the dashed line "!" breeds "!".',
)
say(
    f"The longest run of neighbouring examined levels on which *every* sampled state drifts upwards has {run_of_levels} level(s)"
    + (f", worst ratio r = {worst:.2f}; at most {3 / p.exclamation_states:.0%} of the sampling law violates it at any one level (95 %)." if run_of_levels else ": no level does.")
)

# %% [markdown]
# ## Verdicts

# %% tags=["hide-input"]
chapter.ledger.record("S1", study.describe_identity(drifts, level), rules.loses_identity(reached, coherent, p.steps >= 50 * p.length))
chapter.ledger.record("S2", study.count_stays(stays), rules.traps(stays, p.steps), note=f"radius {p.radius}, n = {p.length}, {p.steps} steps")
chapter.ledger.record("S3", f"{run_of_levels} neighbouring levels drift upwards, worst ratio {number(worst)}", drift_verdict, note=f"sampled evidence, M = {p.exclamation_states} states a level")
pooled = study.pooled_visits(scores, topics, p.politics_threshold)
chapter.ledger.record("S4", study.describe_visits(pooled), rules.recurrent(pooled, nulls["other topics"][1:], nulls["shuffled passages"][1:]), interval=study.describe_null_intervals(nulls))
chapter.headline("longest_stay", int(stays["length"].max()) if len(stays) else 0)
chapter.headline("dwell_z", float(dwell.z))
table(chapter.ledger.frame().query("claim in ['S1', 'S2', 'S3', 'S4']")[["claim", "statement", "paper", "ours", "interval", "verdict"]])
chapter.finish()

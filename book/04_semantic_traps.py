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
# Long chains from passages of several topics, read as text. Where do they go, what holds them, and do they come back to politics? Almost everything below is read off the same runs: a fixed number of chains at each of
# a few temperatures $\tau$, every site free, the state embedded at regular times with the sentence encoder as its authors shipped it: a vector of unit length whose angle to another tells how far apart two texts are in meaning.
# Temperature and the conditionals $p_\tau$ are those of the chapter on theory checks; a step resamples one random token, and $n$ steps, $n$ the number of tokens, are a sweep.

# %% tags=["parameters"]
model = "embedded"  # or a hub id, or a local folder
revision = None
dtype = "float32"  # of the chains; escapes are always in float32
device = "cpu"
attention = "sdpa"
seed = 20260
profile = "cpu"
output = ""
length = 24  # tokens in a state
temperatures = [0.5, 0.8, 1.1]
chains = 14
steps = 2000
every = 20  # steps between embeddings
radius = 2  # Hamming radius of a stay
shortest_stay = 100  # steps
dwells = 12  # dwells of each chain in the escape test
politics_threshold = 0.5
exclamation_levels = []  # numbers of "!"; empty: all from 1 to length - 1
exclamation_states = 8
exclamation_temperatures = [0.5, 1.0, 1.5]

# %% tags=["hide-input"]
from glauber_mlm.chapters.base.chapter import open_chapter

chapter = open_chapter("semantic_traps", globals())
p = chapter.parameters

# %% tags=["hide-input"]
import pandas as pd

from glauber_mlm import embedded, models
from glauber_mlm.chapters.base import rules
from glauber_mlm.chapters.base.show import say, set_style, show, table
from glauber_mlm.chapters.semantic_traps import figures, study, words
from glauber_mlm.passages import load_passages
from glauber_mlm.runs.chains import diagnostics
from glauber_mlm.text.semantics import drift, pca_plane, unrelated_level
from glauber_mlm.text.starts import passage_states, starting_states

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
# Chains stream to disk in chunks and resume after any interruption. The **effective sample size** (ESS) is the number of independent draws that would tell a mean (bulk) or extreme quantiles (tail) as well as the chains do;
# **R-hat** compares the spread between chains with the spread inside them and is 1 where they agree. Both are those of the number of tokens that differ from the start; they say whether the chains agree with
# each other in that one observable, not whether they have mixed.

# %% tags=["hide-input"]
runs = {tau: study.run(chapter.results, conditionals, starts, tau, p.steps, p.seed, loaded.describe()) for tau in p.temperatures}
paths = {tau: study.trajectories(run, conditionals, p.every, embedded.embed_texts) for tau, run in runs.items()}
checks = pd.concat([diagnostics({f"{tau:g}": study.hamming_to_start(path)}) for tau, path in paths.items()])
table(
    checks.reset_index(names="τ").rename(columns={"ess_bulk": "bulk ESS (draws)", "ess_tail": "tail ESS (draws)", "r_hat": "R-hat"}),
    f"Number of tokens that differ from the start, {p.chains} chains with a record every {p.every} steps.",
)

# %% [markdown]
# ## Is the start forgotten?
#
# Left: cosine distance of the embedding to the start, averaged over chains; dashed, the mean distance between passages of different topics. Losing one's start is easy for noise, so the right panel asks whether the text
# is still text by its **pseudo-log-likelihood**: the mean, over its tokens, of the log-probability that the model gives to each from all others at $\tau = 1$; for the starts, the ends, and the ends with their tokens shuffled.

# %% tags=["hide-input"]
every_passage = load_passages()
passage_tokens = passage_states(conditionals, every_passage)
passage_vectors = embedded.embed_texts([conditionals.decode(row) for row in passage_tokens])
level, level_error = unrelated_level(passage_vectors, [passage.topic for passage in every_passage])
drifts = {tau: drift(path.embeddings) for tau, path in paths.items()}
likelihood = study.likelihoods(certified, starts, {tau: path.states[-1] for tau, path in paths.items()}, p.seed)
show(
    figures.drift_and_likelihood(next(iter(paths.values())).times, drifts, level, study.IDENTITY_SHARE, likelihood),
    f"Left: mean distance to the start, ± 2 standard errors over {p.chains} chains; the unrelated level is {level:.3f} ± {2 * level_error:.3f}. Right: pseudo-log-likelihood per token of starts, ends and shuffled ends, a point a chain.",
)
reached, below, coherent = study.identity(drifts, level, level_error, likelihood)
table(words.identity_table(drifts, likelihood), "Mean cosine distance to the start over the last tenth of the record, and mean pseudo-log-likelihoods.")

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
    f"The plane of the first two principal components of the {len(every_passage)} passages, which hold {plane.explained_variance_ratio_.sum():.0%} of their variance, and the first {min(7, p.chains)} of {p.chains} chains at τ = {middle:g} in it. Two dimensions of {passage_vectors.shape[1]} show little: distances are judged above, not here.",
)

# %% [markdown]
# ## Where chains are held
#
# A **stay** is a stretch in which a chain keeps within a small Hamming distance (number of differing tokens) of one of its own states, the centre. One of at least 100 steps and ten times the median stay of its chain is a **trap**:
# *perfect* if every token of its centre is the argmax of its conditional, *approximate* if it held although some are not. The table gives, for the centre, the **argmax share** (the share of its tokens that are the likeliest at their
# sites), the exact **local margin** (the smallest lead, over sites, of the logit of the token that is there over the best other; negative unless all are argmax) and the mean dwell in that single state that its exact escape probability predicts.

# %% tags=["hide-input"]
stays = pd.concat([study.stay_table(run, certified, tau, p.radius, p.shortest_stay, 5).assign(temperature=tau) for tau, run in runs.items()], ignore_index=True).infer_objects()
show(
    figures.hamming_raster({f"τ = {tau:g}": study.changes(path) for tau, path in paths.items()}, next(iter(paths.values())).times),
    f"Tokens that changed between records {p.every} steps apart, a row a chain. Dark stretches, without changes, are where a chain is held.",
)

# %% tags=["hide-input"]
table(
    words.longest_for_reading(stays, 4),
    f"The four longest stays within Hamming distance {p.radius} at each temperature, of those of at least {p.shortest_stay} steps. A length after > was cut by the end of the record.",
)
say(words.describe_stays(stays, p.steps, p.chains, p.radius, p.shortest_stay))

# %% [markdown]
# **Are dwell times what the escape probabilities say?** A dwell is the time spent in one single state. A state with one-step escape probability $e$ is left after a geometric time of mean $1/e$, whatever the chain did before. The longest stays would fail such a test by
# being chosen; so the first dwells of every chain are taken, long or short.

# %% tags=["hide-input"]
coldest = min(p.temperatures)
dwell, dwell_frame = study.first_dwells_test(runs[coldest], certified, coldest, p.dwells)
show(
    figures.dwells(dwell_frame),
    f"The first {p.dwells} dwells of each chain at τ = {coldest:g} against the means predicted without simulation. {dwell.escapes} escapes were seen where {dwell.expected:.1f} were expected (z = {dwell.z:+.2f}, p = {dwell.p_value:.2g}). Dwells cut by the end of the run count in that test and are not drawn: {dwell_frame['censored'].sum()} of {len(dwell_frame)}.",
)

# %% [markdown]
# ## Politics
#
# A logistic regression on embeddings scores each text as one of the topics or as *none of these*, a class trained on random tokens and on half of the shuffled passages, all of them cut to $n$ tokens. Its accuracy on passages it has not seen is in the
# first table; on text that a chain has worn down it is measured, in the second, on the chains' own early states, whose topic should still be that of the start.
#
# A visit to politics begins when the score rises above a threshold $t$ and ends when it falls to $t/2$; with two levels (**hysteresis**) a score that hovers about $t$ is one visit, not many. Entries and returns are counted so. The share of time is
# that of records above $t$, nothing else, for it is compared with two nulls: the shares of single texts above $t$ among the other half of the shuffled passages and among the passages of other topics, cut to $n$ tokens. Texts of the nulls are scored by
# scorers that have not seen their passage (four-fold cross-validation).

# %% tags=["hide-input"]
scoring = study.topic_study(conditionals, passage_tokens, every_passage, embedded.embed_texts, p.seed)
table(
    scoring.held_out.rename(columns={"label": "class", "correct": "right", "accuracy": "accuracy (share)", "low": "95 % from", "high": "95 % to"}),
    "Accuracy on texts whose passage the scorer has not seen; the intervals count passages, not texts.",
)
corrupted = study.accuracy_along(scoring, paths[middle], topics, [max(p.every, p.length), 4 * max(p.every, p.length)])
table(corrupted, f"The topic named for the states of the {p.chains} chains at τ = {middle:g} after about one and four sweeps, or one and four records where these are longer.")

# %% tags=["hide-input"]
scores = {tau: scoring.scorer.score(path.embeddings, "politics") for tau, path in paths.items()}
nulls = study.politics_nulls(scoring, every_passage, p.politics_threshold)
visits = words.politics_visits(scores, topics, p.politics_threshold)
show(
    figures.politics(paths[middle].times, scores[middle], topics, p.politics_threshold),
    f"Score of politics along every chain at τ = {middle:g}; the threshold is {p.politics_threshold:g} (line on the colour bar).",
)
table(visits, f"Visits to politics by chains from other topics, means over chains; a visit begins above {p.politics_threshold:g} and ends at {p.politics_threshold / 2:g}.")
pooled = study.pooled_visits(scores, topics, p.politics_threshold)
share = study.share_of_time(pooled, p.seed)
say(f"All temperatures together, chains from other topics: {words.describe_share(share)}, by bootstrap over the {pooled['passage'].nunique()} starting passages. {words.describe_nulls(nulls)}")

# %% [markdown]
# ## Many exclamation marks
#
# The paper's example of a slow basin is text full of "!". With $N(x)$ the number of "!", the probabilities that the next step raises or lowers $N$ are exact sums over sites. If $p_{up}/p_{down} \ge r > 1$ at all states on $w + 1$ consecutive levels of $N$,
# leaving from above them takes at least $r^{w+1}$ steps on average. States are sampled: passages of several topics with $N$ random sites overwritten. That is **sampled evidence**: with $M$ states and no violation at a level named beforehand, at most $3/M$ of
# the sampling law's mass violates there (95 %).

# %% tags=["hide-input"]
levels = p.exclamation_levels or list(range(1, p.length))
marked, _ = starting_states(certified, p.exclamation_states, p.seed)
marks = study.exclamation_drift(certified, marked, levels, p.exclamation_temperatures, p.seed)
drift_verdict, drifting, worst, drift_temperature = rules.drift_upwards(marks)
drift_words = words.describe_drift(drifting, worst, drift_temperature)
show(
    figures.exclamation(marks),
    f'Ratio of the exact probabilities that one step raises or lowers the number of "!", {p.exclamation_states} states a level; the line joins medians. Above the dashed line "!" breeds "!".',
)
if drifting:
    say(
        f"The longest run of consecutive levels on which *every* sampled state drifts upwards: {drift_words}. If that ratio held at all states of these levels, leaving from above them would take at least $r^{{w+1}}$ steps on average. "
        f"The run was picked as the longest of all {len(p.exclamation_temperatures)} temperatures, so the statement about $3/M$ = {3 / p.exclamation_states:.0%} of the sampling law, which holds for a level named beforehand, does not hold for it."
    )
else:
    say(f"There is no run of levels to bound a time by: {drift_words}.")

# %% [markdown]
# ## Verdicts

# %% tags=["hide-input"]
long_enough = p.steps >= 50 * p.length
chapter.ledger.record(
    "S1", words.describe_identity(drifts, level), rules.loses_identity(reached, below, coherent, long_enough), note=f"{len(drifts)} temperatures tried, {p.chains} chains at each"
)
chapter.ledger.record("S2", words.count_stays(stays), rules.traps(stays, p.steps), note=f"radius {p.radius}, n = {p.length}, {p.steps} steps")
chapter.ledger.record("S3", drift_words, drift_verdict, note=f"sampled evidence, M = {p.exclamation_states} states a level; the longest run of {len(p.exclamation_temperatures)} temperatures")
s4 = rules.recurrent(pooled, share, nulls["other topics"], nulls["shuffled passages"], long_enough)
chapter.ledger.record("S4", words.describe_visits(pooled), s4, interval=f"{words.describe_share(share)}; {words.describe_null_intervals(nulls)}")
chapter.headline("longest_stay", int(stays["length"].max()) if len(stays) else 0)
chapter.headline("dwell_z", float(dwell.z))
table(chapter.ledger.frame().query("claim in ['S1', 'S2', 'S3', 'S4']")[["claim", "statement", "paper", "ours", "interval", "verdict"]])
chapter.finish()

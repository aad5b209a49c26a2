"""Chapter 4: long chains as text, the topics they pass through, where they are held, and drift towards "!"."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import xarray
from torch import Tensor

from glauber_mlm.checks import (
    BATCH,
    SEED,
    a_json,
    a_number,
    a_whole,
    an_instance,
    checked,
    choice,
    number_list,
    shown,
    whole_list,
    word_list,
    writable_folder,
)
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.conditionals.protocol import of_conditionals
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import (
    a_callable,
    a_state_list,
    a_table,
    a_text_model,
    check_some_states,
    finite,
    generator,
    keyed,
    list_of,
    vectors_of,
    whole_array,
)
from glauber_mlm.kernels.sampling import prepare
from glauber_mlm.passages import Passage
from glauber_mlm.readings.margins import local_view
from glauber_mlm.readings.stays import DwellTest, dwell_test, dwell_times, longest_stays
from glauber_mlm.runs.cells import digest, engine_digest
from glauber_mlm.runs.chains import run_chains, states_along
from glauber_mlm.statistics.bootstrap import mean_interval
from glauber_mlm.statistics.survival import wilson_interval
from glauber_mlm.text.semantics import null_share, recurrence
from glauber_mlm.text.starts import cell_chains
from glauber_mlm.text.topics import (
    NONE_OF_THESE,
    TopicScorer,
    accuracy_table,
    cross_validated_probabilities,
)

Embed = Callable[[list[str]], np.ndarray]
IDENTITY_SHARE = (
    0.9  # of the unrelated level: a chain that far from its start, on average, has lost its identity
)
_CHUNK_STEPS = 2000  # not a function of the steps, so that a longer run goes on from a shorter one
_SHUFFLE, _RANDOM, _MARKED = 2**38, 2**38 + 1, 2**39


def _run_of_chains(name: str, value: Any) -> xarray.Dataset:
    """Rule: a run as `runs.chains.read_chains` gives it."""
    if not isinstance(value, xarray.Dataset) or not {"initial", "site", "token"} <= set(value.variables):
        raise UserError(f"{name} is {shown(value)}; give a run of chains, with initial, site and token")
    return value


def _same_number(**parts: Sequence[Any]) -> None:
    """Refuse lists of unequal lengths."""
    if len({len(values) for values in parts.values()}) > 1:
        told = " and ".join(f"{len(values)} {name}" for name, values in parts.items())
        raise UserError(f"{told} do not go together; give as many of each")


@dataclass(frozen=True)
class Trajectories:
    """Chains seen every so many steps.

    Attributes
    ----------
    times : ndarray of int64, shape (k,)
        In steps.
    states : ndarray of int32, shape (k, chains, n)
    texts : list of list of str
        `texts[chain][index of time]`.
    embeddings : ndarray, shape (chains, k, d)
    """

    times: np.ndarray
    states: np.ndarray
    texts: list[list[str]]
    embeddings: np.ndarray


@checked(dataset=_run_of_chains, conditionals=a_text_model, embed=a_callable)
def trajectories(
    dataset: xarray.Dataset, conditionals: MaskedLanguageModel, every: int, embed: Embed
) -> Trajectories:
    """Decode and embed the states of a run every `every` steps."""
    seen = list(states_along(dataset, every))
    states = np.stack([state for _, state in seen])
    texts = [[conditionals.decode(row) for row in states[:, chain]] for chain in range(states.shape[1])]
    vectors = vectors_of(embed, [text for row in texts for text in row])
    return Trajectories(
        np.array([time for time, _ in seen]), states, texts, vectors.reshape(states.shape[1], len(seen), -1)
    )


@checked(states=a_state_list, seed=SEED)
def shuffled(conditionals: MaskedLanguageModel, states: Tensor, seed: int) -> Tensor:
    """Each state with its tokens in random order: the same words without their order."""
    return torch.from_numpy(generator(seed, _SHUFFLE).permuted(states.cpu().numpy(), axis=1))


@checked(conditionals=a_text_model, count=a_whole(0), seed=SEED)
def random_states(conditionals: MaskedLanguageModel, count: int, seed: int) -> Tensor:
    """States of tokens drawn uniformly from those that may be sampled."""
    allowed = np.setdiff1d(np.arange(conditionals.vocabulary), conditionals.barred)
    return torch.from_numpy(generator(seed, _RANDOM).choice(allowed, size=(count, conditionals.length)))


@dataclass(frozen=True)
class TopicStudy:
    """A topic scorer with its measured accuracy.

    Attributes
    ----------
    scorer : TopicScorer
        Trained on all passages.
    held_out : DataFrame
        Accuracy by topic on passages left out of training (cross-validation by passage).
    passage_scores : ndarray, shape (passages, classes)
        Scores of the passages, each by a scorer that has not seen it.
    shuffled_scores : ndarray, shape (passages // 2, classes)
        Scores of every second token-shuffled passage, from the second on, each by a scorer that has seen neither it nor its passage.
    """

    scorer: TopicScorer
    held_out: pd.DataFrame
    passage_scores: np.ndarray
    shuffled_scores: np.ndarray


@checked(
    conditionals=a_text_model,
    states=a_state_list,
    passages=list_of(an_instance(Passage), 1),
    embed=a_callable,
    seed=SEED,
)
def topic_study(
    conditionals: MaskedLanguageModel, states: Tensor, passages: Sequence[Passage], embed: Embed, seed: int
) -> TopicStudy:
    """Train the scorer on passages cut to n tokens, with random-token texts and half of the shuffled passages as none-of-these.

    The other half of the shuffled passages is never trained on.
    """
    _same_number(states=states, passages=passages)
    words = [conditionals.decode(row) for row in states]
    mixed = [conditionals.decode(row) for row in shuffled(conditionals, states, seed)]
    noise = [conditionals.decode(row) for row in random_states(conditionals, len(states) // 2, seed)]
    texts = words + mixed[::2] + noise + mixed[1::2]  # the last are only scored
    vectors = vectors_of(embed, texts)
    topics, names = [passage.topic for passage in passages], [passage.id for passage in passages]
    labels = topics + [NONE_OF_THESE] * (len(texts) - len(words))
    groups = names + names[::2] + [f"random-{k}" for k in range(len(noise))] + names[1::2]
    learnt = len(texts) - len(mixed[1::2])
    scorer = TopicScorer().fit(vectors[: len(words)], topics, vectors[len(words) : learnt])
    unseen = cross_validated_probabilities(vectors, labels, groups, np.arange(len(texts)) < learnt)
    named = [scorer.classes[code] for code in unseen[:learnt].argmax(axis=1)]
    return TopicStudy(
        scorer, accuracy_table(named, labels[:learnt], groups[:learnt]), unseen[: len(words)], unseen[learnt:]
    )


@checked(conditionals=of_conditionals, batch=BATCH)
def mean_log_likelihood(conditionals: MaskedLanguageModel, states: Tensor, batch: int = 256) -> np.ndarray:
    """Pseudo-log-likelihood per token at temperature 1, in nats: mean over sites of log p(x_i given x_{-i}); shape (K,)."""
    check_some_states(conditionals, states)
    free = conditionals.free_sites
    tokens = states.to(conditionals.device).repeat_interleave(len(free), dim=0)
    sites = free.repeat(len(states))
    values = []
    for start in range(0, len(tokens), batch):
        part = slice(start, start + batch)
        rows = conditionals.logits(tokens[part], sites[part]).double().log_softmax(dim=1)
        values.append(rows.gather(1, tokens[part].gather(1, sites[part, None]))[:, 0].cpu())
    return torch.cat(values).reshape(len(states), -1).mean(dim=1).numpy()


@checked(
    dataset=_run_of_chains,
    conditionals=a_text_model,
    temperature=a_number(0),
    radius=a_whole(0),
    minimum=a_whole(1),
    top=a_whole(1),
)
def stay_table(
    dataset: xarray.Dataset,
    conditionals: MaskedLanguageModel,
    temperature: float,
    radius: int,
    minimum: int,
    top: int,
) -> pd.DataFrame:
    """The longest stays of each chain within a Hamming ball, described by the state at their centre.

    Returns
    -------
    DataFrame
        `chain`, `start`, `length` (steps), `censored` (lasted to the end of the record), `local_margin` (nats), `argmax_fraction`, `escape` (exact one-step probability of leaving the
        *centre*, a single state), `predicted` (its mean dwell, 1 / escape, in steps), `ratio` (length / median stay of that chain among those of at least
        one sweep), `kind` ("perfect" if every token is the argmax of its conditional, else "approximate"), `text`; longest first.
    """
    rows, centres = [], []
    for chain in range(dataset.sizes["chain"]):
        path = (
            dataset["initial"].values[chain],
            dataset["site"].values[:, chain],
            dataset["token"].values[:, chain],
        )
        stays = longest_stays(*path, radius=radius, minimum=conditionals.length, top=None)
        typical = float(np.median([stay.length for stay in stays])) if stays else math.nan
        for stay in sorted(stays, key=lambda item: -item.length)[:top]:
            if stay.length >= minimum:
                rows.append(
                    {
                        "chain": chain,
                        "start": int(stay.start),
                        "length": int(stay.length),
                        "censored": bool(stay.censored),
                        "ratio": stay.length / typical,
                    }
                )
                centres.append(np.asarray(stay.centre))
    columns = [
        "chain",
        "start",
        "length",
        "censored",
        "ratio",
        "local_margin",
        "argmax_fraction",
        "escape",
        "predicted",
        "kind",
        "text",
    ]
    if not rows:
        return pd.DataFrame(columns=columns)
    states = torch.from_numpy(np.stack(centres).astype(np.int64))
    view = local_view(conditionals, states, [temperature])
    frame = pd.DataFrame(rows)
    frame["local_margin"], frame["argmax_fraction"], frame["escape"] = (
        view.local_margin,
        view.argmax_fraction,
        view.escapes[0],
    )
    frame["predicted"] = 1 / frame["escape"]
    frame["kind"] = np.where(view.argmax_fraction == 1, "perfect", "approximate")
    frame["text"] = [conditionals.decode(row) for row in states]
    return frame.sort_values("length", ascending=False, kind="stable", ignore_index=True)[columns]


@checked(dataset=_run_of_chains, temperature=a_number(0), dwells=a_whole(1))
def first_dwells_test(
    dataset: xarray.Dataset, conditionals: MaskedLanguageModel, temperature: float, dwells: int
) -> tuple[DwellTest, pd.DataFrame]:
    """Compare the first `dwells` dwells of every chain in single states with the exact escape probabilities.

    The dwells are chosen by their order, not by their length, so that the test is fair.

    Returns
    -------
    test : DwellTest
    table : DataFrame
        `length` (steps), `escape`, `censored`.
    """
    states, lengths, censored = [], [], []
    for chain in range(dataset.sizes["chain"]):
        found = dwell_times(
            dataset["initial"].values[chain],
            dataset["site"].values[:, chain],
            dataset["token"].values[:, chain],
        )
        keep = slice(min(dwells, len(found.lengths)))
        states.append(found.states[keep])
        lengths.append(found.lengths[keep])
        censored.append(found.censored[keep])
    escapes = local_view(
        conditionals, torch.from_numpy(np.concatenate(states).astype(np.int64)), [temperature]
    ).escapes[0]
    table = pd.DataFrame(
        {
            "length": np.concatenate(lengths),
            "escape": np.clip(escapes, 0, 1),
            "censored": np.concatenate(censored),
        }
    )
    return dwell_test(table["length"], table["escape"], table["censored"]), table


@checked(
    conditionals=a_text_model,
    levels=whole_list(0, members=1),
    temperatures=number_list(above=0, members=1),
    seed=SEED,
    batch=BATCH,
)
def exclamation_drift(
    conditionals: MaskedLanguageModel,
    states: Tensor,
    levels: Sequence[int],
    temperatures: Sequence[float],
    seed: int,
    batch: int = 256,
) -> pd.DataFrame:
    """Exact probabilities that the next step raises or lowers the number N of "!", at states with N "!" at random sites.

    The sampling law: each given state with N of its sites, at random, overwritten by "!". Evidence from sampled states, not a certificate.

    Returns
    -------
    DataFrame
        `level` (N), `temperature`, `state`, `up`, `down` (probabilities of one step), `ratio` (up / down; infinite if only down is 0, 1 if both are).
    """
    if max(levels, default=0) > conditionals.length:
        raise UserError(
            f"level {max(levels)} is more than the {conditionals.length} tokens of a state; "
            "give levels up to that"
        )
    check_some_states(conditionals, states)
    mark = conditionals.tokenizer.convert_tokens_to_ids("!")
    if mark is None or mark in conditionals.barred:
        raise UserError(
            'this tokenizer has no token "!" of its own that may be sampled; choose another model'
        )
    order = generator(seed, _MARKED).permuted(
        np.tile(np.arange(conditionals.length), (len(states), 1)), axis=1
    )
    rows = []
    for level in levels:
        marked = states.clone()
        marked.scatter_(1, torch.from_numpy(order[:, :level]), mark)
        free = conditionals.free_sites
        tokens, sites = (
            marked.to(conditionals.device).repeat_interleave(len(free), dim=0),
            free.repeat(len(marked)),
        )
        is_mark = (tokens.gather(1, sites[:, None])[:, 0] == mark).reshape(len(marked), -1).cpu().numpy()
        logits = torch.cat(
            [
                conditionals.logits(tokens[s : s + batch], sites[s : s + batch])
                for s in range(0, len(tokens), batch)
            ]
        )
        for temperature in temperatures:
            weights = prepare(
                logits,
                torch.full((len(logits),), float(temperature), dtype=torch.float64, device=logits.device),
            )
            chosen = weights.values[:, mark].double()
            others = weights.values.double().clone()
            others[:, mark] = 0  # summed, not taken from 1, so that a small probability keeps its digits
            rest = others.sum(dim=1)
            raises, lowers = (
                (part / (chosen + rest)).reshape(len(marked), -1).cpu().numpy() for part in (chosen, rest)
            )
            up = np.where(is_mark, 0.0, raises).mean(axis=1)
            down = np.where(is_mark, lowers, 0.0).mean(axis=1)
            for k in range(len(marked)):
                rows.append(
                    {
                        "level": int(marked[k].eq(mark).sum()),
                        "temperature": float(temperature),
                        "state": k,
                        "up": up[k],
                        "down": down[k],
                        "ratio": up[k] / down[k] if down[k] > 0 else math.inf if up[k] > 0 else 1.0,
                    }
                )
    return pd.DataFrame(rows)


@checked(
    results=writable_folder,
    conditionals=of_conditionals,
    starts=a_state_list,
    temperature=a_number(0),
    steps=a_whole(1),
    seed=SEED,
    model=a_json,
)
def run(
    results: Path,
    conditionals: MaskedLanguageModel,
    starts: Tensor,
    temperature: float,
    steps: int,
    seed: int,
    model: dict,
) -> xarray.Dataset:
    """Chains of one temperature, with randomness of their own, by the event-driven kernel.

    They are streamed to a folder in `results` that is named by what decides them, the number of steps apart: other parameters find another folder, and more
    steps go on from the steps that are there.
    """
    numbers = cell_chains(conditionals.length, temperature, len(starts))
    content = {
        "seed": seed,
        "chains": list(numbers),
        "initial": starts.tolist(),
        "chunk_steps": _CHUNK_STEPS,
        "temperature": temperature,
    }
    name = digest(
        {**content, "conditionals": conditionals.fingerprint, "model": model, "engine": engine_digest()}
    )[:12]
    folder = results / f"chains-{temperature:g}-{name}"
    return run_chains(
        folder,
        conditionals,
        starts,
        temperature,
        seed=seed,
        steps=steps,
        chains=numbers,
        chunk_steps=_CHUNK_STEPS,
        kernel="event",
        model=model,
    )


@checked(path=an_instance(Trajectories))
def hamming_to_start(path: Trajectories) -> np.ndarray:
    """Number of tokens that differ from the start: shape (chains, times)."""
    return (path.states != path.states[:1]).sum(axis=2).T


@checked(path=an_instance(Trajectories))
def changes(path: Trajectories) -> np.ndarray:
    """Number of tokens that changed since the record before: shape (chains, times - 1)."""
    return (path.states[1:] != path.states[:-1]).sum(axis=2).T


@checked(ends=keyed(a_number(0), whole_array(2, 0, 1)), seed=SEED)
def likelihoods(
    conditionals: MaskedLanguageModel, starts: Tensor, ends: dict[float, np.ndarray], seed: int
) -> pd.DataFrame:
    """Pseudo-log-likelihood per token of starts, ends and shuffled ends: `temperature`, `texts`, `chain`, `value` (nats)."""
    parts = []
    first = mean_log_likelihood(conditionals, starts)
    for temperature, states in sorted(ends.items()):
        final = torch.from_numpy(np.asarray(states, dtype=np.int64))
        kinds = {
            "starts": first,
            "ends": mean_log_likelihood(conditionals, final),
            "ends, shuffled": mean_log_likelihood(conditionals, shuffled(conditionals, final, seed)),
        }
        parts += [
            pd.DataFrame(
                {"temperature": temperature, "texts": kind, "chain": np.arange(len(values)), "value": values}
            )
            for kind, values in kinds.items()
        ]
    return pd.concat(parts, ignore_index=True)


@checked(values=finite(2))
def late_distance(values: np.ndarray) -> tuple[float, float]:
    """Mean distance to the start over the last tenth of the record, and its standard error over chains (the chains taken as independent).

    Parameters
    ----------
    values : ndarray, shape (chains, times)
        At least two chains.
    """
    values = np.asarray(values)
    if len(values) < 2:
        raise UserError(f"values has {len(values)} chains; give at least two, or their spread is not known")
    late = values[:, -max(1, values.shape[1] // 10) :].mean(axis=1)
    return float(late.mean()), float(late.std(ddof=1)) / math.sqrt(len(late))


@checked(
    drifts=keyed(a_number(0), finite(2)),
    level=a_number(),
    level_error=a_number(0),
    likelihood=a_table("temperature", "texts", "chain", "value"),
)
def identity(
    drifts: dict[float, np.ndarray], level: float, level_error: float, likelihood: pd.DataFrame
) -> tuple[dict[float, bool], dict[float, bool], dict[float, bool]]:
    """Whether chains have lost their start, and whether they are still text, by temperature.

    Returns
    -------
    reached, below : dict of bool
        Whether the mean distance over the last tenth of the record is at least `IDENTITY_SHARE` of the unrelated level, or below it, by two standard errors of
        the difference. Neither where the chains are too few to tell.
    coherent : dict of bool
        Whether the ends are likelier than their shuffled selves, by two standard errors of the paired difference.
    """
    if missing := sorted(set(drifts) - set(likelihood["temperature"])):
        raise UserError(
            f"likelihood has no rows at temperature {missing[0]:g}; give those of every temperature"
        )
    reached, below, coherent = {}, {}, {}
    for temperature, values in drifts.items():
        late, spread = late_distance(values)
        error = math.hypot(spread, IDENTITY_SHARE * level_error)
        reached[temperature] = late - 2 * error >= IDENTITY_SHARE * level
        below[temperature] = late + 2 * error < IDENTITY_SHARE * level
        wide = likelihood[likelihood["temperature"] == temperature].pivot(
            index="chain", columns="texts", values="value"
        )
        gain = wide["ends"] - wide["ends, shuffled"]
        coherent[temperature] = bool(gain.mean() > 2 * gain.std(ddof=1) / math.sqrt(len(gain)))
    return reached, below, coherent


@checked(
    scoring=an_instance(TopicStudy),
    path=an_instance(Trajectories),
    topics=word_list(1),
    times=whole_list(0, members=1),
)
def accuracy_along(
    scoring: TopicStudy, path: Trajectories, topics: Sequence[str], times: Sequence[int]
) -> pd.DataFrame:
    """How often the scorer still names the topic of the start, on the chains' own text after some steps.

    What is missing to 1 bounds its error rate from above: a chain may really have changed its topic.
    """
    _same_number(topics=topics, chains=path.embeddings)
    rows = []
    for time in times:
        index = int(np.abs(path.times - time).argmin())
        predicted = scoring.scorer.predict(path.embeddings[:, index])
        right = sum(a == b for a, b in zip(predicted, topics, strict=True))
        low, high = wilson_interval(right, len(topics))
        rows.append(
            {
                "steps": int(path.times[index]),
                "texts": len(topics),
                "topic of the start named (share)": right / len(topics),
                "95 % from": low,
                "95 % to": high,
                "none of these named (share)": sum(name == NONE_OF_THESE for name in predicted) / len(topics),
            }
        )
    return pd.DataFrame(rows)


@checked(scoring=an_instance(TopicStudy), passages=list_of(an_instance(Passage), 1), threshold=a_number())
def politics_nulls(
    scoring: TopicStudy, passages: Sequence[Passage], threshold: float
) -> dict[str, tuple[float, float, float]]:
    """Share above the threshold, with its interval, among shuffled and among ordered passages of other topics, scored out of fold."""
    _same_number(passages=passages, scores=scoring.passage_scores)
    column = scoring.scorer.classes.index(choice("topic", "politics", scoring.scorer.classes))
    other = np.array([passage.topic != "politics" for passage in passages])
    found = {
        "shuffled passages": scoring.shuffled_scores[other[1::2], column],
        "other topics": scoring.passage_scores[other, column],
    }
    return {name: null_share(scores, threshold) for name, scores in found.items()}


@checked(scores=keyed(a_number(0), finite(2)), topics=word_list(1), threshold=a_number())
def pooled_visits(scores: dict[float, np.ndarray], topics: Sequence[str], threshold: float) -> pd.DataFrame:
    """`recurrence` of all chains that did not start in politics, temperatures together.

    A visit ends when the score falls to half the threshold. `passage` is the place of the chain's start among the starts: chains of several temperatures share it.
    """
    other = np.flatnonzero([topic != "politics" for topic in topics])
    for values in scores.values():
        _same_number(topics=topics, chains=values)
    if not len(other):
        raise UserError("every chain starts in politics; give chains of other topics too")
    parts = [
        recurrence(np.asarray(values)[other], threshold, threshold / 2).assign(passage=other, temperature=tau)
        for tau, values in sorted(scores.items())
    ]
    return pd.concat(parts, ignore_index=True)


@checked(pooled=a_table("passage", "share"), seed=SEED)
def share_of_time(pooled: pd.DataFrame, seed: int) -> tuple[float, float, float]:
    """Mean share of time above the threshold with its 95 % interval, by bootstrap over starting passages, the chains of one averaged first."""
    mean, low, high = mean_interval(pooled.groupby("passage")["share"].mean(), seed)
    return mean, max(low, 0.0), min(high, 1.0)

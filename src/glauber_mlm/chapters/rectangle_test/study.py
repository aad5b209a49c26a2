"""Chapter 2: defects on passages, their numerical floor, and the control."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from glauber_mlm import models
from glauber_mlm.checks import (
    SEED,
    a_whole,
    a_word,
    an_instance,
    checked,
    nearest,
    optional,
    shown,
    word_list,
)
from glauber_mlm.conditionals.causal import CausalCandidates, LeftToRight
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.conditionals.protocol import Conditionals, of_conditionals
from glauber_mlm.errors import UserError
from glauber_mlm.inputs import a_callable, a_state_list, a_table, a_text_model, generator
from glauber_mlm.pretrained.registry import chains_of
from glauber_mlm.randomness import RandomStream
from glauber_mlm.readings.rectangle import Rectangles, defects, draw_rectangles, joint_defects
from glauber_mlm.statistics.bootstrap import mean_interval
from glauber_mlm.text.alphabets import starts_for


@dataclass(frozen=True)
class Floor:
    """How far rounding moves delta, in nats.

    Attributes
    ----------
    batch : ndarray of float64, shape (R,)
        |difference| between two batch sizes and orders, in the model's dtype.
    double : ndarray of float64, shape (R,)
        |difference| to float64.
    """

    batch: np.ndarray
    double: np.ndarray

    @property
    def largest(self) -> float:
        """The largest movement seen; what |delta| is compared with."""
        return float(max(self.batch.max(), self.double.max()))


@checked(states=a_state_list, count=a_whole(1))
def rectangle_starts(states: Tensor, count: int) -> Tensor:
    """Repeat starting states in turn until there are `count`."""
    return states[torch.arange(count) % len(states)]


@checked(
    conditionals=of_conditionals,
    double=of_conditionals,
    rectangles=an_instance(Rectangles),
    seed=SEED,
)
def numerical_floor(
    conditionals: Conditionals, double: Conditionals, rectangles: Rectangles, reference: Tensor, seed: int
) -> Floor:
    """Recompute delta in another order and batch size, and in float64.

    Parameters
    ----------
    reference : Tensor of float64, shape (R,)
        delta as reported.
    double : Conditionals
        The same model in float64.
    """
    fits = isinstance(reference, Tensor) and reference.dtype == torch.float64
    if not fits or reference.shape != (len(rectangles),):
        raise UserError(
            f"reference is {shown(reference)}; give the {len(rectangles)} defects of the rectangles, "
            "a float64 tensor"
        )
    order = torch.from_numpy(generator(seed, 2**36).permutation(len(rectangles)))
    again = torch.empty_like(reference)
    again[order] = defects(conditionals, rectangles.take(order.to(rectangles.states.device)), batch=37)
    exact = defects(double, rectangles, batch=64)
    return Floor((again - reference).abs().numpy(), (exact - reference).abs().numpy())


@checked(conditionals=of_conditionals, protocols=word_list(1))
def defects_by_protocol(
    conditionals: Conditionals,
    starts: Tensor,
    seed: int,
    protocols: Sequence[str] = ("conditional", "top", "uniform"),
) -> pd.DataFrame:
    """delta with alternatives drawn in each way, sites and states held fixed.

    Returns
    -------
    DataFrame
        `protocol`, `delta` (nats), `distance` (|i - j|), `rectangle`.
    """
    if len(set(protocols)) < len(protocols):
        raise UserError(f"protocols is {shown(protocols)}; give each way to draw alternatives once")
    parts = []
    for protocol in protocols:
        rectangles = draw_rectangles(conditionals, starts, seed=seed, alternatives=protocol)
        values = defects(conditionals, rectangles)
        distance = (rectangles.i - rectangles.j).abs().cpu().numpy()
        parts.append(
            pd.DataFrame(
                {
                    "protocol": protocol,
                    "delta": values.numpy(),
                    "distance": distance,
                    "rectangle": np.arange(len(values)),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


@checked(frame=a_table("protocol", "delta", "rectangle"), seed=SEED, passages=optional(a_whole(1)))
def summary_by_protocol(frame: pd.DataFrame, seed: int, passages: int | None = None) -> pd.DataFrame:
    """Mean |delta| with a bootstrap interval over the `passages` that rectangles take turns on, median and the share above 0.1 nats, for each protocol."""
    rows = []
    for protocol, part in frame.groupby("protocol", sort=False):
        size = part["delta"].abs().to_numpy()
        mean, low, high = mean_interval(
            size, seed, None if passages is None else part["rectangle"].to_numpy() % passages
        )
        rows.append(
            {
                "alternatives": protocol,
                "rectangles": len(size),
                "mean |delta| (nats)": mean,
                "95 % from": low,
                "to": high,
                "median |delta| (nats)": float(np.median(size)),
                "share above 0.1 nats": float((size > 0.1).mean()),
            }
        )
    return pd.DataFrame(rows)


def _control(name: str, value: Any) -> str:
    """Rule: left_to_right, or a name or folder of a model that is not nearly that."""
    meant = nearest(a_word(name, value), ["left_to_right"])
    if value != "left_to_right" and meant != ";" and "/" not in value and not Path(value).exists():
        raise UserError(
            f"{name} is {shown(value)}{meant} allowed: left_to_right, or a causal model by hub id or folder"
        )
    return value


@checked(
    control=_control,
    conditionals=a_text_model,
    double=a_text_model,
    starts=a_state_list,
    seed=SEED,
)
def control_defects(
    control: str,
    conditionals: MaskedLanguageModel,
    double: MaskedLanguageModel,
    starts: Tensor,
    seed: int,
    **options,
) -> tuple[Tensor, float, str]:
    """Defects of an autoregressive control, and how much of them is rounding.

    Parameters
    ----------
    control : str
        "left_to_right" makes a joint law from the masked model itself, by the chain rule with everything to the right masked; else a causal model by hub id or
        folder, on which the passages are tokenized anew by its own tokenizer.
    conditionals, double : MaskedLanguageModel
        The masked model, and the same in float64.
    starts : Tensor of int64, shape (R, n)
    options
        Of `glauber_mlm.models.load`.

    Returns
    -------
    delta : Tensor of float64, shape (R,)
    rounding : float
        Ten times the largest movement of delta between two batch sizes, and to float64.
    name : str
    """
    if control == "left_to_right":
        log_joint, exact, name = (
            LeftToRight(conditionals).log_joint,
            LeftToRight(double).log_joint,
            "the same model read left to right",
        )
        rectangles = draw_rectangles(conditionals, starts, seed=seed)
    else:
        options = {key: value for key, value in options.items() if key != "revision"}
        loaded = models.load(control, kind="causal", **options)
        texts = [conditionals.decode(row) for row in starts]
        ids = [loaded.tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]
        length = min(len(row) for row in ids)
        tokens = torch.tensor([row[:length] for row in ids])
        rectangles = _random_rectangles(tokens, seed)
        candidates = [sorted(set(column.tolist())) for column in tokens.T]
        log_joint, exact = (
            CausalCandidates(model.model, model.tokenizer, candidates, identity=model.digest).log_joint
            for model in (loaded, models.load(control, kind="causal", **{**options, "dtype": "float64"}))
        )
        name = control
    first = joint_defects(log_joint, rectangles, batch=64)
    second = joint_defects(log_joint, rectangles, batch=23)
    third = joint_defects(exact, rectangles, batch=64)
    return first, 10 * max(float((other - first).abs().max()) for other in (second, third)), name


def _random_rectangles(tokens: Tensor, seed: int) -> Rectangles:
    """Rectangles whose alternatives are the tokens that other sequences have at the same sites; a causal model gives no rows to draw from."""
    count, length = tokens.shape
    uniforms = RandomStream(seed, range(count)).blocks(0, 1)[0]
    i = (uniforms[:, 0] * length).long()
    j = (i + 1 + (uniforms[:, 1] * (length - 1)).long()) % length
    new = []
    for sites in (i, j):
        for row, site in enumerate(sites.tolist()):
            others = [int(token) for token in tokens[:, site].roll(-row) if token != tokens[row, site]]
            if not others:
                raise UserError(
                    "all control sequences have the same token at a site, so there is no alternative; use more rectangles"
                )
            new.append(others[0])
    return Rectangles(tokens, i, j, torch.tensor(new[:count]), torch.tensor(new[count:]))


@checked(names=word_list(), length=a_whole(2), count=a_whole(2), seed=SEED, rule=a_callable)
def verdicts_of_models(
    names: Sequence[str],
    length: int,
    count: int,
    seed: int,
    rule: Callable[[float, float, float], str],
    **options,
) -> dict[str, tuple[int, str]]:
    """Number of parameters, and the verdict of a rule on (low, high, floor) of mean |delta|, of further masked models by name."""
    verdicts = {}
    for name in names:
        loaded = models.load(name, **options)
        conditionals = loaded.conditionals(length)
        double = models.load(name, **{**options, "dtype": "float64"}).conditionals(length)
        starts = starts_for(conditionals, count, seed, chains_of(name)).states
        distinct, starts = len(starts), rectangle_starts(starts, count)
        rectangles = draw_rectangles(conditionals, starts, seed=seed)
        delta = defects(conditionals, rectangles)
        _, low, high = mean_interval(delta.abs(), seed, np.arange(count) % distinct)
        floor = numerical_floor(conditionals, double, rectangles, delta, seed).largest
        verdicts[name] = (loaded.describe()["parameters"], rule(low, high, floor))
    return verdicts

"""What the tests of the studies compute by hand: conditionals, escapes, stays, transition matrices, embeddings of letters."""

from __future__ import annotations

import numpy as np
import torch

from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel

ROUNDING = 1e-9  # far above what float64 loses in the two small layers or in sums of this size, far below any effect tested


def philox(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def letters(texts: list[str]) -> np.ndarray:
    """An embedder for tests: counts of letters, of unit length."""
    counts = np.array(
        [[1.0] + [text.count(chr(code)) for code in range(ord("a"), ord("z") + 1)] for text in texts]
    )
    return counts / np.linalg.norm(counts, axis=1, keepdims=True)


def laws_by_hand(conditionals: MaskedLanguageModel, state, temperature: float = 1.0) -> np.ndarray:
    """Conditionals at every site of one state, from the whole forward of the transformers model: shape (n, V)."""
    tokens = [int(token) for token in state]
    tokenizer = conditionals.tokenizer
    inputs = []
    for site in range(len(tokens)):
        masked = [*tokens[:site], tokenizer.mask_token_id, *tokens[site + 1 :]]
        inputs.append([tokenizer.cls_token_id, *masked, tokenizer.sep_token_id])
    with torch.no_grad():
        logits = conditionals.model(input_ids=torch.tensor(inputs)).logits.double().numpy()
    rows = logits[np.arange(len(tokens)), np.arange(len(tokens)) + 1]
    rows[:, conditionals.barred] = -np.inf
    weights = np.exp((rows - rows.max(axis=1, keepdims=True)) / temperature)
    return weights / weights.sum(axis=1, keepdims=True)


def escape_by_hand(conditionals: MaskedLanguageModel, state, temperature: float) -> float:
    laws = laws_by_hand(conditionals, state, temperature)
    laws[np.arange(len(state)), [int(token) for token in state]] = 0.0
    return float(laws.sum(axis=1).mean())


def states_of(initial, sites, tokens) -> np.ndarray:
    """All states of one recorded chain: shape (steps + 1, n)."""
    states = [np.array(initial)]
    for site, token in zip(sites, tokens, strict=True):
        states.append(states[-1].copy())
        states[-1][site] = token
    return np.array(states)


def longest_by_hand(states: np.ndarray, radius: int) -> int:
    """Steps made from the states of the longest interval within `radius` of one of its states."""
    last = len(states) - 1
    longest = 0
    for centre in range(len(states)):
        near = (states != states[centre]).sum(axis=1) <= radius
        outside = np.flatnonzero(~near)
        before, after = outside[outside < centre], outside[outside > centre]
        start, end = (before[-1] + 1 if len(before) else 0), (after[0] if len(after) else last)
        longest = max(longest, int(end - start))
    return longest


def matrix_by_hand(model, temperature: float) -> np.ndarray:
    states = [tuple(row) for row in model.states().tolist()]
    number = {state: index for index, state in enumerate(states)}
    matrix = np.zeros((len(states), len(states)))
    for state, index in number.items():
        for site in range(model.length):
            row = model.logits(torch.tensor([state]), torch.tensor([site]))[0] / temperature
            for token, probability in enumerate(torch.softmax(row, dim=0).tolist()):
                matrix[index, number[(*state[:site], token, *state[site + 1 :])]] += (
                    probability / model.length
                )
    return matrix


def cell(times, met, cap, lag=0) -> dict:
    return {"times": list(times), "met": list(met), "cap": cap, "lag": lag}

"""Where chains start, by kind of model: models of text from passages, models of proteins from germline domains, other alphabets anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from glauber_mlm.checks import SEED, a_whole, a_word, checked
from glauber_mlm.conditionals.masked_lm import MaskedLanguageModel
from glauber_mlm.domains import RESIDUES, Domain, load_domains
from glauber_mlm.errors import UserError
from glauber_mlm.passages import load_passages
from glauber_mlm.text.starts import starting_pairs, starting_states

LARGEST_ALPHABET = (
    64  # tokens that may be drawn; the smallest vocabulary of words or of their parts has hundreds
)
_ORDER, _RANDOM = 0x646F6D61, 0x616C7068  # keep these draws apart from every other use of the same seed


@dataclass(frozen=True)
class Starts:
    """Starting states with where they come from.

    Attributes
    ----------
    states : Tensor of int64, shape (K, n)
    names : tuple of str, K of them
        Of the passages or domains; numbers of random sequences.
    kind : {"passages", "germline domains", "random sequences"}
    """

    states: Tensor
    names: tuple[str, ...]
    kind: str


def alphabet(conditionals: MaskedLanguageModel) -> list[int] | None:
    """Token ids of the letters that chains start from, if the tokens of the model are letters.

    Returns
    -------
    list of int, or None
        Of the 20 residues in the order of `RESIDUES`, if the model knows them all, one token each; else of all tokens that may be drawn.
        None for a model of text: one with more than `LARGEST_ALPHABET` tokens that may be drawn.
    """
    free = sorted(set(range(conditionals.vocabulary)) - set(conditionals.barred))
    if len(free) > LARGEST_ALPHABET:
        return None
    residues = _residues(conditionals, RESIDUES)
    return residues if len(residues) == len(RESIDUES) and set(residues) <= set(free) else free


def _residues(conditionals: MaskedLanguageModel, sequence: str) -> list[int]:
    return conditionals.tokenizer.encode(sequence, add_special_tokens=False)


def domain_states(conditionals: MaskedLanguageModel, domains: Sequence[Domain]) -> Tensor:
    """The first n residues of each domain.

    Returns
    -------
    Tensor of int64, shape (K, n)

    Raises
    ------
    UserError
        If a domain has fewer than n residues.
    """
    for domain in domains:
        if len(domain.sequence) < conditionals.length:
            raise UserError(
                f"domain {domain.name} has {len(domain.sequence)} residues, fewer than the length {conditionals.length}; choose a smaller length"
            )
    rows = [_residues(conditionals, domain.sequence[: conditionals.length]) for domain in domains]
    return torch.tensor(rows, dtype=torch.int64)


@checked(count=a_whole(0), seed=SEED)
def random_sequences(conditionals: MaskedLanguageModel, count: int, seed: int) -> Tensor:
    """Sequences of letters drawn independently and uniformly from `alphabet`. A longer draw with the same seed begins with the shorter one.

    Returns
    -------
    Tensor of int64, shape (count, n)

    Raises
    ------
    UserError
        For a model of text.
    """
    letters = alphabet(conditionals)
    if letters is None:
        raise UserError("the model is one of text, not of an alphabet; start from passages")
    generator = np.random.Generator(np.random.Philox([seed, _RANDOM]))
    return torch.from_numpy(generator.choice(np.array(letters), size=(count, conditionals.length)))


@checked(count=a_whole(1), seed=SEED, chains=a_word)
def starts_for(conditionals: MaskedLanguageModel, count: int, seed: int, chains: str = "HKL") -> Starts:
    """Distinct starts that suit the model, as many as `count` or as there are.

    Parameters
    ----------
    count : int
        At least 1.
    seed : int
        Not negative; decides which and in which order.
    chains : str
        For a model of proteins: the chains of an antibody to take domains of, as of `glauber_mlm.pretrained.registry.chains_of`.

    Raises
    ------
    UserError
        If the passages or domains are shorter than the states.
    """
    letters = alphabet(conditionals)
    if letters is None:
        states, passages = starting_states(conditionals, min(count, len(load_passages())), seed)
        return Starts(states, tuple(passage.id for passage in passages), "passages")
    if letters != _residues(conditionals, RESIDUES):
        names = tuple(f"random sequence {number}" for number in range(count))
        return Starts(random_sequences(conditionals, count, seed), names, "random sequences")
    domains = _shuffled(load_domains(chains), seed)[:count]
    return Starts(
        domain_states(conditionals, domains), tuple(domain.name for domain in domains), "germline domains"
    )


def _shuffled(domains: Sequence[Domain], seed: int) -> list[Domain]:
    order = np.random.Generator(np.random.Philox([seed, _ORDER])).permutation(len(domains))
    return [domains[place] for place in order]


@checked(pairs=a_whole(1), seed=SEED)
def pairs_for(conditionals: MaskedLanguageModel, pairs: int, seed: int) -> tuple[Tensor, Tensor]:
    """First and second states of `pairs` pairs: passages of different topics for a model of text, else random sequences.

    Returns
    -------
    two Tensors of int64, shape (pairs, n)

    Raises
    ------
    UserError
        As of `starting_pairs`.
    """
    if alphabet(conditionals) is None:
        return starting_pairs(conditionals, pairs, seed)
    states = random_sequences(conditionals, 2 * pairs, seed)
    return states[::2], states[1::2]

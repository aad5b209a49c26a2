"""The paper's claims, each with the rule that decides it, declared before any run."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Verdict(StrEnum):
    """Outcome of a decision rule. None of them says "reproduced": that word is for the paper's own models."""

    AGREES = "agrees"
    DISAGREES = "disagrees"
    UNDECIDED = "undecided"
    NO_VIOLATION_FOUND = "no violation found"
    VIOLATED = "violated"
    NOT_RUN = "not run"


VERDICTS_OF_THEOREMS = (Verdict.NO_VIOLATION_FOUND, Verdict.VIOLATED, Verdict.NOT_RUN)
VERDICTS_OF_FINDINGS = (Verdict.AGREES, Verdict.DISAGREES, Verdict.UNDECIDED, Verdict.NOT_RUN)


@dataclass(frozen=True)
class Claim:
    """One claim of the paper.

    Attributes
    ----------
    id : str
    statement, paper : str
        The claim and the paper's figure for it, in words.
    kind : {"empirical", "theorem", "qualitative"}
        A theorem can be violated (then the code or the reading of it is wrong) but never confirmed by a run.
    chapter : str
        Name of the only chapter that records it.
    rule : str
        How the verdict is reached from the run's figures.
    """

    id: str
    statement: str
    paper: str
    kind: Literal["empirical", "theorem", "qualitative"]
    chapter: str
    rule: str

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """The verdicts that this claim takes."""
        return VERDICTS_OF_THEOREMS if self.kind == "theorem" else VERDICTS_OF_FINDINGS


CLAIMS: dict[str, Claim] = {
    claim.id: claim
    for claim in (
        Claim(
            "R1",
            "Conditionals of masked language models are incompatible with any joint law.",
            "delta in [0.64, 0.80] on BERT-base, RoBERTa, ModernBERT (read here as mean |delta|)",
            "empirical",
            "rectangle_test",
            "agrees if the 95 % interval of mean |delta| lies above ten times the numerical floor; disagrees if it lies below the "
            "floor; undecided otherwise. Whether the value falls into the paper's range is shown and not judged for another model.",
        ),
        Claim(
            "R2",
            "The conditionals of an autoregressive model are compatible.",
            "GPT-2: delta = 0",
            "empirical",
            "rectangle_test",
            "agrees if the largest |delta| of the control is at most ten times the movement that another batch or float64 causes in it; disagrees if it is "
            "larger; not run without an autoregressive model.",
        ),
        Claim(
            "R3",
            "Incompatibility persists across model sizes.",
            "qualitative",
            "qualitative",
            "rectangle_test",
            "agrees if R1 agrees for every model, of at least two sizes; disagrees if it disagrees for one of them; undecided otherwise; not run with one size.",
        ),
        Claim(
            "T1",
            "If the influence coefficient alpha(tau) is below 1, the chain mixes in O(n log n) steps.",
            "theorem",
            "theorem",
            "theory_checks",
            "violated if an exact mixing time exceeds ceil(n/(1-alpha) (log n + log 1/eps)) at a temperature with exact alpha below "
            "1; no violation found otherwise; not run where no alpha is below 1.",
        ),
        Claim(
            "T2",
            "The probability of leaving a state of positive margin is exponentially small in 1/tau.",
            "theorem",
            "theorem",
            "theory_checks",
            "violated if an exact one-step escape probability exceeds (|V|-1) exp(-gamma/tau) beyond rounding at any state of positive "
            "margin and temperature checked; no violation found otherwise; not run without such a state.",
        ),
        Claim(
            "T3",
            "The bounds are pessimistic against what chains do.",
            "qualitative",
            "qualitative",
            "mixing_times",
            "agrees if the temperature above which contraction is proved is at least ten times tau*(n), the temperature at which the share "
            "`level` of the coupled pairs meets within the cap, at every length at which the grid brackets tau*(n); disagrees if it is below "
            "twice tau*(n) at one of these lengths; undecided otherwise.",
        ),
        Claim(
            "M1",
            "At high temperature, hitting times scale as C(tau) n log n on both clocks, coalescence and semantic.",
            "T = C(tau) n log n for tau >~ 1",
            "empirical",
            "mixing_times",
            "agrees if C n log n passes a chi-square test at 2.5 % on each of the two clocks (so that a true law fails one of them in at most 5 % "
            "of runs) while C n and C n^2 fail on both; disagrees if C n log n fails on a clock on which one of the two passes; undecided "
            "otherwise, and where fewer than three lengths have a time within the record with a known error on a clock.",
        ),
        Claim(
            "M2",
            "At low temperature, chains are held for thousands of steps.",
            "thousands of steps",
            "qualitative",
            "mixing_times",
            "agrees if at the stated cold temperature the 95 % Wilson interval of the share of chains with a stay of at least 1000 steps within the "
            "stated radius lies above one half; disagrees if it lies below a tenth, in runs of at least 2000 steps (no fewer than 35 chains can "
            "show that); undecided otherwise.",
        ),
        Claim(
            "M3",
            "Coalescence passes from slow to fast at a temperature of about 1.5 to 2, which rises with n.",
            "tau in [1.5, 2]",
            "empirical",
            "mixing_times",
            "with tau*(n) the temperature at which the share `level` of the pairs meets within the cap: agrees if its 95 % interval at the largest "
            "length meets [1.5, 2] and it rises from the smallest to the largest length beyond both intervals; disagrees if it falls beyond them "
            "or no interval meets [1.5, 2]; undecided otherwise, where the grid does not bracket tau*(n) at the largest length, and where the "
            "same code's 95 % interval misses the exact tau*(n) of Curie-Weiss at one of its lengths.",
        ),
        Claim(
            "S1",
            "Chains lose the identity of their start and wander through coherent regions.",
            "qualitative",
            "qualitative",
            "semantic_traps",
            "agrees if at one of the temperatures tried (each on its own, without a correction for their number) the ensemble mean distance to the "
            "start, over the last tenth of the record, is at least 0.9 of the level of unrelated passages by two standard errors of the "
            "difference, while the final texts have a larger mean pseudo-log-likelihood than the same texts shuffled, by more than two standard "
            "errors of the paired difference; disagrees if the distance is below 0.9 of that level by more than two standard errors at every "
            "temperature, in runs of at least 50 sweeps; undecided otherwise.",
        ),
        Claim(
            "S2",
            "There are traps of hundreds to thousands of steps, perfect and approximate.",
            "10^2 to 10^3 steps",
            "empirical",
            "semantic_traps",
            "agrees if among the five longest stays of each chain a perfect and an approximate one of at least 100 steps are found, each at least ten "
            "times the median stay of its chain (stays of at least one sweep); disagrees if no stay reaches 100 steps in runs of at least 1000; undecided otherwise.",
        ),
        Claim(
            "S3",
            'Slow basins are confirmed by drift: sequences with many "!" gain more of them than they lose.',
            "evidence",
            "empirical",
            "semantic_traps",
            "agrees if p_up/p_down exceeds 1 at every sampled state of at least two consecutive levels N and N + 1, N at least 1, at one of the "
            "temperatures tried (sampled evidence, not a certificate, and the levels are picked after the fact); disagrees if it is below 1 at most sampled states of every level at every temperature; "
            "undecided otherwise.",
        ),
        Claim(
            "S4",
            "Chains from unrelated topics visit and revisit political content without ending there.",
            "qualitative",
            "qualitative",
            "semantic_traps",
            "for chains from other topics, all temperatures together: agrees if the 95 % interval of their mean share of time above the score "
            "threshold (bootstrap over starting passages) lies above the 95 % intervals of both nulls (shuffled passages, passages of other topics, "
            "cut to n tokens and scored out of fold), some chains return, chains enter more than once on average, and the share that ends above "
            "the threshold is not above the share of time by more than two standard errors over starting passages; disagrees if the interval "
            "lies below both null estimates or no chain visits, in runs of at least 50 sweeps; undecided otherwise.",
        ),
    )
}

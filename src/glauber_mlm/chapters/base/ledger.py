"""The claims ledger: what the paper claims, what this run found, and the rule that decided between them.

Every claim is declared in `glauber_mlm.chapters.base.claims` with its decision rule, before any run. A chapter records a finding with a verdict; the
rule stored beside it is the declared one and cannot be given by the chapter. One JSON file a claim, so that
chapters can run in any order and be run again alone. A claim without a file reads back as `not run`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd

from glauber_mlm import __version__, checks
from glauber_mlm.atomic import write_json, writing
from glauber_mlm.chapters.base.claims import CLAIMS, Claim, Verdict
from glauber_mlm.chapters.base.parameters import ChapterParameters, chapter_spec
from glauber_mlm.errors import UserError

COLUMNS = ("claim", "statement", "paper", "ours", "interval", "note", "model", "profile", "rule", "verdict")


class Ledger:
    """Where one chapter of one run records its claims.

    Parameters
    ----------
    results : Path
        Results folder of the run; the claims lie in its `ledger` folder.
    chapter : str
        Only the claims of this chapter can be recorded.
    parameters : ChapterParameters
        Model, revision, dtype, profile and seed are recorded with every claim.

    Raises
    ------
    UserError
        If there is no such chapter, `results` is no path, or `parameters` are none.
    """

    def __init__(self, results: Path, chapter: str, parameters: ChapterParameters) -> None:
        if not isinstance(parameters, ChapterParameters):
            raise UserError(
                f"parameters is {checks.shown(parameters)}; give what `glauber_mlm.chapters.base.parameters.validate` returns"
            )
        self.results = checks.path("results", results)
        self.chapter = chapter_spec(chapter).name
        self.parameters = parameters

    def record(
        self, claim: str, ours: str, verdict: Verdict, *, interval: str | None = None, note: str = ""
    ) -> None:
        """Write the finding for one claim; the last one written counts.

        Parameters
        ----------
        claim : str
            Id of the claim, for instance "R1".
        ours : str
            The figure of this run, in words with its unit.
        verdict : Verdict
            What the declared rule gave.
        interval : str, optional
            Interval of the figure, with its level.
        note : str
            One sentence of context.

        Raises
        ------
        UserError
            If the claim is unknown or of another chapter, or does not take that verdict, or another argument is no
            text.
        """
        if not isinstance(claim, str) or claim not in CLAIMS:
            raise UserError(f"unknown claim {checks.shown(claim)}; claims: {', '.join(CLAIMS)}")
        declared = CLAIMS[claim]
        if declared.chapter != self.chapter:
            raise UserError(f"claim {claim} is recorded by chapter {declared.chapter}, not by {self.chapter}")
        if verdict not in declared.verdicts:
            found = str(verdict) if isinstance(verdict, str) else verdict
            raise UserError(
                f"claim {claim} ({declared.kind}) does not take the verdict {checks.shown(found)}; it takes: "
                f"{', '.join(declared.verdicts)}"
            )
        checks.word("ours", ours)
        if interval is not None:
            checks.word("interval", interval)
        if not isinstance(note, str):
            raise UserError(f"note is {checks.shown(note)}; give one sentence, or nothing")
        shared = self.parameters.model_dump(include={"model", "revision", "dtype", "profile", "seed"})
        shared["profile"] += f" ({', '.join(changed)} changed)" if (changed := self._changed()) else ""
        finding = {
            "claim": claim,
            "ours": ours,
            "interval": interval,
            "verdict": str(verdict),
            "note": note,
            "rule": declared.rule,
        }
        write_json(
            _path(self.results, claim), {**finding, **shared, "chapter": self.chapter, "engine": __version__}
        )

    def _changed(self) -> list[str]:
        """Parameters that differ from the cpu profile, whose values are the defaults, in a run that goes by its name."""
        if self.parameters.profile != "cpu":
            return []
        fields = type(self.parameters).model_fields
        return [
            name
            for name, field in fields.items()
            if name not in ("model", "profile", "output") and getattr(self.parameters, name) != field.default
        ]

    def clear(self) -> None:
        """Forget what an earlier run of this chapter recorded here, so that nothing stale is shown as new."""
        for claim in CLAIMS.values():
            if claim.chapter == self.chapter:
                path = _path(self.results, claim.id)
                with writing(path):
                    path.unlink(missing_ok=True)

    def frame(self) -> pd.DataFrame:
        """All claims of the run so far; see `read_ledger`."""
        return read_ledger(self.results)


def read_ledger(results: Path) -> pd.DataFrame:
    """Read the ledger of a run.

    Parameters
    ----------
    results : Path
        Results folder of the run (the one that holds `ledger`).

    Returns
    -------
    DataFrame
        One row a declared claim, in the order of declaration, all strings; columns `COLUMNS`. What was not recorded is "".

    Raises
    ------
    UserError
        If a file of the ledger cannot be read or holds a verdict that its claim does not take.
    """
    folder = checks.path("results", results)
    return pd.DataFrame(
        [_row(claim, _path(folder, claim.id)) for claim in CLAIMS.values()],
        columns=list(COLUMNS),
        dtype=object,
    )


def _path(results: Path, claim: str) -> Path:
    return results / "ledger" / f"{claim}.json"


def _text(value: str | None) -> str:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{checks.shown(value)} is no text")
    return value or ""


def _row(claim: Claim, path: Path) -> dict[str, str]:
    row = {
        "claim": claim.id,
        "statement": claim.statement,
        "paper": claim.paper,
        "rule": claim.rule,
        "verdict": str(Verdict.NOT_RUN),
    }
    row |= {"ours": "", "interval": "", "note": "", "model": "", "profile": ""}
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            row |= {
                name: _text(found[name]) for name in ("ours", "interval", "note", "model", "profile", "rule")
            }
            row["verdict"] = str(Verdict(found["verdict"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{path} is not a record of claim {claim.id} ({type(error).__name__}: {error}); remove it and run "
                f"chapter {claim.chapter} again"
            ) from error
        if row["verdict"] not in claim.verdicts:
            verdict = row["verdict"]
            raise UserError(
                f"{path} holds the verdict {verdict!r}, which claim {claim.id} does not take; remove it and run chapter {claim.chapter} again"
            )
    return row

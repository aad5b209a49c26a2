"""The models that need no hub, as a table in plain text."""

from __future__ import annotations

from glauber_mlm.pretrained.registry import PRETRAINED, Pretrained
from glauber_mlm.pretrained.wheels import fault_of

HEADER = ("name", "kind", "parameters", "vocabulary", "licence", "installed", "how to get it")
EMBEDDED = (
    "embedded",
    "masked",
    "22,744,506",
    "30,522 word pieces",
    "Apache-2.0, MIT",
    "yes",
    "comes with glauber-mlm",
)


def listing() -> str:
    """A line a model under a line of titles, columns aligned."""
    lines = [HEADER, EMBEDDED, *(_line(entry) for entry in PRETRAINED)]
    widths = [max(len(cell) for cell in column) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def _line(entry: Pretrained) -> tuple[str, ...]:
    fault = fault_of(entry)
    return (
        entry.name,
        entry.kind,
        f"{entry.parameters:,}",
        entry.vocabulary,
        entry.licence,
        f"no: {fault}" if fault else "yes",
        entry.command,
    )

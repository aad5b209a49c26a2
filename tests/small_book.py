"""A repository of five stand-in chapters, and what stands in for papermill where no kernel is wanted."""

from __future__ import annotations

from pathlib import Path

import nbformat
import papermill

from glauber_mlm.chapters.base.parameters import CHAPTERS

HEADER = """\
# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

"""
CHAPTER = """\
# %% tags=["parameters"]
seed = 20260
profile = "cpu"
output = ""

# %%
import sys
from glauber_mlm.chapters.base.chapter import open_chapter
chapter = open_chapter("{name}", globals())

# %%
print(sys.executable)
chapter.headline("seed", chapter.parameters.seed)
chapter.finish()
"""


def write_book(root: Path) -> Path:
    """Five chapters, two profiles and what a site is made from."""
    (root / "book").mkdir(parents=True)
    for name in ("_toc.yml", "_config.yml", "book/references.bib"):
        (root / name).touch()
    for name, spec in CHAPTERS.items():
        (root / "book" / f"{spec.stem}.py").write_text(HEADER + CHAPTER.format(name=name))
        for profile in ("smoke", "cpu"):
            file = root / "book" / "profiles" / profile / f"{spec.stem}.yaml"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("seed: 5\n" if name == "rectangle_test" else "")
    return root


def succeed(source, output, **options):
    notebook = nbformat.read(source, as_version=4)
    notebook.cells[2].outputs = [nbformat.v4.new_output("stream", text=str(options["parameters"]["profile"]))]
    nbformat.write(notebook, output)


def fail(source, output, **options):
    raise papermill.PapermillExecutionError(
        1, 2, "x = 1", "ValueError", "bad luck\nand more", ["\x1b[31mValueError\x1b[0m: bad luck"]
    )

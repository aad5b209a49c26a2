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
# # Scoreboard
#
# What the paper claims, what this run found, and the verdict of a rule that was declared before the run and applied by code. The table is made from files that the chapters wrote; a claim whose chapter was not run says so.
# A theorem can be *violated* or show *no violation found*; it is never confirmed by a run. "Reproduced" would be a word for the paper's own models only, and is not used here.

# %% tags=["parameters"]
model = "embedded"
revision = None
dtype = "float32"
device = "cpu"
attention = "sdpa"
seed = 20260
profile = "cpu"
output = ""

# %% tags=["hide-input"]
from glauber_mlm.chapters.base.chapter import open_chapter

chapter = open_chapter("scoreboard", globals())

# %% tags=["hide-input"]

from glauber_mlm.chapters.base.ledger import read_ledger
from glauber_mlm.chapters.base.show import say
from glauber_mlm.chapters.scoreboard.words import ScoreboardTable

frame = read_ledger(chapter.output)
counts = frame["verdict"].value_counts()
say("Verdicts: " + ", ".join(f"**{count}** {verdict}" for verdict, count in counts.items()) + ".")
ScoreboardTable(frame)

# %% tags=["hide-input"]
for verdict, count in counts.items():
    chapter.headline(verdict, int(count))
chapter.finish()

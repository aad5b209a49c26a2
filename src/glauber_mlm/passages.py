"""The labelled passages that chains start from: short answers to questions, written for this project."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from glauber_mlm.checks import SEED, a_list, a_whole, checked, listed, word
from glauber_mlm.errors import UserError

_PICK = 0x70617373  # keeps these draws apart from every other use of the same seed


@dataclass(frozen=True)
class Passage:
    """One passage.

    Attributes
    ----------
    id : str
        Unique, ``<topic>-<number>``.
    topic : str
    question : str
        The question that `text` answers, lower case, as one types it into a search box.
    text : str
        40 to 80 words of ASCII English.
    """

    id: str
    topic: str
    question: str
    text: str


def load_passages(topics: Iterable[str] | None = None) -> list[Passage]:
    """The passages shipped with the package, in the order of the file.

    Parameters
    ----------
    topics : iterable of str, optional
        Keep these topics only. All by default.

    Raises
    ------
    UserError
        For a topic that no passage has.
    """
    lines = files("glauber_mlm").joinpath("data/passages.jsonl").read_text(encoding="utf-8").splitlines()
    passages = [Passage(**json.loads(line)) for line in lines]
    if topics is None:
        return passages
    wanted = (
        {topics}
        if isinstance(topics, str)
        else {word(f"topics[{place}]", topic) for place, topic in enumerate(listed("topics", topics))}
    )
    known = sorted({passage.topic for passage in passages})
    unknown = sorted(wanted - set(known))
    if unknown:
        raise UserError(f"no passage has the topic {unknown[0]!r}; the topics are {', '.join(known)}")
    return [passage for passage in passages if passage.topic in wanted]


@checked(passages=a_list(), count=a_whole(0), seed=SEED)
def pick(passages: Sequence[Passage], count: int, seed: int) -> list[Passage]:
    """Draw distinct passages, spread evenly over their topics.

    Topics take turns in a random order that is then fixed, and each gives its passages in a random order, so consecutive passages
    differ in topic as long as two topics have passages left, and the counts of two topics differ by at most one until one of them runs
    out. A longer draw with the same seed begins with the shorter one.

    Parameters
    ----------
    passages : sequence of Passage
        Not changed.
    count : int
        0 to ``len(passages)``.
    seed : int
        Not negative.

    Raises
    ------
    UserError
        When `count` is out of range.
    """
    if not 0 <= count <= len(passages):
        raise UserError(f"cannot pick {count} of {len(passages)} passages; ask for 0 to {len(passages)}")
    generator = np.random.Generator(np.random.Philox([seed, _PICK]))
    topics = sorted({passage.topic for passage in passages})
    queues = []
    for topic in topics:
        members = [passage for passage in passages if passage.topic == topic]
        queues.append([members[place] for place in generator.permutation(len(members))])
    order = generator.permutation(len(topics))
    turns = max((len(queue) for queue in queues), default=0)
    drawn = [queues[topic][turn] for turn in range(turns) for topic in order if turn < len(queues[topic])]
    return drawn[:count]

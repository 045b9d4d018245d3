"""Labels: what people say of documents and answers, held against what the judge or the grader said of the same."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

What = Literal["documents", "relevance", "answers"]
Value = int | str
MOST_TASKS = 1000
"""Of a set: a day's work of one person."""
LONGEST_NOTE = 2000
"""Characters."""
FEWEST = 10
"""Labelled tasks from which on there are figures."""


class Kind(NamedTuple):
    """One kind of label."""

    scale: tuple[Value, ...]
    """From worst to best; distances between neighbours count alike."""
    instructions: str
    """For the labeller, in the words that the judge is given."""
    rubrics: tuple[str, ...] = ()
    """Templates whose ratings are held against it."""
    by_question: bool = False
    """The judge was shown the question: one document has a rating for each."""
    judged_by: Literal["judge", "grader"] = "judge"


KINDS: Mapping[What, Kind] = {
    "documents": Kind(
        scale=(1, 2, 3, 4, 5),
        instructions="Rate the reasoning of the document from 1 (an answer without reasoning) to 5 (complete and"
        " correct steps).",
        rubrics=("reasoning-quality",),
    ),
    "relevance": Kind(
        scale=(1, 2, 3, 4, 5),
        instructions="Rate how much the document helps to answer the question, from 1 (not at all) to 5 (it answers"
        " it).",
        rubrics=("relevance", "relevance-zh"),
        by_question=True,
    ),
    "answers": Kind(
        scale=("wrong", "tie", "right"),
        instructions="Say whether the answer is right. It is a tie where as much speaks for it as against it.",
        judged_by="grader",
    ),
}


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is labelled, and what a labeller is shown of it; never what the system said."""

    question: str = ""
    """Empty for a document of the gate's calibration, which is rated without one."""
    document: str = ""
    """Hash of the document; empty for an answer."""
    problem: str = ""
    """The document's."""
    text: str = ""
    """The document's."""
    golds: tuple[str, ...] = ()
    """Right answers."""
    choices: tuple[str, ...] = ()
    """Of a multiple-choice question."""
    answer: str = ""


def parsed(what: What, text: str) -> Value:
    """The value on the scale of `what` that is stored, or was typed, as `text`.

    Raises:
        ValueError: the scale has no such value; the message has those that it has.
    """
    scale = KINDS[what].scale
    for value in scale:
        if str(value) == text:
            return value
    raise ValueError(f"{text[:40]!r} is not on the scale: {', '.join(map(str, scale))}")


def place(what: What, value: Value) -> int:
    """Where `value` stands on its scale, from 0."""
    return KINDS[what].scale.index(value)

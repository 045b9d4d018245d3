"""Labels: people's ratings of documents and answers, compared with those of the judge or the grader."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

What = Literal["documents", "relevance", "answers"]
Value = int | str
MOST_TASKS = 1000
"""Maximum number of tasks of a set: a day's work of one person."""
LONGEST_NOTE = 2000
"""Maximum length of a note, in characters."""
FEWEST = 10
"""Minimum number of labelled tasks for which figures are computed."""


class LabelKind(NamedTuple):
    """One kind of label."""

    scale: tuple[Value, ...]
    """Values from worst to best; neighbours are equally far apart."""
    instructions: str
    """Instructions to the labeller, in the same words as for the judge."""
    rubrics: tuple[str, ...] = ()
    """Templates whose ratings are compared with the labels."""
    by_question: bool = False
    """Whether the judge sees the question, so that one document has a rating for each question."""
    judged_by: Literal["judge", "grader"] = "judge"


KINDS: Mapping[What, LabelKind] = {
    "documents": LabelKind(
        scale=(1, 2, 3, 4, 5),
        instructions="Rate the reasoning of the document from 1 (an answer without reasoning) to 5 (complete and"
        " correct steps).",
        rubrics=("reasoning-quality",),
    ),
    "relevance": LabelKind(
        scale=(1, 2, 3, 4, 5),
        instructions="Rate how much the document helps to answer the question, from 1 (not at all) to 5 (it answers"
        " it).",
        rubrics=("relevance", "relevance-zh"),
        by_question=True,
    ),
    "answers": LabelKind(
        scale=("wrong", "tie", "right"),
        instructions="Say whether the answer is right. It is a tie where as much speaks for it as against it.",
        judged_by="grader",
    ),
}


class Content(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The content of a task as the labeller sees it; it never has the system's own verdict."""

    question: str = ""
    """Question; empty for a document of the gate's calibration, which is rated without one."""
    document: str = ""
    """Hash of the document; empty for an answer."""
    problem: str = ""
    """Problem of the document."""
    text: str = ""
    """Text of the document."""
    golds: tuple[str, ...] = ()
    """Gold answers."""
    choices: tuple[str, ...] = ()
    """Choices of a multiple-choice question."""
    answer: str = ""


def parse_label(what: What, text: str) -> Value:
    """Parse `text`, as stored or typed, into a value on the scale of `what`.

    Raises:
        ValueError: the scale has no such value; the message lists its values.
    """
    scale = KINDS[what].scale
    for value in scale:
        if str(value) == text:
            return value
    raise ValueError(f"{text[:40]!r} is not on the scale: {', '.join(map(str, scale))}")


def find_position(what: What, value: Value) -> int:
    """Return the position of `value` on its scale, from 0."""
    return KINDS[what].scale.index(value)

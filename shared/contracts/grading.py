"""What an answer is graded against: the gold answers of an item, and the job's rules of grading."""

from typing import Annotated

import msgspec

GraderName = Annotated[str, msgspec.Meta(pattern="^([a-z][a-z0-9-]{0,40})?$")]
"""Name of a grader (`shared/rag/graders.py`), including plug-ins; "": the dataset's grader, or `math` if it declares
none."""

MATHEMATICAL = ("math", "math-dataset", "last-number")
"""Graders that compare answers as mathematics, and give the strict verdict beside their own."""


class Expected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an item says about right answers in addition to its gold answer."""

    golds: tuple[str, ...] = ()
    """Other gold answers: an answer that matches any of them is right."""
    choices: tuple[str, ...] = ()
    """Texts of the choices A, B, C ... of a multiple-choice question."""
    rubric: str = ""
    """What a right answer of this item needs, as an instruction to the judge model."""


class Rules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The rules by which one answer is graded; part of a grade call's request unless they are those of `MATH`."""

    grader: str = "math"
    golds: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    threshold: float | None = None
    """Token F1 from which an answer is right; for `f1` only."""
    separators: str = ""
    """Characters, each of which separates the members of a set; for `set` only."""


MATH = Rules()
"""The rules of a single gold answer that is graded as mathematics."""

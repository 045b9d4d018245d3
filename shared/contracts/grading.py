"""What an answer is held against: the gold answers of an item, and the rules that a job grades by."""

from typing import Literal

import msgspec

Grading = Literal["math", "exact", "text", "contains", "f1", "regex", "choice", "set", "rubric"]
"""How answers are graded, by name (`shared/rag/graders.py`)."""
GraderName = Literal["", Grading]
"""The same; "": the dataset's grader, or `math` where it declares none."""


class Expected(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an item says about right answers beside its gold answer."""

    golds: tuple[str, ...] = ()
    """Further gold answers: an answer that matches any of them is right."""
    choices: tuple[str, ...] = ()
    """The texts of the choices A, B, C ... of a multiple-choice question."""
    rubric: str = ""
    """What a right answer of this item needs, for the judge model."""


class Rules(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one answer is graded: the part of a grade call's request that `math` with one gold answer does without."""

    grader: str = "math"
    golds: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    threshold: float | None = None
    """The token F1 from which an answer is right, of `f1` alone."""
    separators: str = ""
    """Each of these characters separates the members of a set, of `set` alone."""


MATH = Rules()
"""One gold answer, graded as mathematics."""

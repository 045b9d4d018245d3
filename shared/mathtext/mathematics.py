"""Grading mathematics: whether the answer is right, beside the strict rules of the MATH dataset.

SymPy knows no limit of time: call it where it can be killed.
"""

from importlib import resources

from shared import canonical
from shared.mathtext.equivalence import compare
from shared.mathtext.grading import equal_strict
from shared.replies import Graded

SOURCES = (
    "answer_reading",
    "answer_shape",
    "answer_text",
    "approximation",
    "counting_words",
    "equal_values",
    "equivalence",
    "exact",
    "expressions",
    "factors",
    "families",
    "grading",
    "mathematics",
    "notation",
    "number_sets",
    "numerals",
    "program_notation",
    "reading",
    "symbolic",
    "units",
    "written_numbers",
)
"""Modules of this package that a verdict depends on."""


def grade(answer: str, gold: str) -> Graded:
    """Both verdicts on one answer, the strict one first; what cannot be computed has no verdict (None)."""
    strict = equal_strict(answer, gold)
    return Graded(math_verify=compare(answer, gold), strict=strict)


def digest() -> str:
    """SHA-256 in hex over the sources that decide a verdict: what another version says is another reply."""
    package = resources.files(__package__)
    return canonical.digest([(package / f"{name}.py").read_text("utf-8") for name in SOURCES]).hex()

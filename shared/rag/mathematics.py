r"""Grading mathematics: Math-Verify's verdict beside the strict rules of the MATH dataset.

Math-Verify's own time limits are off: they need the main thread, and some expressions (its issue #65) outlast them all
the same. Call it where it can be killed.
"""

from typing import Any

from shared.contracts.calls import Graded
from shared.rag.grading import equal_strict

_NO_LIMIT: dict[str, Any] = {"parsing_timeout": None}
"""None is what the library documents for "no limit", though its annotation says int."""


def grade(answer: str, gold: str) -> Graded:
    """Both graders' verdicts on one answer."""
    return Graded(math_verify=verdict(answer, gold), strict=equal_strict(answer, gold))


def verdict(answer: str, gold: str) -> bool | None:
    """Math-Verify's verdict: whether `answer` equals `gold`; None if it cannot read the gold answer or fails."""
    from math_verify import parse, verify  # a second to import, which only the grading process spends

    try:
        expected, given = (parse(rf"\boxed{{{text}}}", **_NO_LIMIT) for text in (gold, answer))
        # Not symmetric: the gold answer comes first.
        return bool(verify(expected, given, timeout_seconds=None)) if expected else None
    except Exception:  # noqa: BLE001  # whatever a parser of arbitrary text raises, it is no verdict
        return None

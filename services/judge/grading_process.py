"""The process that grades answers one at a time; `GradingPool` starts it, and kills it when it takes too long.

{"answer", "gold"} in, {"math_verify", "strict"} out. Math-Verify's own time limits are off: they need the main thread,
and some expressions (its issue #65) outlast them all the same. Only a kill is a limit.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

from services.judge.child_process import serve

_NO_LIMIT: dict[str, Any] = {"parsing_timeout": None}
"""None is what the library documents for "no limit", though its annotation says int."""


def load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The function that grades, with its libraries."""
    import math_verify  # noqa: F401

    logging.disable()
    return lambda request: grade(request["answer"], request["gold"])


def grade(answer: str, gold: str) -> dict[str, bool | None]:
    """Both graders' verdicts on one answer."""
    from shared.rag.grading import equal_strict

    return {"math_verify": verdict(answer, gold), "strict": equal_strict(answer, gold)}


def verdict(answer: str, gold: str) -> bool | None:
    """Math-Verify's verdict: whether `answer` equals `gold`; None if it cannot read the gold answer or fails."""
    from math_verify import parse, verify

    try:
        expected, given = (parse(rf"\boxed{{{text}}}", **_NO_LIMIT) for text in (gold, answer))
        # Not symmetric: the gold answer comes first.
        return bool(verify(expected, given, timeout_seconds=None)) if expected else None
    except Exception:  # noqa: BLE001  # whatever a parser of arbitrary text raises, it is no verdict
        return None


if __name__ == "__main__":
    serve(int(sys.argv[1]), load)

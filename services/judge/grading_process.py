r"""The process that grades answers one at a time; `GradingPool` starts it, and kills it when it takes too long.

It speaks JSON lines: {"answer", "gold"} in, {"math_verify", "strict"} out, and one {"ready": true} when the
libraries are loaded. Math-Verify's own time limits are off: they need the main thread, and some expressions (its
issue #65) outlast them all the same. Only a kill is a limit.
"""

import json
import logging
import os
import resource
import sys
from typing import Any, TextIO

from shared.orphans import die_with

MEMORY_BYTES = 2 << 30
"""Address space; sympy needs about 70 MB, a tower of powers would take all there is before the deadline."""
_NO_LIMIT: dict[str, Any] = {"parsing_timeout": None}
"""None is what the library documents for "no limit", though its annotation says int."""


def main(parent: int) -> None:
    """Grade what comes on stdin until it ends; `parent` is the process id without which there is no point in living."""
    die_with(parent)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    replies = claim_stdout()
    import math_verify  # noqa: F401  # loaded before `ready`, so that the first item's clock does not pay for it

    logging.disable()
    _say(replies, {"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        _say(replies, grade(request["answer"], request["gold"]))


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


def claim_stdout() -> TextIO:
    """Keep stdout for replies: whatever else prints, in Python or in C, goes to stderr from here on."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    return replies


def _say(replies: TextIO, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]))

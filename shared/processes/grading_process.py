"""The process that grades answers one at a time; `GradingPool` starts it, and kills it when it takes too long.

{"answer", "gold", "rules"} in, {"verdict"} or {"invalid": why the gold answer cannot be used} out. Only a kill is a
limit: neither mathematics nor a regular expression keeps to one of its own.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from shared.contracts.grading import Rules
from shared.processes.child_process import serve


def load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The function that grades, with its libraries."""
    import math_verify  # noqa: F401  # takes a second

    logging.disable()
    return grade


def grade(request: dict[str, Any]) -> dict[str, Any]:
    """The verdict on one answer."""
    from shared.rag.graders import InvalidGold, mark

    try:
        verdict = mark(request["answer"], request["gold"], msgspec.convert(request["rules"], Rules))
    except InvalidGold as error:
        return {"invalid": str(error)}
    return {"verdict": msgspec.to_builtins(verdict)}


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]), load)

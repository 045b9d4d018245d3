"""The child process of `GradingPool`, which grades answers one at a time and is killed when it takes too long.

It reads {"answer", "gold", "rules"} and answers {"verdict"} or {"invalid": why the gold answer cannot be used}. It is
killed from outside because neither sympy nor a regular expression can be limited in time from within.
"""

import logging
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from shared.calls import Rules
from shared.processes.children import serve


def load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Import the libraries and return the function that grades."""
    import math_verify  # noqa: F401  # takes a second

    logging.disable()
    return grade


def grade(request: dict[str, Any]) -> dict[str, Any]:
    from shared.rag.grading import InvalidGold, mark

    try:
        verdict = mark(request["answer"], request["gold"], msgspec.convert(request["rules"], Rules))
    except InvalidGold as error:
        return {"invalid": str(error)}
    return {"verdict": msgspec.to_builtins(verdict)}


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]), load)

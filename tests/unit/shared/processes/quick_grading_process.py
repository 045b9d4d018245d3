"""A child of the grading pool that starts at once: no answer is right, and some outlast every deadline."""

import sys
from collections.abc import Callable
from typing import Any

from shared.processes.children import serve

ENDLESS = "computes for ever"


def load() -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Nothing to import."""
    return grade


def grade(request: dict[str, Any]) -> dict[str, Any]:
    """A verdict, or nothing for ever."""
    while request["answer"] == ENDLESS:
        pass
    return {"verdict": {"type": "graded", "math_verify": False, "strict": False}}


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]), load)

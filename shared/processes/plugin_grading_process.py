"""The process that grades answers with the grader of a plug-in; `GradingPool` starts it, and kills it.

Messages are those of `grading_process`. It imports the plug-in only if its files are those that the worker knows.
"""

import logging
import math
import sys
from collections.abc import Callable
from importlib import metadata
from typing import Any

import msgspec

from shared.calls import Rules
from shared.plugins.catalogue import code_hash, read_texts
from shared.processes.children import serve
from shared.rag.grading import Grader, InvalidGold, choose_best_verdict
from shared.replies import Graded, Marked
from shared.shapes import Kind

LONGEST = 500


def load(value: str, distribution: str, expected: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Import the grader and return the function that grades a request.

    Raises:
        SystemExit: the plug-in's files have changed; the imported code must be the one in the keys of its calls.
    """
    found = code_hash(read_texts(metadata.distribution(distribution), value))
    if found != expected:
        raise SystemExit(f"{distribution} has changed since the worker started: restart the stack")
    logging.disable()
    grader: Grader = metadata.EntryPoint(name="", value=value, group=Kind.GRADER.group).load()
    return lambda request: grade(grader, request)


def grade(grader: Grader, request: dict[str, Any]) -> dict[str, Any]:
    """Grade one answer: return its `verdict`, or as `invalid` why it has none."""
    rules = msgspec.convert(request["rules"], Rules)
    try:
        verdicts = [_mark(grader, request["answer"], gold, rules) for gold in (request["gold"], *rules.golds)]
    except InvalidGold as error:
        return {"invalid": str(error)[:LONGEST]}
    except Exception as error:  # noqa: BLE001 - it is code of others, and this answer alone has no verdict
        return {"invalid": f"grader {grader.name!r} raised {type(error).__name__}: {error}"[:LONGEST]}
    return {"verdict": msgspec.to_builtins(choose_best_verdict(verdicts))}


def _mark(grader: Grader, answer: str, gold: str, rules: Rules) -> Graded | Marked:
    assert grader.mark is not None  # noqa: S101 - its trial has seen to it
    verdict: object = grader.mark(answer, gold, rules)
    if not isinstance(verdict, Graded | Marked):
        raise TypeError(f"it must return `Marked`, not {type(verdict).__name__}")
    score = verdict.score
    if score is not None and not (math.isfinite(score) and 0 <= score <= grader.most):
        raise ValueError(f"its score must be from 0 to {grader.most:g}, not {score}")
    return msgspec.convert(msgspec.to_builtins(verdict), Graded | Marked)


if __name__ == "__main__":
    serve(int(sys.argv[1]), float(sys.argv[2]), lambda: load(*sys.argv[3:6]))

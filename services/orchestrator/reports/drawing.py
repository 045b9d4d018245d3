"""Determines which calls each repeat of a job makes anew, and so what the spread over its repeats measures."""

from shared.errors import Unreadable
from shared.params import Params
from shared.pipelines.imported import IMPORTED
from shared.runtime.price import is_greedy, list_drawn_roles
from shared.statistics.intervals import CLUSTERED, explain_repeats


def find_drawn_roles(pipeline: str, params: Params | None, reuse: str) -> list[str] | None:
    """Return the roles whose calls every repeat makes anew, sorted; None if the pipeline or its parameters cannot be
    read.
    """
    if params is None:
        return None
    try:
        return sorted(list_drawn_roles(pipeline, params, reuse))
    except Unreadable:
        return None


def describe_spread(pipeline: str, params: Params, reuse: str) -> str:
    """Return what a reader must know about the spread over repeats."""
    if pipeline == IMPORTED:
        return CLUSTERED
    try:
        greedy = is_greedy(pipeline, params)
    except Unreadable:
        greedy = params.generate.temperature == 0
    judged = params.judge.per_repeat and bool(find_drawn_roles(pipeline, params, reuse))
    return explain_repeats(greedy=greedy, shared=reuse == "all", judged=judged)

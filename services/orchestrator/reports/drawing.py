"""What each repeat of a job draws anew, and so what the spread over its repeats is the spread of."""

from shared.contracts.params import Params
from shared.errors import Unreadable
from shared.pipelines.imported import IMPORTED
from shared.runtime.price import drawn_roles, is_greedy
from shared.statistics.repeats import CLUSTERED, repeated


def drawn(pipeline: str, params: Params | None, reuse: str) -> list[str] | None:
    """Roles whose calls every repeat makes anew, sorted; None where the pipeline or its parameters cannot be read."""
    if params is None:
        return None
    try:
        return sorted(drawn_roles(pipeline, params, reuse))
    except Unreadable:
        return None


def spread_note(pipeline: str, params: Params, reuse: str) -> str:
    """What a reader must know of the spread over repeats."""
    if pipeline == IMPORTED:
        return CLUSTERED
    try:
        greedy = is_greedy(pipeline, params)
    except Unreadable:
        greedy = params.generate.temperature == 0
    judged = params.judge.per_repeat and bool(drawn(pipeline, params, reuse))
    return repeated(greedy=greedy, shared=reuse == "all", judged=judged)

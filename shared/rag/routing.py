"""Route by difficulty: easy questions are scored by rules and need no judge (MathRAG-Gate paper, 7.2)."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from shared.calls import Estimate
from shared.params import RouteParams
from shared.replies import Estimated, Failure
from shared.samples import Decision, Strategy, Trace


class Route(NamedTuple):
    """Who scores the documents of one question, and why."""

    strategy: Strategy
    decisions: tuple[Decision, ...]


def make_estimates(question: str, strategy: Strategy, params: RouteParams) -> tuple[Estimate, ...]:
    """Make the calls that routing needs: none if it is off, or if rules score anyway."""
    return (Estimate(question=question),) if params.enabled and strategy is not Strategy.RULES else ()


def choose_route(replies: Sequence[Estimated | Failure], strategy: Strategy, params: RouteParams) -> Route:
    """Choose rules for a question that is hard with a probability below `params.threshold`, else `strategy`.

    A question that could not be estimated counts as hard, and the decision says why: `replies` are those to
    `estimates`.
    """
    if not replies:
        return Route(strategy, ())
    (reply,) = replies
    if isinstance(reply, Failure):
        return Route(strategy, (Decision(stage="route", action="hard", fallback=reply.kind.value),))
    easy = reply.probability < params.threshold
    detail: dict[str, str | float | bool | list[str] | None] = {
        "probability": reply.probability,
        "threshold": params.threshold,
    }
    decision = Decision(stage="route", action="easy" if easy else "hard", detail=detail)
    return Route(Strategy.RULES if easy else strategy, (decision,))


def add_route(trace: Trace, route: Route) -> Trace:
    """Add the route's decision to the trace, in front because it was taken before the scoring."""
    return msgspec.structs.replace(trace, decisions=route.decisions + trace.decisions)

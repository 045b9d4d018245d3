"""Grade calls, on a pool of processes that can be killed."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

import msgspec

from services.judge.tasks import as_completed
from shared.contracts.grading import MATH
from shared.contracts.requests import Request
from shared.processes.grading_pool import GradingPool
from shared.runtime.answers import Answered, Receipt
from shared.runtime.claims import Claimed

_REQUEST = msgspec.json.Decoder(Request)


class Grades:
    """The executor of grade calls."""

    def __init__(self, pool: GradingPool) -> None:
        self._pool = pool

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncGenerator[Answered, None]:  # noqa: ARG002 - no lease
        """Grades as they come; the pool decides how many run at once."""
        async with aclosing(as_completed([self._grade(call) for call in calls])) as answers:
            async for answer in answers:
                yield answer

    async def _grade(self, call: Claimed) -> Answered:
        request = _REQUEST.decode(call.request)
        answer, gold = _text(request.values["answer"]), _text(request.values["gold"]) or ""
        started = datetime.now(UTC)
        reply = await self._pool.grade(answer, gold, request.rules or MATH)
        return Answered(call_id=call.id, reply=reply, receipt=Receipt(started_at=started, ended_at=datetime.now(UTC)))


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None

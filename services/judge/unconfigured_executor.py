"""Fail calls of a role that is not configured at once, so that the pipeline goes on without their replies."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from shared.replies import Failure, FailureKind
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt


class UnconfiguredExecutor:
    """The executor of a role that is not configured."""

    def __init__(self, detail: str) -> None:
        self._reply = Failure(kind=FailureKind.NOT_CONFIGURED, detail=detail)

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall]:  # noqa: ARG002 - no lease
        """Yield the same failure for every call."""
        for call in calls:
            now = datetime.now(UTC)
            yield AnsweredCall(call_id=call.id, reply=self._reply, receipt=Receipt(started_at=now, ended_at=now))

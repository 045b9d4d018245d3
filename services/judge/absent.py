"""Calls that nobody is set up to answer: they say so at once, and the pipeline goes on without."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

from shared.contracts.replies import Failure, FailureKind
from shared.runtime.answers import Answered, Receipt
from shared.runtime.claims import Claimed


class Absent:
    """The executor of a role that this installation has nothing for."""

    def __init__(self, detail: str) -> None:
        self._reply = Failure(kind=FailureKind.NOT_CONFIGURED, detail=detail)

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Answered]:  # noqa: ARG002 - no lease
        """The same failure for every call."""
        for call in calls:
            now = datetime.now(UTC)
            yield Answered(call_id=call.id, reply=self._reply, receipt=Receipt(started_at=now, ended_at=now))

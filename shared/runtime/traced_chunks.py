"""Chunks as spans: each has a trace of its own, linked to the samples that wait for its calls.

One chunk serves samples of many jobs, so it can be no sample's child; and no trace grows with the length of a job.
"""

import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence

from msgspec.structs import replace

from shared.contracts.replies import Failure, Retrieved
from shared.runtime.answers import Answered, outcome_of
from shared.runtime.claims import Claimed
from shared.runtime.execution import Ended, Executor
from shared.storage.database import Database
from shared.storage.sql import sql
from shared.telemetry import conventions as names
from shared.telemetry import references, traces
from shared.telemetry.references import SpanRef

LINKS = 128
"""Most samples that a chunk's span is linked to; what the SDK keeps by default."""
WAITERS = sql("""
    SELECT DISTINCT s.id, j.public_id FROM steps t
    JOIN samples s ON s.id = t.sample_id AND s.state = {WAITING} JOIN jobs j ON j.id = s.job_id
    WHERE t.call_id = ANY(:calls) ORDER BY s.id LIMIT :links""")

_log = logging.getLogger(__name__)


def traced(executors: Mapping[str, Executor], database: Database) -> Mapping[str, Executor]:
    """The same executors, inside spans where anything is traced."""
    if not traces.on():
        return executors
    return {role: TracedExecutor(role, executor, database) for role, executor in executors.items()}


class TracedExecutor:
    """Another executor, with a span around each chunk and one for each call that no guard traces."""

    def __init__(self, role: str, executor: Executor, database: Database) -> None:
        self._role = role
        self._executor = executor
        self._database = database

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Ended]:
        """The replies; their receipts name the chunk's trace."""
        links = [traces.current(), *await self._waiters(calls)]
        with traces.span(f"chunk {self._role}", self._attributes(calls, epoch), links=links, root=True) as span:
            _log.debug("chunk of %d %s calls", len(calls), self._role)
            by_id = {call.id: call for call in calls}
            async for ended in self._executor.run(calls, epoch):
                if isinstance(ended, Answered):
                    self._note(by_id[ended.call_id], ended)
                    yield replace(
                        ended, receipt=replace(ended.receipt, trace_id=f"{span.get_span_context().trace_id:032x}")
                    )
                else:
                    yield ended

    async def _waiters(self, calls: Sequence[Claimed]) -> list[SpanRef]:
        async with self._database.transaction() as connection:
            values = {"calls": [call.id for call in calls], "links": LINKS}
            rows = (await connection.execute(WAITERS, values)).all()
        return [references.sample(uuid.UUID(str(row.public_id)), row.id) for row in rows]

    def _attributes(self, calls: Sequence[Claimed], epoch: int | None) -> traces.Attributes:
        return {
            names.SPAN_KIND: names.CHAIN,
            "mathrag.role": self._role,
            "mathrag.calls": len(calls),
            "mathrag.model_id": calls[0].model_id,
            "mathrag.epoch": epoch,
        }

    def _note(self, call: Claimed, ended: Answered) -> None:
        """A search or a grade; the guard has made the spans of model calls."""
        kind = names.KINDS_OF_ROLE.get(self._role)
        if kind is not None:
            failure = outcome_of(ended.reply) if isinstance(ended.reply, Failure) else None
            attributes = {names.SPAN_KIND: kind, "mathrag.call.id": call.id, **_found(ended)}
            if traces.content():
                attributes[names.INPUT] = call.request.decode()
            receipt = ended.receipt
            traces.past(self._role, receipt.started_at, receipt.ended_at, attributes, failure=failure)


def _found(ended: Answered) -> dict[str, str | float]:
    """Ids and scores of retrieved documents: hashes, so no content."""
    hits = ended.reply.hits if isinstance(ended.reply, Retrieved) else ()
    found: dict[str, str | float] = {}
    for rank, hit in enumerate(hits):
        found[names.document(rank, "id")] = hit.document
        found[names.document(rank, "score")] = hit.score
    return found

"""Trace chunks: each chunk has its own trace, linked to the samples that wait for its calls.

A chunk serves samples of many jobs, so its span cannot be a child of one sample, and no trace grows with a job's size.
"""

import logging
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence

from msgspec.structs import replace

from shared.contracts.replies import Failure, Retrieved
from shared.runtime.answers import AnsweredCall, outcome_name
from shared.runtime.claims import ClaimedCall
from shared.runtime.execution import CallEnd, Executor
from shared.storage.database import Database
from shared.storage.sql import sql
from shared.telemetry import conventions as names
from shared.telemetry import references, traces
from shared.telemetry.references import SpanRef

LINKS = 128
"""Upper bound of links per span, the SDK's default."""
WAITERS = sql("""
    SELECT DISTINCT s.id, j.public_id FROM steps t
    JOIN samples s ON s.id = t.sample_id AND s.state = {WAITING} JOIN jobs j ON j.id = s.job_id
    WHERE t.call_id = ANY(:calls) ORDER BY s.id LIMIT :links""")

_log = logging.getLogger(__name__)


def trace_executors(executors: Mapping[str, Executor], database: Database) -> Mapping[str, Executor]:
    """Wrap the executors in spans if tracing is on."""
    if not traces.is_on():
        return executors
    return {role: TracedExecutor(role, executor, database) for role, executor in executors.items()}


class TracedExecutor:
    """An executor with a span around each chunk and around each call that no guard traces."""

    def __init__(self, role: str, executor: Executor, database: Database) -> None:
        self._role = role
        self._executor = executor
        self._database = database

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:
        """Yield the executor's results; receipts name the chunk's trace."""
        links = [traces.find_current(), *await self._waiters(calls)]
        with traces.span(f"chunk {self._role}", self._attributes(calls, epoch), links=links, root=True) as span:
            _log.debug("chunk of %d %s calls", len(calls), self._role)
            by_id = {call.id: call for call in calls}
            async for ended in self._executor.run(calls, epoch):
                if isinstance(ended, AnsweredCall):
                    self._note(by_id[ended.call_id], ended)
                    yield replace(
                        ended, receipt=replace(ended.receipt, trace_id=f"{span.get_span_context().trace_id:032x}")
                    )
                else:
                    yield ended

    async def _waiters(self, calls: Sequence[ClaimedCall]) -> list[SpanRef]:
        async with self._database.transaction() as connection:
            values = {"calls": [call.id for call in calls], "links": LINKS}
            rows = (await connection.execute(WAITERS, values)).all()
        return [references.make_sample_ref(uuid.UUID(str(row.public_id)), row.id) for row in rows]

    def _attributes(self, calls: Sequence[ClaimedCall], epoch: int | None) -> traces.Attributes:
        return {
            names.SPAN_KIND: names.CHAIN,
            "mathrag.role": self._role,
            "mathrag.calls": len(calls),
            "mathrag.model_id": calls[0].model_id,
            "mathrag.epoch": epoch,
        }

    def _note(self, call: ClaimedCall, ended: AnsweredCall) -> None:
        """Record the span of a search or a grade; the guard records those of model calls."""
        kind = names.KINDS_OF_ROLE.get(self._role)
        if kind is not None:
            failure = outcome_name(ended.reply) if isinstance(ended.reply, Failure) else None
            attributes = {names.SPAN_KIND: kind, "mathrag.call.id": call.id, **_hit_attributes(ended)}
            if traces.keeps_content():
                attributes[names.INPUT] = call.request.decode()
            receipt = ended.receipt
            traces.add_past_span(self._role, receipt.started_at, receipt.ended_at, attributes, failure=failure)


def _hit_attributes(ended: AnsweredCall) -> dict[str, str | float]:
    """Return ids and scores of retrieved documents; ids are hashes, so this reveals no content."""
    hits = ended.reply.hits if isinstance(ended.reply, Retrieved) else ()
    found: dict[str, str | float] = {}
    for rank, hit in enumerate(hits):
        found[names.document_attribute(rank, "id")] = hit.document
        found[names.document_attribute(rank, "score")] = hit.score
    return found

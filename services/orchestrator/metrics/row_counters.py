"""Counts rows that were added since the last read; the database aggregates them."""

from collections.abc import Mapping

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.metrics import decisions
from services.orchestrator.metrics.metric_values import BOUNDS, MetricValues
from services.orchestrator.metrics.window import Window, horizon
from shared.storage.database import SampleState

ATTEMPTS, SAMPLES, JOBS = 10_000, 1_000, 1_000
"""Most rows per read, about 10 ms of the database's time; the next reads count the rest."""
UNSCORED = b'"unscored":true'
"""Bytes to find in an outcome. It is canonical JSON, in which text cannot look like a field, because its quotes are
escaped.
"""

# Use the planner settings of the hot path: with old statistics a hash join would read every call ever made. Starting
# parallel workers takes longer than the rest of the statement.
PLANS = text("""
    SELECT set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
           set_config('enable_mergejoin', 'off', true), set_config('max_parallel_workers_per_gather', '0', true)""")


def _read(statement: str, window: Window) -> TextClause:
    return text(statement.replace("$window", window.condition))


class RowCounters:
    """Counts rows from the first update in this process on; older rows are never counted."""

    def __init__(self, values: MetricValues) -> None:
        self._values = values
        self._attempts = Window("attempts a", "a.created_at", most=ATTEMPTS)
        self._samples = Window("samples s", "s.ended_at", most=SAMPLES)
        self._jobs = Window("jobs j", "j.ended_at", most=JOBS)

    async def update(self, connection: AsyncConnection) -> None:
        """Count the rows that were added since the last call."""
        await connection.execute(PLANS)
        until = await horizon(connection)
        if window := await self._attempts.advance(connection, until):
            await self._count_attempts(connection, window)
        if window := await self._samples.advance(connection, until):
            await self._count_samples(connection, window)
            await decisions.count(connection, self._values, self._samples.condition, window)
            await self._count_steps(connection, window)
            await self._count_gates(connection, window)
        if window := await self._jobs.advance(connection, until):
            for row in await connection.execute(_read(JOBS_ENDED, self._jobs), window):
                self._values.count("mathrag_jobs_ended_total", [row.state], row.n)

    async def _count_attempts(self, connection: AsyncConnection, window: Mapping[str, object]) -> None:
        rows = await connection.execute(_read(ATTEMPTED, self._attempts), {**window, "bounds": list(BOUNDS)})
        for row in rows:
            self._values.count("mathrag_attempts_total", [row.lane, row.role, row.outcome], row.n)
            if row.bucket is not None:
                labels = [row.lane, row.role]
                self._values.observe("mathrag_call_duration_seconds", labels, row.bucket, row.n, float(row.seconds))
            if row.read or row.written:
                self._values.count("mathrag_tokens_total", [row.role, "read"], row.read)
                self._values.count("mathrag_tokens_total", [row.role, "written"], row.written)

    async def _count_samples(self, connection: AsyncConnection, window: Mapping[str, object]) -> None:
        for row in await connection.execute(_read(ENDED, self._samples), {**window, "unscored": UNSCORED}):
            self._values.count("mathrag_samples_ended_total", [SampleState(row.state).word, row.failure or ""], row.n)
            if row.extraction:
                self._values.count("mathrag_extractions_total", [row.extraction], row.n)
            if row.unscored:
                self._values.count("mathrag_fallbacks_total", ["quality", "unscored"], row.n)

    async def _count_steps(self, connection: AsyncConnection, window: Mapping[str, object]) -> None:
        for row in await connection.execute(_read(STEPS, self._samples), window):
            self._values.count("mathrag_steps_total", ["computed" if row.created else "reused"], row.n)

    async def _count_gates(self, connection: AsyncConnection, window: Mapping[str, object]) -> None:
        for row in await connection.execute(_read(GATES, self._samples), window):
            self._values.count("mathrag_gate_decisions_total", [row.strategy], row.n)
            if row.unusable:
                self._values.count("mathrag_fallbacks_total", ["gate", "judge_unusable"], row.n)


ATTEMPTED = """
    SELECT c.lane, c.role, a.outcome, count(*) AS n,
           CASE WHEN a.accepted THEN width_bucket(d.seconds, CAST(:bounds AS double precision[])) END AS bucket,
           sum(d.seconds) AS seconds, COALESCE(sum(a.prompt_tokens), 0) AS read,
           COALESCE(sum(a.completion_tokens), 0) AS written
    FROM attempts a JOIN calls c ON c.id = a.call_id
    CROSS JOIN LATERAL (SELECT CAST(extract(epoch FROM a.ended_at - a.started_at) AS double precision) AS seconds) d
    WHERE $window GROUP BY c.lane, c.role, a.outcome, bucket"""
ENDED = """
    SELECT s.state, s.failure, o.extraction, position(CAST(:unscored AS bytea) IN o.outcome) > 0 AS unscored,
           count(*) AS n
    FROM samples s LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.kind = 'item' AND $window GROUP BY 1, 2, 3, 4"""
STEPS = """
    SELECT t.created, count(*) AS n FROM samples s JOIN steps t ON t.sample_id = s.id
    WHERE $window GROUP BY t.created"""
GATES = """
    SELECT g.decision ->> 'strategy' AS strategy, count(*) AS n,
           CAST(g.decision ->> 'asked' AS integer) < 2 * CAST(g.decision ->> 'unparsed' AS integer) AS unusable
    FROM samples s JOIN outcomes o ON o.sample_id = s.id
    CROSS JOIN LATERAL (SELECT CAST(convert_from(o.outcome, 'UTF8') AS jsonb) AS decision) g
    WHERE s.kind = 'prepare' AND $window GROUP BY strategy, unusable"""
JOBS_ENDED = "SELECT j.state, count(*) AS n FROM jobs j WHERE $window GROUP BY j.state"

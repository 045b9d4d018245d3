"""Counts the work behind a job's answers: distinct calls made and reused, model loads, and time by stage."""

from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import TextClause
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.calls import CALL_KINDS
from shared.records import Residency
from shared.storage.database import sql
from shared.storage.provenance import load_residencies

# A job's distinct calls; `made` means that one of the job's own steps put the call into the queue.
MINE = """
    WITH mine AS (
        SELECT t.call_id, bool_or(t.created) AS made FROM samples s JOIN steps t ON t.sample_id = s.id
        WHERE s.job_id = :job GROUP BY t.call_id)"""


def select_over_calls(select: str) -> TextClause:
    """Prefix `select` with the CTE `mine` and fill in the shared names."""
    return sql(f"{MINE} {select}")


STAGES = select_over_calls("""
    SELECT c.role, count(*) FILTER (WHERE mine.made) AS made, count(*) FILTER (WHERE NOT mine.made) AS reused,
        count(a.id) FILTER (WHERE mine.made) AS executed,
        count(*) FILTER (WHERE a.outcome IN ('unparsed', 'truncated')) AS unparsed,
        count(*) FILTER (WHERE mine.made AND EXISTS (
            SELECT 1 FROM attempts l WHERE l.call_id = c.id AND NOT l.accepted AND l.outcome = 'lapsed')) AS lapsed,
        min(a.started_at) FILTER (WHERE mine.made) AS first, max(a.ended_at) FILTER (WHERE mine.made) AS last,
        sum(a.prompt_tokens) FILTER (WHERE mine.made) AS prompt_tokens,
        sum(a.completion_tokens) FILTER (WHERE mine.made) AS completion_tokens,
        sum(extract(epoch FROM a.ended_at - a.started_at) / GREATEST(a.concurrency, 1)) AS device_s
    FROM mine JOIN calls c ON c.id = mine.call_id LEFT JOIN attempts a ON {ACCEPTED_FOR} c.id
    GROUP BY c.role""")
LOADS = select_over_calls("""
    SELECT DISTINCT r.epoch, c.model_id, loading.n FROM mine JOIN calls c ON c.id = mine.call_id
    JOIN attempts a ON {ACCEPTED_FOR} c.id JOIN residencies r ON r.epoch = a.epoch
    CROSS JOIN {LOADS_OF_MODEL} WHERE mine.made ORDER BY 1, 2, 3""")
MODEL_ROLES = ("judge", "rerank", "write", "generate")


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Calls of one role."""

    made: int
    """Calls that this job put into the queue."""
    reused: int
    """Calls that another job had made before."""
    executed: int
    """Calls among those made that have a reply."""
    seconds: float | None
    """Seconds from the first start to the last end of the calls made; null if none was executed."""
    device_s: float | None
    """Seconds of the device for all calls, made and reused: the duration of each call divided by the number of calls
    that ran beside it. It is the stage's cost if nothing had been reused; null if no call has its times.
    """
    started_at: datetime | None
    ended_at: datetime | None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    """Tokens of the calls made, as the model server counts them; null if no model was called or it counts none."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the job's calls."""

    model_loads: int
    """Loads of the models that answered calls made by this job: one for each epoch, and those in which a server that
    others share loaded a model again.
    """
    model_calls: int
    """Executed judge, rerank and generate calls made by this job."""
    calls_made: dict[str, int]
    calls_reused: dict[str, int]
    calls_lapsed: int
    """Calls made by this job whose worker, guard or model server was lost at least once. They may have run twice,
    and a lapsed call runs again alone (docs/how-to/operations.md, "The same answer").
    """
    parse_failures: int
    """Judge replies without a rating, among all calls of the job."""
    stages: dict[str, Stage]
    residencies: tuple[Residency, ...]


async def count_work(connection: AsyncConnection, job: int) -> Work:
    """Count the calls of the job with this row id."""
    rows = {row.role: row for row in await connection.execute(STAGES, {"job": job})}
    stages = {role: _make_stage(rows[role]) for role in CALL_KINDS if role in rows}
    loads = (await connection.execute(LOADS, {"job": job})).all()
    return Work(
        model_loads=len(loads),
        model_calls=sum(stages[role].executed for role in MODEL_ROLES if role in stages),
        calls_made={role: stage.made for role, stage in stages.items()},
        calls_reused={role: stage.reused for role, stage in stages.items()},
        calls_lapsed=sum(row.lapsed for row in rows.values()),
        parse_failures=rows["judge"].unparsed if "judge" in rows else 0,
        stages=stages,
        residencies=await load_residencies(connection, sorted({row.epoch for row in loads})),
    )


def _make_stage(row: Any) -> Stage:
    seconds = (row.last - row.first).total_seconds() if row.first and row.last else None
    return Stage(
        made=row.made,
        reused=row.reused,
        executed=row.executed,
        seconds=seconds,
        device_s=None if row.device_s is None else float(row.device_s),
        started_at=row.first,
        ended_at=row.last,
        prompt_tokens=row.prompt_tokens,
        completion_tokens=row.completion_tokens,
    )

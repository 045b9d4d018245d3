"""Models that nobody serves any more although samples wait for their calls."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, TextClause
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Lane
from shared.storage.sql import sql

# These models are few, so that the samples which wait for them are looked for only where there are any.
LOST = """
    WITH lost AS MATERIALIZED (
        SELECT m.id, m.name, m.digest, m.device FROM models m
        WHERE NOT m.served AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = ANY(:lanes) AND q.model_id = m.id))"""


def from_lost(select: str) -> TextClause:
    """`select` with `lost` and the shared names filled in."""
    return sql(f"{LOST} {select}")


OF_JOB = from_lost("""
    SELECT DISTINCT l.name FROM lost l JOIN queue q ON q.lane = ANY(:lanes) AND q.model_id = l.id
    JOIN steps t ON t.call_id = q.call_id JOIN samples s ON {WAITS_FOR_STEP} WHERE s.job_id = :job ORDER BY l.name""")
ALL = from_lost("""
    SELECT l.name, l.digest, waiting.jobs,
        (SELECT digest FROM models n WHERE n.name = l.name AND n.served ORDER BY n.registered_at DESC LIMIT 1) AS now
    FROM lost l CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT j.name ORDER BY j.name) AS jobs FROM (
            SELECT call_id FROM queue WHERE lane = ANY(:lanes) AND model_id = l.id LIMIT :most) q
        JOIN steps t ON t.call_id = q.call_id JOIN samples s ON {WAITS_FOR_STEP} JOIN jobs j ON j.id = s.job_id) waiting
    WHERE l.device IS NOT NULL AND waiting.jobs IS NOT NULL ORDER BY l.name""")
LANES = list(Lane)
MOST = 1000
"""Waiting calls of a model whose jobs are looked up."""


async def of_job(connection: AsyncConnection, job: int) -> tuple[str, ...]:
    """Names of the models that the job with this row id waits for in vain."""
    return tuple((await connection.execute(OF_JOB, {"job": job, "lanes": LANES})).scalars())


async def of_all(connection: AsyncConnection) -> Sequence[Row[Any]]:
    """Models of devices: name, digest, digest of the one that is served under that name `now`, names of the `jobs`."""
    return (await connection.execute(ALL, {"lanes": LANES, "most": MOST})).all()

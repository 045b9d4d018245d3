"""Find models that no guard serves although samples wait for their calls."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, TextClause
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Lane
from shared.storage.sql import sql

# Such models are rare, so waiting samples are searched only if there are any.
LOST = """
    WITH lost AS MATERIALIZED (
        SELECT m.id, m.name, m.digest, m.device FROM models m
        WHERE NOT m.served AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = ANY(:lanes) AND q.model_id = m.id))"""


def make_lost_statement(select: str) -> TextClause:
    """Prepend the common table expression `lost` to `select` and fill in the shared names."""
    return sql(f"{LOST} {select}")


OF_JOB = make_lost_statement("""
    SELECT DISTINCT l.name FROM lost l JOIN queue q ON q.lane = ANY(:lanes) AND q.model_id = l.id
    JOIN steps t ON t.call_id = q.call_id JOIN samples s ON {WAITS_FOR_STEP} WHERE s.job_id = :job ORDER BY l.name""")
ALL = make_lost_statement("""
    SELECT l.name, l.digest, waiting.jobs,
        (SELECT digest FROM models n WHERE n.name = l.name AND n.served ORDER BY n.registered_at DESC LIMIT 1) AS now
    FROM lost l CROSS JOIN LATERAL (
        SELECT array_agg(DISTINCT j.name ORDER BY j.name) AS jobs FROM (
            SELECT call_id FROM queue WHERE lane = ANY(:lanes) AND model_id = l.id LIMIT :most) q
        JOIN steps t ON t.call_id = q.call_id JOIN samples s ON {WAITS_FOR_STEP} JOIN jobs j ON j.id = s.job_id) waiting
    WHERE l.device IS NOT NULL AND waiting.jobs IS NOT NULL ORDER BY l.name""")
LANES = list(Lane)
MOST = 1000
"""Largest number of waiting calls per model whose jobs are looked up."""


async def list_unserved_of_job(connection: AsyncConnection, job: int) -> tuple[str, ...]:
    """List the names of unserved models that the job with this row id waits for."""
    return tuple((await connection.execute(OF_JOB, {"job": job, "lanes": LANES})).scalars())


async def list_unserved(connection: AsyncConnection) -> Sequence[Row[Any]]:
    """List all unserved models with name, digest, digest of the version served `now`, and names of waiting `jobs`."""
    return (await connection.execute(ALL, {"lanes": LANES, "most": MOST})).all()

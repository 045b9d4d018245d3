"""Warnings about what a job or an experiment uses: flawed versions of model servers, relations without rules, datasets
without expected answers."""

import uuid

from sqlalchemy import text

from shared.models import commands
from shared.storage.database import Database

USED = text("""
    SELECT DISTINCT m.name, m.backend, m.version
    FROM jobs j, jsonb_each(j.pins) p JOIN models m ON m.id = CAST(p.value ->> 'model_id' AS integer)
    WHERE j.public_id = :job OR j.experiment_id = :experiment ORDER BY m.name""")

UNGRADED = text("""
    SELECT name, items FROM (
        SELECT DISTINCT d.id, d.name, LEAST(d.items, COALESCE(CAST(j.code ->> 'limit' AS integer), d.items)) AS items
        FROM jobs j JOIN datasets d ON d.id = j.dataset_id
        WHERE (j.public_id = :job OR j.experiment_id = :experiment)
            AND COALESCE(CAST(convert_from(j.params, 'UTF8') AS jsonb) #>> '{grading,grader}', '') <> 'rubric') asked
    WHERE NOT EXISTS (
        SELECT FROM items i WHERE i.dataset_id = asked.id AND i.ordinal < asked.items AND i.gold IS NOT NULL)
    ORDER BY name, items""")

UNRULED = text("""
    WITH asked AS (
        SELECT j.id, b.id AS bank, b.name, i.query ->> 'relation' AS relation, count(*) AS n
        FROM jobs j JOIN models m ON m.id = CAST(j.pins -> 'rules' ->> 'model_id' AS integer)
        JOIN LATERAL (SELECT r.id, r.name FROM rule_banks r WHERE encode(r.hash, 'hex') = m.digest
                      ORDER BY r.id LIMIT 1) b ON true
        JOIN items i ON i.dataset_id = j.dataset_id AND i.query IS NOT NULL
            AND i.ordinal < COALESCE(CAST(j.code ->> 'limit' AS integer), i.ordinal + 1)
        WHERE j.public_id = :job GROUP BY j.id, b.id, b.name, relation)
    SELECT name, sum(n) AS items, sum(n) FILTER (WHERE relation NOT IN (
        SELECT DISTINCT head FROM rules WHERE bank_id = a.bank)) AS unruled
    FROM asked a GROUP BY name""")


async def list_rule_warnings(database: Database, job: uuid.UUID) -> list[str]:
    """Warn if items ask for relations that no rule of the job's bank predicts."""
    async with database.transaction() as connection:
        rows = (await connection.execute(UNRULED, {"job": job})).all()
    return [
        f"{row.unruled} of {row.items} items ask for relations that no rule of bank {row.name!r} leads to:"
        " they are searched for plainly"
        for row in rows
        if row.unruled
    ]


async def list_ungraded_warnings(
    database: Database, *, job: uuid.UUID | None = None, experiment: int | None = None
) -> list[str]:
    """Return a warning for each dataset of the job or experiment of which no item has an expected answer."""
    async with database.transaction() as connection:
        rows = (await connection.execute(UNGRADED, {"job": job, "experiment": experiment})).all()
    return [
        f"none of the {row.items} items of dataset {row.name!r} has an expected answer: no answer can be graded"
        for row in rows
    ]


async def list_version_warnings(
    database: Database, *, job: uuid.UUID | None = None, experiment: int | None = None
) -> list[str]:
    """Return a warning for each model of the job or experiment whose server has a known flaw in its version."""
    async with database.transaction() as connection:
        rows = (await connection.execute(USED, {"job": job, "experiment": experiment})).all()
    found = ((row.name, commands.find_warning(row.backend, row.version)) for row in rows)
    return [f"model {name!r}: {warning}" for name, warning in found if warning]

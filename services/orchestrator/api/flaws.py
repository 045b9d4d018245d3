"""What is known against the versions of the model servers that a job or an experiment uses."""

import uuid

from sqlalchemy import text

from shared.models import known_versions
from shared.storage.database import Database

USED = text("""
    SELECT DISTINCT m.name, m.backend, m.version
    FROM jobs j, jsonb_each(j.pins) p JOIN models m ON m.id = CAST(p.value ->> 'model_id' AS integer)
    WHERE j.public_id = :job OR j.experiment_id = :experiment ORDER BY m.name""")


async def version_warnings(
    database: Database, *, job: uuid.UUID | None = None, experiment: int | None = None
) -> list[str]:
    """A warning for each such model."""
    async with database.transaction() as connection:
        rows = (await connection.execute(USED, {"job": job, "experiment": experiment})).all()
    found = ((row.name, known_versions.warning(row.backend, row.version)) for row in rows)
    return [f"model {name!r}: {warning}" for name, warning in found if warning]

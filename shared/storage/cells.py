"""Write experiments: insert one with its cells, and replace jobs of cells that did not end well."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.errors import Conflict
from shared.storage.sql import sql

INSERT = text("""
    INSERT INTO experiments (name, document) VALUES (:name, CAST(:document AS json))
    ON CONFLICT (name) DO NOTHING RETURNING id""")
INSERT_CELLS = text("""
    INSERT INTO experiment_cells (experiment_id, ordinal, dataset, corpus, variant, pipeline, point, seed, job_id,
                                  refused)
    SELECT :experiment, u.ordinal, u.dataset, u.corpus, u.variant, u.pipeline, CAST(u.point AS json), u.seed, j.id,
        u.refused
    FROM unnest(CAST(:index AS integer[]), CAST(:dataset AS text[]), CAST(:corpus AS text[]), CAST(:variant AS text[]),
        CAST(:pipeline AS text[]), CAST(:point AS text[]), CAST(:seed AS bigint[]), CAST(:job AS uuid[]),
        CAST(:refused AS text[])) u(ordinal, dataset, corpus, variant, pipeline, point, seed, job, refused)
    LEFT JOIN jobs j ON j.public_id = u.job""")
OF_JOB = text("SELECT experiment_id FROM jobs WHERE public_id = :job")
LOCK = text("""
    SELECT ordinal FROM experiment_cells WHERE experiment_id = :experiment ORDER BY ordinal FOR NO KEY UPDATE""")
# A passing failure left these unfinished: only what has no reply is computed again.
UNDONE = sql("""
    SELECT DISTINCT j.public_id FROM experiment_cells c JOIN jobs j ON j.id = c.job_id
    WHERE c.experiment_id = :experiment AND (j.state IN ('failed', 'cancelled') OR (j.state = 'completed' AND EXISTS (
        SELECT 1 FROM samples s WHERE s.job_id = j.id AND s.state = {FAILED} AND s.failure = ANY(:passing))))
    ORDER BY j.public_id""")
REPLACE = text("""
    UPDATE experiment_cells c SET job_id = n.id
    FROM unnest(CAST(:old AS uuid[]), CAST(:new AS uuid[])) u(old, new)
    JOIN jobs o ON o.public_id = u.old JOIN jobs n ON n.public_id = u.new
    WHERE c.experiment_id = :experiment AND c.job_id = o.id""")


async def insert_experiment(connection: AsyncConnection, name: str, document: Any) -> int:
    """Insert an experiment without cells and return its row id.

    Raises:
        Conflict: the name is taken.
    """
    values = {"name": name, "document": canonical.encode(document).decode()}
    made: int | None = (await connection.execute(INSERT, values)).scalar()
    if made is None:
        hint = "mathrag experiment resume goes on with it; another experiment needs another name"
        raise Conflict(f"`name`: there is an experiment {name!r} already", hint=hint)
    return made


async def insert_cells(connection: AsyncConnection, experiment: int, cells: Sequence[Mapping[str, Any]]) -> None:
    """Insert cells with index, dataset, corpus, variant, pipeline, point, seed, job (public id) and refused."""
    columns: dict[str, Any] = {name: [cell[name] for cell in cells] for name in cells[0]}
    columns["point"] = [canonical.encode(point).decode() for point in columns["point"]]
    await connection.execute(INSERT_CELLS, {"experiment": experiment, **columns})


async def find_experiment_of_job(connection: AsyncConnection, job: uuid.UUID) -> int:
    """Return the row id of the job's experiment."""
    return int((await connection.execute(OF_JOB, {"job": job})).scalar_one())


async def lock_cells(connection: AsyncConnection, experiment: int) -> None:
    """Lock the experiment's cells, so that no other transaction replaces its jobs."""
    await connection.execute(LOCK, {"experiment": experiment})


async def list_undone_jobs(connection: AsyncConnection, experiment: int, passing: Sequence[str]) -> list[uuid.UUID]:
    """List the experiment's jobs that failed, were cancelled, or have samples that failed for a reason in `passing`."""
    values = {"experiment": experiment, "passing": list(passing)}
    return [uuid.UUID(str(job)) for job in (await connection.execute(UNDONE, values)).scalars()]


async def replace_jobs(
    connection: AsyncConnection, experiment: int, old: Sequence[uuid.UUID | None], new: Sequence[uuid.UUID]
) -> None:
    """Assign the cells of each job in `old` to the job at the same place in `new`."""
    await connection.execute(REPLACE, {"experiment": experiment, "old": list(old), "new": list(new)})

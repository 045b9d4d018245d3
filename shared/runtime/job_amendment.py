"""Change the name, rank or metadata of an accepted job; nothing else of it may change."""

import uuid
from collections.abc import Collection, Mapping

import msgspec
from sqlalchemy import text

from shared.contracts import canonical
from shared.runtime.job_lock import lock_job
from shared.runtime.job_names import reserve
from shared.storage.database import Database
from shared.storage.sql import sql

AMEND = text("""
    UPDATE jobs SET name = COALESCE(:name, name), rank = COALESCE(:rank, rank),
        metadata = COALESCE(CAST(:metadata AS jsonb), metadata), version = version + 1 WHERE id = :job""")
# A call is as urgent as the most urgent sample that waits for it. Rows that are being claimed need no place any more.
UPDATE_PLACES = sql("""
    WITH pending AS MATERIALIZED (
        SELECT q.call_id FROM samples s JOIN steps t ON {AWAITED_BY_SAMPLE}
        JOIN queue q ON q.call_id = t.call_id AND q.token IS NULL
        WHERE s.job_id = :job AND s.state = {WAITING} ORDER BY q.call_id FOR UPDATE OF q SKIP LOCKED)
    UPDATE queue q SET place = w.place FROM (SELECT DISTINCT call_id FROM pending) p, LATERAL (
        SELECT min({PLACE}) AS place FROM steps t
        JOIN samples s ON {WAITS_FOR_STEP}
        JOIN jobs j ON j.id = s.job_id AND j.state IN {RUNNABLE} WHERE t.call_id = p.call_id) w
    WHERE q.call_id = p.call_id AND q.place <> w.place""")


class Amendment(msgspec.Struct, frozen=True, kw_only=True):
    """New values; None leaves a field unchanged."""

    name: str | None = None
    rank: int | None = None
    """Applies to calls in the queue, too."""
    metadata: Mapping[str, str] | None = None
    """Replaces all metadata."""


async def amend(
    database: Database, public_id: uuid.UUID, change: Amendment, versions: Collection[int] | None = None
) -> None:
    """Change the job, whatever its state.

    Raises:
        NotFound: no such job.
        PreconditionFailed: the job's version is not among `versions`.
        Conflict: another job has the name already.
        InProgress: another request is taking the name.
    """
    metadata = None if change.metadata is None else canonical.encode(change.metadata).decode()
    async with database.transaction() as connection:
        job = await lock_job(connection, public_id, versions)
        if change.name is not None:
            await reserve(connection, [change.name], public_id)
        values = {"job": job.id, "name": change.name, "rank": change.rank, "metadata": metadata}
        await connection.execute(AMEND, values)
        if change.rank is not None:
            await connection.execute(UPDATE_PLACES, {"job": job.id})

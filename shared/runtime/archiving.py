"""Archive ended jobs as the database's owner: Parquet in `archived_parts` replaces their steps, calls and attempts.

Each part is one transaction that writes the part, and deletes its steps. Repeating an archive that was killed
completes it. `remove_unused` deletes the calls and attempts afterwards, unless another job uses them.
"""

from collections.abc import Sequence

import msgspec
from anyio import to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.installation import find_missing_package
from shared.runtime.purge import JobContent, deletion_transaction
from shared.storage import database
from shared.storage.archive import FOREIGN_STEPS, TABLES, encode_rows, hash_part, list_columns
from shared.storage.database import Database, sql
from shared.storage.jobs import STAGES

FEWEST = 100
"""Samples of the smallest job that is archived. A smaller one would save little, because each part adds about 11 kB."""
ARCHIVED_AT_ONCE, MOST_BYTES = 1000, 32 * 1024 * 1024
"""Samples of a part, and about the bytes of their requests and replies. A reader of one sample decodes its part."""
# Writers that read the job hold a weaker lock until they end.
LOCK = text("SELECT id FROM jobs WHERE id = :job FOR UPDATE")
# A new version, because clients and caches keep an ended job by its version.
MARK = text("UPDATE jobs SET version = version + 1 WHERE id = :job")
NEXT_SAMPLES = sql("""
    SELECT id FROM (
        SELECT s.id, sum(n.bytes) OVER (ORDER BY s.id) - n.bytes AS before
        FROM (SELECT id FROM samples WHERE job_id = :job AND id > COALESCE(
                (SELECT max(last_sample) FROM archived_parts WHERE job_id = :job), 0) ORDER BY id LIMIT :n) s
            CROSS JOIN LATERAL (
                SELECT COALESCE(sum(octet_length(c.request) + COALESCE(octet_length(a.reply), 0)), 0) AS bytes
                FROM steps t JOIN calls c ON c.id = t.call_id LEFT JOIN attempts a ON {ACCEPTED_FOR} c.id
                WHERE t.sample_id = s.id) n) p
    WHERE before < :most ORDER BY id""")
SELECT_ROWS = {
    "steps": text(f"""
        SELECT * FROM steps WHERE sample_id = ANY(:samples)
        UNION {FOREIGN_STEPS} ORDER BY sample_id, position, slot"""),  # noqa: S608 - constants
    "calls": text("SELECT * FROM calls WHERE id = ANY(:calls) ORDER BY id"),
    "attempts": text("SELECT * FROM attempts WHERE call_id = ANY(:calls) ORDER BY id"),
}
CALLS = text("SELECT DISTINCT call_id FROM steps WHERE sample_id = ANY(:samples) ORDER BY call_id")
# The first part also has what a page of the job shows of its calls, so that it need not decode any part.
INSERT = text(f"""
    INSERT INTO archived_parts (job_id, first_sample, last_sample, steps, calls, attempts, sha256, stages)
    VALUES (:job, :first_sample, :last_sample, :steps, :calls, :attempts, :sha256,
        CASE WHEN NOT EXISTS (SELECT FROM archived_parts WHERE job_id = :job) THEN
            (SELECT COALESCE(jsonb_agg(n), '[]') FROM ({STAGES}) n) END)""")  # noqa: S608 - constants
# Later parts name the step that made a call, and the audit of a cancelled job the jobs that still wanted one.
DELETE_STEPS = sql("""
    WITH shared AS MATERIALIZED (
        SELECT t.call_id, bool_or(s.job_id = :job AND s.id > :last) AS later,
            bool_or(s.job_id <> :job AND s.state = {CANCELLED} AND t.position = s.position - 1) AS wanted
        FROM steps t JOIN samples s ON s.id = t.sample_id
        WHERE t.call_id IN (SELECT call_id FROM steps WHERE sample_id = ANY(:samples)) GROUP BY t.call_id)
    DELETE FROM steps t USING shared c
    WHERE t.sample_id = ANY(:samples) AND c.call_id = t.call_id AND NOT (c.wanted OR c.later AND t.created)""")
ALL_SAMPLES = text("SELECT id FROM samples WHERE job_id = :job ORDER BY id")


class ArchivedRows(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive run moved."""

    samples: int
    parts: int
    bytes: int
    """Size of the Parquet files."""


async def archive(owner: Database, job: JobContent, actor: str) -> ArchivedRows:
    """Archive the rows of an ended job that are not archived yet.

    Raises:
        NotInstalled: pyarrow is missing.
        Damaged: Parquet does not return what was written; the part stays in the tables.
    """
    if missing := find_missing_package("pyarrow", "mathrag-gate[parquet]"):
        raise missing
    samples, parts, size = 0, 0, 0
    while True:
        async with deletion_transaction(owner) as connection:
            if (await connection.execute(LOCK, {"job": job.id})).first() is None:
                break  # purged meanwhile
            limits = {"job": job.id, "n": ARCHIVED_AT_ONCE, "most": MOST_BYTES}
            found = list((await connection.execute(NEXT_SAMPLES, limits)).scalars())
            if not found:
                every = list((await connection.execute(ALL_SAMPLES, {"job": job.id})).scalars())
                await connection.execute(DELETE_STEPS, {"samples": every, "job": job.id, "last": max(every, default=0)})
                break
            if not parts:
                detail = {"name": job.name, "steps": job.steps}
                await database.record_operation(connection, actor, "archive", f"job {job.job}", **detail)
                await connection.execute(MARK, {"job": job.id})
            size += await _archive_part(connection, job.id, found)
        samples, parts = samples + len(found), parts + 1
    return ArchivedRows(samples=samples, parts=parts, bytes=size)


async def _archive_part(connection: AsyncConnection, job: int, samples: Sequence[int]) -> int:
    """Move the steps of these samples; return the size of the part in bytes."""
    calls = list((await connection.execute(CALLS, {"samples": samples})).scalars())
    values = {"job": job, "samples": samples, "calls": calls}
    columns = await list_columns(connection)
    files: dict[str, bytes] = {}
    for table in TABLES:
        rows = [tuple(row) for row in await connection.execute(SELECT_ROWS[table], values)]
        files[table] = await to_thread.run_sync(encode_rows, columns[table], rows)
    part = {"job_id": job, "first_sample": samples[0], "last_sample": samples[-1], **files}
    await connection.execute(INSERT, {**part, "job": job, "sha256": hash_part(part)})
    await connection.execute(DELETE_STEPS, {"job": job, "samples": samples, "last": samples[-1]})
    return sum(map(len, files.values()))

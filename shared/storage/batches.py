"""Batches: the requests of a client in one file, their progress, and the jobs that answer them.

A batch goes `validating → in_progress → finalizing → completed`; or to `failed`, `expired` or, by way of `cancelling`,
`cancelled`. Every statement is guarded by the state it leaves, so running it twice is harmless.
"""

import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid, NotFound
from shared.storage.database import Database, sql

WINDOW_S = 24 * 3600
"""Seconds after which unanswered requests are given up: OpenAI's only `completion_window`."""
LOCK_SEED = 7335
"""Apart from other advisory locks."""

INSERT = text("""
    INSERT INTO batches (public_id, input_file, endpoint, metadata, output_s, submitted_by, expires_at)
    VALUES (:batch, :input_file, :endpoint, CAST(:metadata AS jsonb), :output_s, :submitted_by,
        clock_timestamp() + make_interval(secs => :window_s))""")
ONE = text("SELECT * FROM batches WHERE public_id = :batch")
PLACE = text("SELECT id FROM batches WHERE public_id = :batch")
LIST = text("""
    SELECT * FROM batches WHERE CAST(:after AS bigint) IS NULL OR id < :after ORDER BY id DESC LIMIT :n""")
LIVE = text("""
    SELECT *, expires_at <= clock_timestamp() AS is_over FROM batches WHERE ended_at IS NULL ORDER BY id""")
COUNTS = sql("""
    SELECT b.batch_id, count(*) FILTER (WHERE s.state = {COMPLETED}) AS completed,
        count(*) FILTER (WHERE s.state = {FAILED}) AS failed
    FROM batch_jobs b JOIN jobs j ON j.public_id = b.job JOIN samples s ON s.job_id = j.id AND s.kind = 'item'
    WHERE b.batch_id = ANY(:batches) GROUP BY b.batch_id""")
LOCK = text("SELECT pg_try_advisory_xact_lock(hashint8extended(:batch, :seed))")
# Its own statement: its snapshot is younger than the lock.
IS_LIVE = text("SELECT ended_at IS NULL FROM batches WHERE id = :batch")
LIVE_JOBS = text("""
    SELECT j.public_id FROM batch_jobs b JOIN jobs j ON j.public_id = b.job
    WHERE b.batch_id = :batch AND j.ended_at IS NULL""")
CANCEL = text("""
    UPDATE batches SET state = 'cancelling', ends_as = 'cancelled', cancelling_at = clock_timestamp()
    WHERE public_id = :batch AND state IN ('validating', 'in_progress')""")
START = text("""
    UPDATE batches SET state = 'in_progress', in_progress_at = clock_timestamp(), total = :total, model = :model
    WHERE id = :batch AND state = 'validating'""")
FAIL = text("""
    UPDATE batches SET state = 'failed', errors = CAST(:errors AS jsonb), ended_at = clock_timestamp()
    WHERE id = :batch AND state = 'validating'""")
FINALIZE = text("""
    UPDATE batches SET state = 'finalizing', ends_as = :ends_as, finalizing_at = clock_timestamp()
    WHERE id = :batch AND state IN ('validating', 'in_progress')""")
END = text("""
    UPDATE batches SET state = :state, errors = CAST(:errors AS jsonb), completed = :completed, failed = :failed,
        prompt_tokens = :prompt_tokens, completion_tokens = :completion_tokens, output_file = :output_file,
        error_file = :error_file, finalizing_at = COALESCE(finalizing_at, clock_timestamp()),
        ended_at = clock_timestamp()
    WHERE id = :batch AND state IN ('finalizing', 'cancelling')""")


class StoredBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as its row has it."""

    id: int
    public_id: uuid.UUID
    input_file: uuid.UUID
    endpoint: str
    metadata: dict[str, str] | None
    output_s: int | None
    state: str
    ends_as: str
    model: str | None
    errors: list[dict[str, Any]] | None
    total: int
    completed: int
    failed: int
    """Lines that have no answer and, once the batch has ended, stand in the error file."""
    prompt_tokens: int | None
    completion_tokens: int | None
    output_file: uuid.UUID | None
    error_file: uuid.UUID | None
    created_at: datetime
    expires_at: datetime
    in_progress_at: datetime | None
    finalizing_at: datetime | None
    cancelling_at: datetime | None
    ended_at: datetime | None
    submitted_by: str | None
    """Name of the key that created it; None where no keys are asked for."""
    project: str | None
    """Project of this key, and of the batch's jobs and files; None: everybody sees them."""
    is_over: bool = False
    """Whether its window is over, by the database's clock; only of live batches."""


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The request for a batch."""

    input_file: uuid.UUID
    endpoint: str
    metadata: Mapping[str, str] | None
    output_s: int | None
    submitted_by: str | None


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a batch."""

    state: str
    completed: int
    failed: int
    prompt_tokens: int
    completion_tokens: int
    output_file: uuid.UUID | None
    error_file: uuid.UUID | None
    errors: Sequence[Mapping[str, Any]] | None = None


async def create(database: Database, asked: NewBatch) -> StoredBatch:
    """Insert a batch; its lines are validated later."""
    values = {**msgspec.structs.asdict(asked), "batch": uuid.uuid4(), "window_s": WINDOW_S}
    values["metadata"] = None if asked.metadata is None else msgspec.json.encode(asked.metadata).decode()
    async with database.transaction() as connection:
        await connection.execute(INSERT, values)
    return await get(database, values["batch"])


async def get(database: Database, batch: uuid.UUID) -> StoredBatch:
    """Return the batch with this id; while it runs, its counts are of the lines that have ended so far.

    Raises:
        NotFound: it does not exist.
    """
    async with database.snapshot() as connection:
        row = (await connection.execute(ONE, {"batch": batch})).mappings().first()
        if row is None:
            raise NotFound("this batch does not exist", hint="list the batches with GET /openai/v1/batches")
        return (await _count_lines(connection, [row]))[0]


async def list_batches(database: Database, limit: int, after: uuid.UUID | None) -> list[StoredBatch]:
    """Return at most `limit` batches, newest first, those before the batch `after`.

    Raises:
        Invalid: the batch `after` does not exist.
    """
    async with database.snapshot() as connection:
        place = None
        if after is not None and (place := (await connection.execute(PLACE, {"batch": after})).scalar()) is None:
            raise Invalid("`after`: unknown batch", hint="start again without it")
        rows = (await connection.execute(LIST, {"after": place, "n": limit})).mappings().all()
        return await _count_lines(connection, rows)


async def _count_lines(connection: AsyncConnection, rows: Sequence[RowMapping]) -> list[StoredBatch]:
    live = [row["id"] for row in rows if row["ended_at"] is None]
    counts = {row.batch_id: row for row in await connection.execute(COUNTS, {"batches": live})} if live else {}
    return [
        StoredBatch(**{**row, "completed": counts[row["id"]].completed, "failed": counts[row["id"]].failed})
        if row["id"] in counts
        else StoredBatch(**row)
        for row in rows
    ]


async def list_live(database: Database) -> list[StoredBatch]:
    """Return the batches that have not ended, oldest first."""
    async with database.statement() as connection:
        return [StoredBatch(**row) for row in (await connection.execute(LIVE)).mappings()]


async def list_live_jobs(database: Database, batch: int) -> list[uuid.UUID]:
    """Return the jobs of the batch that have not ended."""
    return await database.column(LIVE_JOBS, {"batch": batch})


async def lock(connection: AsyncConnection, batch: int) -> bool:
    """Keep other processes off the batch until the transaction ends; return False where one does, or it ended."""
    if not (await connection.execute(LOCK, {"batch": batch, "seed": LOCK_SEED})).scalar():
        return False
    return bool((await connection.execute(IS_LIVE, {"batch": batch})).scalar())


async def cancel(database: Database, batch: uuid.UUID) -> StoredBatch:
    """Begin to cancel the batch; doing it again is harmless.

    Raises:
        NotFound: it does not exist.
        Conflict: it has ended otherwise, or is about to.
    """
    async with database.transaction() as connection:
        await connection.execute(CANCEL, {"batch": batch})
    found = await get(database, batch)
    if found.ends_as != "cancelled":
        raise Conflict(f"the batch is {found.state} and cannot be cancelled any more")
    return found


async def start(connection: AsyncConnection, batch: int, total: int, model: str | None) -> bool:
    """Set the batch in progress; return False where it is no longer validating."""
    values = {"batch": batch, "total": total, "model": model}
    return bool((await connection.execute(START, values)).rowcount)


async def fail(database: Database, batch: int, errors: Sequence[Mapping[str, Any]]) -> None:
    """Fail a batch whose lines cannot be used."""
    async with database.transaction() as connection:
        await connection.execute(FAIL, {"batch": batch, "errors": msgspec.json.encode(errors).decode()})


async def finalize(database: Database, batch: int, ends_as: str) -> None:
    """Answer no further line; the files are written next."""
    async with database.transaction() as connection:
        await connection.execute(FINALIZE, {"batch": batch, "ends_as": ends_as})


async def end(connection: AsyncConnection, batch: int, ended: Ended) -> None:
    """End the batch; one that has ended is kept unchanged."""
    values = {**msgspec.structs.asdict(ended), "batch": batch}
    values["errors"] = None if ended.errors is None else msgspec.json.encode(ended.errors).decode()
    await connection.execute(END, values)

"""Delete old data: jobs with their calls and texts, expired chats, and unused sources."""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict
from shared.settings import load
from shared.storage import database, jobs
from shared.storage.database import TERMINAL, Database, make_not_found
from shared.telemetry import logs

# Delete what no job uses: calls without steps, and documents that neither a corpus nor a given answer has. Only the
# owner may delete.
#
# A batch that is attaching to such a call either wins or is repeated: each call is locked first and then checked for
# steps in a statement with a younger snapshot. A step that was inserted before the lock keeps its call, and a later one
# finds the call gone (`advance.CallVanished`).

DELETED_AT_ONCE = 2000
ALLOW = text("SET LOCAL mathrag.purge = 'on'")
# With `t.call_id > :after`, a merge join does not read all steps from the first one again in each batch.
LOCK_UNUSED = text("""
    SELECT c.id FROM calls c
    WHERE c.id > :after AND c.created_at < COALESCE(CAST(:before AS timestamptz), 'infinity')
        AND NOT EXISTS (SELECT 1 FROM steps t WHERE t.call_id = c.id AND t.call_id > :after)
        AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = c.id AND q.call_id > :after)
    ORDER BY c.id LIMIT :n FOR UPDATE OF c SKIP LOCKED""")
STILL_UNUSED = text("""
    SELECT u.id FROM unnest(CAST(:calls AS bigint[])) u(id)
    WHERE NOT EXISTS (SELECT 1 FROM steps t WHERE t.call_id = u.id)
        AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = u.id)""")
DELETE_ATTEMPTS = text("DELETE FROM attempts WHERE call_id = ANY(:calls)")
DELETE_CALLS = text("DELETE FROM calls WHERE id = ANY(:calls)")
# Deleting a call searches all attempts. The two indexes of the hot path are partial, and a permanent third one would
# slow down every reply, so this index exists only during a purge.
INDEX = text("CREATE INDEX CONCURRENTLY attempts_of_call ON attempts (call_id)")
DROP_INDEX = text("DROP INDEX CONCURRENTLY IF EXISTS attempts_of_call")
# An upload holds this lock until its corpus is stored.
LOCK_CORPORA = text("SELECT pg_advisory_xact_lock(hashtext('mathrag corpora'))")
# Given answers name documents that no corpus need have. `json` leaves their other texts as they are written: what a
# jsonb cannot hold may stand there.
DELETE_DOCUMENTS = text("""
    WITH given_to AS MATERIALIZED (
        SELECT DISTINCT decode(h.hash, 'hex') AS hash
        FROM jobs j JOIN given g ON g.job = j.public_id CROSS JOIN LATERAL json_array_elements_text(
            CAST(convert_from(g.content, 'UTF8') AS json) -> 'contexts') h(hash)
        WHERE j.pipeline IN ('imported', 'measured'))
    DELETE FROM documents d WHERE NOT EXISTS (SELECT 1 FROM corpus_documents m WHERE m.hash = d.hash)
        AND NOT EXISTS (SELECT 1 FROM given_to n WHERE n.hash = d.hash)""")


class RemovedRows(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of rows that a retention run deleted."""

    calls: int
    attempts: int
    documents: int


@asynccontextmanager
async def deletion_transaction(owner: Database) -> AsyncIterator[AsyncConnection]:
    """Open a transaction that may delete from the append-only tables."""
    async with owner.transaction() as connection:
        await connection.execute(ALLOW)
        yield connection


async def remove_unused(owner: Database, actor: str, before: datetime | None = None) -> RemovedRows:
    """Delete calls without steps, only those older than `before` if given, and documents that nothing has."""
    async with owner.statement() as connection:
        await connection.execute(DROP_INDEX)  # a killed purge may have left it
        await connection.execute(INDEX)
    try:
        calls, attempts = await remove_calls(owner, before)
    finally:
        async with owner.statement() as connection:
            await connection.execute(DROP_INDEX)
    async with deletion_transaction(owner) as connection:
        await connection.execute(LOCK_CORPORA)
        documents = (await connection.execute(DELETE_DOCUMENTS)).rowcount
        removed = RemovedRows(calls=calls, attempts=attempts, documents=documents)
        await database.record_operation(
            connection, actor, "purge", "calls", before=before, **msgspec.structs.asdict(removed)
        )
    return removed


async def remove_calls(owner: Database, before: datetime | None = None) -> tuple[int, int]:
    """Delete unused calls and their attempts, one batch per transaction; return the numbers of both."""
    after, calls, attempts = 0, 0, 0
    while True:
        async with deletion_transaction(owner) as connection:
            values = {"after": after, "before": before, "n": DELETED_AT_ONCE}
            locked = list((await connection.execute(LOCK_UNUSED, values)).scalars())
            unused = sorted((await connection.execute(STILL_UNUSED, {"calls": locked})).scalars())
            attempts += (await connection.execute(DELETE_ATTEMPTS, {"calls": unused})).rowcount
            calls += (await connection.execute(DELETE_CALLS, {"calls": unused})).rowcount
        if not locked:
            return calls, attempts
        after = locked[-1]


# Purge jobs as the database's owner: the application's role may not delete. Each transaction is short.
#
# A row in `operations` is committed before anything is deleted. Repeating a purge that was killed completes it.

PURGED_AT_ONCE = 1000
"""Samples per transaction."""
# The jobs of a batch stay until its files are written.
AWAITED = text("""
    SELECT j.name, j.public_id, b.state FROM jobs j JOIN batch_jobs k ON k.job = j.public_id
    JOIN batches b ON b.id = k.batch_id WHERE j.id = ANY(:jobs) AND b.ended_at IS NULL ORDER BY j.id""")
# Newest first, so that the first ones are kept. Online questions are kept as long as other jobs.
CHOOSE = text("""
    SELECT id FROM (SELECT j.id, j.public_id, j.ended_at, row_number() OVER (ORDER BY j.id DESC) AS newest
                    FROM jobs j WHERE j.ended_at IS NOT NULL AND (j.online OR NOT :online)) j
    WHERE j.newest > :keep AND j.ended_at < COALESCE(CAST(:before AS timestamptz), 'infinity') AND NOT EXISTS (
        SELECT FROM batch_jobs k JOIN batches b ON b.id = k.batch_id AND b.ended_at IS NULL WHERE k.job = j.public_id)
    ORDER BY id""")
CONTENT = text("""
    SELECT j.id, j.public_id::text AS job, j.name, j.state, encode(j.chain, 'hex') AS chain, j.ended_at,
        (SELECT count(*) FROM samples s WHERE s.job_id = j.id) AS samples,
        (SELECT count(*) FROM samples s JOIN steps t ON t.sample_id = s.id WHERE s.job_id = j.id) AS steps,
        (SELECT count(*) FROM samples s JOIN outcomes o ON o.sample_id = s.id WHERE s.job_id = j.id) AS outcomes,
        (SELECT count(*) FROM records r WHERE r.job_id = j.id) AS records,
        (SELECT count(*) FROM job_events e WHERE e.job_id = j.id) AS events,
        (SELECT count(*) FROM idempotency k WHERE k.job_id = j.id) AS idempotency_keys,
        (SELECT count(*) FROM archived_parts p WHERE p.job_id = j.id) AS archived_parts
    FROM jobs j WHERE j.id = ANY(:jobs) ORDER BY j.id""")
SAMPLES = text("SELECT id FROM samples WHERE job_id = :job ORDER BY id LIMIT :n")
OF_SAMPLES = (
    text("DELETE FROM records WHERE sample_id = ANY(:samples)"),
    text("DELETE FROM outcomes WHERE sample_id = ANY(:samples)"),
    text("DELETE FROM steps WHERE sample_id = ANY(:samples)"),
    text("DELETE FROM samples WHERE id = ANY(:samples)"),
)
DELETE_GIVEN = text("DELETE FROM given WHERE job = (SELECT public_id FROM jobs WHERE id = :job)")
# Deleting the job also deletes its events, its archived parts and idempotency keys.
DELETE_JOB = text("DELETE FROM jobs WHERE id = :job")
# A question that is about to be submitted has no job yet, hence the hour.
DELETE_QUESTIONS = text("""
    DELETE FROM datasets d WHERE d.online AND d.created_at < now() - interval '1 hour'
        AND NOT EXISTS (SELECT 1 FROM jobs j WHERE j.dataset_id = d.id)""")
# As long as its files are kept, a client may ask for it.
DELETE_BATCHES = text("""
    DELETE FROM batches b WHERE b.ended_at < now() - interval '30 days' AND NOT EXISTS (
        SELECT FROM batch_jobs k JOIN jobs j ON j.public_id = k.job WHERE k.batch_id = b.id)""")
DELETE_EXPERIMENTS = text("""
    DELETE FROM experiments e WHERE NOT EXISTS (
        SELECT 1 FROM experiment_cells c WHERE c.experiment_id = e.id AND c.job_id IS NOT NULL) RETURNING e.name""")
DELETE_DATASETS = text("""
    DELETE FROM datasets d WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.dataset_id = d.id) RETURNING d.name""")
DELETE_CORPORA = text("""
    DELETE FROM corpora c WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.corpus_id = c.id)
        AND NOT EXISTS (SELECT 1 FROM graphs g WHERE g.corpus_id = c.id)
        AND NOT EXISTS (
            SELECT 1 FROM jobs j JOIN indexes i ON i.model_id = CAST(j.pins -> 'fallback' ->> 'model_id' AS integer)
            WHERE j.ended_at IS NULL AND i.id = c.sparse_index) RETURNING c.name""")


class JobContent(msgspec.Struct, frozen=True, kw_only=True):
    """An ended job and the numbers of rows that are purged with it."""

    id: int
    job: str
    name: str
    state: str
    chain: str | None
    ended_at: datetime
    samples: int
    steps: int
    outcomes: int
    records: int
    events: int
    idempotency_keys: int
    archived_parts: int


async def find_jobs(owner: Database, references: Sequence[str]) -> list[JobContent]:
    """Find the jobs with these ids or names.

    Raises:
        NotFound: the job does not exist.
        Conflict: a reference matches several jobs, or some jobs or their batches are live; the message names them.
    """
    async with owner.snapshot() as connection:
        ids = [await jobs.resolve(connection, reference) for reference in references]
        rows = (await connection.execute(CONTENT, {"jobs": ids})).mappings().all()
        awaited = (await connection.execute(AWAITED, {"jobs": ids})).all()
    live = [f"{row['name']} ({row['job']}) is {row['state']}" for row in rows if row["state"] not in TERMINAL]
    if live:
        raise Conflict(
            f"only an ended job can be purged or archived: {'; '.join(live)}", hint="mathrag job cancel JOB, or wait"
        )
    if awaited:
        names = "; ".join(f"{row.name} ({row.public_id}), batch {row.state}" for row in awaited)
        raise Conflict(
            f"a batch that has not ended needs these jobs: {names}", hint="wait until the batch's files are written"
        )
    return [JobContent(**row) for row in rows]


async def find_outdated(
    owner: Database, before: datetime | None, keep: int, *, online: bool = False
) -> list[JobContent]:
    """Find ended jobs except the newest `keep`; `before` limits them to earlier ends, `online` to chats."""
    async with owner.snapshot() as connection:
        values = {"before": before, "keep": keep, "online": online}
        ids = list((await connection.execute(CHOOSE, values)).scalars())
        return [JobContent(**row) for row in (await connection.execute(CONTENT, {"jobs": ids})).mappings()]


async def purge(owner: Database, job: JobContent, actor: str) -> None:
    """Delete the job and its rows; calls stay, because other jobs may share them."""
    async with owner.transaction() as connection:
        detail = {key: value for key, value in msgspec.to_builtins(job).items() if key not in ("id", "job")}
        await database.record_operation(connection, actor, "purge", f"job {job.job}", **detail)
    samples = None
    while samples != []:
        async with deletion_transaction(owner) as connection:
            samples = list((await connection.execute(SAMPLES, {"job": job.id, "n": PURGED_AT_ONCE})).scalars())
            for statement in OF_SAMPLES:
                await connection.execute(statement, {"samples": samples})
    async with deletion_transaction(owner) as connection:
        await connection.execute(DELETE_GIVEN, {"job": job.id})
        await connection.execute(DELETE_JOB, {"job": job.id})


async def forget_questions(owner: Database) -> int:
    """Delete the datasets of deleted online jobs and batches; return how many.

    Batches of such jobs are deleted as well, thirty days after their end.
    """
    async with owner.transaction() as connection:
        await connection.execute(DELETE_BATCHES)
        return (await connection.execute(DELETE_QUESTIONS)).rowcount


async def delete_unused(owner: Database, actor: str) -> dict[str, list[str]]:
    """Delete experiments without jobs, and datasets and corpora that no job uses; return their names by kind."""
    async with owner.transaction() as connection:
        deleted = {
            what: sorted((await connection.execute(statement)).scalars())
            for what, statement in (
                ("experiments", DELETE_EXPERIMENTS), ("datasets", DELETE_DATASETS), ("corpora", DELETE_CORPORA),
            )
        }  # fmt: skip
        if any(deleted.values()):
            await database.record_operation(connection, actor, "purge", "unused", **deleted)
    return deleted


# Delete one dataset or one corpus by name, as the database's owner. Data of existing jobs is not deleted.
#
# Reports and audits of an ended job read its items and its corpus, so an ended job keeps both until it is purged. A
# live job keeps the corpus that CRAG falls back to as well.

Kind = Literal["dataset", "corpus"]
NAMED = 5
"""Number of jobs that an error names."""
# FOR UPDATE: a job that is being submitted holds the row, and a later submission finds it gone.
ROW = {
    "dataset": text("SELECT id FROM datasets WHERE name = :name AND NOT online FOR UPDATE"),
    "corpus": text("SELECT id FROM corpora WHERE name = :name FOR UPDATE"),
}
USERS = {
    "dataset": text("SELECT name, state, ended_at FROM jobs WHERE dataset_id = :id ORDER BY ended_at DESC, id"),
    "corpus": text("""
        SELECT j.name, j.state, j.ended_at FROM jobs j WHERE j.corpus_id = :id OR (j.ended_at IS NULL AND EXISTS (
            SELECT FROM corpora c JOIN indexes i ON i.id = c.sparse_index
            WHERE c.id = :id AND i.model_id = CAST(j.pins -> 'fallback' ->> 'model_id' AS integer)))
        ORDER BY j.ended_at DESC, j.id"""),
}
GRAPH = text("SELECT name FROM graphs WHERE corpus_id = :id")
DELETE = {
    "dataset": text("DELETE FROM datasets WHERE id = :id"),
    "corpus": text("DELETE FROM corpora WHERE id = :id"),
}


async def delete(owner: Database, kind: Kind, name: str, actor: str) -> None:
    """Delete a dataset or corpus. `mathrag purge` deletes a corpus's documents once no other corpus holds them.

    Raises:
        NotFound: nothing has this name.
        Conflict: jobs use it (the message names the first five), or it belongs to a graph.
    """
    async with owner.transaction() as connection:
        number = (await connection.execute(ROW[kind], {"name": name})).scalar()
        if number is None:
            raise await make_not_found(connection, kind, name)
        users = (await connection.execute(USERS[kind], {"id": number})).all()
        if users:
            live = [user for user in users if user.ended_at is None]
            shown = live or users
            names = ", ".join(f"{user.name} ({user.state})" for user in shown[:NAMED])
            more = f" and {len(shown) - NAMED} more" if len(shown) > NAMED else ""
            if live:
                problem = f"{kind} {name!r} is used by live jobs: {names}{more}"
                raise Conflict(problem, hint="wait for them, or cancel them")
            problem = f"{kind} {name!r} is needed by the reports of ended jobs: {names}{more}"
            raise Conflict(problem, hint="purge these jobs first: mathrag purge JOB...")
        if kind == "corpus" and (graph := (await connection.execute(GRAPH, {"id": number})).scalar()):
            raise Conflict(f"corpus {name!r} belongs to graph {graph!r}", hint=f"mathrag graph delete {graph}")
        await database.record_operation(connection, actor, "delete", f"{kind} {name}")
        await connection.execute(DELETE[kind], {"id": number})


# Delete chats some hours after they ended. This needs the database's owner.
#
# `python -m shared.runtime.purge` does this periodically where no supervisor does, with MATHRAG_OWNER_URL.
# With `--once` it does so once, for the supervisor. With `--check` it only checks that this URL reaches the database,
# for a container's health check.

ACTOR = "retention"
_log = logging.getLogger(__name__)


async def purge_ended(owner_url: str, hours: float) -> None:
    """Delete the chats that ended more than `hours` ago, and the calls of that age that no job uses."""
    owner = Database(owner_url, pinned=False)
    before = datetime.now(UTC) - timedelta(hours=hours)
    try:
        ended = await find_outdated(owner, before, 0, online=True)
        for job in ended:
            await purge(owner, job, ACTOR)
        await forget_questions(owner)
        if ended:
            await remove_unused(owner, ACTOR, before)
    finally:
        await owner.close()
    if ended:
        _log.info("%d chats deleted that ended more than %g h ago", len(ended), hours)


async def purge_forever() -> None:
    """Purge periodically; a purge that fails because the database is away is repeated at the next turn."""
    settings = load()
    hours = settings.retention.chat_hours
    logs.configure(settings.telemetry, "retention")
    while True:
        try:
            if hours:
                await purge_ended(settings.owner_url, hours)
        except (OSError, SQLAlchemyError) as error:
            _log.warning("chats not deleted, trying again later: %r", error)
        await asyncio.sleep(settings.retention.pause_s)


async def purge_once() -> None:
    """Purge once, for the supervisor.

    Raises:
        SystemExit: the purge failed.
    """
    settings = load()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        await purge_ended(settings.owner_url, settings.retention.chat_hours)
    except (OSError, SQLAlchemyError) as error:
        sys.exit(repr(error))


async def check_owner_connection() -> None:
    """Raise OSError or SQLAlchemyError if the owner cannot reach the database."""
    owner = Database(load().owner_url, pinned=False)
    try:
        async with owner.transaction() as connection:
            await connection.execute(text("SELECT 1"))
    finally:
        await owner.close()


if __name__ == "__main__":
    commands = {"--check": check_owner_connection, "--once": purge_once}
    asyncio.run(commands.get("".join(sys.argv[1:]), purge_forever)())

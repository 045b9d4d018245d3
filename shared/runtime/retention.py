"""Delete what no job uses: calls without steps, and documents without a corpus. Only the owner may delete.

A batch that is attaching to such a call either wins or is repeated: each call is locked first and then checked for
steps in a statement with a younger snapshot. A step that was inserted before the lock keeps its call, and a later one
finds the call gone (`recording.CallVanished`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage import operations
from shared.storage.database import Database

BATCH = 2000

ALLOW = text("SET LOCAL mathrag.purge = 'on'")
LOCK_UNUSED = text("""
    SELECT c.id FROM calls c
    WHERE c.id > :after AND c.created_at < COALESCE(CAST(:before AS timestamptz), 'infinity')
        AND NOT EXISTS (SELECT 1 FROM steps t WHERE t.call_id = c.id)
        AND NOT EXISTS (SELECT 1 FROM queue q WHERE q.call_id = c.id)
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
DELETE_DOCUMENTS = text("""
    DELETE FROM documents d WHERE NOT EXISTS (SELECT 1 FROM corpus_documents m WHERE m.hash = d.hash)""")


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
    """Delete calls without steps, only those older than `before` if given, and documents without a corpus."""
    async with _index_for_deletions(owner):
        calls, attempts = await remove_calls(owner, before)
    async with deletion_transaction(owner) as connection:
        await connection.execute(LOCK_CORPORA)
        documents = (await connection.execute(DELETE_DOCUMENTS)).rowcount
        removed = RemovedRows(calls=calls, attempts=attempts, documents=documents)
        await operations.record_operation(
            connection, actor, "purge", "calls", before=before, **msgspec.structs.asdict(removed)
        )
    return removed


async def remove_calls(owner: Database, before: datetime | None = None) -> tuple[int, int]:
    """Delete unused calls and their attempts, one batch per transaction; return the numbers of both."""
    after, calls, attempts = 0, 0, 0
    while True:
        async with deletion_transaction(owner) as connection:
            values = {"after": after, "before": before, "n": BATCH}
            locked = list((await connection.execute(LOCK_UNUSED, values)).scalars())
            unused = sorted((await connection.execute(STILL_UNUSED, {"calls": locked})).scalars())
            attempts += (await connection.execute(DELETE_ATTEMPTS, {"calls": unused})).rowcount
            calls += (await connection.execute(DELETE_CALLS, {"calls": unused})).rowcount
        if not locked:
            return calls, attempts
        after = locked[-1]


@asynccontextmanager
async def _index_for_deletions(owner: Database) -> AsyncIterator[None]:
    async with owner.statement() as connection:
        await connection.execute(DROP_INDEX)  # a killed purge may have left it
        await connection.execute(INDEX)
    try:
        yield
    finally:
        async with owner.statement() as connection:
            await connection.execute(DROP_INDEX)

"""Idempotency keys: the same request again is the same job, even when both arrive at once.

A key lives and dies with its job's transaction. Of two first uses at the same time one holds the key's lock, and the
other one is told to come back: nobody waits with a connection in hand. The primary key stands behind the lock.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.errors import IdempotencyMismatch, InProgress

LOCK_SEED = 7333
"""Apart from other advisory locks."""
KEPT = "24 hours"
"""A key is remembered for so long at least."""
FORGOTTEN = 100
"""Old keys that a new one may remove: more than one, so that they cannot pile up."""

HOLD = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:operation || ' ' || :key, :seed))")
# A statement of its own: its snapshot is younger than the lock.
FOUND = text("""
    SELECT i.body_hash, j.public_id FROM idempotency i JOIN jobs j ON j.id = i.job_id
    WHERE i.operation = :operation AND i.key = :key""")
REMEMBER = text("""
    INSERT INTO idempotency (operation, key, body_hash, job_id)
    SELECT :operation, :key, :body_hash, id FROM jobs WHERE public_id = :job""")
FORGET = text(f"""
    DELETE FROM idempotency WHERE (operation, key) IN (
        SELECT operation, key FROM idempotency WHERE created_at < now() - interval '{KEPT}'
        ORDER BY created_at LIMIT {FORGOTTEN} FOR UPDATE SKIP LOCKED)""")  # noqa: S608 - constants


class Keyed(msgspec.Struct, frozen=True, kw_only=True):
    """A request that its sender may repeat."""

    operation: str
    """The same key may be used for another operation."""
    key: str
    body_hash: bytes
    """SHA-256 of the canonical request."""


class Accepted(NamedTuple):
    """What a request became."""

    job: uuid.UUID
    replayed: bool
    """The same request made this job before."""


async def once(connection: AsyncConnection, keyed: Keyed | None, make: Callable[[], Awaitable[uuid.UUID]]) -> Accepted:
    """The job that this request made before, else the one that `make` inserts now; without a key always that.

    Raises:
        IdempotencyMismatch: the key stands for another request.
        InProgress: the first request with this key has not been answered yet.
    """
    if keyed is None:
        return Accepted(await make(), replayed=False)
    names = {"operation": keyed.operation, "key": keyed.key}
    if not (await connection.execute(HOLD, {**names, "seed": LOCK_SEED})).scalar():
        raise InProgress(f"`Idempotency-Key`: {keyed.key!r} is being used right now", hint="send it again in a second")
    found = (await connection.execute(FOUND, names)).first()
    if found is None:
        return await _first(connection, keyed, await make())
    if found.body_hash != keyed.body_hash:
        raise IdempotencyMismatch(
            f"`Idempotency-Key`: {keyed.key!r} was sent with another request", hint="a new request needs a new key"
        )
    return Accepted(uuid.UUID(str(found.public_id)), replayed=True)


async def _first(connection: AsyncConnection, keyed: Keyed, job: uuid.UUID) -> Accepted:
    await connection.execute(REMEMBER, {**msgspec.structs.asdict(keyed), "job": job})
    await connection.execute(FORGET)
    return Accepted(job, replayed=False)

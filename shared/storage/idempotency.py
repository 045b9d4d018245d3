"""Idempotency keys: a repeated request gets the same job, even if both arrive at once.

A key is stored in its job's transaction. Of two concurrent first uses, one holds the key's lock and the other is asked
to repeat its request, so that none waits with an open connection. The primary key backs the lock up.
"""

import uuid
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.errors import IdempotencyMismatch, InProgress

LOCK_SEED = 7333
"""Distinguishes these advisory locks from others."""
KEPT = "24 hours"
"""Shortest time for which a key is remembered."""
FORGOTTEN = 100
"""Number of old keys that a new one removes; more than one, so that they do not accumulate."""

HOLD = text("SELECT pg_try_advisory_xact_lock(hashtextextended(:operation || ' ' || :key, :seed))")
# A separate statement, so that its snapshot is taken after the lock.
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


class KeyedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request with an idempotency key."""

    operation: str
    """Name of the operation; keys of different operations are independent."""
    key: str
    body_hash: bytes
    """SHA-256 of the canonical request."""


class Accepted(NamedTuple):
    """Result of a request."""

    job: uuid.UUID
    replayed: bool
    """Whether an earlier identical request created the job."""


async def run_once(
    connection: AsyncConnection, keyed: KeyedRequest | None, make: Callable[[], Awaitable[uuid.UUID]]
) -> Accepted:
    """Return the job of an earlier identical request, or call `make`; without a key, always call `make`.

    Raises:
        IdempotencyMismatch: the key was used for another request.
        InProgress: the first request with this key has not been answered yet.
    """
    if keyed is None:
        return Accepted(await make(), replayed=False)
    names = {"operation": keyed.operation, "key": keyed.key}
    if not (await connection.execute(HOLD, {**names, "seed": LOCK_SEED})).scalar():
        raise InProgress(f"`Idempotency-Key`: {keyed.key!r} is being used right now", hint="send it again in a second")
    found = (await connection.execute(FOUND, names)).first()
    if found is None:
        return await _remember(connection, keyed, await make())
    if found.body_hash != keyed.body_hash:
        raise IdempotencyMismatch(
            f"`Idempotency-Key`: {keyed.key!r} was sent with another request", hint="a new request needs a new key"
        )
    return Accepted(uuid.UUID(str(found.public_id)), replayed=True)


async def _remember(connection: AsyncConnection, keyed: KeyedRequest, job: uuid.UUID) -> Accepted:
    await connection.execute(REMEMBER, {**msgspec.structs.asdict(keyed), "job": job})
    await connection.execute(FORGET)
    return Accepted(job, replayed=False)

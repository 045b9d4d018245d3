"""Lock a job's row before changing the job, so that what was checked stays true until the commit."""

import uuid
from collections.abc import Collection
from typing import Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.errors import Conflict, NotFound, PreconditionFailed

LOCK = text("SELECT id, state, version, total FROM jobs WHERE public_id = :job FOR NO KEY UPDATE")
_STANDS = {
    "cancelling": "is being cancelled",
    "finalizing": "is finalizing: all its samples have ended",
    "cancelled": "was cancelled",
}


async def lock_job(connection: AsyncConnection, public_id: uuid.UUID, versions: Collection[int] | None) -> Row[Any]:
    """Lock the job's row and return its id, state, version and total.

    `versions` are the versions that the caller has seen; None accepts any.

    Raises:
        NotFound: no such job.
        PreconditionFailed: the job has another version.
    """
    row = (await connection.execute(LOCK, {"job": public_id})).first()
    if row is None:
        raise NotFound(f"no job {public_id}", hint="mathrag job list")
    if versions is not None and row.version not in versions:
        raise PreconditionFailed(
            f"job {public_id} is at version {row.version} and {row.state}",
            hint="get it again, then repeat with its new ETag",
        )
    return row


def state_conflict(public_id: uuid.UUID, state: str, wish: str) -> Conflict:
    """Return the error that a job in `state` cannot be `wish` (a participle such as "paused")."""
    stands = _STANDS.get(state, f"has {state}")
    return Conflict(f"job {public_id} {stands}; it cannot be {wish}", hint="mathrag job requeue submits it anew")

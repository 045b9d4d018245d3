"""Who changes a job locks its row first: what was checked stays true until the commit."""

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


async def locked(connection: AsyncConnection, public_id: uuid.UUID, versions: Collection[int] | None) -> Row[Any]:
    """id, state, version and total of the job, locked; `versions` are those that the caller has seen, None: any.

    Raises:
        NotFound: no such job.
        PreconditionFailed: it has another version.
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


def refusal(public_id: uuid.UUID, state: str, wish: str) -> Conflict:
    """That a job in `state` cannot be `wish`ed."""
    stands = _STANDS.get(state, f"has {state}")
    return Conflict(f"job {public_id} {stands}; it cannot be {wish}", hint="mathrag job requeue submits it anew")

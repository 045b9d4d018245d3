"""Keep the names of submitted jobs unique, so that a name identifies one job.

Jobs of earlier releases may share a name; they keep it, and no further job gets it. Of two concurrent requests for a
name, one holds the name's lock until it commits, and the other is asked to repeat its request. Chats need no name.
"""

import re
import uuid
from collections.abc import Collection, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.errors import Conflict, InProgress

LOCK_SEED = 7334
"""Distinguishes these advisory locks from others."""
HOLD = text("""
    SELECT name FROM unnest(CAST(:names AS text[])) n(name)
    WHERE NOT pg_try_advisory_xact_lock(hashtextextended(name, :seed))""")
# A separate statement, so that its snapshot is taken after the locks.
TAKEN = text("""
    SELECT name, public_id, state FROM jobs WHERE name = ANY(:names) AND NOT online AND public_id IS DISTINCT FROM :own
    ORDER BY id LIMIT 1""")
LONGEST = 100
_NUMBERED = re.compile(r"(?P<name>.+)-r(?P<number>[1-9]\d{0,5})", re.DOTALL)


async def reserve(connection: AsyncConnection, names: Sequence[str], own: uuid.UUID | None = None) -> None:
    """Reserve `names` until the transaction ends; the job `own` may already have one of them.

    Raises:
        Conflict: a job has one of the names; the message says which job.
        InProgress: another request is taking one of them right now.
    """
    if held := await _find_locked(connection, names):
        raise InProgress(f"`name`: another request is using {held!r} right now", hint="send it again in a second")
    taken = (await connection.execute(TAKEN, {"names": list(names), "own": own})).first()
    if taken is not None:
        raise Conflict(
            f"`name`: job {taken.public_id} is called {taken.name!r} already; it is {taken.state}",
            hint=f"choose another name; `mathrag job show {str(taken.public_id)[:8]}` shows that job,"
            " `mathrag job requeue` runs it again once it has ended",
        )


async def reserve_next(connection: AsyncConnection, name: str, given: Collection[str]) -> str:
    """Reserve and return `name` or its next free number, leaving out those `given` in this transaction."""
    while name in given or not await _is_free(connection, name):
        name = make_next_name(name)
    return name


def make_next_name(name: str) -> str:
    """Return the name's next number: `first` → `first-r2` → `first-r3`."""
    found = _NUMBERED.fullmatch(name)
    base, number = (found["name"], int(found["number"])) if found else (name, 1)
    suffix = f"-r{number + 1}"
    return base[: LONGEST - len(suffix)] + suffix


async def _is_free(connection: AsyncConnection, name: str) -> bool:
    if await _find_locked(connection, [name]):
        return False
    return (await connection.execute(TAKEN, {"names": [name], "own": None})).first() is None


async def _find_locked(connection: AsyncConnection, names: Sequence[str]) -> str | None:
    """Lock `names`; return the first one whose lock another transaction holds, if any."""
    found: str | None = (await connection.execute(HOLD, {"names": list(names), "seed": LOCK_SEED})).scalar()
    return found

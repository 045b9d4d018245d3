"""No two jobs that people submit share a name, so a name stands for one job.

Rows of earlier releases may share one: they stay as they are, and no further job gets their name. Of two requests for
one name at the same time one holds the name's lock until it commits, and the other one is told to come back. Chats have
no name of their own.
"""

import re
import uuid
from collections.abc import Collection, Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.errors import Conflict, InProgress

LOCK_SEED = 7334
"""Apart from other advisory locks."""
HOLD = text("""
    SELECT name FROM unnest(CAST(:names AS text[])) n(name)
    WHERE NOT pg_try_advisory_xact_lock(hashtextextended(name, :seed))""")
# A statement of its own: its snapshot is younger than the locks.
TAKEN = text("""
    SELECT name, public_id, state FROM jobs WHERE name = ANY(:names) AND NOT online AND public_id IS DISTINCT FROM :own
    ORDER BY id LIMIT 1""")
LONGEST = 100
_NUMBERED = re.compile(r"(?P<name>.+)-r(?P<number>[1-9]\d{0,5})", re.DOTALL)


async def reserve(connection: AsyncConnection, names: Sequence[str], own: uuid.UUID | None = None) -> None:
    """Keep `names` from other jobs until the transaction ends; the job `own` may have one of them already.

    Raises:
        Conflict: a job has one of the names; the message says which job.
        InProgress: another request is taking one of them right now.
    """
    if held := await _held(connection, names):
        raise InProgress(f"`name`: another request is using {held!r} right now", hint="send it again in a second")
    taken = (await connection.execute(TAKEN, {"names": list(names), "own": own})).first()
    if taken is not None:
        raise Conflict(
            f"`name`: job {taken.public_id} is called {taken.name!r} already; it is {taken.state}",
            hint=f"choose another name; `mathrag job show {str(taken.public_id)[:8]}` shows that job,"
            " `mathrag job requeue` runs it again once it has ended",
        )


async def reserve_next(connection: AsyncConnection, name: str, given: Collection[str]) -> str:
    """`name`, or its next number that is free and not among those `given` in this transaction; kept until its end."""
    while name in given or not await _is_free(connection, name):
        name = next_name(name)
    return name


def next_name(name: str) -> str:
    """`first` → `first-r2` → `first-r3`: a name of its own, so that both jobs can be told apart by name."""
    found = _NUMBERED.fullmatch(name)
    base, number = (found["name"], int(found["number"])) if found else (name, 1)
    suffix = f"-r{number + 1}"
    return base[: LONGEST - len(suffix)] + suffix


async def _is_free(connection: AsyncConnection, name: str) -> bool:
    if await _held(connection, [name]):
        return False
    return (await connection.execute(TAKEN, {"names": [name], "own": None})).first() is None


async def _held(connection: AsyncConnection, names: Sequence[str]) -> str | None:
    """The first of `names` whose lock another transaction has; the locks of the others are taken."""
    found: str | None = (await connection.execute(HOLD, {"names": list(names), "seed": LOCK_SEED})).scalar()
    return found

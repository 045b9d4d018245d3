"""Outages of the database: which errors pass by themselves, and doing an idempotent thing again until they have."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from asyncpg import DiskFullError, InternalClientError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from shared.errors import OutOfSpace
from shared.redaction import redacted

PASSING = ("08", "25006", "25P03", "40", "53", "57P", "58")
"""Classes of SQLSTATE, and states: no connection, read-only, idle for too long, rolled back for the sake of another
transaction, out of disk or connections, shutting down or starting up, an error of the system."""
STATEMENT = "42"
"""Class of SQLSTATE: a table, column or right that a statement needs is not there."""
PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Between two tries; the last one for all that follow."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


def passing(error: BaseException) -> bool:
    """Whether it is the database's moment that is at fault, and not what was asked of it."""
    if isinstance(error, DBAPIError):
        state = _state(error)
        return error.connection_invalidated or isinstance(error.orig, OSError) or state.startswith(PASSING)
    # asyncpg says it so where a connection ends in the middle of a switch of its own state.
    return isinstance(error, PoolTimeoutError | InternalClientError)


def is_disk_full(error: BaseException) -> bool:
    """Whether PostgreSQL had no room for what was to be written."""
    if isinstance(error, DBAPIError):
        return _state(error) == str(DiskFullError.sqlstate)
    return isinstance(error, DiskFullError)


def out_of_space() -> OutOfSpace:
    """What is said of it."""
    return OutOfSpace("the disk of PostgreSQL is full; nothing was stored", hint="make room, and send it again")


def _state(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def concerns_rows(error: BaseException) -> bool:
    """Whether the same statements might succeed for other rows.

    False for an outage, for the operating system and for a program or schema of another release: these fail for all
    rows alike, so none of them is at fault.
    """
    if isinstance(error, OSError | ImportError) or passing(error):
        return False
    state = _state(error) if isinstance(error, DBAPIError) else ""
    return not state.startswith(STATEMENT)


async def again(
    do: Callable[[], Awaitable[T]],
    patience_s: float,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """The result of `do`, tried until an outage has passed, for about `patience_s`; then its last error.

    What was cut off may have been committed: `do` must be harmless when it is done twice.
    """
    waited, tries = 0.0, 0
    while True:
        try:
            return await do()
        except Exception as error:
            if not passing(error) or waited >= patience_s:
                raise
            seconds = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
            _log.warning("the database is away, trying again: %s", redacted(str(error).partition("\n")[0]))
            await pause(seconds)
            waited, tries = waited + seconds, tries + 1

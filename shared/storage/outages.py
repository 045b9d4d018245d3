"""Outages of the database: recognise passing errors, and retry idempotent work until they are over."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from asyncpg import DiskFullError, InternalClientError
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from shared.errors import OutOfSpace
from shared.redaction import redact

PASSING = ("08", "25006", "25P03", "40", "53", "57P", "58")
"""Classes and states of SQLSTATE: no connection, read-only, idle for too long, rolled back because of another
transaction, out of disk or connections, shutting down or starting up, system error."""
STATEMENT = "42"
"""Class of SQLSTATE: a table, column or privilege that a statement needs is missing."""
PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
"""Pauses between attempts; the last one applies to all further attempts."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


def is_passing(error: BaseException) -> bool:
    """Tell whether the error is caused by the database's present state and not by the statement."""
    if isinstance(error, DBAPIError):
        state = _state(error)
        return error.connection_invalidated or isinstance(error.orig, OSError) or state.startswith(PASSING)
    # asyncpg raises this if a connection ends while it changes its own state.
    return isinstance(error, PoolTimeoutError | InternalClientError)


def is_disk_full(error: BaseException) -> bool:
    """Tell whether PostgreSQL ran out of disk space."""
    if isinstance(error, DBAPIError):
        return _state(error) == str(DiskFullError.sqlstate)
    return isinstance(error, DiskFullError)


def out_of_space_error() -> OutOfSpace:
    """Return the error that reports a full disk to users."""
    return OutOfSpace("the disk of PostgreSQL is full; nothing was stored", hint="free space, and send it again")


def _state(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def concerns_rows(error: BaseException) -> bool:
    """Tell whether the same statements could succeed for other rows.

    False for outages, errors of the operating system, and a program or schema of another release, because these affect
    all rows alike.
    """
    if isinstance(error, OSError | ImportError) or is_passing(error):
        return False
    state = _state(error) if isinstance(error, DBAPIError) else ""
    return not state.startswith(STATEMENT)


async def retry_through_outage(
    do: Callable[[], Awaitable[T]],
    patience_s: float,
    pause: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> T:
    """Call `do` until it succeeds or fails otherwise than by an outage, for about `patience_s` seconds.

    An interrupted call may have been committed, so `do` must be idempotent.
    """
    waited, tries = 0.0, 0
    while True:
        try:
            return await do()
        except Exception as error:
            if not is_passing(error) or waited >= patience_s:
                raise
            seconds = PAUSES_S[min(tries, len(PAUSES_S) - 1)]
            _log.warning("the database is away, trying again: %s", redact(str(error).partition("\n")[0]))
            await pause(seconds)
            waited, tries = waited + seconds, tries + 1

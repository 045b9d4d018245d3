"""The database: one engine per process, short transactions, two sets of planner settings.

Round trips are what the hot path pays for: a transaction costs three, a single statement one.

SQL is written as SQL, in the module that needs it, with named parameters (`sqlalchemy.text`).
"""

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import TextClause, event, text
from sqlalchemy.exc import InvalidatePoolError, OperationalError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

PINNED_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
"""For the hot path: its tables are empty when plans are cached and statistics come late, so the planner would choose
scans; with these settings every statement walks the index it was written for (measured: batch 1 three times faster)."""

REPORTING = {"jit": "off"}
UNREACHABLE = "08001"
"""SQLSTATE of a connection that could not be made."""
READ_ONLY = "25006"
"""SQLSTATE of a write to a database that takes none."""
BROKEN = "08006"
"""SQLSTATE of a connection that broke."""
CONNECT_S = 5.0
"""Longest wait for a new connection: a server that is frozen takes it, and says nothing."""
STATEMENT_S = 60.0
REPORT_S = 600.0
"""Longest wait for the answer to a statement, on the hot path and for reports: then its connection is given up, as if
it had been cut. The largest statement of the hot path inserts the samples of a job: 300,000 in 5 s."""
TRUSTED_S = 1.0
"""A connection that was used so recently is not asked whether it still lives."""


class Database:
    """Connections of one process; `pinned` for workers and scheduler, not for reports."""

    def __init__(self, url: str, *, pinned: bool, size: int = 5) -> None:
        settings = {
            "application_name": "mathrag",
            # A forgotten transaction holds back vacuum, and the queue table halves its speed.
            "idle_in_transaction_session_timeout": "60000",
            **(PINNED_PLANS if pinned else REPORTING),
        }
        limits = {"timeout": CONNECT_S, "command_timeout": STATEMENT_S if pinned else REPORT_S}
        self.engine: AsyncEngine = create_async_engine(
            url, pool_size=size, max_overflow=size, connect_args={"server_settings": settings, **limits}
        )
        _ping_idle(self.engine)
        _say_unreachable(self.engine)
        _leave_read_only(self.engine)
        _leave_silent(self.engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """One READ COMMITTED transaction; commits at the end, rolls back on an exception."""
        async with self.engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[AsyncConnection]:
        """For single statements: each commits by itself, in one round trip."""
        async with self.engine.connect() as connection:
            yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    async def column(self, statement: TextClause, values: Mapping[str, object]) -> list[Any]:
        """Run one statement by itself, and return the first column of its rows."""
        async with self.statement() as connection:
            return list((await connection.execute(statement, values)).scalars())

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """One read-only REPEATABLE READ transaction: all statements see the same instant."""
        async with self.engine.connect() as connection:
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
            yield connection
            await connection.rollback()

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


def _ping_idle(engine: AsyncEngine) -> None:
    """Ask a connection that was idle whether it lives; `pool_pre_ping` would ask before every transaction."""

    @event.listens_for(engine.sync_engine, "checkin")
    def stamp(_connection: Any, record: Any) -> None:
        record.info["used"] = time.monotonic()

    @event.listens_for(engine.sync_engine, "checkout")
    def ping(connection: Any, record: Any, _proxy: Any) -> None:
        if time.monotonic() - record.info.get("used", time.monotonic()) > TRUSTED_S and not _lives(connection):
            raise InvalidatePoolError

    def _lives(connection: Any) -> bool:
        try:
            return bool(engine.dialect.do_ping(connection))
        except (engine.dialect.loaded_dbapi.Error, TimeoutError):
            return False


def _say_unreachable(engine: AsyncEngine) -> None:
    """Nobody listens, or nobody answers: the driver leaves that as an `OSError`; here it is the database's error."""

    @event.listens_for(engine.sync_engine, "do_connect")
    def connect(dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
        try:
            return dialect.connect(*arguments, **options)
        except OSError as error:
            unreachable = dialect.loaded_dbapi.OperationalError(str(error) or type(error).__name__)
            unreachable.sqlstate = UNREACHABLE
            raise unreachable from error


def _leave_read_only(engine: AsyncEngine) -> None:
    """A server that was demoted stays read-only for those who are connected to it: make every connection anew."""

    @event.listens_for(engine.sync_engine, "handle_error")
    def leave(context: Any) -> None:
        if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
            context.is_disconnect = True


def _leave_silent(engine: AsyncEngine) -> None:
    """No answer in time: the driver leaves that as a `TimeoutError`; here it is a connection that broke."""

    @event.listens_for(engine.sync_engine, "handle_error")
    def leave(context: Any) -> OperationalError | None:
        if not isinstance(context.original_exception, TimeoutError):
            return None
        driver: Any = engine.dialect.loaded_dbapi
        silent = driver.OperationalError("the server did not answer in time")
        silent.sqlstate = BROKEN
        return OperationalError(context.statement, None, silent, connection_invalidated=True)

"""The database: one engine per process, short transactions, and two sets of planner settings.

Round trips dominate the hot path: a transaction takes three, a single statement one.

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
"""Planner settings of the hot path. Its tables are empty when plans are cached and statistics come late, so the planner
would choose scans; these settings make each statement use its index (measured: the first batch is 3 times faster)."""

REPORTING = {"jit": "off"}
UNREACHABLE = "08001"
"""SQLSTATE of a failed connection attempt."""
READ_ONLY = "25006"
"""SQLSTATE of a write to a read-only database."""
BROKEN = "08006"
"""SQLSTATE of a broken connection."""
CONNECT_S = 5.0
"""Timeout of a new connection: a frozen server accepts it but never answers."""
STATEMENT_S = 60.0
REPORT_S = 600.0
"""Timeouts of a statement, on the hot path and for reports; afterwards its connection counts as broken. The largest
statement of the hot path inserts the samples of a job (measured: 300,000 in 5 s)."""
TRUSTED_S = 1.0
"""A connection that was used this recently is not pinged before use."""


class Database:
    """Connections of one process. `pinned` selects the planner settings of the hot path."""

    def __init__(self, url: str, *, pinned: bool, size: int = 5) -> None:
        settings = {
            "application_name": "mathrag",
            # A forgotten transaction blocks vacuum, which halves the speed of the queue table.
            "idle_in_transaction_session_timeout": "60000",
            **(PINNED_PLANS if pinned else REPORTING),
        }
        limits = {"timeout": CONNECT_S, "command_timeout": STATEMENT_S if pinned else REPORT_S}
        self.engine: AsyncEngine = create_async_engine(
            url, pool_size=size, max_overflow=size, connect_args={"server_settings": settings, **limits}
        )
        _ping_idle_connections(self.engine)
        _convert_connection_errors(self.engine)
        _drop_read_only_connections(self.engine)
        _convert_timeouts(self.engine)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Open a READ COMMITTED transaction that commits at the end and rolls back on an exception."""
        async with self.engine.begin() as connection:
            yield connection

    @asynccontextmanager
    async def statement(self) -> AsyncIterator[AsyncConnection]:
        """Open a connection in autocommit mode, in which a statement takes one round trip."""
        async with self.engine.connect() as connection:
            yield await connection.execution_options(isolation_level="AUTOCOMMIT")

    async def column(self, statement: TextClause, values: Mapping[str, object]) -> list[Any]:
        """Run one statement in autocommit mode and return the first column of its rows."""
        async with self.statement() as connection:
            return list((await connection.execute(statement, values)).scalars())

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """Open a read-only REPEATABLE READ transaction, in which all statements see the same snapshot."""
        async with self.engine.connect() as connection:
            await connection.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"))
            yield connection
            await connection.rollback()

    async def close(self) -> None:
        """Close every connection."""
        await self.engine.dispose()


def _ping_idle_connections(engine: AsyncEngine) -> None:
    """Ping only connections that were idle; `pool_pre_ping` would ping before every transaction."""

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


def _convert_connection_errors(engine: AsyncEngine) -> None:
    """Raise the driver's `OSError` of a failed connection attempt as an error of the database."""

    @event.listens_for(engine.sync_engine, "do_connect")
    def connect(dialect: Any, _record: Any, arguments: Any, options: Any) -> Any:
        try:
            return dialect.connect(*arguments, **options)
        except OSError as error:
            unreachable = dialect.loaded_dbapi.OperationalError(str(error) or type(error).__name__)
            unreachable.sqlstate = UNREACHABLE
            raise unreachable from error


def _drop_read_only_connections(engine: AsyncEngine) -> None:
    """Reconnect after a read-only error: a demoted server stays read-only for its existing connections."""

    @event.listens_for(engine.sync_engine, "handle_error")
    def leave(context: Any) -> None:
        if getattr(context.original_exception, "sqlstate", None) == READ_ONLY:
            context.is_disconnect = True


def _convert_timeouts(engine: AsyncEngine) -> None:
    """Raise the driver's `TimeoutError` as the error of a broken connection."""

    @event.listens_for(engine.sync_engine, "handle_error")
    def leave(context: Any) -> OperationalError | None:
        if not isinstance(context.original_exception, TimeoutError):
            return None
        driver: Any = engine.dialect.loaded_dbapi
        silent = driver.OperationalError("the server did not answer in time")
        silent.sqlstate = BROKEN
        return OperationalError(context.statement, None, silent, connection_invalidated=True)

"""The database: one engine per process, short transactions, two sets of planner settings.

SQL is written as SQL, in the module that needs it, with named parameters (`sqlalchemy.text`).
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy import text
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


class Database:
    """Connections of one process; `pinned` for workers and scheduler, not for reports."""

    def __init__(self, url: str, *, pinned: bool, size: int = 5) -> None:
        settings = {
            "application_name": "mathrag",
            # A forgotten transaction holds back vacuum, and the queue table halves its speed.
            "idle_in_transaction_session_timeout": "60000",
            **(PINNED_PLANS if pinned else REPORTING),
        }
        self.engine: AsyncEngine = create_async_engine(
            url, pool_size=size, max_overflow=size, pool_pre_ping=True, connect_args={"server_settings": settings}
        )

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """One READ COMMITTED transaction; commits at the end, rolls back on an exception."""
        async with self.engine.begin() as connection:
            yield connection

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

"""Creates a span for every job that ends. It reads the rows, because any process may end a job."""

import asyncio
import logging
import uuid

from redis.asyncio import Redis
from redis.exceptions import RedisError
from sqlalchemy import Row, text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.metrics.window import Window, horizon
from shared.storage.database import Database
from shared.telemetry import traces

MOST = 100
REMEMBERED_S = 3600

_log = logging.getLogger(__name__)


async def _trace(connection: AsyncConnection, row: Row[tuple[int, uuid.UUID]]) -> None:
    try:
        await traces.trace_job(connection, row.id)
    except SQLAlchemyError:
        raise
    except Exception:  # noqa: BLE001 - the spans of other jobs, and those to come, must not end with it
        _log.exception("job has no span", extra={"job_id": str(row.public_id)})


class JobSpans:
    """Follows the jobs that end from now on."""

    def __init__(self, database: Database, redis: Redis) -> None:
        self._database = database
        self._redis = redis
        self._window = Window("jobs j", "j.ended_at", most=MOST)
        self._ended = text(f"SELECT j.id, j.public_id FROM jobs j WHERE {self._window.condition}")  # noqa: S608

    async def follow(self, pause_s: float) -> None:
        """Read every `pause_s` seconds until cancelled; an outage is waited for."""
        while True:
            try:
                await self.update()
            except (SQLAlchemyError, RedisError, OSError) as error:
                _log.warning("ended jobs not looked at, trying again: %r", error)
            await asyncio.sleep(pause_s)

    async def update(self) -> None:
        """Create the spans of the jobs that have ended since the last call; of several orchestrators one does."""
        async with self._database.transaction() as connection:
            window = await self._window.advance(connection, await horizon(connection))
            rows = (await connection.execute(self._ended, window)).all() if window else []
            for row in rows:
                if await self._redis.set(f"mathrag:span:{row.public_id}", "1", nx=True, ex=REMEMBERED_S):
                    await _trace(connection, row)

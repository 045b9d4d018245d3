"""Real servers for the integration ring: those of DATABASE_URL and REDIS_URL, else embedded ones, once per session."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from signal import Signals

import pytest
import redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from services.orchestrator.stack import postgres as pg
from services.orchestrator.stack import process
from services.orchestrator.stack import redis as rd
from services.orchestrator.stack.migration import migrate
from services.orchestrator.stack.passwords import Passwords
from services.orchestrator.stack.ports import free_port
from shared.storage.database import Database

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"

# Nothing here needs to survive a power cut.
UNSAFE = {"fsync": "off", "full_page_writes": "off"}


@contextmanager
def running(server: pg.Postgres | rd.Redis, stop_signal: Signals) -> Iterator[None]:
    """A server that is ready inside the block and gone after it."""
    server.prepare()
    log = server.directory.with_suffix(".log")
    child = process.spawn(server.command(), log=log, dies_by=stop_signal)
    try:
        asyncio.run(process.wait_ready(log.stem, child, server.ready, log=log))
        yield
    finally:
        asyncio.run(process.stop(child, by=stop_signal))


@pytest.fixture(scope="session")
def _postgres_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(application's URL, owner's URL), migrated to head."""
    with ExitStack() as stack:
        if "DATABASE_URL" in os.environ:
            url = os.environ["DATABASE_URL"]
            owner_url = os.environ.get("OWNER_URL", url)
        else:
            folder = tmp_path_factory.mktemp("postgres")
            server = pg.Postgres(folder / "data", port=free_port(), passwords=Passwords(), settings=UNSAFE)
            stack.enter_context(running(server, pg.STOP_SIGNAL))
            asyncio.run(server.create_database())
            url, owner_url = server.url(), server.owner_url()
        asyncio.run(migrate(owner_url))
        yield url, owner_url


@pytest.fixture(scope="session")
def database_url(_postgres_urls: tuple[str, str]) -> str:
    """The database as the application's role; rows of earlier tests may still be there."""
    return _postgres_urls[0]


@pytest.fixture(scope="session")
def owner_url(_postgres_urls: tuple[str, str]) -> str:
    """The database as its owner."""
    return _postgres_urls[1]


@pytest.fixture(scope="session")
def _redis_server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if "REDIS_URL" in os.environ:
        yield os.environ["REDIS_URL"]
        return
    server = rd.Redis(tmp_path_factory.mktemp("redis") / "data", port=free_port(), passwords=Passwords())
    with running(server, rd.STOP_SIGNAL):
        yield server.url()


@pytest.fixture
def redis_url(_redis_server_url: str) -> str:
    """An empty Redis."""
    with redis.Redis.from_url(_redis_server_url) as client:
        client.flushdb()
    return _redis_server_url


@pytest.fixture
async def database(database_url: str, owner_url: str, anyio_backend: str) -> AsyncIterator[Database]:
    """A migrated database without rows, as the application's role."""
    await _truncate(owner_url)
    database = Database(database_url, pinned=True)
    yield database
    await database.close()


async def _truncate(owner_url: str) -> None:
    # TRUNCATE fires no row triggers, so the append-only tables can be emptied too.
    engine = create_async_engine(owner_url)
    async with engine.begin() as connection:
        names = await connection.scalars(text(TABLES))
        await connection.execute(text(f"TRUNCATE {', '.join(names)} RESTART IDENTITY CASCADE"))
    await engine.dispose()

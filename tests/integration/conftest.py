"""Real servers for the integration ring, once per session: those of DATABASE_URL and REDIS_URL, else our own."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest
import redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from mathrag.stack.migration import migrate
from shared.storage.database import Database
from tests import servers
from tests.integration import scene

Plant = Callable[..., Coroutine[Any, Any, None]]

TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' AND tablename <> 'alembic_version'"


def pytest_report_collectionfinish() -> list[str]:
    """Say which servers the tests run on, and why."""
    return [f"{name}: {_said(variable)}" for name, variable in (("PostgreSQL", "DATABASE_URL"), ("Redis", "REDIS_URL"))]


def _said(variable: str) -> str:
    if os.environ.get(variable):
        return f"the one of {variable}"
    chosen = servers.choice()
    return f"{'in a container' if chosen.contained else 'embedded'} ({chosen.reason})"


@pytest.fixture(scope="session")
def _postgres_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """(application's URL, owner's URL), migrated to head."""
    if url := os.environ.get("DATABASE_URL"):
        owner_url = os.environ.get("OWNER_URL", url)
        asyncio.run(migrate(owner_url))
        yield url, owner_url
        return
    with servers.postgres(tmp_path_factory.mktemp("postgres") / "data") as server:
        asyncio.run(migrate(server.owner_url()))
        yield server.url(), server.owner_url()


@pytest.fixture(scope="session")
def database_url(_postgres_urls: tuple[str, str]) -> str:
    """The database as the application's role; rows of earlier tests may still be there."""
    scene.OWNERS[_postgres_urls[0]] = _postgres_urls[1]
    return _postgres_urls[0]


@pytest.fixture(scope="session")
def owner_url(_postgres_urls: tuple[str, str]) -> str:
    """The database as its owner."""
    return _postgres_urls[1]


@pytest.fixture(scope="session")
def _redis_server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if url := os.environ.get("REDIS_URL"):
        yield url
        return
    with servers.redis(tmp_path_factory.mktemp("redis") / "data") as server:
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


@pytest.fixture
def plant(owner_url: str) -> Plant:
    """Run a statement that the application may not: as the owner, with the triggers off that refuse changes."""

    async def execute(sql: str, *, counted: bool = True, **values: object) -> None:
        changed = await scene.force(owner_url, sql, **values)
        assert changed > 0 or not counted

    return execute

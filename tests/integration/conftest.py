"""Real servers for the integration ring, once per session: those of DATABASE_URL and REDIS_URL, else our own."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from redis import Redis as BlockingRedis
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from mathrag_gate.stack.postgres import migrate
from shared.models import servers as servers_module
from shared.models.embedding import StaticEmbedder
from shared.settings import REPOSITORY
from shared.storage.database import Database
from tests import servers
from tests.faults.proxy import Proxy
from tests.integration import scene
from tests.integration.api import Api, serving

Plant = Callable[..., Coroutine[Any, Any, None]]

EmptyDatabase = Callable[[], None]

# Deleting the few rows of a test takes a thirtieth of the time of TRUNCATE, which makes new files for each table and
# index (measured: 1 ms against 34 ms; a new database from a template takes 170 ms). Many rows are truncated: what
# DELETE leaves in a table is read again by every later test.
EMPTYING = """
    SELECT string_agg(format(
        CASE WHEN pg_relation_size(oid) > 1048576 THEN 'TRUNCATE %I CASCADE' ELSE 'DELETE FROM %I' END, relname), ';')
    FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'alembic_version'
        AND pg_relation_size(oid) > 0"""
# A number may be drawn without a row. `gpu_epoch`, of no table, only goes up. RESTART, unlike setval, makes other
# connections forget the numbers that they have drawn in advance.
RESTARTING = """
    SELECT string_agg(CASE WHEN seqcache > 1 THEN format('ALTER SEQUENCE %s RESTART', seqrelid::regclass)
        ELSE format('SELECT setval(%L, %s, false)', seqrelid::regclass, seqstart) END, ';')
    FROM pg_sequence JOIN pg_depend ON classid = 'pg_class'::regclass AND objid = seqrelid AND refobjsubid > 0
    WHERE pg_sequence_last_value(seqrelid) IS NOT NULL"""


def pytest_report_collectionfinish() -> list[str]:
    return [f"{name}: {_said(variable)}" for name, variable in (("PostgreSQL", "DATABASE_URL"), ("Redis", "REDIS_URL"))]


def _said(variable: str) -> str:
    if os.environ.get(variable):
        return f"the one of {variable}"
    chosen = servers.choice()
    return f"{'in a container' if chosen.contained else 'embedded'} ({chosen.reason})"


@pytest.fixture(scope="session", autouse=True)
def _shipped_embeddings() -> Iterator[None]:
    folder = REPOSITORY / "models" / "static-embeddings"
    read = cache(StaticEmbedder)
    with pytest.MonkeyPatch.context() as changed:
        changed.setattr(
            servers_module, "StaticEmbedder", lambda path: (read if path == folder else StaticEmbedder)(path)
        )
        yield


@pytest.fixture(scope="session")
def _postgres_urls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
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
    scene.OWNERS[_postgres_urls[0]] = _postgres_urls[1]
    return _postgres_urls[0]


@pytest.fixture(scope="session")
def owner_url(_postgres_urls: tuple[str, str]) -> str:
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
    with BlockingRedis.from_url(_redis_server_url) as client:
        client.flushdb()
    return _redis_server_url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture(scope="session")
def empty_database(owner_url: str) -> Iterator[EmptyDatabase]:
    with asyncio.Runner() as runner:
        owner = runner.run(asyncpg.connect(owner_url.replace("+asyncpg", "")))
        # Without triggers and foreign keys, the order of tables does not matter and append-only ones can be emptied.
        try:
            runner.run(owner.execute("SET session_replication_role = replica"))
        except asyncpg.InsufficientPrivilegeError as refused:
            grant = "as a superuser: GRANT SET ON PARAMETER session_replication_role TO ..."
            raise pytest.UsageError(f"the owner of DATABASE_URL may not empty its tables; {grant}") from refused
        yield lambda: runner.run(_empty(owner))
        runner.run(owner.close())


async def _empty(owner: asyncpg.Connection) -> None:
    async with owner.transaction():
        for statements in (EMPTYING, RESTARTING):
            if statement := await owner.fetchval(statements):
                await owner.execute(statement)


@pytest.fixture
def _emptied(empty_database: EmptyDatabase) -> None:
    empty_database()


@pytest.fixture(scope="module")
def emptied(empty_database: EmptyDatabase) -> None:
    """For a file whose tests share rows that none of them changes; no test of it uses `database` as it is here."""
    empty_database()


@pytest.fixture(scope="session")
async def connections(database_url: str, anyio_backend: str) -> AsyncIterator[Database]:
    """Connections that the tests use one after the other, so all of them run in one event loop.

    A new connection reads the catalogue and plans every statement again: a job took PostgreSQL three times as long.
    """
    connections = Database(database_url, pinned=True)
    yield connections
    await connections.close()


@pytest.fixture(scope="session")
async def owner_engine(owner_url: str, anyio_backend: str) -> AsyncIterator[AsyncEngine]:
    # A test may change the schema, so no statement is prepared, or end all connections.
    unprepared = {"statement_cache_size": 0, "prepared_statement_cache_size": 0}
    engine = create_async_engine(owner_url, pool_pre_ping=True, connect_args=unprepared)
    key = asyncio.get_running_loop(), owner_url
    scene.OWNER_ENGINES[key] = engine
    yield engine
    del scene.OWNER_ENGINES[key]
    await engine.dispose()


@pytest.fixture
async def database(_emptied: None, connections: Database, owner_engine: AsyncEngine) -> AsyncIterator[Database]:
    before = asyncio.all_tasks()
    yield connections
    # The loop goes on, so what a test has left running is ended here; anyio's own task runs this fixture.
    left = [task for task in asyncio.all_tasks() - before if not _is_runner(task)]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _is_runner(task: "asyncio.Task[Any]") -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return task is asyncio.current_task() or (code is not None and "/anyio/_backends/" in code.co_filename)


@pytest.fixture
def cable(redis_url: str) -> Iterator[Proxy]:
    """In front of Redis."""
    port = urlsplit(redis_url).port
    assert port is not None
    with Proxy(port) as proxy:
        yield proxy


@pytest.fixture
async def owner(database: Database, owner_url: str) -> AsyncIterator[Database]:
    owner = Database(owner_url, pinned=False)
    yield owner
    await owner.close()


@pytest.fixture
async def empty_api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    async with serving(database, redis_url) as api:
        yield api


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database)
    return empty_api


@pytest.fixture
def plant(owner_url: str) -> Plant:
    async def execute(sql: str, *, counted: bool = True, **values: object) -> None:
        changed = await scene.force(owner_url, sql, **values)
        assert changed > 0 or not counted

    return execute

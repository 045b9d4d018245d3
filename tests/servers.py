"""Real PostgreSQL and Redis for tests: in containers where an engine has their images, else from pip packages.

`MATHRAG_TEST_SERVERS=containers` or `embedded` leaves no choice.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from signal import Signals
from typing import NamedTuple

import asyncpg
import pytest
from testcontainers.community.postgres import PostgresContainer
from testcontainers.community.redis import RedisContainer
from testcontainers.core.config import ConnectionMode, testcontainers_config

from mathrag_gate.stack import postgres as postgres_module
from mathrag_gate.stack import process
from mathrag_gate.stack import redis as redis_module
from mathrag_gate.stack.postgres import Passwords
from mathrag_gate.stack.redis import find_free_port
from tests import containers

CHOICE = "MATHRAG_TEST_SERVERS"
WANTED = os.environ.get(CHOICE, "")
"""Read at once: no test sees the variable, which `mathrag doctor` would report as an unknown setting."""
POSTGRES = os.environ.get("POSTGRES_IMAGE", "postgres:17")
REDIS = os.environ.get("REDIS_IMAGE", "redis:8")

# Nothing here needs to survive a power cut, and no password to resist guessing: tests open thousands of connections.
UNSAFE = {"fsync": "off", "full_page_writes": "off", "scram_iterations": "1"}
# Nor does it need to survive a crash of the server. A vacuum between two tests would tell the planner that tables are
# empty, which the next test fills.
FOR_TESTS = {**UNSAFE, "synchronous_commit": "off", "autovacuum": "off"}

# Every container ends with the block that started it, and its port is published on this machine.
testcontainers_config.ryuk_disabled = True
testcontainers_config.connection_mode_override = ConnectionMode.docker_host


class Choice(NamedTuple):
    """Which servers, and why."""

    contained: bool
    reason: str


@cache
def choice() -> Choice:
    """Asked once a session; the engine gets a few seconds to answer.

    Raises:
        UsageError: containers were asked for, and cannot be had.
    """
    return decide(WANTED, containers.lacking(POSTGRES, REDIS))


def decide(wanted: str, lacking: str) -> Choice:
    """What `MATHRAG_TEST_SERVERS` says; without it, containers unless something is lacking for them."""
    if wanted not in ("", "containers", "embedded"):
        raise pytest.UsageError(f"{CHOICE} is {wanted!r}; it may be `containers` or `embedded`")
    if wanted == "containers" and lacking:
        raise pytest.UsageError(f"{CHOICE}=containers, but {lacking}")
    if wanted:
        return Choice(wanted == "containers", f"{CHOICE}={wanted}")
    return Choice(not lacking, lacking or f"an engine answers and has {POSTGRES} and {REDIS}")


@contextmanager
def postgres(folder: Path) -> Iterator[postgres_module.Postgres]:
    """A server with our database and both roles, not migrated."""
    secrets = Passwords()
    if choice().contained:
        container = PostgresContainer(
            POSTGRES, username=postgres_module.SUPERUSER, password=secrets.superuser, dbname="postgres"
        )
        container.with_command(" ".join(["postgres", *(f"--{name}={value}" for name, value in FOR_TESTS.items())]))
        with container:
            server = postgres_module.Postgres(folder, port=int(container.get_exposed_port(5432)), passwords=secrets)
            asyncio.run(_create_database(server))
            yield server
    else:
        server = postgres_module.Postgres(folder, port=find_free_port(), passwords=secrets, settings=FOR_TESTS)
        with running(server, postgres_module.STOP_SIGNAL):
            asyncio.run(_create_database(server))
            yield server


async def _create_database(server: postgres_module.Postgres) -> None:
    await server.create_database()
    superuser = await asyncpg.connect(
        host="127.0.0.1",
        port=server.port,
        user=postgres_module.SUPERUSER,
        password=server.passwords.superuser,
        database=postgres_module.DATABASE,
    )
    # The owner empties all tables between tests, without their triggers.
    await superuser.execute(f"GRANT SET ON PARAMETER session_replication_role TO {postgres_module.OWNER}")
    await superuser.close()


@contextmanager
def redis(folder: Path) -> Iterator[redis_module.Redis]:
    """An empty server."""
    secrets = Passwords()
    if choice().contained:
        with RedisContainer(REDIS, password=secrets.redis) as container:
            yield redis_module.Redis(folder, port=int(container.get_exposed_port(6379)), passwords=secrets)
    else:
        server = redis_module.Redis(folder, port=find_free_port(), passwords=secrets)
        with running(server, redis_module.STOP_SIGNAL):
            yield server


@contextmanager
def running(server: postgres_module.Postgres | redis_module.Redis, stop_signal: Signals) -> Iterator[None]:
    """A server that is ready inside the block and gone after it."""
    server.prepare()
    log = server.directory.with_suffix(".log")
    child = process.spawn(server.command(), log=log, dies_by=stop_signal)
    try:
        asyncio.run(process.wait_ready(log.stem, child, server.is_ready, log=log))
        yield
    finally:
        asyncio.run(process.stop(child, by=stop_signal))

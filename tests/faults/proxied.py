"""A stack whose PostgreSQL and Redis stand behind proxies, and can be stopped, started and starved."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from signal import Signals
from typing import Any

from redis import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from services.orchestrator.stack import postgres as pg
from services.orchestrator.stack import process
from services.orchestrator.stack import redis as rd
from services.orchestrator.stack.passwords import Passwords
from services.orchestrator.stack.ports import free_port
from tests.faults.proxy import Proxy
from tests.faults.wire import Cuts, PostgresWire, RedisWire, Ticks
from tests.running import RunningStack, running_stack
from tests.servers import UNSAFE

JOB = {"reuse": "none", "params": {"gate": {"tau": 1.0}}}
"""Whatever rho is, the judge rates every candidate; and every job computes everything anew."""
SETTINGS: Mapping[str, str] = {"deadlock_timeout": "100ms"}


class Server:
    """A PostgreSQL or a Redis that can be stopped and started again on what it keeps."""

    def __init__(self, of: pg.Postgres | rd.Redis, stop_by: Signals) -> None:
        self.of = of
        self._stop_by = stop_by

    def start(self) -> None:
        """Return when it answers."""
        self.of.prepare()
        log = self.of.directory.with_suffix(".log")
        self._process = process.spawn(self.of.command(), log=log, dies_by=self._stop_by)
        asyncio.run(process.wait_ready(log.stem, self._process, self.of.ready, log=log))

    def stop(self, by: Signals | None = None) -> None:
        """Return when it is gone."""
        asyncio.run(process.stop(self._process, by=by or self._stop_by))


class Proxied:
    """The stack, what stands behind it, and what stands between."""

    def __init__(self, postgres: Server, redis: Server, to_postgres: Proxy, to_redis: Proxy) -> None:
        self.stack: RunningStack
        self.postgres, self.redis = postgres, redis
        self.to_postgres, self.to_redis = to_postgres, to_redis
        self.cuts: Cuts
        self.ticks: Ticks

    def client(self) -> "Redis[str]":
        """Redis itself, not through the proxy."""
        return Redis.from_url(self.redis.of.url(), decode_responses=True)

    def rows(self, sql: str, **values: object) -> list[tuple[Any, ...]]:
        """What the database itself answers its superuser, each statement committed by itself."""
        return asyncio.run(self._rows(sql, values))

    async def _rows(self, sql: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        server = self.postgres.of
        assert isinstance(server, pg.Postgres)
        url = server._url(pg.SUPERUSER, server.passwords.superuser)
        engine = create_async_engine(url, isolation_level="AUTOCOMMIT")
        try:
            async with engine.connect() as connection:
                result = await connection.execute(text(sql), dict(values))
                return [tuple(row) for row in result] if result.returns_rows else []
        finally:
            await engine.dispose()

    def begun(self, name: str) -> str:
        """A job that the judge is in the middle of."""
        job = self.stack.submit(name, **JOB)
        self.stack.wait(job, lambda document: judged(document) > 0)
        return job

    def epochs(self) -> list[int]:
        """Of every residency that was ever wanted, in the order of their making."""
        return [epoch for (epoch,) in self.rows("SELECT epoch FROM residencies ORDER BY wanted_at, epoch")]


def judged(document: dict[str, Any]) -> int:
    """How many calls of the judge are answered."""
    found: int = document["stages"].get("judge", {}).get("done", 0)
    return found


@contextmanager
def proxied(folder: Path, items: int, *options: str, **environment: str) -> Iterator[Proxied]:
    """A stack with the problem world in it."""
    with behind(folder, SETTINGS) as it:
        addresses = {name: address(it) for name, address in ADDRESSES.items()}
        with running_stack(folder / "data", *options, **{**addresses, **environment}) as it.stack:
            it.stack.furnish(folder / "world", items=items)
            yield it


ADDRESSES: Mapping[str, Callable[[Proxied], str]] = {
    "MATHRAG_DATABASE_URL": lambda it: _through(it.to_postgres, it.postgres.of),
    "MATHRAG_REDIS_URL": lambda it: _through(it.to_redis, it.redis.of),
    # A migration is no part of what is to be broken.
    "MATHRAG_OWNER_URL": lambda it: it.postgres.of.owner_url(),  # type: ignore[union-attr]
}


@contextmanager
def behind(folder: Path, settings: Mapping[str, str]) -> Iterator[Proxied]:
    """Both servers with their proxies, and no stack yet."""
    secrets, cuts, ticks = Passwords(), Cuts(), Ticks()
    database = pg.Postgres(folder / "postgres", port=free_port(), passwords=secrets, settings={**UNSAFE, **settings})
    postgres = Server(database, pg.STOP_SIGNAL)
    redis = Server(rd.Redis(folder / "redis", port=free_port(), passwords=secrets), rd.STOP_SIGNAL)
    postgres.start()
    redis.start()
    try:
        asyncio.run(database.create_database())
        with (
            Proxy(database.port, lambda: PostgresWire(cuts)) as to_postgres,
            Proxy(redis.of.port, lambda: RedisWire(ticks.command)) as to_redis,
        ):
            it = Proxied(postgres, redis, to_postgres, to_redis)
            it.cuts, it.ticks = cuts, ticks
            yield it
    finally:
        redis.stop()
        postgres.stop()


def _through(proxy: Proxy, server: pg.Postgres | rd.Redis) -> str:
    return server.url().replace(f":{server.port}/", f":{proxy.port}/")

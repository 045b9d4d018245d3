"""A stack whose PostgreSQL and Redis are behind proxies, and can be stopped, started and starved."""

import asyncio
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from signal import Signals
from typing import Any

from redis import Redis
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine

from mathrag_gate.stack import postgres as postgres_module
from mathrag_gate.stack import process
from mathrag_gate.stack import redis as redis_module
from mathrag_gate.stack.postgres import Passwords
from mathrag_gate.stack.redis import find_free_port
from tests.faults.limits import Disk
from tests.faults.proxy import Cuts, PostgresWire, Proxy, RedisWire, Ticks
from tests.faults.real import done
from tests.faults.recording import Seen
from tests.faults.trial import JOB, SOONER, measure_calls, stack_repaired
from tests.running import Document, RunningStack, ended, running_stack
from tests.servers import UNSAFE

SETTINGS: Mapping[str, str] = {"deadlock_timeout": "100ms"}


class Server:
    """A PostgreSQL or a Redis that can be stopped and started again on its data."""

    def __init__(self, of: postgres_module.Postgres | redis_module.Redis, stop_by: Signals) -> None:
        self.of = of
        self._stop_by = stop_by

    def start(self) -> None:
        """Return when it answers."""
        self.of.prepare()
        log = self.of.directory.with_suffix(".log")
        self._process = process.spawn(self.of.command(), log=log, dies_by=self._stop_by)
        asyncio.run(process.wait_ready(log.stem, self._process, self.of.is_ready, log=log))

    @property
    def ended(self) -> bool:
        """Whether it has stopped by itself."""
        return self._process.poll() is not None

    def stop(self, by: Signals | None = None) -> None:
        """Return when it is gone."""
        asyncio.run(process.stop(self._process, by=by or self._stop_by))

    @contextmanager
    def keep_stopped(self, by: Signals) -> Iterator[None]:
        """Stop the server during the block; afterwards it runs again on the data that it has kept."""
        self.stop(by)
        try:
            yield
        finally:
            self.start()


class Proxied:
    """The stack, its servers, and the proxies between them."""

    def __init__(self, postgres: Server, redis: Server, to_postgres: Proxy, to_redis: Proxy) -> None:
        self.stack: RunningStack
        self.whole: Mapping[str, int] = {}
        """How many calls each stage of a job makes when nothing goes wrong."""
        self.postgres, self.redis = postgres, redis
        self.to_postgres, self.to_redis = to_postgres, to_redis
        self.cuts: Cuts
        self.ticks: Ticks
        self.disk: Disk | None = None
        """The file system of PostgreSQL's tables, if it can be filled."""

    def rows(self, sql: str, **values: object) -> list[tuple[Any, ...]]:
        """Run a statement on the database itself as its superuser, and return its rows."""
        return asyncio.run(self._rows(sql, values))

    def superuser_url(self) -> str:
        """Return the URL of the database itself for its superuser."""
        server = self.postgres.of
        assert isinstance(server, postgres_module.Postgres)
        return server._make_url(postgres_module.SUPERUSER, server.passwords.superuser)

    def owner_url(self) -> str:
        """Return the URL of the role that migrates the database, not through the proxy."""
        server = self.postgres.of
        assert isinstance(server, postgres_module.Postgres)
        return server.owner_url()

    async def _rows(self, sql: str, values: Mapping[str, object]) -> list[tuple[Any, ...]]:
        engine = create_async_engine(self.superuser_url(), isolation_level="AUTOCOMMIT")
        try:
            async with engine.connect() as connection:
                result = await connection.execute(text(sql), dict(values))
                return [tuple(row) for row in result] if result.returns_rows else []
        finally:
            await engine.dispose()

    def ends_whole(self, job: str, seen: Seen) -> Document:
        """The job ends by itself, with every sample, a clean audit, and epochs that only grew; its report."""
        self.stack.assert_whole(job)
        epochs = [epoch for (epoch,) in self.rows("SELECT epoch FROM residencies ORDER BY wanted_at, epoch")]
        assert epochs == sorted(set(epochs))
        report: Document = self.stack.get(f"/v1/jobs/{job}/report")
        for name, figure in (("calls lapsed", "calls_lapsed"), ("loads", "model_loads"), ("seconds", "seconds")):
            seen.figure(name, report[figure])
        return report

    def submit_judging(self, name: str, share: float = 0.0) -> str:
        """Submit a job and return its id once the judge has answered this share of its calls."""
        job = self.stack.submit(name, **JOB)
        self.wait_until_judged(job, share)
        return job

    def wait_until_judged(self, job: str, share: float) -> None:
        """Wait until the judge has answered this share of the job's calls, and at least one."""
        self.stack.wait(job, lambda document: done(document, "judge") > share * self.whole["judge"] or ended(document))
        assert not ended(self.stack.get(f"/v1/jobs/{job}")), "it came too late"

    def repair(self) -> list[str]:
        """Repair servers, cables and stack, and return the defects."""
        found = []
        if self.disk is not None:
            self.disk.relieve()
        for server in (self.postgres, self.redis):
            if server.ended:
                server.start()
                found.append(f"{server.of.directory.name} was down")
        found += [*self.to_postgres.repair(), *self.to_redis.repair()]
        self.cuts.arm(every=0, most=0)
        self.ticks.relieve()
        return [*found, *self._settings_repaired(), *stack_repaired(self.stack)]

    def _settings_repaired(self) -> list[str]:
        found = []
        if self.rows("SELECT 1 FROM pg_db_role_setting WHERE setrole <> 0"):
            self.rows(f"ALTER ROLE {postgres_module.APP} RESET ALL")
            found.append("the application's role had its own settings")
        with client(self.redis) as known:
            if known.config_get("maxmemory") != {"maxmemory": "0"}:
                known.config_set("maxmemory", 0)
                found.append("Redis had a limit of memory")
        return found

    def for_workers(self) -> dict[str, str]:
        """Return the environment of a worker that is started in addition to the stack's."""
        through = {name: address(self) for name, address in ADDRESSES.items()}
        services = {f"MATHRAG_{name.upper()}_URL": self.stack.service_url(name) for name in ("guard", "retriever")}
        key = postgres_module.load_passwords(self.stack.data_dir).service
        return {**through, **services, "MATHRAG_SERVICE_KEY": key, **SOONER}

    def heartbeats(self, lane: str) -> list[str]:
        """List the heartbeat keys of a lane's workers."""
        with client(self.redis) as known:
            return list(known.scan_iter(f"mathrag:worker:{lane}:*"))

    def has_ended(self, job: str) -> bool:
        """Whether the job is over."""
        return ended(self.stack.get(f"/v1/jobs/{job}"))

    def log(self, service: str) -> Path:
        """Return the log file of a service."""
        return self.stack.data_dir / "logs" / f"{service}.log"


def client(server: Server) -> "Redis[str]":
    """Connect to Redis directly, not through the proxy."""
    return Redis.from_url(server.of.url(), decode_responses=True)


@contextmanager
def run_proxied(folder: Path, items: int, *options: str, kept: Path | None = None) -> Iterator[Proxied]:
    """Run a stack with the world's data behind proxies; PostgreSQL keeps its tables in `kept`."""
    with behind(folder, kept or folder / "postgres") as it:
        addresses = {name: address(it) for name, address in ADDRESSES.items()}
        with running_stack(folder / "data", *options, **addresses, **SOONER) as it.stack:
            it.stack.furnish(folder / "world", items=items)
            it.whole = measure_calls(it.stack)
            yield it


ADDRESSES: Mapping[str, Callable[[Proxied], str]] = {
    "MATHRAG_DATABASE_URL": lambda it: _through(it.to_postgres, it.postgres.of),
    "MATHRAG_REDIS_URL": lambda it: _through(it.to_redis, it.redis.of),
    # The test does not break the first migration.
    "MATHRAG_OWNER_URL": lambda it: it.owner_url(),
}


@contextmanager
def behind(folder: Path, kept: Path) -> Iterator[Proxied]:
    """Both servers with their proxies, and no stack yet."""
    secrets, cuts, ticks = Passwords(), Cuts(), Ticks()
    database = postgres_module.Postgres(kept, port=find_free_port(), passwords=secrets, settings={**UNSAFE, **SETTINGS})
    database.prepare()
    log_apart(database, folder / "wal")
    postgres = Server(database, postgres_module.STOP_SIGNAL)
    redis = Server(
        redis_module.Redis(folder / "redis", port=find_free_port(), passwords=secrets), redis_module.STOP_SIGNAL
    )
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


def log_apart(server: postgres_module.Postgres, folder: Path) -> None:
    """Keep the write-ahead log elsewhere: where it cannot be written PostgreSQL ends, which is another fault."""
    log = server.directory / "pg_wal"
    shutil.move(log, folder)
    log.symlink_to(folder)


def _through(proxy: Proxy, server: postgres_module.Postgres | redis_module.Redis) -> str:
    return server.url().replace(f":{server.port}/", f":{proxy.port}/")

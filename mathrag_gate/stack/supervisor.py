"""Supervise the stack: start the children in order, restart those that crash or hang, stop all in reverse order.

The supervisor also starts and stops workers to reach the numbers that `mathrag scale` requested. It knows nothing about
jobs: after a restart, the services read their state from PostgreSQL.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from signal import Signals

from mathrag.client import address
from mathrag.errors import MathragError
from mathrag_gate.stack import postgres, privacy, process, redis
from mathrag_gate.stack.control import check_space, forget_wanted_workers, hold, read_wanted_workers
from mathrag_gate.stack.postgres import Postgres, migrate, purge_chats
from mathrag_gate.stack.process import (
    REAL,
    Child,
    Keeper,
    Test,
    Time,
    make_heartbeat_answer_test,
    make_heartbeat_test,
    make_http_answer_test,
    make_http_test,
    read_birth,
)
from mathrag_gate.stack.redis import Redis, rotate
from shared.calls import Lane
from shared.settings import Device, Settings

LOGS = "logs"
LOOK_S = 2.0
"""Seconds between two checks of the disk."""
CHECK_S = 5.0
"""Seconds between two tests that the children still answer."""
SCALE_S = 0.5
"""Seconds between two reads of the requested number of workers."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class StartupTask:
    """A task that runs once, between the starts of two children."""

    name: str
    run: Callable[[], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Chore:
    """A task that is repeated while the stack runs. A failure is logged, and the task runs again at its next time."""

    name: str
    run: Callable[[], Awaitable[None]]
    every_s: float


class Supervisor:
    """Runs a table of children on one data directory."""

    def __init__(
        self,
        table: Sequence[Child | StartupTask | Chore],
        *,
        data_dir: Path,
        url: str,
        ready: Callable[[str, float], None],
        running: Callable[[], None],
        workers: Mapping[str, Callable[[int], Child]] | None = None,
        time: Time = REAL,
    ) -> None:
        """Set up the supervisor; it calls `ready` with each row's name and seconds, and `running` after the last one.

        `workers` has, by service, a function that creates the worker with a number, from 1. The table has the first
        workers.
        """
        self.table = table
        self.data_dir = data_dir
        self.url = url
        self.keepers: list[Keeper] = []
        self._ready = ready
        self._running = running
        self._workers = workers or {}
        self._wanted: dict[str, int] = {}
        self._keeping: dict[str, asyncio.Task[None]] = {}
        """Task that keeps a child running, by the child's name."""
        self._time = time
        self._phase: address.Phase = "starting"
        self._state_is_written = True

    async def run(self) -> None:
        """Start everything and keep it running until cancelled; then stop everything."""
        with hold(self.data_dir):
            await process.clear(self.data_dir, time=self._time)
            forget_wanted_workers(self.data_dir)
            self._enter("starting")
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._watch_disk())
                    tasks.create_task(self._watch_answers())
                    await self._start(tasks)
            except BaseExceptionGroup as failed:
                raise failed.exceptions[0] from None
            finally:
                self._enter("stopping")
                for keeper in reversed(self.keepers):
                    await keeper.stop()
                self._enter("stopped")

    async def _start(self, tasks: asyncio.TaskGroup) -> None:
        """Start each row when the previous rows are ready, or together with the previous row."""
        starting: list[asyncio.Task[None]] = []
        for row in self.table:
            if isinstance(row, Chore):
                tasks.create_task(self._repeat(row), name=row.name)
                continue
            if not (isinstance(row, Child) and row.starts_with_previous):
                await asyncio.gather(*starting)
                starting.clear()
            starting.append(tasks.create_task(self._start_row(row, tasks), name=row.name))
        await asyncio.gather(*starting)
        for service in self._workers:
            chore = Chore(name=f"workers of {service}", run=partial(self._scale, service, tasks), every_s=SCALE_S)
            tasks.create_task(self._repeat(chore), name=chore.name)
        self._enter("running")
        self._running()

    async def _start_row(self, row: Child | StartupTask, tasks: asyncio.TaskGroup) -> None:
        started = self._time.now()
        if isinstance(row, StartupTask):
            await self._run_with_space(row.run)
        else:
            keeper = self._make_keeper(row, len(self.keepers))
            await self._run_with_space(keeper.start)
            self._keeping[row.name] = tasks.create_task(keeper.keep(), name=row.name)
        self._ready(row.name, self._time.now() - started)

    async def _repeat(self, chore: Chore) -> None:
        while True:
            try:
                await chore.run()
            except Exception as error:  # noqa: BLE001 - a failing chore must not end the children
                _log.warning("%s: %s", chore.name, error)
            await self._time.sleep(chore.every_s)

    async def _run_with_space(self, start: Callable[[], Awaitable[None]]) -> None:
        """Run `start`; if it fails while the disk is full, run it again when the disk has space."""
        while True:
            try:
                return await start()
            except (OSError, MathragError):
                if check_space(self.data_dir) is None:
                    raise
            while check_space(self.data_dir):
                await self._time.sleep(LOOK_S)

    async def _watch_disk(self) -> None:
        """Log when the disk becomes full and when it has space again, and then write a pending state."""
        full = False
        while True:
            warning = check_space(self.data_dir)
            if full != (warning is not None):
                full = not full
                _log.warning(warning or f"the disk of `{self.data_dir}` has space again")
            if not self._state_is_written:
                self._write_state()
            await self._time.sleep(LOOK_S)

    async def _watch_answers(self) -> None:
        """Test regularly that every child still answers."""
        while True:
            await self._time.sleep(CHECK_S)
            checks = await asyncio.gather(*(keeper.check() for keeper in self.keepers), return_exceptions=True)
            for error in checks:
                if isinstance(error, Exception):
                    _log.warning("a child could not be tested: %s", error)

    async def _scale(self, service: str, tasks: asyncio.TaskGroup) -> None:
        """Start or stop workers one by one until the requested number runs."""
        while wanted := read_wanted_workers(self.data_dir, service):
            if self._wanted.get(service) != wanted:
                _log.info("%s: the requested number of workers is %d", service, wanted)
                self._wanted[service] = wanted
                self._write_state()
            running = [keeper for keeper in self.keepers if keeper.child.service == service]
            if len(running) == wanted:
                return
            if len(running) > wanted:
                # Until it has ended, the worker is part of the state and is stopped with the stack.
                keeper = running[-1]
                keeping = self._keeping[keeper.child.name]
                keeping.cancel()
                await asyncio.wait([keeping])
                await keeper.stop()
                self.keepers.remove(keeper)
                self._write_state()
                _log.info("%s: stopped", keeper.child.name)
            else:
                child = self._workers[service](len(running) + 1)
                position = self.keepers.index(running[-1]) + 1 if running else len(self.keepers)
                keeper = self._make_keeper(child, position)
                self._keeping[child.name] = tasks.create_task(keeper.start_and_keep(), name=child.name)

    def _make_keeper(self, child: Child, position: int) -> Keeper:
        log = self.data_dir / LOGS / f"{child.name}.log"
        keeper = Keeper(child, log=log, changed=self._write_state, time=self._time)
        self.keepers.insert(position, keeper)
        return keeper

    def _enter(self, phase: address.Phase) -> None:
        self._phase = phase
        _log.info("the stack on %s is %s", self.data_dir, phase)
        self._write_state()

    def _write_state(self) -> None:
        children = tuple(
            address.ChildState(
                name=keeper.child.name, service=keeper.child.service, phase=keeper.phase, pid=keeper.pid,
                port=keeper.child.port, restarts=keeper.restarts, log=str(keeper.log),
                born=read_birth(keeper.pid) if keeper.pid else "",
            )
            for keeper in self.keepers
        )  # fmt: skip
        now = address.State(pid=os.getpid(), url=self.url, phase=self._phase, children=children, wanted=self._wanted)
        try:
            address.write_state(self.data_dir, now)
            self._state_is_written = True
        except OSError as error:
            # The state is only displayed, so a failed write must not end the stack; `_watch_disk` writes it later.
            if self._state_is_written:
                _log.warning("the state cannot be written, so `mathrag status` shows an older one: %s", error)
            self._state_is_written = False


ROTATION_S = 5.0
"""Seconds between two checks of the logs' sizes."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Settings, ports and servers, from which the table of children is built.

    The table has two servers, the migration and five services, without those that run on another machine.
    """

    data_dir: Path
    settings: Settings
    port: int
    ports: dict[str, int]
    postgres: Postgres
    redis: Redis
    service_key: str = field(repr=False)

    @property
    def redis_url(self) -> str:
        """URL of the configured Redis, or of the embedded one."""
        return self.settings.redis_url or self.redis.url()

    @property
    def url(self) -> str:
        """Address that users open in a browser."""
        return f"http://{self._reachable_at}:{self.port}"

    @property
    def _reachable_at(self) -> str:
        # A server that listens on all addresses also answers at the loopback address.
        return "127.0.0.1" if self.settings.host in {"0.0.0.0", "::"} else self.settings.host  # noqa: S104

    def check_servers(self) -> None:
        """Check that the embedded servers are installed and can read the data directory, before anything starts.

        Raises:
            NotInstalled: a server is not installed; the hint is the command that installs it.
            Unavailable: another major version of PostgreSQL wrote the data directory.
        """
        if not self.settings.database_url:
            self.postgres.check_version()
        if not self.settings.redis_url:
            self.redis.command()

    def table(self) -> list[Child | StartupTask | Chore]:
        """Return the rows of the table in their order of start."""
        most = self.settings.telemetry.log_mib << 20
        run = partial(asyncio.to_thread, rotate, self.data_dir / LOGS, most)
        return [
            Chore(name="rotation of logs", run=run, every_s=ROTATION_S),
            *self._make_database(),
            *(() if self.settings.redis_url else (_make_server("redis", self.redis, stop_by=redis.STOP_SIGNAL),)),
            *self._make_services(),
            *self._make_retention(),
        ]

    def _make_retention(self) -> Iterator[Chore]:
        """Yield the purge of old chats. It needs the owner's URL, which only the supervisor knows."""
        retention = self.settings.retention
        owner_url = self.settings.owner_url if self.settings.database_url else self.postgres.owner_url()
        if retention.chat_hours and owner_url:
            yield Chore(name="retention of chats", run=partial(purge_chats, owner_url), every_s=retention.pause_s)

    def _make_database(self) -> Iterator[Child | StartupTask]:
        log = self.data_dir / LOGS / "migration.log"
        if url := self.settings.database_url:
            yield StartupTask(name="schema", run=partial(migrate, self.settings.owner_url or url, log=log))
            return
        server = self.postgres
        yield _make_server("postgres", server, stop_by=postgres.STOP_SIGNAL)
        yield StartupTask(name="database", run=server.create_database)
        yield StartupTask(name="schema", run=partial(migrate, server.owner_url(), log=log))

    def _make_services(self) -> Iterator[Child]:
        """Yield the guards and the retriever, which start together, then all services that need them, also together."""
        guards = [
            self._make_http("guard", self.ports[name], "--device", device.id, name=name)
            for name, device in self._list_guards().items()
        ]
        yield from _start_together(*guards, self._make_http("retriever", self.ports["retriever"]))
        make = self.workers()
        yield from _start_together(
            *map(make["judge"], range(1, self.settings.workers.judges + 1)),
            *map(make["generator"], range(1, self.settings.workers.generators + 1)),
            self._make_http("orchestrator", self.port, host=self._reachable_at),
        )

    def _list_guards(self) -> dict[str, Device]:
        """Return the devices whose guards this stack starts; a device with a guard's address has a guard elsewhere."""
        return {name: device for name, device in self.settings.guards().items() if name in self.ports}

    def _make_http(
        self, service: str, port: int, *arguments: str, host: str = "127.0.0.1", name: str | None = None
    ) -> Child:
        return self._make_service(
            service, name or service, make_http_test(port, host), make_http_answer_test(port, host),
            *arguments, "--port", str(port), port=port,
        )  # fmt: skip

    def workers(self) -> dict[str, Callable[[int], Child]]:
        """Return, by service, a function that creates the worker with a number, from 1."""
        return {
            "judge": partial(self._make_worker, "judge", Lane.JUDGE),
            "generator": partial(self._make_worker, "generator", Lane.GENERATE),
        }

    def _make_worker(self, service: str, lane: Lane, number: int) -> Child:
        """Return a worker; the first has the name of its service, the others also have a number."""
        return self._make_service(
            service,
            service if number == 1 else f"{service}-{number}",
            make_heartbeat_test(self.redis_url, lane),
            make_heartbeat_answer_test(self.redis_url, lane),
        )

    def _make_service(
        self, service: str, name: str, ready: Test, answers: Test, *arguments: str, port: int | None = None
    ) -> Child:
        command = [sys.executable, "-P", "-m", f"services.{service}", *arguments]
        return Child(
            name=name, service=service, command=lambda: command, ready=ready, answers=answers,
            environment=self.environment(), port=port,
        )  # fmt: skip

    def environment(self) -> dict[str, str]:
        """Return the environment of the services, without the owner's URL."""
        further_devices = {}
        if self.settings.devices:
            ports = {device.id: self.ports[name] for name, device in self._list_guards().items()}
            urls = {device: f"http://127.0.0.1:{port}" for device, port in ports.items()}
            described = [
                device.model_copy(update={"guard_url": urls.get(device.id, device.guard_url)}).model_dump(mode="json")
                for device in self.settings.devices
            ]
            further_devices["MATHRAG_DEVICES"] = json.dumps(described)
        return {
            "MATHRAG_DATA_DIR": str(self.data_dir),
            "MATHRAG_DATABASE_URL": self.settings.database_url or self.postgres.url(),
            "MATHRAG_OWNER_URL": "",
            "MATHRAG_REDIS_URL": self.redis_url,
            "MATHRAG_RETRIEVER_URL": f"http://127.0.0.1:{self.ports['retriever']}",
            "MATHRAG_GUARD_URL": f"http://127.0.0.1:{self.ports['guard']}",
            **further_devices,
            "MATHRAG_SERVICE_KEY": self.service_key,
            "MATHRAG_HOST": self.settings.host,
            "MATHRAG_PORT": str(self.port),
            # Unbuffered, so that log lines are written even if the process is killed.
            "PYTHONUNBUFFERED": "1",
        }


def _start_together(first: Child, *others: Child) -> list[Child]:
    return [first, *(replace(other, starts_with_previous=True) for other in others)]


def _make_server(name: str, server: Postgres | Redis, *, stop_by: Signals) -> Child:
    async def is_ready(_pid: int) -> bool:
        return await server.is_ready()

    return Child(
        name=name, command=server.command, ready=is_ready, answers=is_ready, prepare=server.prepare, port=server.port,
        stop_by=stop_by, dies_by=stop_by, grace_s=30.0,
    )  # fmt: skip


def build_stack(settings: Settings, *, data_dir: Path, port: int) -> Stack:
    """Build the stack of a data directory; port 0 picks a free port."""
    privacy.close_to_others(data_dir)
    elsewhere = [device.id for device in settings.devices if device.guard_url]
    guards = (name for name, device in settings.guards().items() if device.id not in elsewhere)
    names = ("postgres", "redis", *guards, "retriever", *(() if port else ("orchestrator",)))
    chosen = redis.load_ports(data_dir, names)
    secret = postgres.load_passwords(data_dir)
    return Stack(
        data_dir=data_dir, settings=settings, port=port or chosen["orchestrator"], ports=chosen,
        postgres=Postgres(data_dir / "postgres", port=chosen["postgres"], passwords=secret),
        redis=Redis(data_dir / "redis", port=chosen["redis"], passwords=secret),
        service_key=settings.service_key or secret.service,
    )  # fmt: skip

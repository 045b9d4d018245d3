"""The table of children: two servers, the schema and five services, without those that run elsewhere."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from signal import Signals

from mathrag.stack import passwords, ports, privacy
from mathrag.stack import postgres as pg
from mathrag.stack import redis as rd
from mathrag.stack.keeper import Child
from mathrag.stack.migration import migrate
from mathrag.stack.readiness import (
    Test,
    make_heartbeat_answer_test,
    make_heartbeat_test,
    make_http_answer_test,
    make_http_test,
)
from mathrag.stack.rotation import rotate
from mathrag.stack.supervisor import LOGS, Chore, StartupTask
from shared.calls import Lane
from shared.runtime import purge
from shared.settings import Device, Settings

ROTATION_S = 5.0
"""Seconds between two checks of the logs' sizes."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Settings, ports and servers from which the table of children is built."""

    data_dir: Path
    settings: Settings
    port: int
    ports: dict[str, int]
    postgres: pg.Postgres
    redis: rd.Redis
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
        # A server that listens on all addresses is reached at the loopback address.
        return "127.0.0.1" if self.settings.host in {"0.0.0.0", "::"} else self.settings.host  # noqa: S104

    def check_servers(self) -> None:
        """Check before anything starts that the embedded servers are installed.

        Raises:
            NotInstalled: one is not; the hint is the command that installs it.
        """
        if not self.settings.database_url:
            self.postgres.command()
        if not self.settings.redis_url:
            self.redis.command()

    def table(self) -> list[Child | StartupTask | Chore]:
        """Return every row of the table in the order in which the supervisor starts them."""
        return [
            self._make_rotation(),
            *self._make_database(),
            *self._make_redis(),
            *self._make_services(),
            *self._make_retention(),
        ]

    def _make_rotation(self) -> Chore:
        most = self.settings.telemetry.log_mib << 20
        run = partial(asyncio.to_thread, rotate, self.data_dir / LOGS, most)
        return Chore(name="rotation of logs", run=run, every_s=ROTATION_S)

    def _make_retention(self) -> Iterator[Chore]:
        """Yield the purge of old chats: only the owner may delete, and only the supervisor knows the owner's URL."""
        hours = self.settings.retention.chat_hours
        owner_url = self.settings.owner_url if self.settings.database_url else self.postgres.owner_url()
        if hours and owner_url:
            run = partial(purge.purge_ended, owner_url, hours)
            yield Chore(name="retention of chats", run=run, every_s=purge.seconds_between_purges(hours))

    def _make_database(self) -> Iterator[Child | StartupTask]:
        log = self.data_dir / LOGS / "migration.log"
        if url := self.settings.database_url:
            yield StartupTask(name="schema", run=partial(migrate, self.settings.owner_url or url, log=log))
            return
        server = self.postgres
        yield _make_server("postgres", server, stop_by=pg.STOP_SIGNAL)
        yield StartupTask(name="database", run=server.create_database)
        yield StartupTask(name="schema", run=partial(migrate, server.owner_url(), log=log))

    def _make_redis(self) -> Iterator[Child]:
        if not self.settings.redis_url:
            yield _make_server("redis", self.redis, stop_by=rd.STOP_SIGNAL)

    def _make_services(self) -> Iterator[Child]:
        """Yield the guards and the retriever, which start together, and then all that need them, which do so, too."""
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
        """Return the devices whose guards this stack starts; a device with a guard's address has one elsewhere."""
        return {name: device for name, device in self.settings.guards().items() if name in self.ports}

    def _make_http(
        self, service: str, port: int, *arguments: str, host: str = "127.0.0.1", name: str | None = None
    ) -> Child:
        return self._make_service(
            service, name or service, make_http_test(port, host), make_http_answer_test(port, host),
            *arguments, "--port", str(port), port=port,
        )  # fmt: skip

    def workers(self) -> dict[str, Callable[[int], Child]]:
        """Return by service a function that makes its worker with a number, from 1."""
        return {
            "judge": partial(self._make_worker, "judge", Lane.JUDGE),
            "generator": partial(self._make_worker, "generator", Lane.GENERATE),
        }

    def _make_worker(self, service: str, lane: Lane, number: int) -> Child:
        """Return a worker; the first has the name of its service, the others have a number, too."""
        return self._make_service(
            service,
            service if number == 1 else f"{service}-{number}",
            make_heartbeat_test(self.redis_url, lane),
            make_heartbeat_answer_test(self.redis_url, lane),
        )

    def _make_service(
        self, service: str, name: str, ready: Test, answers: Test, *arguments: str, port: int | None = None
    ) -> Child:
        command = [sys.executable, "-m", f"services.{service}", *arguments]
        return Child(
            name=name, service=service, command=lambda: command, ready=ready, answers=answers,
            environment=self.environment(), port=port,
        )  # fmt: skip

    def environment(self) -> dict[str, str]:
        """Return the environment of the services, without the owner's URL."""
        return {
            "MATHRAG_DATA_DIR": str(self.data_dir),
            "MATHRAG_DATABASE_URL": self.settings.database_url or self.postgres.url(),
            "MATHRAG_OWNER_URL": "",
            "MATHRAG_REDIS_URL": self.redis_url,
            "MATHRAG_RETRIEVER_URL": f"http://127.0.0.1:{self.ports['retriever']}",
            "MATHRAG_GUARD_URL": f"http://127.0.0.1:{self.ports['guard']}",
            **self._list_further_devices(),
            "MATHRAG_SERVICE_KEY": self.service_key,
            "MATHRAG_HOST": self.settings.host,
            "MATHRAG_PORT": str(self.port),
            # Unbuffered, so that a log line is in its file even if the process is killed.
            "PYTHONUNBUFFERED": "1",
        }

    def _list_further_devices(self) -> dict[str, str]:
        """Return the variable of the further devices, with the addresses of the guards that this stack starts."""
        if not self.settings.devices:
            return {}
        addresses = {device.id: f"http://127.0.0.1:{self.ports[name]}" for name, device in self._list_guards().items()}
        further = (
            device.model_copy(update={"guard_url": addresses.get(device.id, device.guard_url)})
            for device in self.settings.devices
        )
        return {"MATHRAG_DEVICES": json.dumps([device.model_dump(mode="json") for device in further])}


def _start_together(first: Child, *others: Child) -> list[Child]:
    return [first, *(replace(other, beside=True) for other in others)]


def _make_server(name: str, server: pg.Postgres | rd.Redis, *, stop_by: Signals) -> Child:
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
    chosen = ports.load_ports(
        data_dir, ("postgres", "redis", *guards, "retriever", *(() if port else ("orchestrator",)))
    )
    secret = passwords.load_passwords(data_dir)
    return Stack(
        data_dir=data_dir,
        settings=settings,
        port=port or chosen["orchestrator"],
        ports=chosen,
        postgres=pg.Postgres(data_dir / "postgres", port=chosen["postgres"], passwords=secret),
        redis=rd.Redis(data_dir / "redis", port=chosen["redis"], passwords=secret),
        service_key=settings.service_key or secret.service,
    )

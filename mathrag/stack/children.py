"""The table of children: two servers, the schema, five services; what runs elsewhere already is left out."""

import asyncio
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from signal import Signals

from mathrag.stack import passwords, ports, privacy
from mathrag.stack import postgres as pg
from mathrag.stack import redis as rd
from mathrag.stack.keeper import Child
from mathrag.stack.migration import migrate
from mathrag.stack.readiness import Ready, answers, has_heartbeat
from mathrag.stack.rotation import rotate
from mathrag.stack.supervisor import LOGS, Chore, Step
from shared.contracts.calls import Lane
from shared.device_settings import Device
from shared.runtime import chats
from shared.settings import Settings

ROTATION_S = 5.0
"""Between two looks at the logs' sizes."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """Everything that the table is made of."""

    data_dir: Path
    settings: Settings
    port: int
    ports: dict[str, int]
    postgres: pg.Postgres
    redis: rd.Redis
    service_key: str = field(repr=False)

    @property
    def redis_url(self) -> str:
        """The operator's Redis, or ours."""
        return self.settings.redis_url or self.redis.url()

    @property
    def url(self) -> str:
        """What users open."""
        return f"http://{self._reachable_at}:{self.port}"

    @property
    def _reachable_at(self) -> str:
        # A server that listens on every address is reached on the local one.
        return "127.0.0.1" if self.settings.host in {"0.0.0.0", "::"} else self.settings.host  # noqa: S104

    def table(self) -> list[Child | Step | Chore]:
        """Every row, in the order of the start."""
        return [self._rotation(), *self._database(), *self._redis(), *self._services(), *self._retention()]

    def _rotation(self) -> Chore:
        most = self.settings.telemetry.log_mib << 20
        run = partial(asyncio.to_thread, rotate, self.data_dir / LOGS, most)
        return Chore(name="rotation of logs", run=run, every_s=ROTATION_S)

    def _retention(self) -> Iterator[Chore]:
        """Only the owner may delete, and the supervisor is the one process that knows the owner."""
        hours = self.settings.retention.chat_hours
        owner_url = self.settings.owner_url if self.settings.database_url else self.postgres.owner_url()
        if hours and owner_url:
            run = partial(chats.purge_ended, owner_url, hours)
            yield Chore(name="retention of chats", run=run, every_s=chats.pause_s(hours))

    def _database(self) -> Iterator[Child | Step]:
        log = self.data_dir / LOGS / "migration.log"
        if url := self.settings.database_url:
            yield Step(name="schema", run=partial(migrate, self.settings.owner_url or url, log=log))
            return
        server = self.postgres
        yield _server("postgres", server, stop_by=pg.STOP_SIGNAL)
        yield Step(name="database", run=server.create_database)
        yield Step(name="schema", run=partial(migrate, server.owner_url(), log=log))

    def _redis(self) -> Iterator[Child]:
        if not self.settings.redis_url:
            yield _server("redis", self.redis, stop_by=rd.STOP_SIGNAL)

    def _services(self) -> Iterator[Child]:
        for name, device in self._guards().items():
            yield self._http("guard", self.ports[name], "--device", device.id, name=name)
        yield self._http("retriever", self.ports["retriever"])
        yield from self._workers("judge", Lane.JUDGE, self.settings.workers.judges)
        yield from self._workers("generator", Lane.GENERATE, self.settings.workers.generators)
        yield self._http("orchestrator", self.port, host=self._reachable_at)

    def _guards(self) -> dict[str, Device]:
        """Those of ours: a further device that names its guard's address has one that runs elsewhere."""
        return {name: device for name, device in self.settings.guards().items() if name in self.ports}

    def _http(
        self, service: str, port: int, *arguments: str, host: str = "127.0.0.1", name: str | None = None
    ) -> Child:
        return self._service(service, answers(port, host), *arguments, "--port", str(port), port=port, name=name)

    def _workers(self, service: str, lane: Lane, count: int) -> Iterator[Child]:
        """The first is called as its service, the others have a number."""
        for number in range(1, count + 1):
            name = service if number == 1 else f"{service}-{number}"
            yield self._service(service, has_heartbeat(self.redis_url, lane), name=name)

    def _service(
        self, service: str, ready: Ready, *arguments: str, port: int | None = None, name: str | None = None
    ) -> Child:
        command = [sys.executable, "-m", f"services.{service}", *arguments]
        return Child(
            name=name or service, command=lambda: command, ready=ready, environment=self.environment(), port=port
        )

    def environment(self) -> dict[str, str]:
        """What the services are told; the owner's URL is not among it."""
        return {
            "MATHRAG_DATA_DIR": str(self.data_dir),
            "MATHRAG_DATABASE_URL": self.settings.database_url or self.postgres.url(),
            "MATHRAG_OWNER_URL": "",
            "MATHRAG_REDIS_URL": self.redis_url,
            "MATHRAG_RETRIEVER_URL": f"http://127.0.0.1:{self.ports['retriever']}",
            "MATHRAG_GUARD_URL": f"http://127.0.0.1:{self.ports['guard']}",
            **self._further_devices(),
            "MATHRAG_SERVICE_KEY": self.service_key,
            "MATHRAG_HOST": self.settings.host,
            "MATHRAG_PORT": str(self.port),
            # A log line must be in its file when the process is killed.
            "PYTHONUNBUFFERED": "1",
        }

    def _further_devices(self) -> dict[str, str]:
        """As configured, and where the guards that we start for them listen."""
        if not self.settings.devices:
            return {}
        addresses = {device.id: f"http://127.0.0.1:{self.ports[name]}" for name, device in self._guards().items()}
        further = (
            device.model_copy(update={"guard_url": addresses.get(device.id, device.guard_url)})
            for device in self.settings.devices
        )
        return {"MATHRAG_DEVICES": json.dumps([device.model_dump(mode="json") for device in further])}


def _server(name: str, server: pg.Postgres | rd.Redis, *, stop_by: Signals) -> Child:
    async def ready(_pid: int) -> bool:
        return await server.ready()

    return Child(
        name=name, command=server.command, ready=ready, prepare=server.prepare, port=server.port,
        stop_by=stop_by, dies_by=stop_by, grace_s=30.0,
    )  # fmt: skip


def stack(settings: Settings, *, data_dir: Path, port: int) -> Stack:
    """The stack of one data directory; port 0 asks for any free one."""
    privacy.close_to_others(data_dir)
    elsewhere = [device.id for device in settings.devices if device.guard_url]
    guards = (name for name, device in settings.guards().items() if device.id not in elsewhere)
    chosen = ports.remembered(
        data_dir, ("postgres", "redis", *guards, "retriever", *(() if port else ("orchestrator",)))
    )
    secret = passwords.remembered(data_dir)
    return Stack(
        data_dir=data_dir,
        settings=settings,
        port=port or chosen["orchestrator"],
        ports=chosen,
        postgres=pg.Postgres(data_dir / "postgres", port=chosen["postgres"], passwords=secret),
        redis=rd.Redis(data_dir / "redis", port=chosen["redis"], passwords=secret),
        service_key=settings.service_key or secret.service,
    )

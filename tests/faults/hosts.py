"""The services, each on another host: a database, a Redis, a retriever, two guards, two orchestrators, two generator
workers and three judge workers. Each host has its address, its folder, and a clock minutes off every other one.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import asyncpg
import httpx2
from redis import Redis

from mathrag_gate.stack import postgres as postgres_module
from mathrag_gate.stack import process
from mathrag_gate.stack import redis as redis_module
from mathrag_gate.stack.postgres import Passwords
from shared.calls import Lane
from shared.lease.lease import TTL_S
from tests.faults.clocks import Clocks
from tests.faults.network import PREFIX, Network, run_network
from tests.faults.processes import until
from tests.faults.trial import SOONER
from tests.plugins import Site
from tests.running import REPOSITORY, Service
from tests.servers import UNSAFE

WORKERS = {
    **{f"judge-{number}": Lane.JUDGE for number in (1, 2, 3)},
    **{f"generator-{number}": Lane.GENERATE for number in (1, 2)},
}
GUARDS = {"guard-1": "cpu:0", "guard-2": "cpu:1"}
"""The device of each: the first one loads the judge, the second one the generator."""
ORCHESTRATORS = ("orchestrator-1", "orchestrator-2")
OPERATOR = "operator"
"""This process."""
HOSTS = (OPERATOR, "database", "redis", "retriever", *GUARDS, *ORCHESTRATORS, *WORKERS)
PORT, DATABASE_PORT, REDIS_PORT = 8000, 5432, 6379
ASKED = "SELECT 1 FROM pg_stat_activity WHERE client_addr = $1::text::inet AND query_start > $2"
APART_S = 180.0
"""By which the clocks of two neighbours in the list of hosts differ."""
SLOW = """
import asyncio

from services.guard.drivers.plugin import ScriptedDriver, ScriptedServer

class Server(ScriptedServer):
    async def complete(self, *arguments, **options):
        await asyncio.sleep(0.25)
        return await super().complete(*arguments, **options)

class run(ScriptedDriver):
    async def start(self, parallel=None):
        return Server()
"""
# `time.sleep` of Python 3.11 sleeps until a time, which libfaketime refuses (EINVAL).
SLEEP = "import select, time\ntime.sleep = lambda seconds: select.select([], [], [], seconds) and None\n"
RESTARTING = """
trap 'kill $child && wait $child; exit' TERM
while "$@" & child=$!; do
    wait $child
    echo "started again after exit status $?"
    sleep 1
done"""
"""A shell's script that runs a command and starts it again when it ends, as a service manager does."""
MODELS = """\
models:
  judge: {{driver: plugin, plugin: slow, parallel: 4, footprint_mib: 100, device: "cpu:0"}}
  generator: {{driver: plugin, plugin: slow, parallel: 2, footprint_mib: 100, device: "cpu:1"}}
roles: {{judge: judge, generate: generator}}
device: {{id: "cpu:0"}}
guard_url: {first}
devices: [{{id: "cpu:1", guard_url: {second}}}]
"""


class HostedPostgres(postgres_module.Postgres):
    """A PostgreSQL that other hosts reach."""

    address: str

    def prepare(self) -> None:
        super().prepare()
        with (self.directory / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {PREFIX}0/24 scram-sha-256\n")

    def _make_url(self, role: str, password: str, database: str = postgres_module.DATABASE) -> str:
        return super()._make_url(role, password, database).replace("127.0.0.1", self.address)


class HostedRedis(redis_module.Redis):
    """A Redis that other hosts reach."""

    address: str

    def prepare(self) -> None:
        super().prepare()
        with self.config.open("a") as settings:
            settings.write(f"bind {self.address}\n")

    def url(self) -> str:
        return super().url().replace("127.0.0.1", self.address)


class Hosts:
    """All hosts, and the network between them."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.network = network
        self._folder = folder
        secrets = Passwords()
        self._postgres = HostedPostgres(
            folder / "database" / "postgres", port=DATABASE_PORT, passwords=secrets,
            settings={**UNSAFE, "listen_addresses": "*", "max_connections": "200"},
        )  # fmt: skip
        self._redis = HostedRedis(folder / "redis" / "redis", port=REDIS_PORT, passwords=secrets)
        self._postgres.address, self._redis.address = network.addresses["database"], network.addresses["redis"]
        self._clocks = Clocks(folder / "clocks")
        (folder / "clocks").mkdir()
        for number, host in enumerate(HOSTS):
            (folder / host).mkdir(exist_ok=True)
            self._clocks.set(host, (number - len(HOSTS) // 2) * APART_S)
        self._site = Site(folder / "site")
        self._site.folder.mkdir()
        self._site.install("slow", SLOW, kind="driver")
        (self._site.folder / "sitecustomize.py").write_text(SLEEP)
        models = MODELS.format(first=self.url("guard-1"), second=self.url("guard-2"))
        (folder / "mathrag.yaml").write_text(models)
        self.services = {host: Service(self.url(host)) for host in ORCHESTRATORS}

    def url(self, host: str) -> str:
        """Return where a host's service listens."""
        return f"http://{self.network.addresses[host]}:{PORT}"

    @contextmanager
    def run(self) -> Iterator[None]:
        """Run everything inside the block."""
        with ExitStack() as running:
            servers: dict[str, HostedPostgres | HostedRedis] = {"database": self._postgres, "redis": self._redis}
            for host, server in servers.items():
                server.prepare()
                child = running.enter_context(self._spawn(host, server.command(), {}))
                asyncio.run(process.wait_ready(host, child, server.is_ready, log=self.log(host)))
            asyncio.run(self._postgres.create_database())
            migrate = [sys.executable, "-m", "alembic", "-c", str(postgres_module.INI), "upgrade", "head"]
            owner = {"MATHRAG_OWNER_URL": self._postgres.owner_url()}
            subprocess.run(migrate, cwd=REPOSITORY, env={**self._environment(OPERATOR), **owner}, check=True)
            services = [
                running.enter_context(
                    self._spawn(
                        host,
                        ["sh", "-c", RESTARTING, "sh", sys.executable, "-P", "-m", *arguments],
                        self._environment(host),
                    )
                )
                for host, arguments in self._list_services().items()
            ]
            until("every service runs", self.are_well)
            yield
            for child in services:
                child.terminate()

    def are_well(self) -> bool:
        """Tell whether both orchestrators are ready and every worker has a heartbeat."""
        with Redis.from_url(self._redis.url()) as redis:
            beats = len(list(redis.scan_iter(match="mathrag:worker:*")))
        return beats == len(WORKERS) and all(map(self.is_ready, ORCHESTRATORS))

    def is_ready(self, host: str) -> bool:
        """Tell whether an orchestrator, its schedulers and all that it needs are ready."""
        with suppress(httpx2.TransportError):
            return bool(httpx2.get(f"{self.url(host)}/readyz", timeout=30, trust_env=False).is_success)
        return False

    def asks_database(self, host: str, since: datetime) -> bool:
        """Tell whether the database has got a statement of this host since then."""
        return bool(self.rows(ASKED, self.network.addresses[host], since))

    def has_renewed_lease(self, guard: str, within_s: float) -> bool:
        """Tell whether the guard has renewed its lease within the last seconds."""
        with Redis.from_url(self._redis.url()) as redis:
            left_s = int(redis.pttl(f"mathrag:gpu:{{{GUARDS[guard]}}}:lease")) / 1000
        return left_s > 0 and TTL_S - left_s < within_s

    def rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        """Run a statement on the database as its superuser, and return its rows."""

        async def run() -> list[tuple[Any, ...]]:
            secret = self._postgres.passwords.superuser
            url = self._postgres._make_url(postgres_module.SUPERUSER, secret).replace("+asyncpg", "")
            connection = await asyncpg.connect(url)
            try:
                return [tuple(row) for row in await connection.fetch(sql, *values)]
            finally:
                await connection.close()

        return asyncio.run(run())

    def log(self, host: str) -> Path:
        """Return the log of a host's service."""
        return self._folder / f"{host}.log"

    def restarts(self) -> int:
        """Count how often services have been started again."""
        return sum(self.log(host).read_bytes().count(b"\nstarted again ") for host in self._list_services())

    def _list_services(self) -> dict[str, tuple[str, ...]]:
        """List the module and the arguments of each host's service."""
        listed = {
            "retriever": ("services.retriever",),
            **{host: ("services.guard", "--device", device) for host, device in GUARDS.items()},
            **dict.fromkeys(ORCHESTRATORS, ("services.orchestrator",)),
        }
        addressed = {
            host: (*module, "--host", self.network.addresses[host], "--port", str(PORT))
            for host, module in listed.items()
        }
        lanes = {Lane.JUDGE: "services.judge", Lane.GENERATE: "services.generator"}
        return {**addressed, **{host: (lanes[lane],) for host, lane in WORKERS.items()}}

    def _environment(self, host: str) -> dict[str, str]:
        return {
            **os.environ,
            **(self._clocks.environment(host) if host != OPERATOR else {}),
            **SOONER,
            "PYTHONPATH": f"{self._site.folder}:{os.environ.get('PYTHONPATH', '')}",
            "MATHRAG_CONFIG": str(self._folder / "mathrag.yaml"),
            "MATHRAG_DATA_DIR": str(self._folder / host),
            "MATHRAG_DATABASE_URL": self._postgres.url(),
            "MATHRAG_REDIS_URL": self._redis.url(),
            "MATHRAG_RETRIEVER_URL": self.url("retriever"),
            "MATHRAG_SERVICE_KEY": self._postgres.passwords.service,
            "MATHRAG_ACCESS__KEYS": "off",
        }

    @contextmanager
    def _spawn(
        self, host: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> Iterator["subprocess.Popen[bytes]"]:
        command = self.network.command(host, command)
        child = process.spawn(command, log=self.log(host), environment=environment, dies_by=signal.SIGTERM)
        try:
            yield child
        finally:
            asyncio.run(process.stop(child, by=signal.SIGINT if host == "database" else signal.SIGTERM))


@contextmanager
def run_hosts(folder: Path, items: int) -> Iterator[Hosts]:
    """Run the services, each on another host, with the world's data of this many questions."""
    with run_network(HOSTS, folder / "switch.log") as network:
        hosts = Hosts(folder, network)
        with hosts.run():
            try:
                hosts.services[ORCHESTRATORS[0]].furnish(folder / "world", items=items)
                yield hosts
            finally:
                for service in hosts.services.values():
                    service.api.close()

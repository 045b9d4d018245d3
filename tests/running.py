"""The embedded stack as a user sees it: its command line, its API, and its process ids."""

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil

from mathrag.client import address
from mathrag_gate.demo import world
from mathrag_gate.stack import postgres as postgres_module
from mathrag_gate.stack import redis as redis_module
from shared.params import QUALITY_ALONE

REPOSITORY = Path(__file__).parents[1]
DEADLINE_S = 480.0
"""A safety net: no test is about how long something takes."""

Document = dict[str, Any]


class Service:
    """The service at an address, however it came to run there."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.api = httpx2.Client(base_url=url, timeout=60, trust_env=False)

    def get(self, path: str) -> Any:
        """A JSON document of the API, once it answers: it may just have been killed."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            try:
                response = self.api.get(path)
                if response.status_code < 500:
                    return response.json()
            except httpx2.TransportError:
                pass
            assert time.monotonic() < deadline, f"{path} did not answer"
            time.sleep(0.1)

    def furnish(self, folder: Path, *, items: int) -> None:
        """A corpus and a dataset of the problem world, both called "world"."""
        world.write(world.build(1, world.Setting(items=items)), folder)
        for kind, file in (("corpora", "corpus.jsonl"), ("datasets", "dataset.jsonl")):
            response = self.api.post(f"/v1/{kind}", params={"name": "world"}, content=(folder / file).read_bytes())
            assert response.status_code == 201, response.text

    def submit(self, name: str, **fields: Any) -> str:
        """A job over the problem world, its name made unique: tests share a stack; its id."""
        body = {
            "name": f"{name}-{secrets.token_hex(3)}",
            "dataset": "world",
            "corpus": "world",
            "pipeline": "mathrag-gate",
            **fields,
        }
        response = self.api.post("/v1/jobs", json=body)
        assert response.status_code == 202, response.text
        return str(response.json()["id"])

    def wait(self, job: str, until: Callable[[Document], bool]) -> Document:
        """The job's document, once `until` holds for it."""
        deadline = time.monotonic() + DEADLINE_S
        while not until(document := self.get(f"/v1/jobs/{job}")):
            assert time.monotonic() < deadline, f"gave up waiting: {document}"
            time.sleep(0.05)
        found: Document = document
        return found

    def assert_whole(self, job: str) -> None:
        """Wait for a job's end: nothing is lost, nothing failed, and the audit finds nothing."""
        document = self.wait(job, ended)
        counts = document["request_counts"]
        assert document["state"] == "completed", document
        assert (counts["completed"], counts["failed"]) == (counts["total"], 0), document
        violations = self.get(f"/v1/jobs/{job}/audit")["violations"]
        assert violations == [], violations


JUDGED = {"gate": {"tau": 1.0}, **QUALITY_ALONE}
"""Parameters of a job whose judge rates every candidate, whatever rho is."""


class RunningStack(Service):
    """A stack that runs on a data directory."""

    def __init__(self, data_dir: Path, environment: Mapping[str, str] | None = None) -> None:
        self.data_dir = data_dir
        self.environment = environment or {}
        """What it was started with, and is started with again."""
        super().__init__(self.status()["stack"]["url"])

    def status(self) -> Document:
        """What `mathrag status --json` says."""
        found: Document = json.loads(mathrag("status", "--json", "--data-dir", str(self.data_dir)).stdout)
        return found

    def kill(self, name: str) -> None:
        """SIGKILL one of the services with all its children, at once: a stage of small models lasts two seconds."""
        service = psutil.Process(self.pid(name))
        for process in (service, *service.children(recursive=True)):
            process.kill()

    def pid(self, name: str) -> int:
        """The process id of one of the services, read from the file: asking the command line takes a second."""
        pid = self.seen(name).pid
        assert pid is not None
        return pid

    def port(self, name: str) -> int:
        """Where one of its processes listens, read from the file."""
        port = self.seen(name).port
        assert port is not None
        return port

    def seen(self, name: str) -> address.ChildState:
        """One of its processes, as the supervisor last wrote it down."""
        now = address.read_state(self.data_dir)
        assert now is not None
        return next(child for child in now.children if child.name == name)

    def restart(self, name: str) -> None:
        """Tell one service to stop, and wait for the one that the supervisor starts in its place."""
        old = self.pid(name)
        psutil.Process(old).terminate()
        deadline = time.monotonic() + DEADLINE_S
        while (child := self.child(name))["pid"] in (old, None) or child["phase"] != "ready":
            assert time.monotonic() < deadline, f"{name} did not come back"
            time.sleep(0.1)

    def redis_url(self) -> str:
        """Its Redis."""
        secret = postgres_module.load_passwords(self.data_dir)
        return redis_module.Redis(self.data_dir / "redis", port=self.port("redis"), passwords=secret).url()

    def database_url(self) -> str:
        """Its database, as the application's role."""
        secret = postgres_module.load_passwords(self.data_dir)
        return postgres_module.Postgres(self.data_dir / "postgres", port=self.port("postgres"), passwords=secret).url()

    def addresses(self) -> dict[str, str]:
        """All that a worker or a guard elsewhere is told: four addresses, and the key of the services."""
        return {
            "MATHRAG_DATABASE_URL": self.database_url(),
            "MATHRAG_REDIS_URL": self.redis_url(),
            "MATHRAG_GUARD_URL": self.service_url("guard"),
            "MATHRAG_RETRIEVER_URL": self.service_url("retriever"),
            "MATHRAG_SERVICE_KEY": postgres_module.load_passwords(self.data_dir).service,
        }

    def service_url(self, name: str) -> str:
        """Where one of its services listens."""
        return f"http://127.0.0.1:{self.port(name)}"

    def child(self, name: str) -> Document:
        """One of its processes, as the status shows it."""
        found: Document = next(each for each in self.status()["stack"]["children"] if each["name"] == name)
        return found


def ended(document: Document) -> bool:
    """Whether a job's document shows a terminal state."""
    return document["state"] in ("completed", "failed", "cancelled")


def mathrag(*arguments: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command line, as a user calls it."""
    command = [sys.executable, "-m", "mathrag.cli.main", *arguments]
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, **environment},
    )


@contextmanager
def running_stack(data_dir: Path, *options: str, **environment: str) -> Iterator[RunningStack]:
    """A stack on a free port, stopped at the end; `options` are those of `mathrag up`."""
    started = mathrag("up", "--detach", "--data-dir", str(data_dir), "--port", "0", *options, **environment)
    assert started.returncode == 0, started.stderr
    stack = RunningStack(data_dir, environment)
    try:
        yield stack
    finally:
        stack.api.close()
        mathrag("down", "--data-dir", str(data_dir))

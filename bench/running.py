"""Start a benchmark's own stack by the command line, use it over REST, and stop it at the end."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2

from mathrag.client import address
from mathrag.stack import postgres
from mathrag.stack.postgres import Postgres

ENDED = ("completed", "failed", "cancelled")


class Stack:
    """A running embedded stack with a client of its API."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.api = httpx2.Client(base_url=url, timeout=1900, trust_env=False)

    def service_url(self, name: str) -> str:
        """Return the URL where the service listens."""
        return f"http://127.0.0.1:{next(child['port'] for child in self.status()['children'] if child['name'] == name)}"

    def service_key(self) -> str:
        """Return the key with which services call each other."""
        return postgres.load_passwords(self.folder).service

    def database_url(self, *, owner: bool = False) -> str:
        """Return the database's URL for the application's role or the owner."""
        port = next(child["port"] for child in self.status()["children"] if child["name"] == "postgres")
        server = Postgres(self.folder / "postgres", port=port, passwords=postgres.load_passwords(self.folder))
        return server.owner_url() if owner else server.url()

    def status(self) -> dict[str, Any]:
        """Return the stack's status, with its children's process ids."""
        found: dict[str, Any] = json.loads(mathrag("status", "--json", "--data-dir", str(self.folder)))["stack"]
        return found

    def pid(self, name: str) -> int:
        """Return a child's process id, read from the state file because the command line takes a second."""
        now = address.read_state(self.folder)
        pid = next((child.pid for child in now.children if child.name == name), None) if now else None
        if pid is None:
            raise SystemExit(f"{name} is not a running process of the stack")
        return pid

    def upload(self, kind: str, name: str, lines: Iterable[bytes]) -> None:
        """Create a corpus or a dataset."""
        began = time.monotonic()
        self.api.post(f"/v1/{kind}", params={"name": name}, content=b"".join(lines)).raise_for_status()
        print(f"{kind} {name}: {time.monotonic() - began:.1f} s", file=sys.stderr)

    def run(self, **fields: Any) -> dict[str, Any]:
        """Submit a job, wait for its end, and return its document."""
        return self.wait(self.submit(**fields))

    def submit(self, **fields: Any) -> str:
        """Submit a job and return its id."""
        return str(self.api.post("/v1/jobs", json=fields).raise_for_status().json()["id"])

    def wait(self, job: str, poll_s: float = 1.0) -> dict[str, Any]:
        """Return the job's document once it has ended."""
        while (found := self.get(f"/v1/jobs/{job}"))["state"] not in ENDED:
            time.sleep(poll_s)
        return found

    def get(self, path: str) -> Any:
        """Fetch a JSON document."""
        return self.api.get(path).raise_for_status().json()


def seconds_of(job: dict[str, Any]) -> float:
    """Return the seconds from a job's submission to its end, by the database's clock."""
    began, ended = (datetime.fromisoformat(job[name]) for name in ("created_at", "ended_at"))
    return (ended - began).total_seconds()


@contextmanager
def stack(**environment: str) -> Iterator[Stack]:
    """Run a stack in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        mathrag("up", "--detach", "--data-dir", folder, "--port", "0", **environment)
        try:
            url = json.loads(mathrag("status", "--json", "--data-dir", folder))["stack"]["url"]
            yield Stack(Path(folder), url)
        finally:
            mathrag("down", "--data-dir", folder)


def mathrag(*arguments: str, **environment: str) -> str:
    """Run the command line and return its output."""
    command = [sys.executable, "-m", "mathrag.cli.main", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if found.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {found.stderr}")
    return found.stdout

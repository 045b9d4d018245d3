"""A stack of its own for a benchmark: started by the command line, used over REST, stopped at the end."""

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

from mathrag.client import stack_state
from mathrag.stack import passwords
from mathrag.stack.postgres import Postgres

ENDED = ("completed", "failed", "cancelled")


class Stack:
    """A fresh embedded stack and a client of its API."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.api = httpx2.Client(base_url=url, timeout=1900, trust_env=False)

    def service_url(self, name: str) -> str:
        """Where one of its services listens."""
        return f"http://127.0.0.1:{next(child['port'] for child in self.status()['children'] if child['name'] == name)}"

    def service_key(self) -> str:
        """What the services ask each other for."""
        return passwords.remembered(self.folder).service

    def database_url(self, *, owner: bool = False) -> str:
        """Its database, as the application's role or as the owner."""
        port = next(child["port"] for child in self.status()["children"] if child["name"] == "postgres")
        server = Postgres(self.folder / "postgres", port=port, passwords=passwords.remembered(self.folder))
        return server.owner_url() if owner else server.url()

    def status(self) -> dict[str, Any]:
        """Its children, with process ids."""
        found: dict[str, Any] = json.loads(mathrag("status", "--json", "--data-dir", str(self.folder)))["stack"]
        return found

    def pid(self, name: str) -> int:
        """One of its children's process id, from the file: the command line takes a second."""
        now = stack_state.read(self.folder)
        pid = next((child.pid for child in now.children if child.name == name), None) if now else None
        if pid is None:
            raise SystemExit(f"{name} does not run")
        return pid

    def upload(self, kind: str, name: str, lines: Iterable[bytes]) -> None:
        """Create a corpus or a dataset."""
        began = time.monotonic()
        self.api.post(f"/v1/{kind}", params={"name": name}, content=b"".join(lines)).raise_for_status()
        print(f"{kind} {name}: {time.monotonic() - began:.1f} s", file=sys.stderr)

    def run(self, **fields: Any) -> dict[str, Any]:
        """Submit a job and wait for its end; the job's document."""
        return self.wait(self.submit(**fields))

    def submit(self, **fields: Any) -> str:
        """Submit a job; its id."""
        return str(self.api.post("/v1/jobs", json=fields).raise_for_status().json()["id"])

    def wait(self, job: str, poll_s: float = 1.0) -> dict[str, Any]:
        """The job's document once it has ended."""
        while (found := self.get(f"/v1/jobs/{job}"))["state"] not in ENDED:
            time.sleep(poll_s)
        return found

    def get(self, path: str) -> Any:
        """A JSON document."""
        return self.api.get(path).raise_for_status().json()


def seconds_of(job: dict[str, Any]) -> float:
    """From a job's submission to its end, by the database's clock."""
    began, ended = (datetime.fromisoformat(job[name]) for name in ("created_at", "ended_at"))
    return (ended - began).total_seconds()


@contextmanager
def stack(**environment: str) -> Iterator[Stack]:
    """A stack in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        mathrag("up", "--detach", "--data-dir", folder, "--port", "0", **environment)
        try:
            url = json.loads(mathrag("status", "--json", "--data-dir", folder))["stack"]["url"]
            yield Stack(Path(folder), url)
        finally:
            mathrag("down", "--data-dir", folder)


def mathrag(*arguments: str, **environment: str) -> str:
    """The command line's output."""
    command = [sys.executable, "-m", "mathrag.cli.main", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if found.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {found.stderr}")
    return found.stdout

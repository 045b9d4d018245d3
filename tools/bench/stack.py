"""A benchmark's own stack: start it by the command line, fill it, use it over REST, and stop it at the end."""

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import psutil
from safetensors.numpy import load_file, save_file
from sqlalchemy import text

from mathrag.client import address
from mathrag_gate.demo import world
from mathrag_gate.stack.postgres import Postgres, load_passwords
from shared.params import QUALITY_ALONE
from shared.settings import REPOSITORY
from shared.storage.database import Database

ENDED = ("completed", "failed", "cancelled")
MATH = REPOSITORY.parent / "shared" / "data" / "math"
"""A folder with MATH's train.jsonl and test-dev.jsonl, where there is one."""
JUDGED: dict[str, Any] = {
    "dataset": "world", "corpus": "world", "pipeline": "mathrag-gate",
    "params": {"gate": {"tau": 1.0}, **QUALITY_ALONE}, "reuse": "none",
}  # fmt: skip
"""A job on the problem world that reuses nothing, and whose judge scores every candidate."""
FAST: dict[str, Any] = {"driver": "scripted", "footprint_mib": 100, "parallel": 64}
"""A model that answers at once."""
MADE_UP: dict[str, Any] = {
    "dataset": "items", "corpus": "documents", "pipeline": "mathrag-gate", "reuse": "none",
    "params": {"gate": {"tau": 1.0, "items": 10, "top": 2, "min_pairs": 2}, **QUALITY_ALONE},
}  # fmt: skip
"""A job on made-up documents: for each sample a search, ten judgements and a generation, none shared with another."""
DOCUMENTS = 8
"""Made-up documents of each question; the rest of its ten belong to other questions."""
WORDS = "so the sum of both sides is equal to twice the first term and we divide by three to find the answer".split()


class Stack:
    """A running embedded stack with a client of its API."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.api = httpx2.Client(base_url=url, timeout=1900, trust_env=False)

    def service_url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.child(name)['port']}"

    def service_key(self) -> str:
        """Return the key with which services call each other."""
        return load_passwords(self.folder).service

    def database_url(self, *, owner: bool = False) -> str:
        """Return the database's URL for the application's role or the owner."""
        port, known = self.child("postgres")["port"], load_passwords(self.folder)
        server = Postgres(self.folder / "postgres", port=port, passwords=known)
        return server.owner_url() if owner else server.url()

    def child(self, name: str) -> dict[str, Any]:
        children: list[dict[str, Any]] = self.status()["children"]
        return next(child for child in children if child["name"] == name)

    def status(self) -> dict[str, Any]:
        """Return the stack's status, with its children's process ids."""
        found: dict[str, Any] = json.loads(mathrag("status", "--json", "--data-dir", str(self.folder)))["stack"]
        return found

    def pid(self, name: str) -> int | None:
        """Return a ready child's process id, read from the state file because the command line takes a second."""
        now = address.read_state(self.folder)
        ready = (child.pid for child in (now.children if now else ()) if child.phase == "ready" and child.name == name)
        return next(ready, None)

    def rows(self, statement: str, **values: Any) -> Sequence[Any]:
        """Return the rows that the stack's database has for a query."""

        async def read() -> Sequence[Any]:
            database = Database(self.database_url(), pinned=False)
            async with database.statement() as connection:
                found = (await connection.execute(text(statement), values)).all()
            await database.close()
            return found

        return asyncio.run(read())

    def upload(self, kind: str, name: str, lines: Iterable[bytes]) -> None:
        """Create a corpus or a dataset."""
        began = time.monotonic()
        self.api.post(f"/v1/{kind}", params={"name": name}, content=b"".join(lines)).raise_for_status()
        print(f"{kind} {name}: {time.monotonic() - began:.1f} s", file=sys.stderr)

    def upload_world(self, items: int) -> None:
        world.write(world.build(1, world.Setting(items=items)), self.folder)
        self.upload("corpora", "world", [(self.folder / "corpus.jsonl").read_bytes()])
        self.upload("datasets", "world", [(self.folder / "dataset.jsonl").read_bytes()])

    def upload_made_up(self, items: int) -> None:
        """Upload questions with a rare word each, and documents of about 1.2 kB that contain it."""
        dice = random.Random(1)
        documents = (
            {"text": f"w{item}x " + " ".join(dice.choices(WORDS, k=270))}
            for item in range(items)
            for _ in range(DOCUMENTS)
        )
        self.upload("corpora", "documents", as_lines(documents))
        self.upload_questions("items", items)

    def upload_questions(self, name: str, items: int) -> None:
        """Upload a dataset of questions about the first made-up documents."""
        self.upload("datasets", name, as_lines({"question": f"What is w{item}x?"} for item in range(items)))

    def submit(self, **fields: Any) -> str:
        return str(self.api.post("/v1/jobs", json=fields).raise_for_status().json()["id"])

    def wait(self, job: str, poll_s: float = 1.0) -> dict[str, Any]:
        """Return the job's document once it has ended."""
        found: dict[str, Any] = self.get(f"/v1/jobs/{job}")
        while found["state"] not in ENDED:
            time.sleep(poll_s)
            found = self.get(f"/v1/jobs/{job}")
        return found

    def run(self, **fields: Any) -> dict[str, Any]:
        """Submit a job, and return its document once it has ended, however that may be."""
        return self.wait(self.submit(**fields))

    def complete(self, **fields: Any) -> dict[str, Any]:
        """Submit a job, and return its document once it is complete.

        Raises:
            SystemExit: it ended in another way.
        """
        return check_completed(self.run(**fields))

    def report(self, job: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self.get(f"/v1/jobs/{job['id']}/report")
        return found

    def processes(self) -> dict[str, list[psutil.Process]]:
        """Return the processes of each child, and the supervisor's, by name."""
        state = address.read_state(self.folder)
        if state is None:
            raise SystemExit(f"no stack runs in {self.folder}")
        trees = {child.name: processes_below(child.pid) for child in state.children if child.pid}
        return {**trees, "supervisor": [psutil.Process(state.pid)]}

    def cpu_s(self) -> dict[str, float]:
        """Return the processor seconds of each child so far, with those of its children that have ended."""
        trees = self.processes().items()
        return {name: sum(map(cpu_s_of, tree)) for name, tree in trees}

    def loads(self) -> int:
        """Count the model servers started so far."""
        return int(self.rows("SELECT COALESCE(sum(jsonb_array_length(servers)), 0) FROM residencies")[0][0])

    def get(self, path: str) -> Any:
        return self.api.get(path).raise_for_status().json()


def check_completed(job: dict[str, Any]) -> dict[str, Any]:
    """Return the job, or exit if it is not complete."""
    if job["state"] != "completed":
        raise SystemExit(f"the job {job['name']} is {job['state']}: {job['reason']}")
    return job


def as_lines(rows: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    return (json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows)


def seconds_of(job: dict[str, Any]) -> float:
    """Return the seconds from a job's submission to its end, by the database's clock."""
    began, ended = (datetime.fromisoformat(job[name]) for name in ("created_at", "ended_at"))
    return (ended - began).total_seconds()


def rate_of(job: dict[str, Any]) -> float:
    """Return a job's stored replies per second of its wall time."""
    return float(sum(stage["done"] for stage in job["stages"].values()) / seconds_of(job))


def cpu_s_of(process: psutil.Process) -> float:
    """Return a process's processor seconds; one that has just ended has none, because its parent has them."""
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0


def processes_below(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


@contextmanager
def start_stack(**environment: str) -> Iterator[Stack]:
    """Run a stack in a temporary folder."""
    with tempfile.TemporaryDirectory() as folder:
        mathrag("up", "--detach", "--data-dir", folder, "--port", "0", **environment)
        try:
            url = json.loads(mathrag("status", "--json", "--data-dir", folder))["stack"]["url"]
            yield Stack(Path(folder), url)
        finally:
            mathrag("down", "--data-dir", folder)


@contextmanager
def start_scripted(
    judge: dict[str, Any] = FAST, generator: dict[str, Any] = FAST, **environment: str
) -> Iterator[Stack]:
    """Run a stack whose models answer at once, unless others are given, and whose search costs little."""
    with tempfile.TemporaryDirectory() as folder:
        models = {
            "MATHRAG_MODELS": json.dumps({"j": judge, "g": generator}),
            "MATHRAG_ROLES": '{"judge": "j", "generate": "g"}',
            "MATHRAG_RETRIEVAL__EMBEDDINGS__PATH": str(cut_embeddings(Path(folder))),
        }
        with start_stack(**models, **environment) as running:
            yield running


def cut_embeddings(folder: Path) -> Path:
    """Write the shipped embeddings, cut to 16 dimensions."""
    shipped = REPOSITORY / "models" / "static-embeddings"
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_bytes((shipped / name).read_bytes())
    tensors = load_file(shipped / "model.safetensors")
    tensors["embeddings"] = tensors["embeddings"][:, :16].copy()
    save_file(tensors, folder / "model.safetensors")
    return folder


def mathrag(*arguments: str, **environment: str) -> str:
    """Run the command line and return its output."""
    command = [sys.executable, "-m", "mathrag.cli.main", *arguments]
    found = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if found.returncode:
        raise SystemExit(f"{' '.join(arguments)}: {found.stderr}")
    return found.stdout

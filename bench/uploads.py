"""Measure uploads against COPY: the cost of reading, checking, hashing and storing rows, over storing them only.

    .venv/bin/python -m bench.uploads --rows 100000

Floor: asyncpg's COPY of the finished rows into tables of the same shape and foreign keys. System: the upload's
own path below HTTP: JSON lines from disk, reader, storage. Both in turn, five times, on an embedded
PostgreSQL with its usual durability. Memory: growth of a fresh process's peak over that of a small upload.
"""

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg

from mathrag.stack import postgres as postgres_module
from mathrag.stack import process
from mathrag.stack.postgres import Passwords, migrate
from mathrag.stack.redis import find_free_port
from services.orchestrator.api.uploads import read_batches
from shared.ingest import datasets as datasets_module
from shared.ingest import rows
from shared.ingest.lines import Reader
from shared.storage import corpora as stored_corpora
from shared.storage import datasets as stored_datasets
from shared.storage.database import Database

ROUNDS = 5
WORDS = "so the sum of both sides is equal to twice the first term and we divide by three to find the answer".split()
FOREIGN_KEYS = """
    SELECT pg_get_constraintdef(oid) AS definition FROM pg_constraint
    WHERE conrelid = $1::text::regclass AND contype = 'f'"""
TABLES = {"datasets": ("items",), "corpora": ("documents", "corpus_documents")}


def main() -> None:
    """Print raw figures, ratios and memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--memory", nargs=3, metavar=("URL", "KIND", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.memory:
        print(asyncio.run(growth(*options.memory)))
        return
    with TemporaryDirectory() as folder, server(Path(folder)) as running:
        for kind in TABLES:
            asyncio.run(measured(running, kind, written(Path(folder), kind, options.rows)))
            for count in (options.rows // 10, options.rows):
                grown = in_a_process(running.url(), kind, written(Path(folder), kind, count))
                print(f"{kind}: {count} rows, peak memory + {grown / 2**20:.1f} MiB")


async def measured(running: postgres_module.Postgres, kind: str, file: Path) -> None:
    """Measure floor and system in turn, and print each figure."""
    bare: list[float] = []
    ours: list[float] = []
    async with connected(running.owner_url()) as owner, database(running.url()) as application:
        await system(application, kind, "rows", file)
        finished = {table: await owner.fetch(f"SELECT * FROM {table}") for table in TABLES[kind]}  # noqa: S608
        for _ in range(ROUNDS):
            bare.append(await floor(owner, finished))
            await owner.execute("TRUNCATE corpora, datasets, documents RESTART IDENTITY CASCADE")
            ours.append(await system(application, kind, "rows", file))
            print(
                f"{kind}: COPY {bare[-1]:.3f} s, upload {ours[-1]:.3f} s, ratio {ours[-1] / bare[-1]:.2f}", flush=True
            )
    ratios = [system / floor for system, floor in zip(ours, bare, strict=True)]
    print(f"{kind}: ratio {median(ratios):.2f} (median of {ROUNDS}), {min(ours) / min(bare):.2f} (of the fastest)")


async def floor(owner: asyncpg.Connection, finished: dict[str, list[Any]]) -> float:
    """COPY finished rows into empty tables of the same shape; return the seconds, commit included."""
    for table in finished:
        await owner.execute(
            f"DROP TABLE IF EXISTS bare_{table}; CREATE TABLE bare_{table} (LIKE {table} INCLUDING ALL)"
        )
        for key in await owner.fetch(FOREIGN_KEYS, table):
            await owner.execute(f"ALTER TABLE bare_{table} ADD {key['definition']}")
    began = time.perf_counter()
    async with owner.transaction():
        for table, found in finished.items():
            await owner.copy_records_to_table(f"bare_{table}", records=found)
    return time.perf_counter() - began


async def system(application: Database, kind: str, name: str, file: Path) -> float:
    """Upload a file; return the seconds up to the commit."""
    began = time.perf_counter()
    with file.open("rb") as opened:
        read = rows.read(opened, "upload")
        if kind == "corpora":
            reader = Reader(
                read, lambda line, number: datasets_module.record(line, str(number)), datasets_module.document_id
            )
            async with aclosing(read_batches(iter(reader))) as records:
                await stored_corpora.create(application, name, records)
        else:
            asked = Reader(read, lambda line, _: datasets_module.item(line), datasets_module.question_id)
            async with aclosing(read_batches(iter(asked))) as records:
                await stored_datasets.create(application, name, records)
    return time.perf_counter() - began


async def growth(url: str, kind: str, file: str) -> int:
    """Return the bytes that an upload adds to this process's peak, over that of its first thousand rows."""
    small = written(Path(file).parent, kind, 1000)
    async with database(url) as application:
        await system(application, kind, f"small-{time.monotonic_ns()}", small)
        before = peak()
        await system(application, kind, f"large-{time.monotonic_ns()}", Path(file))
    return peak() - before


def peak() -> int:
    """Return the peak of this process's resident memory, in bytes."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def in_a_process(url: str, kind: str, file: Path) -> int:
    """Return `growth` in a new process."""
    command = [sys.executable, "-m", "bench.uploads", "--memory", url, kind, str(file)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def written(folder: Path, kind: str, count: int) -> Path:
    """Write JSON lines: questions of about 150 characters, or documents of about 1.2 kB, each with an id."""
    file = folder / f"{kind}-{count}.jsonl"
    with file.open("w") as opened:
        opened.writelines(json.dumps(fields) + "\n" for fields in (question if kind == "datasets" else document)(count))
    return file


def question(count: int) -> Iterator[dict[str, Any]]:
    """Yield questions in the form of MATH-500, without the solution."""
    dice = random.Random(1)
    for number in range(count):
        text = f"What is w{number} of {' '.join(dice.choices(WORDS, k=30))}?"
        yield {"unique_id": f"q{number}", "problem": text, "answer": str(number), "subject": "Algebra", "level": 3}


def document(count: int) -> Iterator[dict[str, Any]]:
    """Yield documents in the form of MATH, a problem and its solution."""
    dice = random.Random(1)
    for number in range(count):
        text = f"w{number} {' '.join(dice.choices(WORDS, k=270))}"
        yield {"unique_id": f"d{number}", "problem": f"What is w{number}?", "solution": text, "subject": "Algebra"}


@contextmanager
def server(folder: Path) -> Iterator[postgres_module.Postgres]:
    """Run an embedded PostgreSQL at the newest migration."""
    found = postgres_module.Postgres(folder / "postgres", port=find_free_port(), passwords=Passwords())
    found.prepare()
    log = folder / "postgres.log"
    child = process.spawn(found.command(), log=log, dies_by=postgres_module.STOP_SIGNAL)
    try:
        asyncio.run(process.wait_ready("postgres", child, found.is_ready, log=log))
        asyncio.run(found.create_database())
        asyncio.run(migrate(found.owner_url()))
        yield found
    finally:
        asyncio.run(process.stop(child, by=postgres_module.STOP_SIGNAL))


@asynccontextmanager
async def connected(url: str) -> Any:
    """Open an asyncpg connection, without the application's pool."""
    connection = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def database(url: str) -> Any:
    """Open the database as the API does."""
    found = Database(url, pinned=False)
    try:
        yield found
    finally:
        await found.close()


if __name__ == "__main__":
    main()

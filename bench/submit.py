"""Measure the submission of a job against COPY of the rows that it inserts.

    .venv/bin/python -m bench.submit --items 100000

Floor: asyncpg's COPY of the job's samples into a table of the same shape. System: `submit`, from the request to the
commit that makes 202 true. Both in turn, five times, on an embedded PostgreSQL with its usual durability. The memory
is this process's: what a submit adds to its peak.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import asyncpg

from bench.uploads import ROUNDS, connected, database, peak, server, system, written
from mathrag.stack import postgres as postgres_module
from shared.runtime import pins
from shared.runtime.pins import ModelIdentity
from shared.runtime.submit import Submission, submit
from shared.settings import Settings
from shared.storage.database import Database

ROLES = '{"judge": "j", "generate": "g"}'


def main() -> None:
    """Print raw figures, the ratio and the memory."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=100_000)
    options = parser.parse_args()
    with TemporaryDirectory() as folder, server(Path(folder)) as running:
        file = written(Path(folder), "datasets", options.items)
        asyncio.run(measure(running, file))


async def measure(running: postgres_module.Postgres, file: Path) -> None:
    """Measure floor and system in turn, and print each figure."""
    ratios = []
    settings = Settings(roles=json.loads(ROLES))
    async with connected(running.owner_url()) as owner, database(running.url()) as application:
        await system(application, "datasets", "items", file)
        await register(application)
        before = peak()
        for number in range(ROUNDS):
            submission = Submission(name=f"job-{number}", dataset="items", pipeline="closed-book")
            began = time.perf_counter()
            await submit(application, settings, submission)
            ours = time.perf_counter() - began
            bare = await floor(owner)
            ratios.append(ours / bare)
            print(f"COPY {bare:.3f} s, submit {ours:.3f} s, ratio {ours / bare:.2f}")
    print(f"ratio {median(ratios):.2f} (median of {ROUNDS}); peak memory + {(peak() - before) / 2**20:.1f} MiB")


async def register(application: Database) -> None:
    """Register the models that the job needs."""
    async with application.transaction() as connection:
        for name in ("j", "g"):
            await pins.register(connection, ModelIdentity(name=name, backend="scripted", digest=name))


async def floor(owner: asyncpg.Connection) -> float:
    """COPY the newest job's samples into an empty table of the same shape; return the seconds, commit included."""
    await owner.execute("DROP TABLE IF EXISTS bare; CREATE TABLE bare (LIKE samples INCLUDING ALL EXCLUDING IDENTITY)")
    rows = await owner.fetch("SELECT * FROM samples WHERE job_id = (SELECT max(id) FROM jobs)")
    began = time.perf_counter()
    async with owner.transaction():
        await owner.copy_records_to_table("bare", records=rows)
    return time.perf_counter() - began


if __name__ == "__main__":
    main()

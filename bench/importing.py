"""Measure the import of answers against COPY of the same rows, in turns.

.venv/bin/python -m bench.importing --answers 20000
"""

import argparse
import asyncio
import time
from statistics import median

import asyncpg
import msgspec

from bench.running import Stack, stack

ITEMS = 1000
TEXT = "Therefore the sum is as was to be shown. " * 20


def main() -> None:
    """Run both on one stack; only their ratio means something."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with stack() as running:
        questions = [{"id": str(n), "question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(ITEMS)]
        running.upload("datasets", "sums", (msgspec.json.encode(each) + b"\n" for each in questions))
        lines = [
            {"index": n % ITEMS, "repeat": n // ITEMS, "text": f"{TEXT}$\\boxed{{{n}}}$"}
            for n in range(options.answers)
        ]
        pairs = [(_time_import(running, lines, number), _time_copy(running, lines)) for number in range(options.rounds)]
    imported, copied = (median(times) for times in zip(*pairs, strict=True))
    print(
        f"{len(lines)} answers: imported in {imported:.2f} s, copied in {copied:.2f} s, {imported / copied:.1f} times"
    )


def _time_import(running: Stack, lines: list[dict[str, object]], number: int) -> float:
    body = b"".join(msgspec.json.encode(line) + b"\n" for line in lines)
    begun = time.perf_counter()
    reply = running.api.post("/v1/jobs/import", params={"name": f"theirs-{number}", "dataset": "sums"}, content=body)
    reply.raise_for_status()
    return time.perf_counter() - begun


def _time_copy(running: Stack, lines: list[dict[str, object]]) -> float:
    rows = [(n, msgspec.json.encode(line)) for n, line in enumerate(lines)]
    return asyncio.run(_copy(running.database_url(owner=True), rows))


async def _copy(url: str, rows: list[tuple[int, bytes]]) -> float:
    connection = await asyncpg.connect(url.replace("postgresql+asyncpg", "postgresql"))
    await connection.execute("CREATE TEMP TABLE copied (n integer PRIMARY KEY, content bytea)")
    begun = time.perf_counter()
    await connection.copy_records_to_table("copied", records=rows)
    seconds = time.perf_counter() - begun
    await connection.close()
    return seconds


if __name__ == "__main__":
    main()

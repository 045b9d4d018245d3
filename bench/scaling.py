"""What more workers of the judge lane bring: one against three, in turns, at a fast and at a slow model.

    .venv/bin/python -m bench.scaling --items 300

The fast one keeps the processor busy, so that cores are the limit; the slow one only waits, so that workers are. Both
stacks run all the time, and one of them idles. Counted are stored replies over the job's wall time.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from bench.running import Stack, stack
from bench.throughput import PARAMS, furnish, small_embeddings
from mathrag.stack.redis import find_free_port

WORKERS = (1, 3)
SECONDS = 0.5
"""Duration of a call to the slow model."""
FAST = {"driver": "scripted", "footprint_mib": 100, "parallel": 64}


def main() -> None:
    """Run both models in turn, print every figure, then the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("fast", "slow"), help="one of the two models")
    options = parser.parse_args()
    if options.only != "slow":
        compare("at once", FAST, options.items, options.rounds)
    if options.only != "fast":
        with slow_model() as url:
            slow = {"driver": "remote", "url": url, "parallel": 1000}
            compare(f"{SECONDS} s a call", slow, options.items, options.rounds)


def compare(kind: str, judge: dict[str, Any], items: int, rounds: int) -> None:
    """Print calls per second with one worker and with three, for one kind of judge."""
    with ExitStack() as opened:
        stacks = {count: opened.enter_context(stack_with(judge, count)) for count in WORKERS}
        for running in stacks.values():
            furnish(running, items)
        rates: dict[int, list[float]] = {count: [] for count in WORKERS}
        for number in range(1, rounds + 1):
            for count, running in stacks.items():
                rates[count].append(rate(running, f"round-{number}"))
            print(f"  {kind}, round {number}: " + ", ".join(f"{n} workers {rates[n][-1]:.0f}/s" for n in WORKERS))
    one, three = (median(rates[count]) for count in WORKERS)
    print(f"{kind}: {one:.0f}/s with {WORKERS[0]}, {three:.0f}/s with {WORKERS[1]} workers, ratio {three / one:.2f}")


def rate(running: Stack, name: str) -> float:
    """Run a job that reuses nothing; return its stored replies per second of its wall time."""
    fields = {"dataset": "items", "corpus": "documents", "pipeline": "mathrag-gate", "params": PARAMS}
    found = running.run(name=name, reuse="none", **fields)
    if found["state"] != "completed":
        raise SystemExit(f"the job is {found['state']}: {found['reason']}")
    made = sum(running.get(f"/v1/jobs/{found['id']}/report")["calls_made"].values())
    ended, created = (datetime.fromisoformat(found[field]) for field in ("ended_at", "created_at"))
    return float(made / (ended - created).total_seconds())


@contextmanager
def stack_with(judge: dict[str, Any], workers: int) -> Iterator[Stack]:
    """Run a stack with this number of workers in the judge lane."""
    with TemporaryDirectory() as folder:
        environment = {
            "MATHRAG_MODELS": json.dumps({"j": judge, "g": FAST}),
            "MATHRAG_ROLES": '{"judge": "j", "generate": "g"}',
            "MATHRAG_RETRIEVAL__EMBEDDINGS__PATH": str(small_embeddings(Path(folder))),
            "MATHRAG_WORKERS__JUDGES": str(workers),
        }
        with stack(**environment) as running:
            yield running


@contextmanager
def slow_model() -> Iterator[str]:
    """Run a model server that waits before it answers; yield its address."""
    port = find_free_port()
    command = [sys.executable, "-m", "bench.slow_model", "--port", str(port), "--seconds", str(SECONDS)]
    process = subprocess.Popen(command)
    try:
        while not _answers(f"http://127.0.0.1:{port}/health"):
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, trust_env=False).status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False


if __name__ == "__main__":
    main()

"""Measure the cost of traces, logs and metrics: `python -m bench.telemetry --items 400 --rounds 5`.

1. Off: what each place in the hot path adds while nothing is traced, as a share of the time of one call.
2. On against off, end to end: two stacks with models that answer at once, one of which sends its spans to a collector
   on the same machine; jobs alternate between them. Ratios of calls per second and of processor time per call.
3. A scrape: how long it takes to derive the metrics, with the rows of all these jobs.
"""

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import NamedTuple

import httpx2
import psutil

from bench.running import Stack
from bench.throughput import PARAMS, furnish, throughput_stack
from services.guard import guard
from services.guard.drivers.plugin import ScriptedServer
from shared.calls import Decoding, ModelCall
from shared.telemetry import logs
from tests.doubles.collector import run_collector

CALL = ModelCall(id=1, model_id=1, prompt="What is 2+3? Rating:", decoding=Decoding(), seed=1)
LOOPS = 200_000
CHUNK = 16


def main() -> None:
    """Measure all three and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    added = off()
    with (
        run_collector() as collector,
        stack_with("", options.items) as without,
        stack_with(collector.url, options.items) as traced,
    ):
        jobs_off, jobs_on = alternate([without, traced], options.rounds)
        spans = len(collector.spans())
        scrape = time_scrape(without)
    rates_off, rates_on = ([job.calls_s for job in jobs] for jobs in (jobs_off, jobs_on))
    cpu_off, cpu_on = ([job.cpu_s for job in jobs] for jobs in (jobs_off, jobs_on))
    print(f"off: {added * 1e9:.0f} ns a call, {added / statistics.median(cpu_off):.2%} of a call's processor time")
    print(f"on against off: calls/s {ratio(rates_on, rates_off)}, processor time a call {ratio(cpu_on, cpu_off)}")
    print(f"{spans} spans arrived")
    print(f"a scrape: {scrape * 1e3:.0f} ms")


def off() -> float:
    """Return the seconds that disabled telemetry adds to a call: the guard's check and its share of the log fields."""
    resident = guard.ServedModel(ScriptedServer(), 1, name="m", driver="scripted")  # type: ignore[arg-type]
    looked = time_call(lambda: guard._answer_traced(resident, CALL)) - time_call(lambda: guard._answer(resident, CALL))
    return max(looked, 0.0) + bound() / CHUNK


def time_call(call: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds of one call in the fastest of five loops."""

    async def loop() -> float:
        began = time.perf_counter()
        for _ in range(LOOPS // 5):
            await call()
        return (time.perf_counter() - began) / (LOOPS // 5)

    return min(asyncio.run(loop()) for _ in range(5))


def bound() -> float:
    """Return the seconds that it takes to bind three fields to the log lines of a chunk."""
    began = time.perf_counter()
    for number in range(LOOPS):
        logs.bind(role="judge", epoch=number, claim="a-token")
    return (time.perf_counter() - began) / LOOPS


@contextmanager
def stack_with(endpoint: str, items: int) -> Iterator[Stack]:
    """Run a stack with data that sends its spans to `endpoint`."""
    os.environ["MATHRAG_TELEMETRY__OTLP_ENDPOINT"] = endpoint
    with throughput_stack(CHUNK, 1) as running:
        furnish(running, items)
        yield running


class Job(NamedTuple):
    """Figures of one job."""

    calls_s: float
    cpu_s: float
    """Processor seconds of all services, per call."""


def alternate(stacks: list[Stack], rounds: int) -> list[list[Job]]:
    """Run jobs on the stacks in turn; the first round warms up and does not count."""
    found: list[list[Job]] = [[] for _ in stacks]
    for number in range(rounds + 1):
        for running, jobs in zip(stacks, found, strict=True):
            job = run_job(running, f"job-{number}")
            jobs += [job] if number else []
    return found


def run_job(running: Stack, name: str) -> Job:
    """Run a job that reuses nothing."""
    before = cpu_of(running)
    found = running.run(
        name=name, dataset="items", corpus="documents", pipeline="mathrag-gate", params=PARAMS, reuse="none"
    )
    calls = sum(stage["done"] for stage in found["stages"].values())
    seconds = datetime.fromisoformat(found["ended_at"]) - datetime.fromisoformat(found["created_at"])
    return Job(calls / seconds.total_seconds(), (cpu_of(running) - before) / calls)


def cpu_of(running: Stack) -> float:
    """Sum the processor seconds of a stack's services so far."""
    total = 0.0
    for child in running.status()["children"]:
        process = psutil.Process(child["pid"])
        total += sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)))
    return total


def time_scrape(running: Stack) -> float:
    """Return the seconds of the slowest of five scrapes, none of them from the cache."""
    slowest = 0.0
    for number in range(5):
        run_job(running, f"scraped-{number}")
        time.sleep(5.1)  # a scrape is cached for 5 s
        began = time.perf_counter()
        httpx2.get(f"{running.url}/metrics", trust_env=False).raise_for_status()
        slowest = max(slowest, time.perf_counter() - began)
    return slowest


def ratio(these: list[float], those: list[float]) -> str:
    """Show the ratio of the medians, with the range of the pairs."""
    pairs = sorted(this / that for this, that in zip(these, those, strict=True))
    return f"{statistics.median(these) / statistics.median(those):.2f} ({pairs[0]:.2f} to {pairs[-1]:.2f})"


if __name__ == "__main__":
    main()

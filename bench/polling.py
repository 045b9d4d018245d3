"""Measure the latency of polling a running job 200 times a second, against `/healthz` at the same rate.

    .venv/bin/python -m bench.polling

Half of the polls send the last ETag, as a well-behaved client does.
"""

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from statistics import quantiles

import httpx2

from bench.throughput import PARAMS, furnish, throughput_stack


def main() -> None:
    """Poll while a job runs; print p50 and p99 of both, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=200, help="requests per second")
    parser.add_argument("--seconds", type=int, default=10, help="length of each phase")
    parser.add_argument("--items", type=int, default=10_000)
    options = parser.parse_args()
    with throughput_stack(chunk=16, judges=1) as running:
        furnish(running, options.items)
        job = running.submit(name="job", dataset="items", corpus="documents", pipeline="mathrag-gate", params=PARAMS)
        while running.get(f"/v1/jobs/{job}")["stages"].get("judge", {"done": 0})["done"] < 1000:
            time.sleep(0.2)
        for number in range(1, 4):
            health = asyncio.run(poll(running.url, "/healthz", options.rate, options.seconds))
            polls = asyncio.run(poll(running.url, f"/v1/jobs/{job}", options.rate, options.seconds))
            state = running.get(f"/v1/jobs/{job}")["state"]
            print(f"round {number} (job {state}): /healthz {show(health)}; job {show(polls)}; "
                  f"ratio of p99 {p99(polls) / p99(health):.2f}", flush=True)  # fmt: skip
        running.api.post(f"/v1/jobs/{job}/cancel")


async def poll(url: str, path: str, rate: int, seconds: int) -> list[float]:
    """Return the seconds of every request; they start on a fixed schedule, answered or not."""
    taken: list[float] = []
    async with httpx2.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
        ask = make_request(client, path, taken)
        began, tasks = time.perf_counter(), []
        for number in range(rate * seconds):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            tasks.append(asyncio.create_task(ask(number)))
        await asyncio.gather(*tasks)
    return taken


def make_request(client: httpx2.AsyncClient, path: str, taken: list[float]) -> Callable[[int], Awaitable[None]]:
    """Make a function that sends one request and notes its seconds; every other request is conditional."""
    tags: list[str] = [""]

    async def ask(number: int) -> None:
        began = time.perf_counter()
        reply = await client.get(path, headers={"If-None-Match": tags[0]} if tags[0] and number % 2 else {})
        taken.append(time.perf_counter() - began)
        if reply.status_code not in (200, 304):
            raise SystemExit(f"{path}: {reply.status_code} {reply.text[:200]}")
        tags[0] = reply.headers.get("etag", "")

    return ask


def p99(taken: list[float]) -> float:
    return quantiles(taken, n=100)[98]


def show(taken: list[float]) -> str:
    """Show median and 99th percentile in milliseconds."""
    return f"p50 {1000 * quantiles(taken, n=2)[0]:.1f} ms, p99 {1000 * p99(taken):.1f} ms"


if __name__ == "__main__":
    main()

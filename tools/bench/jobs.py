"""Jobs on a running stack: time, calls, loads, scaling, polls, traces; an idle stack, and a command's start."""

import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from statistics import median, quantiles
from typing import Any

import httpx2
import psutil
import uvicorn
from fastapi import FastAPI, Response

from mathrag_gate.stack.redis import find_free_port
from services.guard import guard
from services.guard.drivers.plugin import ScriptedServer
from shared.calls import Decoding, ModelCall
from shared.telemetry import logs
from tests.doubles.collector import run_collector
from tools.bench import Rows, benchmark, in_turn
from tools.bench.stack import (
    FAST,
    JUDGED,
    MADE_UP,
    Stack,
    as_lines,
    processes_below,
    rate_of,
    seconds_of,
    start_scripted,
    start_stack,
)  # fmt: skip
from tools.bench.staging import prompts_of_roles, samples_of, time_roles

COMMANDS = (("--help",), ("--version",), ("job", "--help"), ("status",), ("job", "list"))
CALL = ModelCall(id=1, model_id=1, prompt="What is 2+3? Rating:", decoding=Decoding(), seed=1)
LOOPS = 200_000
CHUNK = 16
SIZES = (1, 10, 500, 5000)
WORKERS = (1, 3)
SLOW_S = 0.5
"""Duration of a call to the slow model."""
SETTLE_S = 20
IDLE_MIB = 1024
"""Limit of an idle stack's memory."""
STREAM = (
    'data: {"object": "chat.completion.chunk", "id": "1", "created": 1, "model": "slow", "choices": [{"index": 0, '
    '"finish_reason": "stop", "delta": {"role": "assistant", "content": "[[4]]"}}]}\n\ndata: [DONE]\n\n'
)


@benchmark
def floor(items: int = 200, rounds: int = 5) -> Rows:
    """Time a job against its floor: two loads, and the same prompts through the guard's own driver.

    Both use the shipped models at the same concurrency, one model at a time. The floor does nothing else: no retrieval,
    no gate, no grading, no database.
    """
    with start_stack() as running:
        running.upload_world(items)
        first = running.complete(name="first", **JUDGED)
        prompts = prompts_of_roles(asyncio.run(samples_of(running.database_url(), first["id"])))
        yield f"prompts: { {role: len(each) for role, each in prompts.items()} }"
        names = (f"run-{number}" for number in range(rounds))
        sides = {
            "floor": lambda: asyncio.run(time_roles(prompts)),
            "job": lambda: seconds_of(running.complete(name=next(names), **JUDGED)),
        }
        yield from in_turn(sides, rounds)


@benchmark
def throughput(items: int = 5000, chunk: int = CHUNK, judges: int = 1) -> Rows:
    """Count calls per second through API, Celery tick, worker, guard and back, with models that answer at once.

    This is the runtime's own cost; every commit is durable. `chunk` calls are claimed together, by `judges` workers of
    the judge lane. Search costs little here, because the benchmark `search` measures it.
    """
    with start_durable(chunk, judges) as running:
        running.upload_made_up(items)
        job = running.complete(name="first", **MADE_UP)
        yield {
            "items": items, "chunk": chunk, "judges": judges, "calls/s": rate_of(job), "seconds": seconds_of(job),
            "loads": running.report(job)["model_loads"],
            **{role: stage["done"] for role, stage in job["stages"].items()},
        }  # fmt: skip


@contextmanager
def start_durable(chunk: int = CHUNK, judges: int = 1, endpoint: str = "") -> Iterator[Stack]:
    """Run a stack whose models answer at once, and so leave no time for commits: more chunks are in flight."""
    lanes = {"CHUNK": str(chunk), "JUDGES": str(judges), "STREAMS": "4"}
    environment = {f"MATHRAG_WORKERS__{name}": value for name, value in lanes.items()}
    with start_scripted(FAST, **environment, MATHRAG_TELEMETRY__OTLP_ENDPOINT=endpoint) as running:
        yield running


@benchmark
def loads() -> Rows:
    """Count the model loads of one job of any size; the paper's pipeline needs two."""
    with start_durable() as running:
        running.upload_made_up(max(SIZES))
        for size in SIZES:
            name = f"items-{size}"
            running.upload("datasets", name, as_lines({"question": f"What is w{item}x?"} for item in range(size)))
            job = running.complete(**{**MADE_UP, "name": name, "dataset": name})
            yield {"samples": size, "model loads": running.report(job)["model_loads"]}


@benchmark
def scaling(items: int = 300, rounds: int = 3, models: tuple[str, ...] = ("fast", "slow")) -> Rows:
    """Compare one worker of the judge lane with three, at a fast and at a slow model.

    The fast one keeps the processor busy, so that cores are the limit; the slow one only waits, so that workers are.
    Both stacks run all the time, and one of them idles.
    """
    with ExitStack() as opened:
        slow = {"driver": "remote", "url": opened.enter_context(slow_model()), "parallel": 1000}
        for name in models:
            with ExitStack() as stacks:
                sides: dict[str, Callable[[], object]] = {}
                for count in WORKERS:
                    judge = FAST if name == "fast" else slow
                    running = stacks.enter_context(start_scripted(judge, MATHRAG_WORKERS__JUDGES=str(count)))
                    running.upload_made_up(items)
                    sides[f"{count} workers, {name} model"] = repeat_job(running, rate_of)
                yield from in_turn(sides, rounds, unit="calls/s")


def repeat_job(running: Stack, figure: Callable[[dict[str, Any]], float]) -> Callable[[], float]:
    """Return a function that runs a job on made-up documents under a new name, and returns a figure of it."""
    numbers = iter(range(10**6))
    return lambda: figure(running.complete(name=f"job-{next(numbers)}", **MADE_UP))


@contextmanager
def slow_model() -> Iterator[str]:
    """Serve a model that uses no processor time: it answers any number of prompts at once, each after `SLOW_S`."""
    app, port = FastAPI(openapi_url=None), find_free_port()

    @app.post("/v1/chat/completions")
    async def complete() -> Response:
        await asyncio.sleep(SLOW_S)
        return Response(STREAM, media_type="text/event-stream")

    server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.1)
    yield f"http://127.0.0.1:{port}/v1"
    server.should_exit = True
    thread.join()


@benchmark
def polling(rate: int = 200, seconds: int = 10, items: int = 10_000) -> Rows:
    """Compare the 99th percentile of polling a running job, `rate` times a second, with that of `/healthz`.

    Half of the polls send the last ETag, as a well-behaved client does.
    """
    with start_durable() as running:
        running.upload_made_up(items)
        job = running.submit(name="job", **MADE_UP)
        while running.get(f"/v1/jobs/{job}")["stages"].get("judge", {"done": 0})["done"] < min(1000, items):
            time.sleep(0.2)
        sides = {
            path: lambda path=path: 1000 * quantiles(asyncio.run(poll(running.url, path, rate, seconds)), n=100)[98]
            for path in ("/healthz", f"/v1/jobs/{job}")
        }
        yield from in_turn(sides, 3, unit="ms")
        yield f"At the end the job is {running.get(f'/v1/jobs/{job}')['state']}."
        running.api.post(f"/v1/jobs/{job}/cancel")


async def poll(url: str, path: str, rate: int, seconds: int) -> list[float]:
    """Return the seconds of every request; they start on a fixed schedule, answered or not."""
    taken: list[float] = []
    tag = ""

    async def ask(client: httpx2.AsyncClient, number: int) -> None:
        nonlocal tag
        began = time.perf_counter()
        reply = await client.get(path, headers={"If-None-Match": tag} if tag and number % 2 else {})
        taken.append(time.perf_counter() - began)
        if reply.status_code not in (200, 304):
            raise SystemExit(f"{path}: {reply.status_code} {reply.text[:200]}")
        tag = reply.headers.get("etag", "")

    async with httpx2.AsyncClient(base_url=url, timeout=30, trust_env=False) as client:
        began, tasks = time.perf_counter(), []
        for number in range(rate * seconds):
            await asyncio.sleep(max(0.0, began + number / rate - time.perf_counter()))
            tasks.append(asyncio.create_task(ask(client, number)))
        await asyncio.gather(*tasks)
    return taken


@benchmark
def telemetry(items: int = 400, rounds: int = 5) -> Rows:
    """Measure the cost of traces, logs and metrics: switched off, switched on, and of a scrape.

    Off: the time that the guard's check and the log fields add to a call. On: jobs alternate between two stacks, one of
    which sends its spans to a collector on the same machine. A scrape derives the metrics from the rows of all these
    jobs.
    """
    off = time_untraced()
    with run_collector() as collector, start_durable() as without, start_durable(endpoint=collector.url) as traced:
        sides = {"untraced": without, "traced": traced}
        for running in sides.values():
            running.upload_made_up(items)
        spent: dict[str, list[float]] = {name: [] for name in sides}
        runs = {name: time_job(running, spent[name]) for name, running in sides.items()}
        yield from in_turn(runs, rounds, warm=1, unit="ms a call")
        run_job = repeat_job(without, rate_of)
        costs = {name: median(each[1:]) for name, each in spent.items()}
        yield {
            "processor s a call, untraced": costs["untraced"],
            "traced over untraced": costs["traced"] / costs["untraced"],
            "spans": len(collector.spans()), "off, ns a call": off * 1e9, "off, of a call": off / costs["untraced"],
            "slowest scrape, s": max(time_scrape(without, run_job) for _ in range(5)),
        }  # fmt: skip


def time_job(running: Stack, spent: list[float]) -> Callable[[], float]:
    """Return a function that runs a job, notes processor seconds a call in `spent`, and returns milliseconds a call."""

    def timed() -> float:
        before = count_cpu_s(running)
        job = running.complete(name=f"timed-{len(spent)}", **MADE_UP)
        calls = sum(stage["done"] for stage in job["stages"].values())
        spent.append((count_cpu_s(running) - before) / calls)
        return 1000 / rate_of(job)

    return timed


def count_cpu_s(running: Stack) -> float:
    """Sum the processor seconds of a stack's services so far."""
    trees = (processes_below(child["pid"]) for child in running.status()["children"])
    return sum(sum(process.cpu_times()[:2]) for tree in trees for process in tree)


def time_untraced() -> float:
    """Return the seconds that disabled telemetry adds to a call: the guard's check and its share of the log fields."""
    resident = guard.ServedModel(ScriptedServer(), 1, name="m", driver="scripted")
    checked = time_call(lambda: guard._answer_traced(resident, CALL)) - time_call(lambda: guard._answer(resident, CALL))
    began = time.perf_counter()
    for number in range(LOOPS):
        logs.bind(role="judge", epoch=number, claim="a-token")
    return max(checked, 0.0) + (time.perf_counter() - began) / LOOPS / CHUNK


def time_call(call: Callable[[], Awaitable[object]]) -> float:
    """Return the seconds of one call in the fastest of five loops."""

    async def loop() -> float:
        began = time.perf_counter()
        for _ in range(LOOPS // 5):
            await call()
        return (time.perf_counter() - began) / (LOOPS // 5)

    return min(asyncio.run(loop()) for _ in range(5))


def time_scrape(running: Stack, run_job: Callable[[], float]) -> float:
    """Return the seconds of a scrape after a further job, not from the cache."""
    run_job()
    time.sleep(5.1)  # a scrape is cached for 5 s
    began = time.perf_counter()
    httpx2.get(f"{running.url}/metrics", trust_env=False).raise_for_status()
    return time.perf_counter() - began


@benchmark
def idle() -> Rows:
    """Measure the memory of an idle stack by process, as proportional set sizes, so that shared pages count once."""
    with start_stack() as running:
        time.sleep(SETTLE_S)
        found = running.status()
        trees = {child["name"]: processes_below(child["pid"]) for child in found["children"]}
        trees["supervisor"] = [psutil.Process(found["pid"])]
        sizes = {name: sum(each.memory_full_info().pss for each in tree) / 2**20 for name, tree in trees.items()}
    total = sum(sizes.values())
    for name, size in {**sizes, "all": total}.items():
        yield {"process": name, "MiB": size, f"of {IDLE_MIB} MiB": size / IDLE_MIB}


@benchmark
def startup(runs: int = 15) -> Rows:
    """Compare the processor time of a command's start, children included, with that of importing its libraries.

    Each command runs in a separate process, alternately with one that only imports typer, rich and the HTTP client; the
    goal is at most 1.5 times its time. The first turn does not count, because it compiles bytecode.
    """
    server = HTTPServer(("127.0.0.1", 0), EmptyPage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    commands = {f"mathrag {' '.join(words)}": ["-m", "mathrag.cli.main", *words] for words in COMMANDS}
    with tempfile.TemporaryDirectory() as folder:
        own = {"MATHRAG_URL": f"http://127.0.0.1:{server.server_port}", "MATHRAG_DATA_DIR": folder}
        environment = {**os.environ, **own, "PYTHONDONTWRITEBYTECODE": ""}
        sides = {
            name: lambda words=words: cost(words, environment)
            for name, words in {"libraries": ["-c", "import typer, rich, httpx2"], **commands}.items()
        }
        yield from in_turn(sides, runs, warm=1)
    server.shutdown()


class EmptyPage(BaseHTTPRequestHandler):
    """Answers every request with an empty page of a list."""

    def do_GET(self) -> None:
        body = b'{"data": [], "next_cursor": null}'
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


def cost(arguments: list[str], environment: dict[str, str]) -> float:
    """Run Python; return the processor seconds of its process and of its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], env=environment, check=False, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

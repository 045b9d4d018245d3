"""Jobs on a running stack: time, calls, loads, scaling, polls, traces, cancelling; idle memory, a command's start."""

import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
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
from shared.settings import Model, Settings
from shared.telemetry import logs
from tests.doubles.collector import run_collector
from tests.real.llama_server import installed, served_by
from tools.bench import Row, Rows, benchmark, in_turn
from tools.bench.stack import FAST, JUDGED, MADE_UP, Stack, rate_of, seconds_of, start_scripted, start_stack
from tools.bench.staging import prompts_of_roles, samples_of, time_roles

COMMANDS = (("--help",), ("--version",), ("job", "--help"), ("status",), ("job", "list"))
CALL = ModelCall(id=1, model_id=1, prompt="What is 2+3? Rating:", decoding=Decoding(), seed=1)
LOOPS = 200_000
CHUNK = 16
SIZES = (1, 10, 500)
SLOTS = 8
"""Calls in flight at a slow model, as many as the shipped models have slots."""
SETTLE_S = 20
ANSWER_S, END_S = 1, 30
"""Limits of a cancellation: the seconds until it is answered, and until the job has ended."""
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
        yield (yield from time_over_loops(running, JUDGED, rounds))


@benchmark
def server(items: int = 30, rounds: int = 5) -> Rows:
    """Time a job against its floor, as `floor` does, where the shipped models are served by a real llama-server.

    It is installed from requirements/llama-server.txt unless the environment variable `LLAMA_SERVER` names one.
    """
    with tempfile.TemporaryDirectory() as folder:
        served = served_by(installed(Path(folder)))
        with start_stack(MATHRAG_MODELS=json.dumps(served)) as running:
            running.upload_world(10 * items)
            models = {name: Model(**model) for name, model in served.items()}
            yield (yield from time_over_loops(running, {**JUDGED, "limit": items}, rounds, models))


@benchmark
def slow(items: int = 400, rounds: int = 2, call_s: float = 0.1) -> Rows:
    """Time a job against two bare loops, as `floor` does, at a remote model that takes `call_s` and no processor."""
    with slow_model(call_s) as url:
        model: dict[str, Any] = {"driver": "remote", "url": url, "parallel": SLOTS}
        with start_scripted(model, model) as running:
            running.upload_made_up(items)
            models = {name: Model(**model) for name in Settings().roles.values()}
            yield (yield from time_over_loops(running, MADE_UP, rounds, models))


def time_over_loops(
    running: Stack, job: dict[str, Any], rounds: int, models: Mapping[str, Model] | None = None
) -> Generator[Row | str, None, float]:
    """Time a job and two bare loops over its prompts in turn; return the ratio of their medians."""
    first = running.complete(name="first", **job)
    prompts = prompts_of_roles(asyncio.run(samples_of(running.database_url(), first["id"])))
    yield f"prompts: { {role: len(each) for role, each in prompts.items()} }"
    sides: dict[str, Callable[[], object]] = {
        "two loops": lambda: asyncio.run(time_roles(prompts, models)),
        "job": repeat_job(running, seconds_of, job),
    }
    ratios = yield from in_turn(sides, rounds)
    return ratios["job"]


@benchmark
def calls(items: int = 5000, rounds: int = 1, chunk: int = 0, judges: int = 1) -> Rows:
    """Count calls per second through API, Celery tick, worker, guard and back, with models that answer at once.

    This is the runtime's own cost; every commit is durable. `chunk` calls are claimed together, by default as many as
    the settings say, by `judges` workers of the judge lane. Search costs little here, because the benchmark `search`
    measures it.
    """
    with start_fast(JUDGES=judges, **({"CHUNK": chunk} if chunk else {})) as running:
        running.upload_made_up(items)
        warm_up(running)
        rates: list[float] = []
        for _ in range(rounds):
            rates += [(yield from measure_job(running, "items"))]
        yield median(rates)


@benchmark
def claims_of_one(items: int = 300, rounds: int = 2) -> Rows:
    """Count calls per second where each call is claimed alone."""
    yield from calls(items, rounds, chunk=1)


@benchmark
def calls_20000(few: int = 5000, many: int = 20_000) -> Rows:
    """Compare the calls per second of a job of `many` items with those of one of `few`, on the same corpus."""
    with start_fast() as running:
        running.upload_made_up(many)
        running.upload_questions("few", few)
        warm_up(running)
        less = yield from measure_job(running, "few")
        more = yield from measure_job(running, "items")
        for name, tree in running.processes().items():
            yield {"process afterwards": name, "MiB": count_mib(tree)}
        yield more / less


def warm_up(running: Stack) -> None:
    """Run a small job, so that the first measured one does not pay for imports and connections."""
    running.upload_questions("warm", 20)
    running.complete(**{**MADE_UP, "name": "warm", "dataset": "warm"})


def measure_job(running: Stack, dataset: str) -> Generator[Row, None, float]:
    """Run a job on made-up documents; yield its counts and the processor time by process; return its calls/s."""
    before = running.cpu_s()
    job = running.complete(**{**MADE_UP, "name": f"job-{time.monotonic_ns()}", "dataset": dataset})
    spent = {name: 1000 * (after - before[name]) for name, after in running.cpu_s().items()}
    done = {role: stage["done"] for role, stage in job["stages"].items()}
    count, rate = sum(done.values()), rate_of(job)
    yield {
        "items": done["generate"], "calls": count, "seconds": seconds_of(job), "calls/s": rate,
        "loads": running.report(job)["model_loads"], "processor, ms a call": sum(spent.values()) / count,
        **{f"{name}, ms": ms / count for name, ms in spent.items()},
    }  # fmt: skip
    return rate


@contextmanager
def start_fast(**workers: int) -> Iterator[Stack]:
    """Run a stack whose models answer at once, with other settings of its workers."""
    with start_scripted(
        FAST, FAST, **{f"MATHRAG_WORKERS__{name}": str(value) for name, value in workers.items()}
    ) as running:
        yield running


@benchmark
def loads() -> Rows:
    """Count the model loads of one job of any size; the paper's pipeline needs two."""
    with start_fast() as running:
        running.upload_made_up(max(SIZES))
        most = 0
        for size in SIZES:
            running.upload_questions(f"items-{size}", size)
            job = running.complete(**{**MADE_UP, "name": f"items-{size}", "dataset": f"items-{size}"})
            made = running.report(job)["model_loads"]
            yield {"samples": size, "model loads": made}
            most = max(most, made)
        yield float(most)


@benchmark
def cancel(samples: int = 200_000) -> Rows:
    """Measure how soon the cancellation of a running job is answered, and how soon the job has ended.

    The figure is the larger share of the two limits.
    """
    with start_fast() as running:
        running.upload_questions("items", samples)
        job = running.submit(name="job", dataset="items", pipeline="closed-book", reuse="none")
        while not running.get(f"/v1/jobs/{job}")["stages"].get("generate", {"done": 0})["done"]:
            time.sleep(0.2)
        began = time.monotonic()
        running.api.post(f"/v1/jobs/{job}/cancel").raise_for_status()
        answered = time.monotonic() - began
        ended = running.wait(job, poll_s=0.2)
        seconds = time.monotonic() - began
        yield {
            "samples": samples, "state": ended["state"], "answered, s": answered, "ended, s": seconds,
            "limits, s": [ANSWER_S, END_S],
        }  # fmt: skip
        yield max(answered / ANSWER_S, seconds / END_S)


@benchmark
def scaling(
    items: int = 300, rounds: int = 3, models: tuple[str, ...] = ("fast", "slow"), workers: tuple[str, ...] = ("1", "3")
) -> Rows:
    """Compare numbers of workers of the judge lane at a fast and at a slow model.

    The fast one keeps the processor busy, so that cores are the limit; the slow one only waits, so that workers are.
    All stacks run all the time, and all but one of them idle.
    """
    with ExitStack() as opened:
        slow = {"driver": "remote", "url": opened.enter_context(slow_model(0.5)), "parallel": 1000}
        for name in models:
            with ExitStack() as stacks:
                sides: dict[str, Callable[[], object]] = {}
                for count in workers:
                    judge = FAST if name == "fast" else slow
                    running = stacks.enter_context(start_scripted(judge, MATHRAG_WORKERS__JUDGES=count))
                    running.upload_made_up(items)
                    sides[f"{count} workers, {name} model"] = repeat_job(running, rate_of)
                yield from in_turn(sides, rounds, unit="calls/s")


def repeat_job(
    running: Stack, figure: Callable[[dict[str, Any]], float], job: dict[str, Any] = MADE_UP
) -> Callable[[], float]:
    """Return a function that runs a job under a new name, and returns a figure of it."""
    numbers = iter(range(10**6))
    return lambda: figure(running.complete(name=f"job-{next(numbers)}", **job))


@contextmanager
def slow_model(call_s: float) -> Iterator[str]:
    """Serve a model that uses no processor time: it answers any number of prompts at once, each after `call_s`."""
    app, port = FastAPI(openapi_url=None), find_free_port()

    @app.post("/v1/chat/completions")
    async def complete() -> Response:
        await asyncio.sleep(call_s)
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
    with start_fast() as running:
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
    with ExitStack() as opened:
        collector = opened.enter_context(run_collector())
        without = opened.enter_context(start_fast())
        traced = opened.enter_context(start_scripted(MATHRAG_TELEMETRY__OTLP_ENDPOINT=collector.url))
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
        before = sum(running.cpu_s().values())
        job = running.complete(name=f"timed-{len(spent)}", **MADE_UP)
        count = sum(stage["done"] for stage in job["stages"].values())
        spent.append((sum(running.cpu_s().values()) - before) / count)
        return 1000 / rate_of(job)

    return timed


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
    """Measure the memory of an idle stack by process."""
    with start_stack() as running:
        time.sleep(SETTLE_S)
        sizes = {name: count_mib(tree) for name, tree in running.processes().items()}
    for name, size in sizes.items():
        yield {"process": name, "MiB": size}
    yield sum(sizes.values())


def count_mib(processes: Sequence[psutil.Process]) -> float:
    """Sum the proportional set sizes, so that shared pages count once."""
    return float(sum(each.memory_full_info().pss for each in processes) / 2**20)


@benchmark
def startup(runs: int = 5) -> Rows:
    """Compare the processor time of a command's start, children included, with that of importing its libraries.

    Each command runs in a separate process, alternately with one that only imports typer, rich and the HTTP client; the
    figure is that of the slowest command. The first turn does not count, because it compiles bytecode.
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
        ratios = yield from in_turn(sides, runs, warm=1)
        yield max(ratios.values())
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

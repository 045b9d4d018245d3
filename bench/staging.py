"""Measure what staging saves: a job in stages against other orders of the same prompts on the same models.

    .venv/bin/python -m bench.staging --items 40

Four parts: three orders of one job; the loads of several jobs at once against one after the other; the delay of a job
in which a process is killed halfway; the cost of a call through the guard against one straight to its model server.
Everything alternates, and only ratios of one run are compared. `MATHRAG_CONFIG` names other models.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from statistics import median
from typing import Any

import httpx2
import psutil
from sqlalchemy import TextClause, text

from bench import orders
from bench.floor import PARAMS, furnish, system
from bench.running import ENDED, Stack, seconds_of, stack
from services.guard.app import make_driver
from shared.calls import ModelCall
from shared.lease.lease import GuardClient
from shared.settings import Settings
from shared.storage.database import Database

WINDOW = 10
"""Requests in flight that a common model swapper allows per model."""
VICTIMS = ("judge", "generator", "guard", "orchestrator", "retriever", "redis", "postgres")
LOADS = text("SELECT COALESCE(sum(jsonb_array_length(servers)), 0) FROM residencies")
MEMORY = text("""
    SELECT m.name, m.footprint_mib, count(*), min(CAST(r.measured ->> 'loaded_mib' AS int)),
           max(CAST(r.measured ->> 'loaded_mib' AS int)), max(CAST(r.measured ->> 'peak_mib' AS int))
    FROM residencies r JOIN models m ON r.models = ARRAY[m.id] WHERE r.measured ->> 'loaded_mib' IS NOT NULL
    GROUP BY 1, 2 ORDER BY 1""")
OPEN = text("SELECT epoch, models FROM residencies WHERE state = 'open' ORDER BY epoch DESC LIMIT 1")


def main() -> None:
    """Measure all four parts on one stack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=16, help="jobs at once, and one after the other")
    options = parser.parse_args()
    with stack() as running:
        furnish(running, options.items)
        _, first = system(running, 0)
        samples = asyncio.run(orders.samples_of(running.database_url(), first))
        compare_orders(running, samples, options.rounds)
        cost_of_guard(running, samples, options.rounds)
        show_memory(running)
        compare_merging(running, options.jobs)
        kills(running, first)


def compare_orders(running: Stack, samples: list[orders.Sample], rounds: int) -> None:
    """Compare the whole service in stages with bare loops in other orders."""
    figures: dict[str, list[orders.Run]] = {"staged": [], f"window of {WINDOW}": [], "per sample": []}
    for number in range(1, rounds + 1):
        before = loads(running)
        seconds, _ = system(running, number)
        figures["staged"].append(orders.Run(seconds, loads(running) - before))
        with empty_device(running):
            figures[f"window of {WINDOW}"].append(asyncio.run(orders.in_windows(samples, WINDOW)))
            figures["per sample"].append(asyncio.run(orders.in_windows(samples, 1)))
    staged = median(run.seconds for run in figures["staged"])
    print(f"\n| order, {len(samples)} samples | loads | seconds | over staged |\n|---|---|---|---|")
    for name, runs in figures.items():
        said = ", ".join(f"{run.seconds:.1f}" for run in runs)
        ratio = median(run.seconds for run in runs) / staged
        print(f"| {name} | {', '.join(str(run.loads) for run in runs)} | {said} | {ratio:.2f} |", flush=True)


def compare_merging(running: Stack, jobs: int) -> None:
    """Compare jobs submitted at once with jobs run one after the other."""
    print(f"\n| {jobs} jobs | loads | seconds |\n|---|---|---|")
    for name, submit_all in (("at once", _at_once), ("one after the other", _in_turn)):
        before, began = loads(running), time.monotonic()
        submit_all(running, jobs)
        print(f"| {name} | {loads(running) - before} | {time.monotonic() - began:.1f} |", flush=True)


def kills(running: Stack, like: str) -> None:
    """Kill each process once, when half of a stage's calls are answered, and print the delays."""
    made = running.get(f"/v1/jobs/{like}/report")["calls_made"]
    calm = [_time_job(running, made, f"calm-{number}") for number in range(3)]
    print(f"\nundisturbed: {', '.join(f'{seconds:.1f}' for seconds, _ in calm)} s")
    print("| killed | job, s | longer, s | over undisturbed | loads |\n|---|---|---|---|---|")
    usual = median(seconds for seconds, _ in calm)
    for victim in VICTIMS:
        seconds, loaded = _time_job(running, made, f"without-{victim}", victim)
        print(f"| {victim} | {seconds:.1f} | {seconds - usual:.1f} | {seconds / usual:.2f} | {loaded} |", flush=True)


def cost_of_guard(running: Stack, samples: list[orders.Sample], rounds: int) -> None:
    """Time the generator's prompts through the guard, with epoch check and receipts, and straight to a server."""
    prompts = [prompt for sample in samples for prompt in sample.get("generate", ())]
    straight, guarded = [], []
    for number in range(rounds):
        running.run(**_fields(f"loading-{number}"))  # it leaves the generator resident
        (resident,) = read_rows(running, OPEN)
        guarded.append(asyncio.run(_time_guarded(running, resident, prompts)))
        with empty_device(running):
            straight.append(asyncio.run(_time_straight(prompts)))
    extra = (median(guarded) - median(straight)) / len(prompts) * 1000
    print(f"\n{len(prompts)} generations straight: {', '.join(f'{each:.2f}' for each in straight)} s;", end=" ")
    print(f"through the guard: {', '.join(f'{each:.2f}' for each in guarded)} s")
    print(f"guard over straight: {median(guarded) / median(straight):.3f}; {extra:+.2f} ms a call", flush=True)


async def _time_straight(prompts: list[orders.Prompt]) -> float:
    settings = Settings()
    name = settings.roles["generate"]
    model = settings.models[name]
    server, slots = await make_driver(name, model, settings).start(), asyncio.Semaphore(model.parallel)

    async def ask(prompt: orders.Prompt) -> None:
        async with slots:
            await server.complete(prompt.text, prompt.decoding, prompt.seed)

    await asyncio.gather(*(ask(prompt) for prompt in prompts))  # the guard's server has answered them all before, too
    began = time.monotonic()
    await asyncio.gather(*(ask(prompt) for prompt in prompts))
    seconds = time.monotonic() - began
    await server.stop()
    return seconds


async def _time_guarded(running: Stack, resident: Any, prompts: list[orders.Prompt]) -> float:
    calls = [
        ModelCall(
            id=number, model_id=resident.models[0], prompt=prompt.text, decoding=prompt.decoding, seed=prompt.seed
        )
        for number, prompt in enumerate(prompts)
    ]
    client = GuardClient(running.service_url("guard"), running.service_key())
    began = time.monotonic()
    async for completion in client.run(resident.epoch, calls):
        if completion.failure is not None:
            raise SystemExit(f"the guard answered {completion.failure}: {completion.detail}")
    seconds = time.monotonic() - began
    await client.close()
    return seconds


@contextmanager
def empty_device(running: Stack) -> Iterator[None]:
    """Keep the service's models off the devices, whose memory may not hold another server beside them."""
    devices = [device["device"] for device in running.get("/v1/gpus")]
    for device in devices:
        running.api.post(f"/v1/gpus/{device}/drain").raise_for_status()
    while any(device["models"] for device in running.get("/v1/gpus")):
        time.sleep(0.1)
    yield
    for device in devices:
        running.api.post(f"/v1/gpus/{device}/release").raise_for_status()


def show_memory(running: Stack) -> None:
    """Print what the models took on a device whose memory is measured."""
    if rows := read_rows(running, MEMORY):
        print("\n| model | declared or estimated, MiB | loads | measured, MiB | peak, MiB |\n|---|---|---|---|---|")
        for name, footprint, count, least, most, peak in rows:
            print(f"| {name} | {footprint} | {count} | {least} to {most} | {peak} |", flush=True)


def loads(running: Stack) -> int:
    """Count the model servers started so far."""
    return int(read_rows(running, LOADS)[0][0])


def read_rows(running: Stack, query: TextClause) -> Sequence[Any]:
    """Return the rows that the stack's database has for a query."""

    async def read() -> Sequence[Any]:
        database = Database(running.database_url(), pinned=False)
        async with database.statement() as connection:
            found = (await connection.execute(query)).all()
        await database.close()
        return found

    return asyncio.run(read())


def _fields(name: str) -> dict[str, Any]:
    return {
        "name": name, "dataset": "world", "corpus": "world", "pipeline": "mathrag-gate", "params": PARAMS,
        "reuse": "none",
    }  # fmt: skip


def _at_once(running: Stack, jobs: int) -> None:
    for job in [running.submit(**_fields(f"merged-{number}")) for number in range(jobs)]:
        running.wait(job)


def _in_turn(running: Stack, jobs: int) -> None:
    for number in range(jobs):
        running.run(**_fields(f"alone-{number}"))


def _time_job(running: Stack, made: dict[str, int], name: str, victim: str | None = None) -> tuple[float, int]:
    """Return seconds and loads of a job; `victim` is killed when half of a stage's calls are answered."""
    before = loads(running)
    job = running.submit(**_fields(name))
    if victim is not None:
        stage = "generate" if victim == "generator" else "judge"
        _until(running, job, lambda document: document["stages"].get(stage, {}).get("done", 0) >= made[stage] / 2)
        _kill(running.pid(victim))
    document = _until(running, job, lambda document: document["state"] in ENDED)
    if document["state"] != "completed":
        raise SystemExit(f"the job is {document['state']}: {document['reason']}")
    return seconds_of(document), loads(running) - before


def _kill(pid: int) -> None:
    process = psutil.Process(pid)
    for each in (process, *process.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # some go with their parent
            each.kill()


def _until(running: Stack, job: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the job's document once `holds`; errors are ignored, because the API may just have been killed."""
    while True:
        with suppress(httpx2.HTTPError):
            document: dict[str, Any] = running.get(f"/v1/jobs/{job}")
            if holds(document):
                return document
        time.sleep(0.05)


if __name__ == "__main__":
    main()

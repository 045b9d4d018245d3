"""Measure a job's wall time against its floor: two loads, and the same prompts through the guard's own driver.

    .venv/bin/python -m bench.floor --items 200

Floor and system alternate; both use the shipped models at the same concurrency, one model at a time. The floor does
nothing else: no retrieval, no gate, no grading, no database.
"""

import argparse
import asyncio
import subprocess
import sys
import time
from statistics import median

from bench.orders import Prompt, samples_of
from bench.running import Stack, seconds_of, stack
from services.guard.drivers.process import ProcessDriver
from shared.settings import REPOSITORY, Settings

PARAMS = {"gate": {"tau": 1.0}}
"""The judge scores every candidate."""


def main() -> None:
    """Run floor and system in turn, print every figure, then the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with stack() as running:
        furnish(running, options.items)
        seconds, job = system(running, 0)
        prompts = asyncio.run(prompts_of(running.database_url(), job))
        print({role: len(each) for role, each in prompts.items()}, f"first run {seconds:.1f} s (not counted)")
        floors, systems = [], []
        for number in range(1, options.rounds + 1):
            floors.append(asyncio.run(floor(prompts)))
            systems.append(system(running, number)[0])
            print(f"round {number}: floor {floors[-1]:.2f} s, system {systems[-1]:.2f} s", flush=True)
    print(f"ratio of the medians: {median(systems) / median(floors):.3f}")


def furnish(running: Stack, items: int) -> None:
    """Make the problem world and upload it."""
    command = [sys.executable, "-m", "mathrag.demo.world", "--seed", "1", "--out", str(running.folder), "--items", str(items)]
    subprocess.run(command, check=True, cwd=REPOSITORY)
    for kind, name in (("corpora", "corpus"), ("datasets", "dataset")):
        running.upload(kind, "world", [(running.folder / f"{name}.jsonl").read_bytes()])


def system(running: Stack, number: int) -> tuple[float, str]:
    """Run a job that reuses nothing; return the seconds from submission to end, and its id."""
    found = running.run(
        name=f"run-{number}", dataset="world", corpus="world", pipeline="mathrag-gate", params=PARAMS, reuse="none"
    )
    if found["state"] != "completed":
        raise SystemExit(f"the job is {found['state']}: {found['reason']}")
    return seconds_of(found), found["id"]


async def prompts_of(database_url: str, job: str) -> dict[str, list[Prompt]]:
    """Return every prompt that the job sent, by role."""
    samples = await samples_of(database_url, job)
    return {role: [prompt for sample in samples for prompt in sample.get(role, ())] for role in ("judge", "generate")}


async def floor(prompts: dict[str, list[Prompt]]) -> float:
    """Load each model and send it its prompts, one model after the other; return the seconds."""
    settings, began = Settings(), time.monotonic()
    for role, name in settings.roles.items():
        model = settings.models[name]
        server = await ProcessDriver(name, model, settings.device).start()
        slots = asyncio.Semaphore(model.parallel)

        async def ask(prompt: Prompt, server: object = server, slots: asyncio.Semaphore = slots) -> None:
            async with slots:
                await server.complete(prompt.text, prompt.decoding, prompt.seed)  # type: ignore[attr-defined]

        await asyncio.gather(*(ask(prompt) for prompt in prompts[role]))
        await server.stop()
    return time.monotonic() - began


if __name__ == "__main__":
    main()

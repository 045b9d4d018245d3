"""Measure what a kill changes in a job's answers, and what `deterministic: true` costs; print two Markdown tables.

    .venv/bin/python -m bench.determinism --data ../shared/data/math --items 300

For each setting a stack of its own runs the same greedy job with `reuse: none`: undisturbed, undisturbed again, and
with workers killed in both stages. Replies and answers are compared with those of the first run. Then the prompts of
the job go to the model servers alone, with and without the setting by turns. Without --data the problem world is asked.
"""

import argparse
import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from bench.floor import furnish, prompts_of
from bench.orders import Prompt
from bench.running import ENDED, Stack, seconds_of, stack
from mathrag.client import address
from services.guard.drivers.process import ProcessDriver
from shared.models.chat import ChatFailed
from shared.settings import Model, Settings
from shared.storage.database import Database, sql

KILLS = {"judge": ("judge", (0.2, 0.5, 0.8)), "generate": ("generator", (0.2, 0.5, 0.8))}
"""The worker to kill in each stage, and the shares of the stage's calls after which it is killed."""
REPLIES = sql("""
    SELECT c.role, s.kind, s.ordinal, t.position, t.slot, encode(sha256(a.reply), 'hex')
    FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE j.public_id = :job AND c.role IN ('judge', 'generate')
    UNION ALL
    SELECT 'answer', s.kind, s.ordinal, 0, 0, o.answer
    FROM jobs j JOIN samples s ON s.job_id = j.id JOIN outcomes o ON o.sample_id = s.id
    WHERE j.public_id = :job AND s.kind = 'item'""")

Replies = dict[tuple[Any, ...], str | None]
"""Hashes of replies by role and step; answers, unhashed, under the role `answer`."""


def main() -> None:
    """Run both settings, then time them in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with train.jsonl and test-dev.jsonl of MATH")
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", type=int, default=300, help="prompts of each role to time")
    options = parser.parse_args()
    plain = Settings().models
    settings = {"default": plain, "deterministic": {name: deterministic(model) for name, model in plain.items()}}
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    prompts: dict[str, list[Prompt]] = {}
    for name, models in settings.items():
        with stack(MATHRAG_MODELS=as_json(models), MATHRAG_WORKERS__CLAIM_TTL_S="5") as running:
            upload(running, options.data, options.items)
            prompts = compare(running, name)
    timed = {role: each[: options.prompts] for role, each in prompts.items()}
    print(asyncio.run(price(settings, timed, options.rounds)))


COLUMNS = (
    "models", "run", "seconds", "calls lapsed", "judge replies differ", "generated texts differ", "answers differ",
)  # fmt: skip


def deterministic(model: Model) -> Model:
    """Return the model with `deterministic: true`."""
    return Model(**{**model.model_dump(exclude_unset=True), "deterministic": True})


def as_json(models: Mapping[str, Model]) -> str:
    """Write models as the environment variable takes them."""
    return json.dumps({name: model.model_dump(mode="json", exclude_unset=True) for name, model in models.items()})


def upload(running: Stack, data: Path | None, items: int) -> None:
    """Upload corpus and dataset, both under the name "world"."""
    if data is None:
        furnish(running, items)
        return
    running.upload("corpora", "world", [(data / "train.jsonl").read_bytes()])
    running.upload("datasets", "world", (data / "test-dev.jsonl").read_bytes().splitlines(keepends=True)[:items])


def compare(running: Stack, setting: str) -> dict[str, list[Prompt]]:
    """Print a row for each run; return the prompts of the first one by role."""
    first = submit(running, "first")
    expected = finish_run(running, setting, "undisturbed", first)
    finish_run(running, setting, "undisturbed again", submit(running, "second"), expected)
    made = running.get(f"/v1/jobs/{first}/report")["calls_made"]
    disturbed = submit(running, "disturbed")
    for stage, (worker, shares) in KILLS.items():
        for share in shares:
            wait_until_done(running, disturbed, stage, int(share * made[stage]))
            kill(running, worker)
    finish_run(running, setting, "with 6 kills", disturbed, expected)
    return asyncio.run(prompts_of(running.database_url(), first))


def submit(running: Stack, name: str) -> str:
    """Submit a job that reuses nothing; return its id."""
    params = {"gate": {"tau": 1.0}, "judge": {"temperature": 0.0}}
    return running.submit(
        name=name, dataset="world", corpus="world", pipeline="mathrag-gate", params=params, reuse="none"
    )


def wait_until_done(running: Stack, job: str, stage: str, calls: int) -> None:
    """Return once so many calls of a stage are answered."""
    while (found := running.get(f"/v1/jobs/{job}"))["stages"].get(stage, {}).get("done", 0) < calls:
        if found["state"] in ENDED:
            raise SystemExit(f"the job was {found['state']} before {calls} calls of {stage} were answered")
        time.sleep(0.05)


def kill(running: Stack, worker: str) -> None:
    """Kill a worker and its children by SIGKILL, parents first, once it is ready after the previous kill."""
    while not (ready := [pid for name, pid in ready_children(running) if name == worker]):
        time.sleep(0.05)
    for process in (found := psutil.Process(ready[0]), *found.children(recursive=True)):
        process.kill()


def ready_children(running: Stack) -> list[tuple[str, int]]:
    """Read names and process ids from the supervisor's state file."""
    now = address.read_state(running.folder)
    children = now.children if now else ()
    return [(child.name, child.pid) for child in children if child.pid and child.phase == "ready"]


def finish_run(running: Stack, setting: str, run: str, job: str, expected: Replies | None = None) -> Replies:
    """Wait for the job's end, print its row, and return its replies."""
    ended = running.wait(job)
    replies = asyncio.run(replies_of(running, job))
    lapsed = running.get(f"/v1/jobs/{job}/report")["calls_lapsed"]
    cells = [setting, run, f"{seconds_of(ended):.1f}", lapsed, *count_differences(expected or replies, replies)]
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)
    return replies


async def replies_of(running: Stack, job: str) -> Replies:
    """Read the replies and answers of one job."""
    database = Database(running.database_url(), pinned=False)
    async with database.statement() as connection:
        rows = (await connection.execute(REPLIES, {"job": job})).all()
    await database.close()
    return {tuple(row[:-1]): row[-1] for row in rows}


def count_differences(expected: Replies, found: Replies) -> list[str]:
    """Count for each role how many replies differ, of how many."""
    roles = ("judge", "generate", "answer")
    keys = {role: [key for key in expected.keys() | found.keys() if key[0] == role] for role in roles}
    return [f"{sum(expected.get(key) != found.get(key) for key in of)} of {len(of)}" for of in keys.values()]


async def time_answers(role: str, models: Mapping[str, Model], prompts: Sequence[Prompt]) -> float:
    """Send all prompts of a role to a running server, one per slot at a time; return the seconds."""
    settings = Settings()
    name = {str(each): model for each, model in settings.roles.items()}[role]
    server = await ProcessDriver(name, models[name], settings.device).start()
    slots = asyncio.Semaphore(models[name].parallel)

    async def ask(prompt: Prompt) -> None:
        async with slots:
            with suppress(ChatFailed):  # a prompt that does not fit is refused here as in the job
                await server.complete(prompt.text, prompt.decoding, prompt.seed)

    began = time.monotonic()
    await asyncio.gather(*map(ask, prompts))
    spent = time.monotonic() - began
    await server.stop()
    return spent


async def price(settings: Mapping[str, Mapping[str, Model]], prompts: dict[str, list[Prompt]], rounds: int) -> str:
    """Time the same prompts with both settings in turn; write a table with the ratio."""
    seconds: dict[str, list[float]] = {name: [] for name in settings}
    for _ in range(rounds):
        for name, models in settings.items():
            seconds[name].append(sum([await time_answers(role, models, each) for role, each in prompts.items()]))
    plain, other = (median(each) for each in seconds.values())
    count = sum(map(len, prompts.values()))
    head = "\n| prompts | default, s | deterministic, s | throughput, of the default's |\n|---|---|---|---|\n"
    return f"{head}| {count} | {plain:.2f} | {other:.2f} | {plain / other:.2f} |"


if __name__ == "__main__":
    main()

"""``make demo``: the whole system on one small batch, from nothing to a report.

Starts the embedded stack, uploads a corpus and a dataset of the problem world, runs every pipeline on them over REST,
and prints what the API says about each.  ``python -m world.demo --seed 2`` asks other questions.
"""

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from services.orchestrator.cli import following, progress
from services.orchestrator.cli.client import Client, segment
from services.orchestrator.cli.failures import Failed, reported
from services.orchestrator.cli.output import accuracy, counted, last_line
from services.orchestrator.cli.reports import timing
from services.orchestrator.cli.sources import Sources
from services.orchestrator.stack import lock, state
from shared.ingest import paths
from shared.ingest.lines import Row
from shared.settings import REPOSITORY
from shared.storage.jobs import ROLES

PIPELINES = ("closed-book", "dense", "sparse", "hybrid", "mathrag-gate")
DATA_DIR = REPOSITORY / ".mathrag" / "demo"
"""Made anew by every run, and kept after it."""
NAME = "world"
SHOWN = Path(".mathrag") / "demo"


def main() -> None:
    """Parse the command line and run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="of the questions and documents")
    parser.add_argument("--data-dir", type=Path, default=DATA_DIR, help="thrown away first")
    arguments = parser.parse_args()
    # An end from outside must stop the stack too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with reported(as_json=False):
            run(arguments.seed, arguments.data_dir)
    except typer.Exit as ended:
        sys.exit(ended.exit_code)


def run(seed: int, data_dir: Path) -> None:
    """The demonstration, start to end.

    Raises:
        Failed: a step or a job failed.
    """
    _say("Starting PostgreSQL, Redis and five services")
    with _stack(data_dir) as url, Client(url) as client:
        _ingest(client, seed, data_dir / "world")
        _say(f"Running {len(PIPELINES)} pipelines: {', '.join(PIPELINES)}")
        jobs = _watched(client, _submit(client))
        _say("Reports: accuracy by math-verify with its 95 % interval; time from the first to the last call of a stage")
        for job in jobs:
            _report(client, job)
        _next(data_dir)
    failed = [job["name"] for job in jobs if job["state"] != "completed"]
    if failed:
        raise Failed("internal", f"these jobs did not complete: {', '.join(failed)}", hint=f"less {data_dir}/logs/*")


@contextmanager
def _stack(data_dir: Path) -> Iterator[str]:
    """A fresh stack on a free port; stopped in the end, whatever happens."""
    if lock.holder(data_dir) is not None:
        raise Failed("conflict", "a demo runs already", hint=f"mathrag down --data-dir {data_dir}")
    shutil.rmtree(data_dir, ignore_errors=True)
    try:
        _mathrag("up", "--detach", "--port", "0", "--data-dir", str(data_dir))
        running = state.read(data_dir)
        if running is None:
            raise Failed("unavailable", "the stack did not say where it runs", hint=f"less {data_dir}/logs/*")
        yield running.url
    finally:
        _mathrag("down", "--data-dir", str(data_dir))


def _mathrag(*arguments: str) -> None:
    command = [sys.executable, "-m", "services.orchestrator.cli.main", *arguments]
    ended = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL, check=False)  # noqa: S603 - our own
    if ended.returncode != 0:
        raise Failed("unavailable", f"`mathrag {arguments[0]}` failed", hint="its words are above")


def _ingest(client: Client, seed: int, folder: Path) -> None:
    command = [sys.executable, "-m", "world.corpus", "--seed", str(seed), "--out", str(folder)]
    subprocess.run(command, cwd=REPOSITORY, check=True)  # noqa: S603 - our own command
    corpus = _upload(client, "corpora", paths.corpus_lines(folder / "corpus.jsonl"))
    dataset = _upload(client, "datasets", paths.dataset_lines(folder / "dataset.jsonl"))
    _say(f"Uploaded and indexed {corpus['documents']} documents, and {dataset['items']} questions about them")


def _upload(client: Client, what: str, rows: Iterator[Row]) -> Any:
    return client.upload(f"/v1/{what}", Sources(rows), name=NAME)


def _submit(client: Client) -> list[str]:
    """All jobs at once: the scheduler shares every model load between them. Numbers of the world have one digit."""
    same = {"dataset": NAME, "corpus": NAME, "params": {"verify": {"modulus": 10}}}
    bodies = [{"name": name, "pipeline": name, **same} for name in PIPELINES]
    return [client.post("/v1/jobs", body)["id"] for body in bodies]


def _watched(client: Client, ids: Sequence[str]) -> list[Any]:
    """Show all jobs as one until every one has ended."""
    view = progress.view()
    try:
        while True:
            jobs = [client.get(f"/v1/jobs/{segment(job)}") for job in ids]
            view.show(merged(jobs))
            if all(job["state"] in following.ENDED for job in jobs):
                return jobs
            time.sleep(following.POLL_S)
    finally:
        view.close()


def merged(jobs: Sequence[Any]) -> Any:
    """Several jobs as one: their counts added up."""
    stages = {role: {"done": 0, "total": 0} for role in ROLES}
    for job in jobs:
        for role, stage in job.get("stages", {}).items():
            for part in stage:
                stages[role][part] += stage[part]
    counts = {part: sum(job["request_counts"][part] for job in jobs) for part in ("total", "in_progress")}
    live = sum(job["state"] not in following.ENDED for job in jobs)
    begun = {role: stage for role, stage in stages.items() if stage["total"]}
    return {"name": "all jobs", "state": f"{live} running", "stages": begun, "request_counts": counts}


def _report(client: Client, job: Any) -> None:
    """One pipeline in a few lines; every figure is the API's."""
    found = client.get(f"/v1/jobs/{job['id']}/report")
    audit = client.get(f"/v1/jobs/{job['id']}/audit")
    print(f"\n{found['settings']['pipeline']}: {accuracy(found['accuracy'])}")
    for name, value in _figures(found):
        print(f"  {name:<16}{value}")
    print(f"  {'audit':<16}{'clean' if audit['clean'] else audit['violations']}")


def _figures(found: Any) -> Iterator[tuple[str, object]]:
    counts = found["request_counts"]
    if found["reason"]:
        yield "failed", last_line(found["reason"])
    yield "samples", f"{counts['completed']} completed, {counts['failed']} failed {counted(found['failures'])}".strip()
    without = {kind: count for kind, count in found["extraction"].items() if kind != "ok"}
    yield "no answer in", f"{sum(without.values())} replies, {found['truncated']} truncated"
    if "judge" in found["stages"]:
        yield "parse failures", f"{found['parse_failures']} judge replies without a rating"
    if found["gate"]:
        yield "gate", found["gate"]["reason"]
    yield "model loads", f"{found['model_loads']} (epoch{_epochs(found['residencies'])})"
    yield "calls made", counted(found["calls_made"]) or "none"
    yield "calls reused", counted(found["calls_reused"]) or "none"
    yield "seconds", timing(found["stages"])


def _epochs(residencies: Sequence[Any]) -> str:
    return "".join(f" {residency['epoch']}: {'+'.join(residency['models'])}" for residency in residencies) or " none"


def _next(data_dir: Path) -> None:
    shown = SHOWN if data_dir == DATA_DIR else data_dir
    _say("Where to look next")
    print(f"""
  export PATH=.venv/bin:$PATH MATHRAG_DATA_DIR={shown}
  mathrag up --detach                        everything above is still there
  mathrag job report mathrag-gate            the whole report; --json for programs
  mathrag sample show mathrag-gate 0         one answer, with all that it was made from
  mathrag job submit --name again --dataset {NAME} --corpus {NAME} --pipeline mathrag-gate \\
      --set verify.modulus=10 --wait
                                             the same again: nothing is computed twice
  mathrag down
  README.md, docs/architecture.md            how it works""")


def _say(text: str) -> None:
    print(f"\n== {text}", flush=True)


if __name__ == "__main__":
    main()

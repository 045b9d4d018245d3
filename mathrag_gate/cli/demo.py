"""`mathrag demo`: run five pipelines on two corpora, on a separate stack that keeps running."""

import io
import os
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from mathrag.cli.output import report_errors
from mathrag.cli.progress_bars import Steps
from mathrag.client import address, jobs, texts, waiting
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.uploads import Sources
from mathrag.reading import paths
from mathrag_gate import report
from mathrag_gate.cli import stack
from mathrag_gate.cli.report import compare_with_first, fetch_jobs, fetch_relevant
from mathrag_gate.cli.up import CONFIGURATION, DATA, own_stack
from mathrag_gate.demo import sentences
from mathrag_gate.demo.world import build, is_useful, read, write
from mathrag_gate.stack import control
from shared.params import QUALITY_ALONE
from shared.pipelines import registry
from shared.pipelines.measured import MEASURED

SETTINGS = ("orthogonal", "clean")
"""Settings of the world: in the first, most documents mislead, in the second none (docs/reference/reproduction.md)."""
PARAMS: dict[str, Any] = {"context_size": 3, "generate": {"max_tokens": 96}, **QUALITY_ALONE}
"""Parameters of docs/reference/reproduction.md: answers have about 30 tokens, the world's numbers have one digit, and
all candidates are reordered by quality alone."""
QUICK = 10
"""Questions of each set with --quick: enough to see that every part works, too few to compare pipelines."""
CALL_COSTS = {"judge": 2, "generate": 5}
"""Relative time of a call of the shipped models; other calls take almost no time."""
ASKED, ANSWERED, RATED = 0.14, 0.82, 0.94
"""Shares of the whole time at which the jobs are submitted, all questions are answered, and two jobs are measured."""
METRIC, LABEL_JUDGE = "context_relevance", "label-judge"
"""A metric that needs no gold answers, and the shipped model that was trained for it."""
DATA_DIR = Path(".mathrag") / "demo"

Seed = Annotated[int, typer.Option(help="Random seed; it determines the questions, the documents and the results.")]
DemoFolder = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        help="Folder of the demo; an earlier demo there is deleted (default: .mathrag/demo).",
    ),
]
Quick = Annotated[
    bool,
    typer.Option(
        "--quick", help="Ask only 10 questions of each set: enough to see that everything works, too few to compare."
    ),
]
Stop = Annotated[bool, typer.Option("--stop", help="Stop the stack at the end; by default it keeps running.")]


def demo(seed: Seed = 1, data_dir: DemoFolder = None, quick: Quick = False, stop: Stop = False) -> None:
    """Start a stack, answer 300 questions with five pipelines, and explain the results (1 to 4 minutes)."""
    # SIGTERM must also stop the stack: SystemExit runs the clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = data_dir or DATA_DIR
    with report_errors(as_json=False, needs="mathrag-gate[embedded]"):
        _make_room(folder)
        began = time.monotonic()
        print(f"{sentences.INTRODUCTION}\n", flush=True)
        with ExitStack() as undo:
            undo.callback(_stop, folder)
            url = _demonstrate(seed, folder, QUICK if quick else None)
            print(f"\nThe demo took {time.monotonic() - began:.0f} s.")
            program = _name_program()
            if stop:
                print(f"To open its pages again:  {shlex.join([*program, 'open', '--data-dir', str(folder)])}")
            else:
                undo.pop_all()
                print(sentences.own_data(url, folder, program, elsewhere="MATHRAG_URL" in os.environ))


def _make_room(folder: Path) -> None:
    """Stop and delete an earlier demo.

    Raises:
        Failed: `folder` has other files, or the stack there has unfinished jobs or the user's data.
    """
    ours = folder == DATA_DIR or ((folder / CONFIGURATION).is_file() and (folder / DATA).is_dir())
    if folder.is_dir() and any(folder.iterdir()) and not ours:
        raise Failed(
            "conflict",
            f"folder {folder} has files that are not from a demo",
            hint="name an empty folder with --data-dir",
        )
    if control.find_holder(folder / DATA) is not None:
        with _connect(folder) as client:
            kept = [job["name"] for job in client.all(jobs.list_jobs()) if job["state"] not in jobs.ENDED]
            for request in (texts.list_corpora(), texts.list_datasets()):
                kept += [each["name"] for each in client.all(request) if each["name"] not in SETTINGS]
        if kept:
            message = f"an earlier demo is still running in {folder}, with unfinished jobs or your own data"
            hint = f"name another folder with --data-dir; to delete the data: mathrag down --data-dir {folder / DATA}"
            raise Failed("conflict", f"{message}: {', '.join(dict.fromkeys(kept))}", hint=hint)
        _stop(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _stop(folder: Path) -> None:
    if control.find_holder(folder / DATA) is not None:
        print(f"Stopping {folder / DATA} ...", flush=True)
        with redirect_stdout(io.StringIO()):
            stack.down(data_dir=folder / DATA)


def _name_program() -> list[str]:
    """Return the words that start this program in the user's shell."""
    called = Path(sys.argv[0])
    if called.name != "mathrag":
        return [sys.executable, "-P", "-m", "mathrag.cli.main"]
    found = shutil.which("mathrag")
    return ["mathrag"] if found and Path(found).resolve() == called.resolve() else [str(called)]


def _demonstrate(seed: int, folder: Path, questions: int | None) -> str:
    """Run the demo with `questions` of each set (None means all), and return the address of its stack.

    Raises:
        Failed: a step or a job failed.
    """
    with Steps(Console(file=sys.stdout)) as steps:
        steps.show("starting PostgreSQL, Redis and five services, and uploading documents", 0)
        with redirect_stdout(io.StringIO()), own_stack(folder, {}, keep=True):
            pass
        with _connect(folder) as client:
            worlds = {name: _upload_world(client, name, seed, folder / "worlds" / name, questions) for name in SETTINGS}
            reports = _answer_all(client, steps)
            measured = _measure_documents(client, steps, reports[SETTINGS[0]])
            steps.show("comparing, and writing the report", RATED)
            pairs = {}
            for setting in SETTINGS:
                gate, hybrid = (reports[setting][name]["id"] for name in ("mathrag-gate", "hybrid"))
                pairs[setting] = client.send(jobs.compare([gate, hybrid], baseline=hybrid))["pairs"][0]
            made, measuring = [each for found in reports.values() for each in found.values()], [*measured.values()]
            checked = [*made, *measuring]
            violations = {each["name"]: client.send(jobs.audit(each["id"]))["violations"] for each in checked}
            # The first job is the baseline of all others.
            names = sorted(sentences.PIPELINES, key=lambda name: name != "hybrid")
            compared = [reports[SETTINGS[0]][name]["id"] for name in names]
            out = folder / "report"
            fetched = list(fetch_jobs(client, compared, out / "data"))
            folders, relevant = [each.folder for each in fetched], fetch_relevant(client, fetched)
            index = report.write(out, folders, None, compare_with_first(client, compared), relevant=relevant)
            example = _show_example(client, reports[SETTINGS[0]])
            url = client.url
    scores = {name: found["metrics"][METRIC] for name, found in measured.items()}
    _say(f"One question of {SETTINGS[0]}", example)
    _say("Right answers, with the 95 % interval", sentences.accuracies(worlds, reports))
    _say(f"How much the documents help in {SETTINGS[0]}, measured without the right answers", sentences.metric(scores))
    _say(
        "Did the rules or the judge score the documents?",
        sentences.gate({name: found["mathrag-gate"] for name, found in reports.items()}),
    )
    conclusions = (sentences.paragraph(f"{name}: {sentences.conclusion(pair)}") for name, pair in pairs.items())
    _say("Conclusions", *conclusions)
    print(sentences.paragraph(f"{sentences.loads(made, measuring)} {sentences.audits(violations)}"))
    print(
        sentences.paragraph(
            f"A report with every answer and with figures, which you can open without a server: {index}"
        )
    )
    return url


def _connect(folder: Path) -> Client:
    running = address.read_state(folder / DATA)
    if running is None or running.phase != "running":
        hint = f"stop it with mathrag down --data-dir {folder / DATA}, and try again"
        raise Failed("unavailable", f"the stack in {folder / DATA} is not ready", hint=hint)
    return Client(running.url)


def _upload_world(client: Client, setting: str, seed: int, folder: Path, questions: int | None) -> sentences.World:
    written = build(seed, read(setting))
    write(written, folder)
    corpus = client.send(texts.upload("corpora", Sources(paths.corpus_lines(folder / "corpus.jsonl")), setting))
    rows = islice(paths.dataset_lines(folder / "dataset.jsonl"), questions)
    dataset = client.send(texts.upload("datasets", Sources(rows), setting))
    misleading = sum(not is_useful(document.kind) for document in written.documents)
    return sentences.World(dataset["items"], corpus["documents"], misleading)


def _answer_all(client: Client, steps: Steps) -> dict[str, dict[str, Any]]:
    """Run all jobs at the same time, so that they share every model load; return reports by setting and pipeline.

    Raises:
        Failed: a job did not complete.
    """
    submitted: dict[tuple[str, str], str] = {}
    for setting in SETTINGS:
        for pipeline in sentences.PIPELINES:
            params = registry.get(pipeline).select_read(PARAMS)
            body = {"name": f"{setting}-{pipeline}", "dataset": setting, "corpus": setting, "pipeline": pipeline}
            submitted[setting, pipeline] = client.send(jobs.submit({**body, "params": params}))["id"]
    _wait(
        client,
        steps,
        submitted.values(),
        f"answering the questions in {len(sentences.PIPELINES)} ways",
        ASKED,
        ANSWERED,
    )
    pipelines = sentences.PIPELINES
    return {each: {name: client.send(jobs.report(submitted[each, name])) for name in pipelines} for each in SETTINGS}


def _measure_documents(client: Client, steps: Steps, reports: dict[str, Any]) -> dict[str, Any]:
    """Rate the documents of two jobs with one more model load, and return the reports by pipeline.

    Raises:
        Failed: a job did not complete.
    """
    names, judge = ("hybrid", "mathrag-gate"), {"judge": LABEL_JUDGE}
    submitted = {name: client.send(jobs.measure(reports[name]["id"], [METRIC], models=judge))["id"] for name in names}
    _wait(client, steps, submitted.values(), "measuring how much the documents help", ANSWERED, RATED)
    return {name: client.send(jobs.report(job)) for name, job in submitted.items()}


def _wait(client: Client, steps: Steps, submitted: Iterable[str], doing: str, first: float, last: float) -> None:
    """Wait for jobs, and show the progress between two shares of the whole time.

    Raises:
        Failed: a job did not complete.
    """
    while True:
        found = [client.send(jobs.get(job)) for job in submitted]
        steps.show(doing, first + (last - first) * measure_progress(found))
        if all(job["state"] in jobs.ENDED for job in found):
            break
        time.sleep(waiting.POLL_S)
    if failed := [job["name"] for job in found if job["state"] != "completed"]:
        raise Failed("internal", f"these jobs did not complete: {', '.join(failed)}", hint="mathrag job report NAME")


def measure_progress(all_jobs: Iterable[Any]) -> float:
    """Return the completed share of the models' work, from 0 to 1. Every sample needs a generation, except samples that
    are only measured."""
    done = total = 0
    for job in all_jobs:
        stages = job.get("stages", {})
        for role, cost in CALL_COSTS.items():
            stage = stages.get(role, {"done": 0, "total": 0})
            generates = role == "generate" and job.get("pipeline") != MEASURED
            samples = job["request_counts"]["total"] if generates else 0
            done += cost * stage["done"]
            total += cost * max(stage["total"], samples)
    return done / total if total else 0.0


def _show_example(client: Client, reports: dict[str, Any]) -> str:
    """Show a question that the pipelines answer differently, if possible with the documents that cause it."""
    samples = {name: list(client.all(jobs.samples(each["id"]))) for name, each in reports.items()}
    asked = [{name: each[at] for name, each in samples.items()} for at in sentences.list_examples(samples)]
    for rows in asked:
        gated, merged = (jobs.sample(reports[name]["id"], rows[name]["index"]) for name in ("mathrag-gate", "hybrid"))
        found = client.send(gated)
        if sentences.is_example(rows["hybrid"], rows["mathrag-gate"], found["relevant"]):
            return sentences.example(rows, {**found["documents"], **client.send(merged)["documents"]})
    return sentences.example(asked[0], {})


def _say(title: str, *texts: str) -> None:
    print(f"\n== {title}", *texts, sep="\n", flush=True)

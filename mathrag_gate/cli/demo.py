"""`mathrag demo`: two corpora, and five pipelines on each, on a stack of its own that keeps running."""

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
from mathrag_gate.demo.world import build, read, useful, write
from mathrag_gate.stack import control
from shared.params import QUALITY_ALONE
from shared.pipelines import registry
from shared.pipelines.measured import MEASURED

SETTINGS = ("orthogonal", "clean")
"""One in which most documents mislead, and one in which none does (docs/reference/reproduction.md)."""
PARAMS: dict[str, Any] = {"context_size": 3, "generate": {"max_tokens": 96}, **QUALITY_ALONE}
"""As of docs/reference/reproduction.md: answers have some 30 tokens, numbers of the world one digit, and quality alone
reorders all candidates."""
QUICK = 10
"""Questions of each set in quick form: enough to see every part work, too few to tell pipelines apart."""
CALL_COSTS = {"judge": 2, "generate": 5}
"""Seconds of a call of the shipped models, as a ratio; other calls take next to none."""
ASKED, ANSWERED, RATED = 0.14, 0.82, 0.94
"""Shares of the whole time after which the jobs are submitted, all answers are given, and two jobs are measured."""
METRIC, LABEL_JUDGE = "context_relevance", "label-judge"
"""A metric without gold answers, and the shipped model that was trained for its label."""
DATA_DIR = Path(".mathrag") / "demo"

Seed = Annotated[int, typer.Option(help="Seed for generating questions and documents; the results depend on it.")]
DemoFolder = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the demo; an earlier demo there is deleted (default: .mathrag/demo)."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Ask 10 questions of each set: shows that everything works, compares nothing.")
]
Stop = Annotated[bool, typer.Option("--stop", help="Stop the service at the end, instead of leaving it running.")]


def demo(seed: Seed = 1, data_dir: DemoFolder = None, quick: Quick = False, stop: Stop = False) -> None:
    """Run the demo: start a stack, answer 300 questions in five ways, explain the results (1 to 4 minutes)."""
    # SIGTERM must stop the stack, too: SystemExit runs the clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = data_dir or DATA_DIR
    with report_errors(as_json=False, needs="mathrag-gate[embedded]"):
        _make_room(folder)
        began = time.monotonic()
        print(f"{sentences.INTRODUCTION}\n", flush=True)
        with ExitStack() as undo:
            undo.callback(_stop, folder)
            url = _demonstrate(seed, folder, QUICK if quick else None)
            print(f"\nThe demonstration took {time.monotonic() - began:.0f} s.")
            program = _name_program()
            if stop:
                print(f"See it again:  {shlex.join([*program, 'open', '--data-dir', str(folder)])}")
            else:
                undo.pop_all()
                print(sentences.own_data(url, folder, program, elsewhere="MATHRAG_URL" in os.environ))


def _make_room(folder: Path) -> None:
    """Stop and delete an earlier demonstration.

    Raises:
        Failed: `folder` holds something else, or the stack there has unfinished jobs or data of the reader.
    """
    ours = folder == DATA_DIR or ((folder / CONFIGURATION).is_file() and (folder / DATA).is_dir())
    if folder.is_dir() and any(folder.iterdir()) and not ours:
        raise Failed("conflict", f"{folder} has files that no demo wrote", hint="name an empty folder by --data-dir")
    if control.find_holder(folder / DATA) is not None:
        with _connect(folder) as client:
            kept = [job["name"] for job in client.all(jobs.list_jobs()) if job["state"] not in jobs.ENDED]
            for request in (texts.list_corpora(), texts.list_datasets()):
                kept += [each["name"] for each in client.all(request) if each["name"] not in SETTINGS]
        if kept:
            message = f"the service of an earlier demo runs on {folder}, with unfinished jobs or data of yours"
            hint = f"name another folder by --data-dir; to have it deleted: mathrag down --data-dir {folder / DATA}"
            raise Failed("conflict", f"{message}: {', '.join(dict.fromkeys(kept))}", hint=hint)
        _stop(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _stop(folder: Path) -> None:
    if control.find_holder(folder / DATA) is not None:
        print(f"Stopping {folder / DATA} ...", flush=True)
        with redirect_stdout(io.StringIO()):
            stack.down(data_dir=folder / DATA)


def _name_program() -> list[str]:
    """Return the words that start this program in the shell that started it."""
    called = Path(sys.argv[0])
    if called.name != "mathrag":
        return [sys.executable, "-P", "-m", "mathrag.cli.main"]
    found = shutil.which("mathrag")
    return ["mathrag"] if found and Path(found).resolve() == called.resolve() else [str(called)]


def _demonstrate(seed: int, folder: Path, questions: int | None) -> str:
    """Run the demonstration with `questions` of each set (None: all), and return the address of its stack.

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
    _say("Answers that are right, with the 95 % interval", sentences.accuracies(worlds, reports))
    _say(f"How much the documents help in {SETTINGS[0]}, without a right answer at hand", sentences.metric(scores))
    _say("Who scored the documents", sentences.gate({name: found["mathrag-gate"] for name, found in reports.items()}))
    conclusions = (sentences.paragraph(f"{name}: {sentences.conclusion(pair)}") for name, pair in pairs.items())
    _say("What follows", *conclusions)
    print(sentences.paragraph(f"{sentences.loads(made, measuring)} {sentences.audits(violations)}"))
    print(sentences.paragraph(f"Every answer, with figures, in a report that needs no server: {index}"))
    return url


def _connect(folder: Path) -> Client:
    running = address.read_state(folder / DATA)
    if running is None or running.phase != "running":
        hint = f"stop it, and try again: mathrag down --data-dir {folder / DATA}"
        raise Failed("unavailable", f"the service on {folder / DATA} is not ready", hint=hint)
    return Client(running.url)


def _upload_world(client: Client, setting: str, seed: int, folder: Path, questions: int | None) -> sentences.World:
    written = build(seed, read(setting))
    write(written, folder)
    corpus = client.send(texts.upload("corpora", Sources(paths.corpus_lines(folder / "corpus.jsonl")), setting))
    rows = islice(paths.dataset_lines(folder / "dataset.jsonl"), questions)
    dataset = client.send(texts.upload("datasets", Sources(rows), setting))
    misleading = sum(not useful(document.kind) for document in written.documents)
    return sentences.World(dataset["items"], corpus["documents"], misleading)


def _answer_all(client: Client, steps: Steps) -> dict[str, dict[str, Any]]:
    """Run all jobs at once, so that they share every model load; return their reports by setting and pipeline.

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
    """Have the documents of two jobs rated, in one more load of a model, and return their reports by pipeline.

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
    """Return the share of the models' work that is done, from 0 to 1; every sample needs a generation, but for those
    that are only measured."""
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
    """Show a question that tells the pipelines apart, with the documents that made the difference if there are any."""
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

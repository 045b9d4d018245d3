"""Runs the demonstration on a stack of its own: two corpora, five pipelines on each, and a few questions one by one."""

import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag import report as report_module
from mathrag.cli import progress
from mathrag.cli.output import report_errors
from mathrag.cli.report import compare_with_first, fetch_jobs
from mathrag.cli.up import CONFIGURATION, DATA, own_stack
from mathrag.client import address, jobs, texts, waiting
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.uploads import Sources
from mathrag.demo import sentences
from mathrag.demo import world as world_module
from mathrag.demo.world import build, write
from mathrag.stack import control
from shared.calls import CALL_KINDS
from shared.errors import Unavailable
from shared.ingest import paths
from shared.ingest.lines import Row
from shared.pages.figures import check_installed
from shared.pipelines import registry

SETTINGS = ("orthogonal", "clean")
"""One in which most documents mislead, and one in which none does (docs/reference/reproduction.md)."""
PARAMS: dict[str, Any] = {"context_size": 3, "generate": {"max_tokens": 96}}
"""As of docs/reference/reproduction.md: answers have some 30 tokens, numbers of the world one digit."""
QUICK = 10
"""Questions of each set in quick form: enough to see every part work, too few to tell pipelines apart."""
FEW = 5
"""Questions that are also asked one by one: each of them loads models, which takes seconds."""
SHOWN_S = 10.0
"""Between two lines of progress, where no terminal shows bars."""
DATA_DIR = Path(".mathrag") / "demo"
REPORT = "report"
"""Its pages, below the demonstration's folder."""
ALONGSIDE = ("mathrag-gate", "dense", "sparse", "closed-book")
"""Pipelines that the report compares with `hybrid`."""
DATASET, CORPUS = "dataset.jsonl", "corpus.jsonl"

Reports = dict[str, dict[str, Any]]
"""Reports of jobs by setting and pipeline."""


def demonstrate(seed: int, folder: Path, questions: int | None = None) -> None:
    """The demonstration, start to end; what `folder` held of an earlier one is deleted.

    `questions` is how many of each set are asked, None for all.

    Raises:
        Failed: a step or a job failed, or `folder` holds something else.
    """
    began = time.monotonic()
    print(sentences.INTRODUCTION)
    _empty(folder)
    _say("1. Starting PostgreSQL, Redis and five services on this machine (half a minute)")
    with _stack(folder) as client:
        _say("2. Two sets of documents")
        worlds = {
            setting: _upload_world(client, setting, seed, folder / "worlds" / setting, questions)
            for setting in SETTINGS
        }
        print("\n".join(worlds.values()))
        _say(f"3. Answering all questions with {len(sentences.PIPELINES)} pipelines")
        print(sentences.pipelines())
        reports = _answer_all(client)
        _say("4. What came out")
        print(sentences.paragraph(sentences.READING))
        pairs = {setting: _compare(client, reports[setting]) for setting in SETTINGS}
        for setting in SETTINGS:
            print(sentences.results(worlds[setting], reports[setting], pairs[setting]))
        _say(f"5. One question of {SETTINGS[0]}, and its answers")
        index, sentence = sentences.question(_rows(client, reports[SETTINGS[0]]))
        print(sentence)
        _say("6. Model loads: in stages, and one question at a time")
        print(_loads(client, reports, folder))
        _say("7. Are the records whole?")
        print(_audits(client, [each for found in reports.values() for each in found.values()]))
        _say("8. A report of it")
        print(
            _write_report(
                client, [reports[SETTINGS[0]][name]["id"] for name in ("hybrid", *ALONGSIDE)], folder / REPORT
            )
        )
        _say("9. Stopping everything")
    _say("In short")
    print(sentences.summary(pairs))
    _say("Where to look next")
    print(sentences.next_steps(folder / DATA, SETTINGS[0], index))
    print(
        f"\nThe demonstration took {time.monotonic() - began:.0f} s. See it live:\n\n  mathrag open --data-dir {folder}"
    )


def _empty(folder: Path) -> None:
    if control.find_holder(folder / DATA) is not None:
        raise Failed("conflict", f"a demo runs on {folder}", hint=f"mathrag down --data-dir {folder / DATA}")
    ours = folder == DATA_DIR or ((folder / CONFIGURATION).is_file() and (folder / DATA).is_dir())
    if folder.is_dir() and any(folder.iterdir()) and not ours:
        raise Failed("conflict", f"{folder} has files that no demo wrote", hint="name an empty folder by --data-dir")
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _stack(folder: Path) -> Iterator[Client]:
    """Run a new stack on a free port, and stop it at the end, also after an error."""
    with own_stack(folder, {}, keep=False):
        running = address.read_state(folder / DATA)
        if running is None:
            raise Failed("unavailable", "the stack did not say where it runs", hint=f"less {folder / DATA}/logs/*")
        with Client(running.url) as client:
            yield client


def _upload_world(client: Client, setting: str, seed: int, folder: Path, questions: int | None) -> str:
    written = build(seed, world_module.read(setting))
    write(written, folder)
    misleading = sum(not world_module.useful(document.kind) for document in written.documents)
    corpus = client.send(texts.upload("corpora", Sources(paths.corpus_lines(folder / CORPUS)), setting))
    dataset = _upload_questions(client, setting, islice(paths.dataset_lines(folder / DATASET), questions))
    return sentences.world(setting, corpus["documents"], misleading, dataset["items"])


def _upload_questions(client: Client, name: str, rows: Iterator[Row]) -> Any:
    return client.send(texts.upload("datasets", Sources(rows), name))


def _submit(client: Client, name: str, *, dataset: str, corpus: str, pipeline: str, **fields: Any) -> str:
    params = registry.get(pipeline).select_read(PARAMS)
    body = {"name": name, "dataset": dataset, "corpus": corpus, "pipeline": pipeline, "params": params, **fields}
    return str(client.send(jobs.submit(body))["id"])


def _answer_all(client: Client) -> Reports:
    """Run all jobs at once, so that they share every model load."""
    submitted = {
        (setting, pipeline): _submit(
            client, f"{setting}-{pipeline}", dataset=setting, corpus=setting, pipeline=pipeline
        )
        for setting in SETTINGS
        for pipeline in sentences.PIPELINES
    }
    _watch(client, list(submitted.values()), progress.choose_view())
    found: Reports = {setting: {} for setting in SETTINGS}
    for (setting, pipeline), job in submitted.items():
        found[setting][pipeline] = _report(client, job)
    return found


def _watch(client: Client, ids: Sequence[str], view: progress.View) -> None:
    """Show all jobs as one until every one has ended.

    Raises:
        Failed: a job did not complete.
    """
    shown = 0.0
    try:
        while True:
            found = [client.send(jobs.get(job)) for job in ids]
            ended = all(job["state"] in jobs.ENDED for job in found)
            if ended or sys.stdout.isatty() or time.monotonic() - shown > SHOWN_S:
                view.show(merge_counts(found))
                shown = time.monotonic()
            if ended:
                break
            time.sleep(waiting.POLL_S)
    finally:
        view.close()
    if failed := [job["name"] for job in found if job["state"] != "completed"]:
        raise Failed("internal", f"these jobs did not complete: {', '.join(failed)}", hint="mathrag job report NAME")


def merge_counts(all_jobs: Sequence[Any]) -> Any:
    """Add up the counts of several jobs, as if they were one."""
    stages = {role: {"done": 0, "total": 0} for role in CALL_KINDS}
    for job in all_jobs:
        for role, stage in job.get("stages", {}).items():
            for part in stage:
                stages[role][part] += stage[part]
    counts = {part: sum(job["request_counts"][part] for job in all_jobs) for part in ("total", "in_progress")}
    live = sum(job["state"] not in jobs.ENDED for job in all_jobs)
    begun = {role: stage for role, stage in stages.items() if stage["total"]}
    return {"name": "all jobs", "state": f"{live} running", "stages": begun, "request_counts": counts}


def _report(client: Client, job: str) -> Any:
    return client.send(jobs.report(job))


def _compare(client: Client, reports: dict[str, Any]) -> Any:
    """Compare mathrag-gate with hybrid retrieval."""
    gate, hybrid = reports["mathrag-gate"]["id"], reports["hybrid"]["id"]
    return client.send(jobs.compare([gate, hybrid], hybrid))["pairs"][0]


def _rows(client: Client, reports: dict[str, Any]) -> dict[str, list[Any]]:
    """Fetch the samples of each pipeline in the order of the questions."""
    return {pipeline: list(client.all(jobs.samples(report["id"]))) for pipeline, report in reports.items()}


def _loads(client: Client, reports: Reports, folder: Path) -> str:
    rows = list(paths.dataset_lines(folder / "worlds" / SETTINGS[0] / DATASET))[:FEW]
    together = _ask_alone(client, "together", rows)
    alone = [_ask_alone(client, f"alone-{number}", [row]) for number, row in enumerate(rows, start=1)]
    together_all = [report for found in reports.values() for report in found.values()]
    return sentences.loads(together_all, together, alone)


def _ask_alone(client: Client, name: str, rows: list[Row]) -> Any:
    """Run a job that reuses nothing, and return its report."""
    _upload_questions(client, name, iter(rows))
    job = _submit(client, name, dataset=name, corpus=SETTINGS[0], pipeline="mathrag-gate", reuse="none")
    _watch(client, [job], progress.Silent())
    return _report(client, job)


def _write_report(client: Client, jobs_: Sequence[str], out: Path) -> str:
    """Write the jobs as pages that need no server; the first job is the baseline."""
    try:
        check_installed()
    except Unavailable as missing:
        return sentences.paragraph(
            f"No report was written: {missing}. {missing.hint}, and run the demonstration again."
        )
    folders = list(fetch_jobs(client, jobs_, out / "data"))
    index = report_module.write(
        out, [each.folder for each in folders], "Demonstration", compare_with_first(client, jobs_)
    )
    return f"  {index}"


def _audits(client: Client, reports: Sequence[Any]) -> str:
    found = {report["name"]: client.send(jobs.audit(report["id"])) for report in reports}
    return sentences.audits({name: audit["violations"] for name, audit in found.items()})


def _say(text: str) -> None:
    print(f"\n== {text}", flush=True)


Seed = Annotated[int, typer.Option(help="Seed for generating questions and documents; the results depend on it.")]
DemoFolder = Annotated[
    Path | None,
    typer.Option("--data-dir", help="Folder of the demo; an earlier demo there is deleted (default: .mathrag/demo)."),
]
Quick = Annotated[
    bool, typer.Option("--quick", help="Ask 10 questions of each set: shows that everything works, compares nothing.")
]


def demo(seed: Seed = 1, data_dir: DemoFolder = None, quick: Quick = False) -> None:
    """Run the demo: start a stack, answer 300 questions in five ways, explain the results (1 to 4 minutes)."""
    # SIGTERM must stop the stack, too: SystemExit runs the clean-up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with report_errors(as_json=False, extra="embedded"):
        demonstrate(seed, data_dir or DATA_DIR, QUICK if quick else None)

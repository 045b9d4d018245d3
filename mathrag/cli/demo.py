"""`mathrag demo`: two corpora, five pipelines on each, and a few questions one by one, on a stack of its own."""

import shutil
import signal
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag import report
from mathrag.cli import progress
from mathrag.cli.output import report_errors
from mathrag.cli.report import compare_with_first, fetch_jobs
from mathrag.cli.up import CONFIGURATION, DATA, own_stack
from mathrag.client import address, jobs, texts, waiting
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.uploads import Sources
from mathrag.demo import sentences
from mathrag.demo.world import build, read, useful, write
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
        _demonstrate(seed, data_dir or DATA_DIR, QUICK if quick else None)


def _demonstrate(seed: int, folder: Path, questions: int | None) -> None:
    """Run the demonstration, start to end, with `questions` of each set (None: all); an earlier one is deleted.

    Raises:
        Failed: a step or a job failed, or `folder` holds something else.
    """
    began = time.monotonic()
    print(sentences.INTRODUCTION)
    if control.find_holder(folder / DATA) is not None:
        raise Failed("conflict", f"a demo runs on {folder}", hint=f"mathrag down --data-dir {folder / DATA}")
    ours = folder == DATA_DIR or ((folder / CONFIGURATION).is_file() and (folder / DATA).is_dir())
    if folder.is_dir() and any(folder.iterdir()) and not ours:
        raise Failed("conflict", f"{folder} has files that no demo wrote", hint="name an empty folder by --data-dir")
    shutil.rmtree(folder, ignore_errors=True)
    _say("1. Starting PostgreSQL, Redis and five services on this machine (half a minute)")
    # The stack is stopped at the end, also after an error.
    with own_stack(folder, {}, keep=False), _connect(folder) as client:
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
        pairs = {}
        for setting in SETTINGS:
            gate, hybrid = (reports[setting][name]["id"] for name in ("mathrag-gate", "hybrid"))
            pairs[setting] = client.send(jobs.compare([gate, hybrid], baseline=hybrid))["pairs"][0]
            print(sentences.results(worlds[setting], reports[setting], pairs[setting]))
        _say(f"5. One question of {SETTINGS[0]}, and its answers")
        samples = {name: list(client.all(jobs.samples(each["id"]))) for name, each in reports[SETTINGS[0]].items()}
        index, sentence = sentences.question(samples)
        print(sentence)
        _say("6. Model loads: in stages, and one question at a time")
        rows = list(islice(paths.dataset_lines(folder / "worlds" / SETTINGS[0] / DATASET), FEW))
        together = _ask_alone(client, "together", rows)
        alone = [_ask_alone(client, f"alone-{number}", [row]) for number, row in enumerate(rows, start=1)]
        made = [each for found in reports.values() for each in found.values()]
        print(sentences.loads(made, together, alone))
        _say("7. Are the records whole?")
        audits = {each["name"]: client.send(jobs.audit(each["id"])) for each in made}
        print(sentences.audits({name: audit["violations"] for name, audit in audits.items()}))
        _say("8. A report of it")
        compared = [reports[SETTINGS[0]][name]["id"] for name in ("hybrid", *ALONGSIDE)]
        print(_write_report(client, compared, folder / REPORT))
        _say("9. Stopping everything")
    _say("In short")
    print(sentences.summary(pairs))
    _say("Where to look next")
    print(sentences.next_steps(folder / DATA, SETTINGS[0], index))
    took = f"The demonstration took {time.monotonic() - began:.0f} s. See it live:"
    print(f"\n{took}\n\n  mathrag open --data-dir {folder}")


def _connect(folder: Path) -> Client:
    running = address.read_state(folder / DATA)
    if running is None:
        raise Failed("unavailable", "the stack did not say where it runs", hint=f"less {folder / DATA}/logs/*")
    return Client(running.url)


def _upload_world(client: Client, setting: str, seed: int, folder: Path, questions: int | None) -> str:
    written = build(seed, read(setting))
    write(written, folder)
    misleading = sum(not useful(document.kind) for document in written.documents)
    corpus = client.send(texts.upload("corpora", Sources(paths.corpus_lines(folder / CORPUS)), setting))
    rows = islice(paths.dataset_lines(folder / DATASET), questions)
    dataset = client.send(texts.upload("datasets", Sources(rows), setting))
    return sentences.world(setting, corpus["documents"], misleading, dataset["items"])


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
        found[setting][pipeline] = client.send(jobs.report(job))
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


def _ask_alone(client: Client, name: str, rows: list[Row]) -> Any:
    """Run a job that reuses nothing, and return its report."""
    client.send(texts.upload("datasets", Sources(rows), name))
    job = _submit(client, name, dataset=name, corpus=SETTINGS[0], pipeline="mathrag-gate", reuse="none")
    _watch(client, [job], progress.Silent())
    return client.send(jobs.report(job))


def _write_report(client: Client, compared: Sequence[str], out: Path) -> str:
    """Write the jobs as pages that need no server; the first job is the baseline."""
    try:
        check_installed()
    except Unavailable as missing:
        return sentences.paragraph(
            f"No report was written: {missing}. {missing.hint}, and run the demonstration again."
        )
    folders = [each.folder for each in fetch_jobs(client, compared, out / "data")]
    index = report.write(out, folders, "Demonstration", compare_with_first(client, compared))
    return f"  {index}"


def _say(text: str) -> None:
    print(f"\n== {text}", flush=True)

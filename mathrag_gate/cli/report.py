"""`mathrag report bundle`: write a report as a folder that opens without a server."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from mathrag.cli.job import ForceFiles, export_files
from mathrag.cli.output import AsJson, print_json, report_errors
from mathrag.cli.references import Jobs
from mathrag.client import experiments, texts
from mathrag.client import jobs as api
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import MOST_OF_A_PAGE
from mathrag.messages import format_count
from mathrag_gate.cli import browser

MOST_COMPARED = 30
"""Largest number of jobs that GET /v1/comparison accepts; an experiment has its own comparisons."""

MOST_DOCUMENTS = 20_000
"""Largest corpus, in documents, for which the report finds the relevant ones; a request returns 500."""
SHORTEST_ID = 4
"""Number of characters of an id that identify a job."""
ROW_HEIGHT, MOST_ADDED = 50, 10
"""Pixels that the first screen grows for each job after the second, and the largest number of such steps."""
PDF, PNG, PLACE = "report.pdf", "report.png", "picture"
"""Files of the first screen, and the anchor at which the page shows only the first screen."""

report = typer.Typer()
Experiment = Annotated[str | None, typer.Option(help="Report all jobs of this experiment, instead of JOB.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the report; created if it does not exist.")]
Title = Annotated[
    str | None, typer.Option(help="Title of the report (default: a question that names the compared systems).")
]
Summary = Annotated[str | None, typer.Option(metavar="TEXT", help="Text to show below the title.")]
Names = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="JOB=LABEL",
        help="Label of a job, or of a variant of the experiment (default: a description of its pipeline).",
    ),
]
Pdf = Annotated[bool, typer.Option("--pdf", help=f"Also write the first screen as {PDF}; needs Chromium or Chrome.")]
Png = Annotated[bool, typer.Option("--png", help=f"Also write the first screen as {PNG}; needs Chromium or Chrome.")]


@report.command()
def bundle(
    out: Out,
    jobs: Jobs = [],  # noqa: B006 - read, and never written
    experiment: Experiment = None,
    title: Title = None,
    summary: Summary = None,
    names: Names = None,
    pdf: Pdf = False,
    png: Png = False,
    force: ForceFiles = False,
    as_json: AsJson = False,
) -> None:
    """Write a report of ended jobs for any browser: the result on one screen, then tables, figures and every sample.

    Jobs are compared with the first one; an experiment has its own comparisons.
    """
    with report_errors(as_json=as_json), Client() as client:
        if bool(jobs) == bool(experiment):
            raise Failed(
                "usage",
                "a report needs either JOB or --experiment",
                hint="for example: mathrag report bundle JOB --out DIR",
            )
        if not client.shows and not force and out.exists() and any(out.iterdir()):
            raise Failed("conflict", f"folder {out} is not empty", hint="choose another folder, or add --force")
        from mathrag_gate.report import write

        chromium = browser.find_browser() if pdf or png else ""
        found = client.send(experiments.report(experiment)) if experiment else None
        cells = found["rows"] if found else []
        members = jobs or [cell["job"] for cell in cells if cell["job"] and cell["result"]]
        folders = list(fetch_jobs(client, members, out / "data"))
        if client.shows:
            return
        comparison = None if found else compare_with_first(client, [each.id for each in folders])
        compared = comparison or ((found or {}).get("comparisons") or {}).get("pooled")
        index = write(
            out, [each.folder for each in folders], title, comparison, found, summary=summary or "",
            labels=read_labels(names or [], folders, compared if found else None),
            relevant=fetch_relevant(client, folders),
        )  # fmt: skip
        pictures = {}
        if pdf:
            browser.print_pdf(chromium, index, out / PDF, PLACE)
            pictures["pdf"] = str(out / PDF)
        if png:
            more = min(max(len(compared["jobs"] if compared else folders) - 2, 0), MOST_ADDED)
            browser.take_picture(chromium, index, out / PNG, PLACE, height=browser.HEIGHT + more * ROW_HEIGHT)
            pictures["png"] = str(out / PNG)
        if as_json:
            print_json({"folder": str(out), "open": str(index), "jobs": [each.id for each in folders], **pictures})
        else:
            typer.echo(f"{format_count(len(folders), 'job')}: open {index}")
            for picture in pictures.values():
                typer.echo(f"the first screen: {picture}")


class FetchedJob(NamedTuple):
    """A job whose files were downloaded."""

    id: str
    name: str
    folder: Path


def fetch_jobs(client: Client, references: Sequence[str], data: Path) -> Iterator[FetchedJob]:
    """Download the files of each job to a folder below `data`, and yield the job when they are complete."""
    for reference in dict.fromkeys(references):
        job = client.send(api.get(reference))
        folder = data / make_slug(job["name"], job["id"])
        folder.mkdir(parents=True, exist_ok=True)
        for name, request in export_files(job["id"], "jsonl").items():
            client.save(request, folder / name)
        client.save(api.results_file(job["id"], format="csv"), folder / "results.csv")
        yield FetchedJob(job["id"], job["name"], folder)


def make_slug(name: str, id_: str) -> str:
    """Return a unique folder name from a job's name, with special characters replaced, and its id."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:60]
    return f"{plain or 'job'}-{id_[:8]}"


def compare_with_first(client: Client, ids: Sequence[str]) -> Any:
    """Return the comparison of every job with the first one; None for one job, or for too many."""
    if not 1 < len(ids) <= MOST_COMPARED:
        return None
    return client.send(api.compare(ids, baseline=ids[0]))


def read_labels(texts: Sequence[str], folders: Sequence[FetchedJob], pooled: Any) -> dict[str, str]:
    """Return labels by the id of a job, or by the name of a system of the experiment whose comparison is `pooled`.

    Raises:
        Failed: a text is not of the form NAME=LABEL, its name is not in this report, or a name or label is repeated.
    """
    if pooled:
        shown = [each["name"] for each in pooled["jobs"]]
        known = dict(zip(shown, shown, strict=True))
    else:
        shown = [each.name for each in folders]
        known = {name: each.id for each in folders for name in (each.id, each.name)}
    labels: dict[str, str] = {}
    for text in texts:
        # A name may contain "=", for example that of an experiment's point.
        parts = [(text[:place], text[place + 1 :].strip()) for place, letter in enumerate(text) if letter == "="]
        match = [(key, label) for name, label in reversed(parts) for key in _find_keys(name, known) if label]
        if not match:
            hint = f"write --name 'NAME=LABEL' with one of: {', '.join(shown)}"
            raise Failed(
                "usage", f"--name {text} is not NAME=LABEL with the name of a job or variant in this report", hint=hint
            )
        key, label = match[0]
        if key in labels or label in labels.values():
            raise Failed(
                "usage",
                f"--name {text}: the job already has a label, or another job has this label",
                hint="give each job one unique label",
            )
        labels[key] = label
    return labels


def _find_keys(name: str, known: Mapping[str, str]) -> Collection[str]:
    if name in known:
        return [known[name]]
    begins = {key for key in known.values() if len(name) >= SHORTEST_ID and key.startswith(name)}
    return begins if len(begins) == 1 else ()


def fetch_relevant(client: Client, folders: Sequence[FetchedJob]) -> dict[str, dict[int, list[str]]]:
    """Return the hashes of the relevant documents by job and item, for jobs whose dataset names them.

    Skip jobs with large corpora, and jobs whose dataset or corpus was replaced or deleted since.
    """
    from mathrag_gate.report import JobFiles

    found: dict[str, dict[int, list[str]]] = {}
    fetched: dict[tuple[str, str], dict[int, list[str]]] = {}
    for each in folders:
        files = JobFiles(each.folder)
        dataset, corpus = files.record.dataset, files.record.corpus
        if (
            corpus is None
            or files.report["retrieval"] is None
            or (files.documents or MOST_DOCUMENTS + 1) > MOST_DOCUMENTS
        ):
            continue
        if (key := (dataset.hash, corpus.hash)) not in fetched:
            try:
                there = client.send(texts.get_dataset(dataset.name)), client.send(texts.get_corpus(corpus.name))
                is_same = (there[0]["hash"], there[1]["hash"]) == key
                fetched[key] = _match_relevant(client, dataset.name, corpus.name) if is_same else {}
            except Failed as failure:
                if failure.kind != "not_found":
                    raise
                fetched[key] = {}
        if fetched[key]:
            found[each.id] = fetched[key]
    return found


def _match_relevant(client: Client, dataset: str, corpus: str) -> dict[int, list[str]]:
    """Return the hashes of the documents that the items of a dataset name; grade 0 means not relevant."""
    hashes: defaultdict[str, list[str]] = defaultdict(list)
    for document in client.all(texts.documents(corpus).with_limit(MOST_OF_A_PAGE)):
        hashes[document["id"]].append(document["hash"])
    relevant = {}
    for item in client.all(texts.items(dataset).with_limit(MOST_OF_A_PAGE)):
        graded = {name for name, grade in (item["gold_documents"] or {}).items() if grade > 0}
        if graded:
            relevant[item["index"]] = sorted({hash_ for name in graded for hash_ in hashes.get(name, ())})
    return relevant

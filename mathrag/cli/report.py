"""`mathrag report bundle`: write a report as a folder that opens without a server."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from mathrag.cli.job import ForceFiles, export_files
from mathrag.cli.output import AsJson, print_json, report_errors
from mathrag.cli.references import Jobs
from mathrag.client import experiments
from mathrag.client import jobs as api
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from shared.messages import format_count

MOST_COMPARED = 30
"""Most jobs that GET /v1/comparison accepts; an experiment has its own comparisons."""

report = typer.Typer()
Experiment = Annotated[str | None, typer.Option(metavar="NAME", help="Report all jobs of this experiment instead.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the report; created if it does not exist.")]
Title = Annotated[str | None, typer.Option(help="Title of the report (default: the experiment's or the jobs' names).")]


@report.command()
def bundle(
    out: Out,
    jobs: Jobs = [],  # noqa: B006 - read, and never written
    experiment: Experiment = None,
    title: Title = None,
    force: ForceFiles = False,
    as_json: AsJson = False,
) -> None:
    """Write a report of ended jobs for any browser: tables, figures, comparisons and every sample.

    Jobs are compared with the first one; an experiment has its own comparisons.
    """
    with report_errors(as_json=as_json), Client() as client:
        if bool(jobs) == bool(experiment):
            raise Failed("usage", "name either jobs or an experiment", hint="mathrag report bundle JOB... --out DIR")
        if not client.shows and not force and out.exists() and any(out.iterdir()):
            raise Failed("conflict", f"{out} is not empty", hint="choose another folder, or --force")
        from mathrag.report import write
        from shared.pages.figures import check_installed

        check_installed()
        found = client.send(experiments.report(experiment)) if experiment else None
        cells = found["rows"] if found else []
        members = jobs or [cell["job"] for cell in cells if cell["job"] and cell["result"]]
        folders = list(fetch_jobs(client, members, out / "data"))
        if client.shows:
            return
        comparison = None if found else compare_with_first(client, [each.id for each in folders])
        names = [each.name for each in folders]
        together = ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more jobs"
        index = write(out, [each.folder for each in folders], title or experiment or together, comparison, found)
        if as_json:
            print_json({"folder": str(out), "open": str(index), "jobs": [each.id for each in folders]})
        else:
            typer.echo(f"{format_count(len(folders), 'job')}: open {index}")


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
    """Return a folder name made of a job's name, with other characters replaced, and its id, so that it is unique."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:60]
    return f"{plain or 'job'}-{id_[:8]}"


def compare_with_first(client: Client, ids: Sequence[str]) -> Any:
    """Return the comparison of every job with the first; None for one job, or for too many."""
    if not 1 < len(ids) <= MOST_COMPARED:
        return None
    return client.send(api.compare(ids, baseline=ids[0]))

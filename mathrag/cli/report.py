"""`mathrag report bundle`: a report as one folder that opens without a server."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from mathrag.cli.failures import reported
from mathrag.cli.job_files import Force, Format, parts
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.references import Jobs
from mathrag.client import experiments
from mathrag.client import jobs as api
from mathrag.client.client import Client
from mathrag.client.errors import Failed

MOST_COMPARED = 30
"""Jobs that GET /v1/comparison takes; an experiment brings its own comparisons."""

report = typer.Typer()
Experiment = Annotated[str | None, typer.Option(metavar="NAME", help="All jobs of this experiment instead.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Folder for the report; made if it is not there.")]
Title = Annotated[str | None, typer.Option(help="Of the report. [default: the experiment's or the jobs' names]")]


@report.command()
def bundle(
    out: Out,
    jobs: Jobs = [],  # noqa: B006 - read, and never written
    experiment: Experiment = None,
    title: Title = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write tables, figures, comparisons and every sample of jobs that have ended to a folder for any browser.

    Jobs are compared with the first one; an experiment brings its own comparisons.
    """
    with reported(as_json=as_json), Client() as client:
        if bool(jobs) == bool(experiment):
            raise Failed("usage", "name the jobs, or an experiment", hint="mathrag report bundle JOB... --out DIR")
        if not client.shows and not force and out.exists() and any(out.iterdir()):
            raise Failed("conflict", f"{out} is not empty", hint="another folder, or --force")
        from mathrag.report.bundle import write
        from shared.pages.figures import library

        library.required()
        found = client.send(experiments.report(experiment)) if experiment else None
        folders = list(fetched(client, list(jobs or _members(found)), out / "data"))
        if client.shows:
            return
        comparison = None if found else compared(client, [each.id for each in folders])
        named = title or experiment or _named([each.name for each in folders])
        index = write(out, [each.folder for each in folders], named, comparison, found)
        if as_json:
            print_json({"folder": str(out), "open": str(index), "jobs": [each.id for each in folders]})
        else:
            typer.echo(f"{len(folders)} jobs: open {index}")


class Fetched(msgspec.Struct, frozen=True):
    """A job whose files were written."""

    id: str
    name: str
    folder: Path


def fetched(client: Client, references: Sequence[str], data: Path) -> Iterator[Fetched]:
    """What the API says of each job, written to a folder of its own below `data`."""
    for reference in dict.fromkeys(references):
        job = client.send(api.get(reference))
        folder = data / slug(job["name"], job["id"])
        folder.mkdir(parents=True, exist_ok=True)
        for part in parts(job["id"], Format.JSONL):
            client.save(part.request, folder / part.file)
        client.save(api.file(job["id"], "results", format=Format.CSV.value), folder / "results.csv")
        yield Fetched(job["id"], job["name"], folder)


def slug(name: str, id_: str) -> str:
    """A job's name as one of a folder, whatever it holds; no two jobs share one."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-")[:60]
    return f"{plain or 'job'}-{id_[:8]}"


def _members(found: Any) -> list[str]:
    return list(dict.fromkeys(cell["job"] for cell in found["rows"] if cell["job"] and cell["result"]))


def compared(client: Client, ids: Sequence[str]) -> Any:
    """Every job compared with the first; None: there is one alone, or they are too many."""
    if not 1 < len(ids) <= MOST_COMPARED:
        return None
    return client.send(api.compare(list(ids), ids[0]))


def _named(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]} and {len(names) - 1} more jobs"

"""`mathrag job results` and `job export`: what came out, as files."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from mathrag.cli.failures import Failed, reported
from mathrag.cli.output import AsJson, print_json, print_lines_as_json
from mathrag.cli.references import Job
from mathrag.client.client import Client, segment


class Format(StrEnum):
    """How rows are written."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


Rows = Annotated[Format, typer.Option("--format", help="Of the rows.")]
To = Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder for the files; made if it is not there.")]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there.")]


class Part(NamedTuple):
    """One file of an export."""

    file: str
    path: str
    query: dict[str, str]


Prompts = Annotated[bool, typer.Option("--prompts", help="With what the generator was asked.")]


def parts(job: str, rows: Format, *, prompts: bool = False) -> Iterator[Part]:
    """All files of a job."""
    path = f"/v1/jobs/{segment(job)}"
    yield Part("job.json", path, {})
    yield Part("report.json", f"{path}/report", {})
    yield Part(f"results.{rows}", f"{path}/results", {"format": rows.value, **_asking(prompts)})
    yield Part("provenance.jsonl", f"{path}/provenance", {"format": "jsonl"})
    yield Part("audit.json", f"{path}/audit", {})


def _asking(prompts: bool) -> dict[str, str]:
    return {"prompts": "true"} if prompts else {}


def results(reference: Job, rows: Rows = Format.JSONL, prompts: Prompts = False, as_json: AsJson = False) -> None:
    """Every sample that has ended so far, with what models said; one per line or row, with --json as one array."""
    with reported(as_json=as_json), Client() as client:
        path = f"/v1/jobs/{segment(reference)}/results"
        if as_json:
            print_lines_as_json(client.stream(path, format=Format.JSONL.value, **_asking(prompts)))
            return
        if rows is Format.PARQUET and sys.stdout.isatty():
            raise Failed("usage", "Parquet is nothing to look at", hint="write it to a file: > results.parquet")
        sys.stdout.buffer.writelines(client.stream(path, format=rows.value, **_asking(prompts)))
        sys.stdout.buffer.flush()


def export(
    reference: Job,
    to: To,
    rows: Rows = Format.JSONL,
    prompts: Prompts = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write an ended job to a folder: job, report, results, provenance, audit."""
    with reported(as_json=as_json), Client() as client:
        written = list(parts(reference, rows, prompts=prompts))
        there = [part.file for part in written if (to / part.file).exists()]
        if there and not force:
            raise Failed("conflict", f"{to} has {', '.join(there)} already", hint="another folder, or --force")
        if not client.shows:
            to.mkdir(parents=True, exist_ok=True)
        for part in written:
            client.save(part.path, to / part.file, **part.query)
        if client.shows:
            return
        if as_json:
            print_json({"job": reference, "folder": str(to), "files": [part.file for part in written]})
        else:
            typer.echo(f"job {reference}: {', '.join(part.file for part in written)} in {to}")

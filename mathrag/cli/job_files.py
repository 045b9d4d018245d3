"""`mathrag job results` and `job export`: what came out, as files."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json, print_lines_as_json
from mathrag.cli.references import JobReference
from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Request


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
    request: Request[bytes]


Prompts = Annotated[bool, typer.Option("--prompts", help="With what the generator was asked.")]


def parts(job: str, rows: Format, *, prompts: bool = False) -> Iterator[Part]:
    """All files of a job."""
    yield Part("job.json", jobs.file(job))
    yield Part("report.json", jobs.file(job, "report"))
    yield Part(f"results.{rows}", _results(job, rows, prompts=prompts))
    yield Part("provenance.jsonl", jobs.file(job, "provenance", format="jsonl"))
    yield Part("audit.json", jobs.file(job, "audit"))


def _results(job: str, rows: Format, *, prompts: bool) -> Request[bytes]:
    return jobs.file(job, "results", format=rows.value, prompts="true" if prompts else None)


def results(
    reference: JobReference, rows: Rows = Format.JSONL, prompts: Prompts = False, as_json: AsJson = False
) -> None:
    """Every sample that has ended so far, with what models said; one per line or row, with --json as one array."""
    with reported(as_json=as_json), Client() as client:
        if as_json:
            print_lines_as_json(client.stream(_results(reference, Format.JSONL, prompts=prompts)))
            return
        if rows is Format.PARQUET and sys.stdout.isatty():
            raise Failed("usage", "Parquet is nothing to look at", hint="write it to a file: > results.parquet")
        sys.stdout.buffer.writelines(client.stream(_results(reference, rows, prompts=prompts)))
        sys.stdout.buffer.flush()


def export(
    reference: JobReference,
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
            client.save(part.request, to / part.file)
        if client.shows:
            return
        if as_json:
            print_json({"job": reference, "folder": str(to), "files": [part.file for part in written]})
        else:
            typer.echo(f"job {reference}: {', '.join(part.file for part in written)} in {to}")

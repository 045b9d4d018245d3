"""`mathrag job results` and `job export`: write a job's results to files."""

import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_json, print_lines_as_json
from mathrag.cli.references import JobReference
from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Request


class RowFormat(StrEnum):
    """How rows are written."""

    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


Rows = Annotated[RowFormat, typer.Option("--format", help="Format of the rows.")]
To = Annotated[Path, typer.Option("--to", metavar="DIR", help="Folder for the files; created if it does not exist.")]
Force = Annotated[bool, typer.Option("--force", help="Replace existing files.")]


class ExportFile(NamedTuple):
    """A file of an export, and the request that fetches it."""

    file: str
    request: Request[bytes]


Prompts = Annotated[bool, typer.Option("--prompts", help="Include the generator's prompts.")]


def export_files(job: str, rows: RowFormat, *, prompts: bool = False) -> Iterator[ExportFile]:
    """Yield every file of a job's export, with the request that fetches it."""
    yield ExportFile("job.json", jobs.file(job))
    yield ExportFile("report.json", jobs.file(job, "report"))
    yield ExportFile(f"results.{rows}", _request_results(job, rows, prompts=prompts))
    yield ExportFile("provenance.jsonl", jobs.file(job, "provenance", format="jsonl"))
    yield ExportFile("audit.json", jobs.file(job, "audit"))


def _request_results(job: str, rows: RowFormat, *, prompts: bool) -> Request[bytes]:
    return jobs.file(job, "results", format=rows.value, prompts="true" if prompts else None)


def results(
    reference: JobReference, rows: Rows = RowFormat.JSONL, prompts: Prompts = False, as_json: AsJson = False
) -> None:
    """Print the samples that have ended, with the models' replies: one per line; --json prints one array."""
    with report_errors(as_json=as_json), Client() as client:
        if as_json:
            print_lines_as_json(client.stream(_request_results(reference, RowFormat.JSONL, prompts=prompts)))
            return
        if rows is RowFormat.PARQUET and sys.stdout.isatty():
            raise Failed("usage", "refusing to print Parquet to a terminal", hint="redirect it: > results.parquet")
        sys.stdout.buffer.writelines(client.stream(_request_results(reference, rows, prompts=prompts)))
        sys.stdout.buffer.flush()


def export(
    reference: JobReference,
    to: To,
    rows: Rows = RowFormat.JSONL,
    prompts: Prompts = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write an ended job to a folder: job, report, results, provenance and audit."""
    with report_errors(as_json=as_json), Client() as client:
        paths = list(export_files(reference, rows, prompts=prompts))
        there = [part.file for part in paths if (to / part.file).exists()]
        if there and not force:
            raise Failed("conflict", f"{to} already has {', '.join(there)}", hint="choose another folder, or --force")
        if not client.shows:
            to.mkdir(parents=True, exist_ok=True)
        for part in paths:
            client.save(part.request, to / part.file)
        if client.shows:
            return
        if as_json:
            print_json({"job": reference, "folder": str(to), "files": [part.file for part in paths]})
        else:
            typer.echo(f"job {reference}: {', '.join(part.file for part in paths)} in {to}")

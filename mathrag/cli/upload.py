"""Upload files for the `create` commands of corpora, datasets and graphs, and report the result."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.cli.failures import Exit
from mathrag.cli.output import print_json
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Request, T
from mathrag.client.uploads import Sources
from shared.ingest.lines import OnError
from shared.ingest.rows import Format
from shared.plurals import format_count

Name = Annotated[str, typer.Argument(help="Name by which jobs refer to it.")]
From = Annotated[
    Path,
    typer.Option(
        "--from", help="JSONL, CSV or Parquet file; MATH, BEIR, AutoRAG or FlashRAG folder; Markdown or text."
    ),
]
SkipEmpty = Annotated[bool, typer.Option("--skip-empty", help="Skip lines without text, and report how many.")]
OnErrorOption = Annotated[
    OnError, typer.Option("--on-error", help="Invalid lines: reject the upload, or skip and list them and exit with 1.")
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="Format of a file; auto detects it from the first bytes.")
]
Delimiter = Annotated[str | None, typer.Option(help="CSV delimiter: comma, semicolon or tab (default: detected).")]


ReaderOption = Annotated[
    str | None, typer.Option("--reader", help="Plug-in of the service that reads the file; see `mathrag plugin list`.")
]
CHUNK = 1 << 20


def upload_for_reader(client: Client, kind: texts.Kind, name: str, file: Path, reader: str, **declared: str) -> Any:
    """Send a file unchanged; a reader plug-in of the service parses it."""
    made = client.send(texts.upload(kind, _read_chunks(file), name, reader=reader, **declared))
    return {**made, "rejected_lines": [{"source": str(file), **line} for line in made["rejected_lines"]]}


def _read_chunks(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        yield from iter(partial(opened.read, CHUNK), b"")


def upload(client: Client, kind: texts.Kind, name: str, sources: Sources, **declared: str) -> Any:
    """Stream documents or items from disk, and return what the server stored, with local file names."""
    options = {"format": "jsonl", "skip_empty": str(sources.skip_empty).lower(), "on_error": sources.on_error.value}
    return sources.complete(send(client, texts.upload(kind, sources, name, **options, **declared), sources))


def send(client: Client, request: Request[T], sources: Sources) -> T:
    """Send an upload; an error of the server names the local file and line instead of the upload's line."""
    try:
        return client.send(request)
    except Failed as failed:
        hint = sources.translate(failed.hint) if failed.hint else None
        raise Failed(failed.kind, sources.translate(failed.message), hint) from failed


def report(made: Any, message: str, following: str, as_json: bool) -> None:
    """Print what was stored and what was rejected; exit with a finding if lines were rejected."""
    for warning in made.get("warnings", ()):
        typer.echo(f"warning: {warning}", err=True)
    if as_json:
        print_json(made)
    else:
        typer.echo(f"{message}{_describe_skipped(made)}")
        for line in made["rejected_lines"]:
            typer.echo(f"  rejected: {line['source']}, line {line['line']}: {line['message']}", err=True)
        if made["rejected"]:
            typer.echo(f"{format_count(made['rejected'], 'line was', 'lines were')} rejected", err=True)
        typer.echo(f"  next: {following}")
    if made["rejected"]:
        raise typer.Exit(Exit.FINDING)


def _describe_skipped(made: Any) -> str:
    return f" ({format_count(made['skipped'], 'empty line')} left out)" if made["skipped"] else ""

"""How the `create` of corpora, datasets and graphs sends files and says what became of them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.cli.failures import Exit
from mathrag.cli.output import print_json
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Request, T
from mathrag.client.sources import Sources
from shared.ingest.reader import OnError
from shared.ingest.rows import Format

Name = Annotated[str, typer.Argument(help="What jobs call it.")]
From = Annotated[
    Path,
    typer.Option("--from", help="JSONL, CSV or Parquet; a MATH, BEIR, AutoRAG or FlashRAG folder; Markdown or text."),
]
SkipEmpty = Annotated[bool, typer.Option("--skip-empty", help="Leave out lines without text, and count them.")]
OnErrorOption = Annotated[
    OnError, typer.Option("--on-error", help="skip: leave out lines that cannot be used, name them, and exit with 1.")
]
FormatOption = Annotated[Format, typer.Option("--format", help="Of a file; auto: as its first bytes say.")]
Delimiter = Annotated[str | None, typer.Option(help="Of CSV: comma, semicolon or tab; else what splits the header.")]


def upload(client: Client, kind: texts.Kind, name: str, sources: Sources, **declared: str) -> Any:
    """Stream documents or items from disk."""
    options = {"format": "jsonl", "skip_empty": str(sources.skip_empty).lower(), "on_error": sources.on_error.value}
    return sources.complete(send(client, texts.upload(kind, sources, name, **options, **declared), sources))


def send(client: Client, request: Request[T], sources: Sources) -> T:
    """The answer to an upload; what the server says about a line is said about the file's."""
    try:
        return client.send(request)
    except Failed as failed:
        hint = sources.translate(failed.hint) if failed.hint else None
        raise Failed(failed.kind, sources.translate(failed.message), hint) from failed


def report(made: Any, said: str, following: str, as_json: bool) -> None:
    """Say what was stored and what was not; exit with a finding where lines were rejected."""
    if as_json:
        print_json(made)
    else:
        typer.echo(f"{said}{_skipped(made)}")
        for line in made["rejected_lines"]:
            typer.echo(f"  rejected: {line['source']}, line {line['line']}: {line['message']}", err=True)
        if made["rejected"]:
            typer.echo(f"{made['rejected']} lines were rejected", err=True)
        typer.echo(f"  next: {following}")
    if made["rejected"]:
        raise typer.Exit(Exit.FINDING)


def _skipped(made: Any) -> str:
    return f" ({made['skipped']} empty lines left out)" if made["skipped"] else ""

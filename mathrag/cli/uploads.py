"""Functions and options that `mathrag corpus`, `dataset`, `graph` and `job import` share."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.cli import progress
from mathrag.cli.api import send_and_print
from mathrag.cli.output import (
    AsJson,
    Exit,
    print_facts,
    print_json,
    print_warnings,
    report_errors,
    shorten,
)
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.request import Json, Page, Request, T
from mathrag.client.uploads import File, Sources
from mathrag.errors import NotFound
from mathrag.messages import format_count
from mathrag.reading.lines import OnError
from mathrag.reading.rows import Format

Name = Annotated[str, typer.Argument(help="Name of the new corpus or dataset.")]
From = Annotated[
    Path,
    typer.Option(
        "--from",
        metavar="PATH",
        help="JSON, CSV or Parquet file; MATH, BEIR, AutoRAG or FlashRAG folder; for a corpus, also a PDF, Word, HTML, "
        "Markdown or text file, or a folder of such files.",
    ),
]
SkipEmpty = Annotated[bool, typer.Option("--skip-empty", help="Skip lines without text, and report how many.")]
OnErrorOption = Annotated[
    OnError,
    typer.Option(
        "--on-error", help="If lines are invalid, reject the whole upload; or skip and list them, and exit with 1."
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="Format of the file; auto detects it.")]
Delimiter = Annotated[
    str | None, typer.Option(metavar="comma|semicolon|tab", help="Delimiter of a CSV file (default: detected).")
]
ColumnOption = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="FIELD=COLUMN",
        help="Column to read a field from, such as answer=prediction; repeat for several.",
    ),
]
ReaderOption = Annotated[
    str | None,
    typer.Option("--reader", help="Read the file with this reader plug-in of the server; see `mathrag plugin list`."),
]
Splits = Annotated[list[str], typer.Option("--split", help="Split of the folder to read; separate several by commas.")]
EntryLimit = Annotated[int, typer.Option(min=1, help="Maximum number of entries to show.")]


def split_names(splits: list[str]) -> list[str]:
    """Return the names in `--split` options; each option may have several, separated by commas."""
    return [name for each in splits for name in each.split(",") if name]


def upload_for_reader(client: Client, kind: texts.Kind, name: str, file: Path, reader: str, **declared: Any) -> Any:
    """Send a file unchanged; a reader plug-in of the service parses it.

    Raises:
        NotFound: the file does not exist.
        Failed: the path is a folder.
    """
    if not file.exists():
        raise NotFound(f"--from {file}: there is no such file or folder", hint="correct the path")
    if not file.is_file():
        hint = "name one file of the folder, or remove --reader"
        raise Failed("invalid", f"--from {file} is a folder, but a reader plug-in reads one file", hint=hint)
    made = client.send(texts.upload(kind, File(file), name, reader=reader, **declared))
    return {**made, "rejected_lines": [{"source": str(file), **line} for line in made["rejected_lines"]]}


def upload(
    client: Client, kind: texts.Kind, name: str, sources: Sources, show: progress.UploadView, **declared: Any
) -> Any:
    """Stream documents or items from disk, and return the server's answer with local file names."""
    request = texts.upload(
        kind, show.follow(sources), name, format="jsonl", skip_empty=sources.skip_empty, on_error=sources.on_error,
        **declared,
    )  # fmt: skip
    with show:
        return sources.complete(send(client, request, sources))


def send(client: Client, request: Request[T], sources: Sources) -> T:
    """Send an upload; the server's errors then name the local file and line instead of the upload's line."""
    try:
        return client.send(request)
    except Failed as failed:
        hint = sources.translate(failed.hint) if failed.hint else None
        translated = Failed(failed.kind, sources.translate(failed.message), hint)
        translated.others = tuple(map(sources.translate, failed.others))
        raise translated from failed


def report(made: Any, message: str, following: str, as_json: bool) -> None:
    """Print the result and the rejected lines; exit with a finding if lines were rejected."""
    print_warnings(made)
    if as_json:
        print_json(made)
    else:
        skipped = f" ({format_count(made['skipped'], 'line')} without text left out)" if made["skipped"] else ""
        typer.echo(f"{message}{skipped}")
        for line in made["rejected_lines"]:
            typer.echo(f"  rejected: {line['source']}, line {line['line']}: {line['message']}", err=True)
        if made["rejected"]:
            typer.echo(f"{format_count(made['rejected'], 'line was', 'lines were')} rejected", err=True)
        typer.echo(f"  next: {following}")
    if made["rejected"]:
        raise typer.Exit(Exit.FINDING)


def describe_build(build: Json, corpus: Json) -> str:
    """Tell how far the build of an index is."""
    if build["documents"] is None:
        return "waits for other builds"
    return f"{build['documents']:,} of {corpus['documents']:,} documents"


def show(request: Request[Json], following: str, as_json: AsJson) -> None:
    """Print the counts and the content hash of a corpus or dataset, and the next commands."""

    def print_counts(found: Json) -> None:
        typer.echo(found["name"])
        counts = found.get("counts", {})
        given = (("gold answers", "gold"), ("relevant documents", "gold_documents"), ("nuggets", "nuggets"))
        print_facts(
            [
                *((key, found[key]) for key in ("items", "documents", "indexed", "hash", "created_at") if key in found),
                *((name, f"for {counts[key]} of {counts['counted']} items") for name, key in given if counts.get(key)),
                *((f"building {each['kind']}", describe_build(each, found)) for each in found.get("builds") or ()),
            ]
        )
        typer.echo(f"  next: {following}")
        if counts.get("gold"):
            typer.echo(f"  next: mathrag pilot {found['name']} --corpus C")

    send_and_print(request, print_counts, as_json)


def preview(request: Request[Page[Json]], fields: tuple[str, ...], limit: int, as_json: AsJson) -> None:
    """Print the given fields of the first `limit` documents or items."""
    with report_errors(as_json=as_json), Client() as client:
        rows = client.first(request, limit)
        if as_json:
            print_json(rows)
            return
        for row in rows:
            typer.echo(f"{row['index']}  {row['id'] or ''}".rstrip())
            print_facts((field, shorten(row[field])) for field in fields)

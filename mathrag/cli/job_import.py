"""`mathrag job import`: what another system answered, as a job that grades it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.references import DatasetOption
from mathrag.cli.upload import Delimiter, FormatOption, OnErrorOption, send
from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag.client.sources import Sources
from shared.errors import NotFound
from shared.ingest import other_logs, rows
from shared.ingest.given_answers import ColumnMapping, mapping
from shared.ingest.lines import Row
from shared.ingest.other_logs import Layout
from shared.ingest.reader import OnError
from shared.ingest.rows import Format


def import_answers(
    name: Annotated[str, typer.Argument(help="What you call the job.")],
    dataset: DatasetOption,
    source: Annotated[Path, typer.Option("--from", help="JSON lines or CSV.")],
    column: Annotated[
        list[str] | None, typer.Option("--column", metavar="WHAT=COLUMN", help="Such as answer=prediction.")
    ] = None,
    first_repeat: Annotated[int, typer.Option(min=0, help="The number of an item's first repeat.")] = 0,
    grader: Annotated[str | None, typer.Option(help="How answers are graded. [default: the dataset's]")] = None,
    format: FormatOption = Format.AUTO,  # noqa: A002
    delimiter: Delimiter = None,
    layout: Annotated[Layout | None, typer.Option(help="Of another program's log.")] = None,
    on_error: OnErrorOption = OnError.REJECT,
    as_json: AsJson = False,
) -> None:
    """Grade what another system answered; nothing is known of how it came about."""
    with reported(as_json=as_json), Client() as client:
        sources = Sources(_rows(source, layout, format, delimiter, mapping(column or ())), on_error=on_error)
        options = {"column": column or None, "first_repeat": first_repeat, "grader": grader}
        made = send(client, jobs.import_answers(sources, name, dataset, on_error=on_error.value, **options), sources)
        for warning in made.get("warnings", ()):
            typer.echo(f"warning: {warning}", err=True)
        if as_json:
            print_json(made)
        else:
            typer.echo(f"job {made['name']}: {made['request_counts']['total']} answers are stored and being graded")
            typer.echo(f"  next: mathrag job watch {made['id'][:8]}")


def _rows(
    path: Path,
    layout: Layout | None,
    format: Format,  # noqa: A002
    delimiter: str | None,
    columns: ColumnMapping,
) -> Iterator[Row]:
    if not path.is_file():
        raise NotFound(f"no file {str(path)!r}", hint="--from FILE")
    if layout is not None:
        return other_logs.read(path, layout)
    return _opened(path, format, delimiter, columns)


def _opened(path: Path, format: Format, delimiter: str | None, columns: ColumnMapping) -> Iterator[Row]:  # noqa: A002
    by_name = Format.CSV if format is Format.AUTO and path.suffix.lower() in (".csv", ".tsv") else format
    with path.open("rb") as file:
        yield from rows.read(file, path.name, by_name, delimiter=delimiter, names=columns.names)

"""`mathrag job import`: import the answers of another system as a job, and grade them."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import Exit, report_errors
from mathrag.cli.output import AsJson, print_json
from mathrag.cli.references import DatasetOption
from mathrag.cli.upload import Delimiter, FormatOption, OnErrorOption, send
from mathrag.client import jobs
from mathrag.client.client import Client
from mathrag.client.uploads import Sources
from shared.errors import NotFound
from shared.ingest import answers as answers_module
from shared.ingest.answers import ColumnMapping, Layout, make_mapping
from shared.ingest.lines import LISTED, OnError, Row
from shared.ingest.rows import Format
from shared.plurals import format_count


def import_answers(
    name: Annotated[str, typer.Argument(help="Name of the new job.")],
    dataset: DatasetOption,
    source: Annotated[Path, typer.Option("--from", help="File of answers: JSON lines, CSV, or a log (--layout).")],
    column: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="WHAT=COLUMN", help="Column of a field, such as answer=prediction."),
    ] = None,
    first_repeat: Annotated[int, typer.Option(min=0, help="Number of an item's first repeat.")] = 0,
    grader: Annotated[str | None, typer.Option(help="Grader of the answers (default: the dataset's).")] = None,
    format: FormatOption = Format.AUTO,  # noqa: A002
    delimiter: Delimiter = None,
    layout: Annotated[Layout | None, typer.Option(help="Program whose log the file is.")] = None,
    on_error: OnErrorOption = OnError.REJECT,
    as_json: AsJson = False,
) -> None:
    """Import and grade the answers of another system, as a job without provenance."""
    with report_errors(as_json=as_json), Client() as client:
        sources = Sources(_read_rows(source, layout, format, delimiter, make_mapping(column or ())), on_error=on_error)
        options = {"column": column or None, "first_repeat": first_repeat, "grader": grader}
        request = jobs.import_answers(sources, name, dataset, on_error=on_error.value, **options)
        try:
            made = send(client, request, sources)
        finally:
            # If nothing is left to store, the rejected lines are the reason.
            _warn(f"{each.source}, line {each.line}: {each.message}" for each in sources.rejected[:LISTED])
        _warn(map(sources.translate, made.get("warnings", ())))
        if as_json:
            print_json(made)
        else:
            answers = format_count(made["request_counts"]["total"], "answer is", "answers are")
            typer.echo(f"job {made['name']}: {answers} stored and being graded")
            typer.echo(f"  next: mathrag job watch {made['id'][:8]}")
        if sources.rejected or made["request_counts"]["total"] < sources.sent:
            raise typer.Exit(Exit.FINDING)


def _warn(warnings: Iterable[str]) -> None:
    for warning in warnings:
        typer.echo(f"warning: {warning}", err=True)


def _read_rows(
    path: Path,
    layout: Layout | None,
    format: Format,  # noqa: A002
    delimiter: str | None,
    columns: ColumnMapping,
) -> Iterator[Row]:
    if not path.is_file():
        raise NotFound(f"there is no file {str(path)!r}", hint="correct the path of --from")
    return answers_module.read_answers(path, columns, layout=layout, format=format, delimiter=delimiter)

"""`mathrag dataset`: upload, inspect and delete the questions that jobs answer."""

from typing import Annotated, Any

import typer

from mathrag.cli import corpus_and_dataset, dataset_from_graph
from mathrag.cli.command_groups import LocalCommand
from mathrag.cli.confirm import Yes
from mathrag.cli.corpus_and_dataset import Limit
from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_json, print_table
from mathrag.cli.references import DataDir, Dataset
from mathrag.cli.training_data import training_data
from mathrag.cli.upload import (
    Delimiter,
    FormatOption,
    From,
    Name,
    OnErrorOption,
    ReaderOption,
    SkipEmpty,
    report,
    upload,
    upload_for_reader,
)
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.uploads import Sources
from shared.ingest import paths
from shared.ingest.lines import OnError
from shared.ingest.rows import Format
from shared.plurals import format_count

dataset = typer.Typer(no_args_is_help=True)

Split = Annotated[str, typer.Option("--split", help="Split of a MATH, FlashRAG or BEIR folder.")]
Grader = Annotated[
    str | None,
    typer.Option(
        help="Grader: math, math-dataset, last-number, exact, text, contains, f1, regex, choice, set or rubric."
    ),
]


@dataset.command("create")
def create(
    name: Name,
    source: From,
    split: Split = "test",
    grader: Grader = None,
    format: FormatOption = Format.AUTO,  # noqa: A002
    delimiter: Delimiter = None,
    skip_empty: SkipEmpty = False,
    on_error: OnErrorOption = OnError.REJECT,
    reader: ReaderOption = None,
    as_json: AsJson = False,
) -> None:
    """Upload questions. Uploading the same again changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        declared = {"grader": grader} if grader else {}
        if reader is not None:
            made = upload_for_reader(client, "datasets", name, source, reader, on_error=on_error.value, **declared)
        else:
            rows = paths.dataset_lines(source, split=split, format=format, delimiter=delimiter)
            made = upload(client, "datasets", name, Sources(rows, skip_empty=skip_empty, on_error=on_error), **declared)
        message = f"dataset {name}: {format_count(made['items'], 'item')}{_describe_alternatives(made)}"
        submit = f"mathrag job submit --name N --dataset {name} --corpus C --pipeline mathrag-gate --wait"
        report(made, message, submit, as_json)


@dataset.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List all datasets, newest first."""
    with report_errors(as_json=as_json), Client() as client:
        rows = list(client.all(texts.list_texts("datasets")))
        if as_json:
            print_json(rows)
        else:
            print_table(("NAME", "ITEMS", "GRADER", "CREATED"), map(_make_row, rows))


@dataset.command()
def show(name: Dataset, as_json: AsJson = False) -> None:
    """Show a dataset: number of items and content hash."""
    corpus_and_dataset.show("datasets", name, f"mathrag dataset preview {name}", as_json)


@dataset.command()
def preview(name: Dataset, limit: Limit = 5, as_json: AsJson = False) -> None:
    """Show the first questions of a dataset, with their expected answers."""
    corpus_and_dataset.preview("datasets", name, ("question", "gold", "subject", "level", "relation"), limit, as_json)


@dataset.command(cls=LocalCommand)
def delete(name: Dataset, yes: Yes = False, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a dataset that no job uses, as the database owner."""
    corpus_and_dataset.delete("dataset", name, yes, data_dir, as_json)


dataset.command("from-graph")(dataset_from_graph.from_graph)
dataset.command("training-data")(training_data)


def _make_row(row: Any) -> tuple[object, ...]:
    return row["name"], row["items"], row["grader"] or "math", row["created_at"][:19]


def _describe_alternatives(made: Any) -> str:
    several = made["alternatives"]
    return f" ({several} with several expected answers: any of them is right)" if several else ""

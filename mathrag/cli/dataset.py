"""`mathrag dataset`: what is asked."""

from typing import Annotated, Any

import typer

from mathrag.cli import dataset_from_graph, stored
from mathrag.cli.command_groups import LocalCommand
from mathrag.cli.confirm import Yes
from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json, table
from mathrag.cli.references import DataDir, Dataset
from mathrag.cli.stored import Limit
from mathrag.cli.training_data import training_data
from mathrag.cli.upload import Delimiter, FormatOption, From, Name, OnErrorOption, SkipEmpty, report, upload
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.sources import Sources
from shared.ingest import paths
from shared.ingest.reader import OnError
from shared.ingest.rows import Format

dataset = typer.Typer(no_args_is_help=True)

Split = Annotated[str, typer.Option("--split", help="Of a MATH, FlashRAG or BEIR folder.")]
Grader = Annotated[
    str | None,
    typer.Option(help="How answers are graded: math, exact, text, contains, f1, regex, choice, set or rubric."),
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
    as_json: AsJson = False,
) -> None:
    """Upload questions. The same upload again is harmless."""
    with reported(as_json=as_json), Client() as client:
        rows = paths.dataset_lines(source, split=split, format=format, delimiter=delimiter)
        sources = Sources(rows, skip_empty=skip_empty, on_error=on_error)
        made = upload(client, "datasets", name, sources, **({"grader": grader} if grader else {}))
        said = f"dataset {name}: {made['items']} items{_alternatives(made)}"
        submit = f"mathrag job submit --name N --dataset {name} --corpus C --pipeline mathrag-gate --wait"
        report(made, said, submit, as_json)


@dataset.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """All datasets, newest first."""
    with reported(as_json=as_json), Client() as client:
        rows = list(client.all(texts.listed("datasets")))
        if as_json:
            print_json(rows)
        else:
            table(("NAME", "ITEMS", "GRADER", "CREATED"), map(_row, rows))


@dataset.command()
def show(name: Dataset, as_json: AsJson = False) -> None:
    """One dataset: how many items, and the hash of its content."""
    stored.show("datasets", name, f"mathrag dataset preview {name}", as_json)


@dataset.command()
def preview(name: Dataset, limit: Limit = 5, as_json: AsJson = False) -> None:
    """The first questions of a dataset, with their expected answers."""
    stored.preview("datasets", name, ("question", "gold", "subject", "level", "relation"), limit, as_json)


@dataset.command(cls=LocalCommand)
def delete(name: Dataset, yes: Yes = False, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a dataset that no job uses, as the owner of the database."""
    stored.delete("dataset", name, yes, data_dir, as_json)


dataset.command("from-graph")(dataset_from_graph.from_graph)
dataset.command("training-data")(training_data)


def _row(row: Any) -> tuple[object, ...]:
    return row["name"], row["items"], row["grader"] or "math", row["created_at"][:19]


def _alternatives(made: Any) -> str:
    several = made["alternatives"]
    return f" ({several} with several expected answers: any of them is right)" if several else ""

"""`mathrag corpus` and `mathrag dataset`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from services.orchestrator.cli.client import Client
from services.orchestrator.cli.failures import Failed, reported
from services.orchestrator.cli.output import AsJson, print_json, table
from services.orchestrator.cli.sources import Sources
from shared.ingest import paths

corpus = typer.Typer(help="What is searched.", no_args_is_help=True)
dataset = typer.Typer(help="What is asked.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="What jobs call it.")]
From = Annotated[
    Path, typer.Option("--from", help="A JSONL file, a MATH folder ({train,test}/{subject}/{n}.json), a BEIR folder.")
]
SkipEmpty = Annotated[bool, typer.Option("--skip-empty", help="Leave out lines without text, and count them.")]
CorpusSplit = Annotated[str, typer.Option("--split", help="Of a MATH folder.")]
DatasetSplit = Annotated[str, typer.Option("--split", help="Of a MATH or BEIR folder.")]


@corpus.command("create")
def create_corpus(
    name: Name, source: From, split: CorpusSplit = "train", skip_empty: SkipEmpty = False, as_json: AsJson = False
) -> None:
    """Upload documents and have them indexed. The same upload again is harmless."""
    with reported(as_json=as_json), Client() as client:
        made = _upload(client, "/v1/corpora", name, Sources(paths.corpus_lines(source, split=split)), skip_empty)
        if as_json:
            print_json(made)
            return
        typer.echo(f"corpus {name}: {made['documents']} documents, indexed{_skipped(made)}")
        typer.echo("  next: mathrag dataset create NAME --from PATH")


@dataset.command("create")
def create_dataset(
    name: Name, source: From, split: DatasetSplit = "test", skip_empty: SkipEmpty = False, as_json: AsJson = False
) -> None:
    """Upload questions. The same upload again is harmless."""
    with reported(as_json=as_json), Client() as client:
        made = _upload(client, "/v1/datasets", name, Sources(paths.dataset_lines(source, split=split)), skip_empty)
        if as_json:
            print_json(made)
            return
        typer.echo(f"dataset {name}: {made['items']} items{_skipped(made)}")
        typer.echo(f"  next: mathrag job submit --name N --dataset {name} --corpus C --pipeline mathrag-gate --wait")


@corpus.command("list")
def list_corpora(as_json: AsJson = False) -> None:
    """All corpora, newest first."""
    with reported(as_json=as_json), Client() as client:
        rows = list(client.all("/v1/corpora"))
        if as_json:
            print_json(rows)
        else:
            table(("NAME", "DOCUMENTS", "INDEXED", "CREATED"), [_corpus_row(row) for row in rows])


@dataset.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """All datasets, newest first."""
    with reported(as_json=as_json), Client() as client:
        rows = list(client.all("/v1/datasets"))
        if as_json:
            print_json(rows)
        else:
            table(("NAME", "ITEMS", "CREATED"), [(row["name"], row["items"], row["created_at"][:19]) for row in rows])


def _corpus_row(row: Any) -> tuple[object, ...]:
    return row["name"], row["documents"], "yes" if row["indexed"] else "no", row["created_at"][:19]


def _upload(client: Client, path: str, name: str, sources: Sources, skip_empty: bool) -> Any:
    """Stream from disk; what the server says about a line is said about the file's."""
    try:
        return client.upload(path, sources, name=name, skip_empty=str(skip_empty).lower())
    except Failed as failed:
        raise Failed(failed.kind, sources.translate(failed.message), failed.hint) from failed


def _skipped(made: Any) -> str:
    return f" ({made['skipped']} empty lines left out)" if made["skipped"] else ""

"""`mathrag corpus` and `mathrag dataset`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from mathrag.cli import corpus_orphans as orphans
from mathrag.cli import stored as contents
from mathrag.cli.command_groups import LocalCommand, Mutation
from mathrag.cli.failures import Exit, Failed, reported
from mathrag.cli.output import AsJson, print_json, table
from mathrag.client.client import INDEXED_S, Client, segment
from mathrag.client.sources import Sources
from shared.ingest import paths
from shared.ingest.passages import Chunking
from shared.ingest.reader import OnError
from shared.ingest.rows import Format

corpus = typer.Typer(help="What is searched.", no_args_is_help=True)
dataset = typer.Typer(help="What is asked.", no_args_is_help=True)

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
CorpusSplit = Annotated[str, typer.Option("--split", help="Of a MATH or FlashRAG folder.")]
DatasetSplit = Annotated[str, typer.Option("--split", help="Of a MATH, FlashRAG or BEIR folder.")]
Grader = Annotated[
    str | None,
    typer.Option(help="How answers are graded: math, exact, text, contains, f1, regex, choice, set or rubric."),
]
ChunkSize = Annotated[int, typer.Option(min=1, help="Of Markdown and text: characters of a passage.")]
ChunkOverlap = Annotated[int, typer.Option(min=0, help="Characters that a passage repeats of the one before, at most.")]


@corpus.command("create")
def create_corpus(
    name: Name,
    source: From,
    split: CorpusSplit = "train",
    format: FormatOption = Format.AUTO,  # noqa: A002
    delimiter: Delimiter = None,
    chunk_size: ChunkSize = paths.DEFAULT.size,
    chunk_overlap: ChunkOverlap = paths.DEFAULT.overlap,
    skip_empty: SkipEmpty = False,
    on_error: OnErrorOption = OnError.REJECT,
    as_json: AsJson = False,
) -> None:
    """Upload documents and have them indexed. The same upload again is harmless."""
    with reported(as_json=as_json), Client() as client:
        chunking = Chunking(size=chunk_size, overlap=chunk_overlap)
        rows = paths.corpus_lines(source, split=split, format=format, delimiter=delimiter, chunking=chunking)
        made = _upload(client, "/v1/corpora", name, Sources(rows, skip_empty=skip_empty, on_error=on_error))
        said = f"corpus {name}: {made['documents']} documents, indexed"
        _report(made, said, "mathrag dataset create NAME --from PATH", as_json)


@dataset.command("create")
def create_dataset(
    name: Name,
    source: From,
    split: DatasetSplit = "test",
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
        made = _upload(client, "/v1/datasets", name, sources, **({"grader": grader} if grader else {}))
        said = f"dataset {name}: {made['items']} items{_alternatives(made)}"
        submit = f"mathrag job submit --name N --dataset {name} --corpus C --pipeline mathrag-gate --wait"
        _report(made, said, submit, as_json)


@corpus.command("list")
def list_corpora(as_json: AsJson = False) -> None:
    """All corpora, newest first."""
    with reported(as_json=as_json), Client() as client:
        rows = list(client.all("/v1/corpora"))
        if as_json:
            print_json(rows)
        else:
            table(("NAME", "DOCUMENTS", "INDEXED", "CREATED"), [_corpus_row(row) for row in rows])


@corpus.command("index", cls=Mutation)
def index_corpus(name: Name, as_json: AsJson = False) -> None:
    """Build its indexes as the settings are now; what is there and sound stays."""
    with reported(as_json=as_json), Client(patience_s=INDEXED_S) as client:
        built = client.post(f"/v1/corpora/{name}/indexes")
        if as_json:
            print_json(built)
        else:
            table(("KIND", "INDEX", "DOCUMENTS", "BUILT"), [_index_row(row) for row in built["indexes"]])


@corpus.command()
def contamination(
    name: Name,
    questions: Annotated[str, typer.Argument(metavar="DATASET", help="Whose questions.")],
    as_json: AsJson = False,
) -> None:
    """How many questions have their own problem in the corpus, word for word or nearly so."""
    with reported(as_json=as_json), Client(patience_s=INDEXED_S) as client:
        found = client.get(f"/v1/corpora/{segment(name)}/contamination", dataset=questions)
        if as_json:
            print_json(found)
        else:
            print_leaks(found)


def print_leaks(found: Any) -> None:
    """The counts, then the first of them to look at."""
    affected = found["exact"] + found["near"]
    of = f"{affected} of {found['items']} questions ({100 * found['share']:.1f} %)"
    typer.echo(f"{found['dataset']} in {found['corpus']}: {of} have their problem in {found['documents']} documents")
    counts = f"{found['exact']} word for word, {found['near']} nearly so; {found['pairs']} pairs"
    typer.echo(f"  {counts}, {found['same_answer']} with the same answer")
    if found["passages"]:
        typer.echo(f"  {found['passages']} documents are passages without a problem, and were compared with nothing")
    if found["examples"]:
        rows = [
            (row["index"], "same" if row["exact"] else "near", row["id"], row["question"][:60], row["problem"][:60])
            for row in found["examples"]
        ]
        typer.echo()
        table(("INDEX", "HOW", "DOCUMENT", "QUESTION", "PROBLEM"), rows)


@dataset.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """All datasets, newest first."""
    with reported(as_json=as_json), Client() as client:
        rows = list(client.all("/v1/datasets"))
        if as_json:
            print_json(rows)
        else:
            table(("NAME", "ITEMS", "GRADER", "CREATED"), map(_dataset_row, rows))


corpus.command("show")(contents.show_corpus)
corpus.command("preview")(contents.preview_corpus)
corpus.command("orphans", cls=Mutation)(orphans.orphans)
corpus.command("delete", cls=LocalCommand)(contents.delete_corpus)
dataset.command("show")(contents.show_dataset)
dataset.command("preview")(contents.preview_dataset)
dataset.command("delete", cls=LocalCommand)(contents.delete_dataset)


def _corpus_row(row: Any) -> tuple[object, ...]:
    return row["name"], row["documents"], "yes" if row["indexed"] else "no", row["created_at"][:19]


def _dataset_row(row: Any) -> tuple[object, ...]:
    return row["name"], row["items"], row["grader"] or "math", row["created_at"][:19]


def _index_row(row: Any) -> tuple[object, ...]:
    return row["kind"], row["index"], row["documents"], "was there" if row["reused"] else f"{row['seconds']} s"


def _upload(client: Client, path: str, name: str, sources: Sources, **declared: str) -> Any:
    """Stream from disk; what the server says about a line is said about the file's."""
    options = {"format": "jsonl", "skip_empty": str(sources.skip_empty).lower(), "on_error": sources.on_error.value}
    try:
        made = client.upload(path, sources, name=name, **options, **declared)
    except Failed as failed:
        hint = sources.translate(failed.hint) if failed.hint else None
        raise Failed(failed.kind, sources.translate(failed.message), hint) from failed
    return sources.complete(made)


def _report(made: Any, said: str, following: str, as_json: bool) -> None:
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


def _alternatives(made: Any) -> str:
    several = made["alternatives"]
    return f" ({several} with several expected answers: any of them is right)" if several else ""

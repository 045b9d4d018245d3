"""`mathrag corpus`: upload, index, inspect and delete the documents that jobs search."""

from typing import Annotated

import typer

from mathrag.cli import uploads
from mathrag.cli.api import list_and_print, send_and_print
from mathrag.cli.command_groups import LocalCommand, Mutation
from mathrag.cli.output import AsJson, DataDir, Yes, confirm, print_json, print_table, report_errors
from mathrag.cli.progress import choose_upload_view
from mathrag.cli.references import Corpus
from mathrag.cli.uploads import (
    ColumnOption,
    Delimiter,
    EntryLimit,
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
from mathrag.client.request import Json
from mathrag.client.uploads import Sources
from mathrag.installation import import_server
from mathrag.messages import format_count
from mathrag.reading import paths
from mathrag.reading.columns import DOCUMENTS, Columns
from mathrag.reading.lines import OnError
from mathrag.reading.paths import Chunking
from mathrag.reading.rows import Format

corpus = typer.Typer(no_args_is_help=True)

Split = Annotated[str, typer.Option("--split", help="Split to read, if PATH is a folder with splits.")]
ChunkSize = Annotated[
    int, typer.Option(min=1, help="Length of a passage, in characters; documents and texts are cut into passages.")
]
ChunkOverlap = Annotated[int, typer.Option(min=0, help="Maximum overlap of neighbouring passages, in characters.")]


@corpus.command("create")
def create(
    name: Name,
    source: From,
    split: Split = "train",
    format: FormatOption = Format.AUTO,  # noqa: A002
    delimiter: Delimiter = None,
    column: ColumnOption = None,
    chunk_size: ChunkSize = paths.DEFAULT.size,
    chunk_overlap: ChunkOverlap = paths.DEFAULT.overlap,
    skip_empty: SkipEmpty = False,
    on_error: OnErrorOption = OnError.REJECT,
    reader: ReaderOption = None,
    as_json: AsJson = False,
) -> None:
    """Upload documents and index them. Uploading the same documents again changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        Columns(DOCUMENTS, column or ())
        if reader is not None:
            options = {"on_error": on_error.value, "column": column or None}
            made = upload_for_reader(client, "corpora", name, source, reader, **options)
        else:
            chunking = Chunking(size=chunk_size, overlap=chunk_overlap)
            rows = paths.corpus_lines(
                source, split=split, format=format, delimiter=delimiter, chunking=chunking, pairs=column or ()
            )
            sources = Sources(rows, skip_empty=skip_empty, on_error=on_error)
            show = choose_upload_view("documents", "storing and indexing", as_json=as_json)
            made = upload(client, "corpora", name, sources, show, column=column or None)
            made = {**made, "warnings": [*made.get("warnings", ()), *paths.warn_of_unread_files(source, split)]}
        message = f"corpus {name}: {format_count(made['documents'], 'document')}, indexed"
        report(made, message, "mathrag dataset create NAME --from PATH", as_json)


@corpus.command("list")
def list_corpora(as_json: AsJson = False) -> None:
    """List all corpora, newest first."""

    def make_row(found: Json) -> tuple[object, ...]:
        return found["name"], found["documents"], "yes" if found["indexed"] else "no", found["created_at"][:19]

    list_and_print(texts.list_corpora(), ("NAME", "DOCUMENTS", "INDEXED", "CREATED"), make_row, as_json)


@corpus.command("index", cls=Mutation)
def index(name: Corpus, as_json: AsJson = False) -> None:
    """Build the indexes that the current settings require; indexes that are intact are kept."""
    send_and_print(texts.index(name), _print_indexes, as_json)


def _print_indexes(built: Json) -> None:
    print_table(("KIND", "INDEX", "DOCUMENTS", "BUILT"), [
        (each["kind"], each["index"], each["documents"], "reused" if each["reused"] else f"{each['seconds']} s")
        for each in built["indexes"]
    ])  # fmt: skip


@corpus.command()
def contamination(
    name: Corpus,
    questions: Annotated[str, typer.Argument(metavar="DATASET", help="Dataset with the questions to look for.")],
    as_json: AsJson = False,
) -> None:
    """Count the questions of a dataset that the corpus contains verbatim or as near-duplicates."""
    send_and_print(texts.contamination(name, questions), print_leaks, as_json)


def print_leaks(found: Json) -> None:
    """Print the counts and the first examples."""
    affected = found["exact"] + found["near"]
    of = f"{affected} of {found['items']} questions ({100 * found['share']:.1f} %)"
    typer.echo(f"{found['dataset']} in {found['corpus']}: {of} also occur among {found['documents']} documents")
    counts = f"{found['exact']} verbatim, {found['near']} near-duplicates; {found['pairs']} pairs"
    typer.echo(f"  {counts}, {found['same_answer']} with the same answer")
    if found["passages"]:
        passages = format_count(found["passages"], "document is a passage", "documents are passages")
        typer.echo(f"  not compared: {passages}, without a question")
    if found["examples"]:
        rows = [
            (row["index"], "same" if row["exact"] else "near", row["id"], row["question"][:60], row["problem"][:60])
            for row in found["examples"]
        ]
        typer.echo()
        print_table(("INDEX", "HOW", "DOCUMENT", "QUESTION", "PROBLEM"), rows)


@corpus.command()
def show(name: Corpus, as_json: AsJson = False) -> None:
    """Show a corpus: number of documents, whether it is indexed, and content hash."""
    uploads.show(texts.get_corpus(name), f"mathrag corpus preview {name}", as_json)


@corpus.command()
def preview(name: Corpus, limit: EntryLimit = 5, as_json: AsJson = False) -> None:
    """Show the first documents of a corpus."""
    uploads.preview(texts.documents(name), ("problem", "text"), limit, as_json)


@corpus.command("orphans", cls=Mutation)
def orphans(
    delete: Annotated[bool, typer.Option("--delete", help="Permanently delete the indexes that are listed.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """List indexes that aborted builds or a replaced database left on Elasticsearch; --delete removes them."""
    with report_errors(as_json=as_json), Client() as client:
        if delete and not (yes or client.shows):
            _print_orphans(client.send(texts.orphans()))
            confirm("Permanently delete all unused indexes?", as_json=as_json)
        answer = client.send(texts.delete_orphans() if delete else texts.orphans())
        print_json(answer) if as_json else _print_orphans(answer)


def _print_orphans(answer: Json) -> None:
    for index in answer["orphans"]:
        typer.echo(f"{'deleted' if answer['deleted'] else 'unused'}: {index}")
    if not answer["orphans"]:
        typer.echo("Every index of this installation is used.")


@corpus.command(cls=LocalCommand)
def delete(name: Corpus, yes: Yes = False, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a corpus that no job uses (requires the database owner); the next purge deletes its documents."""
    with report_errors(as_json=as_json):
        import_server("mathrag_gate.cli.purge").delete("corpus", name, data_dir, yes=yes, as_json=as_json)

"""`mathrag corpus`: what is searched."""

from typing import Annotated, Any

import typer

from mathrag.cli import corpus_orphans, stored
from mathrag.cli.command_groups import LocalCommand, Mutation
from mathrag.cli.confirm import Yes
from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json, table
from mathrag.cli.references import Corpus, DataDir
from mathrag.cli.stored import Limit
from mathrag.cli.upload import Delimiter, FormatOption, From, Name, OnErrorOption, SkipEmpty, report, upload
from mathrag.client import texts
from mathrag.client.client import Client
from mathrag.client.sources import Sources
from shared.ingest import paths
from shared.ingest.passages import Chunking
from shared.ingest.reader import OnError
from shared.ingest.rows import Format

corpus = typer.Typer(no_args_is_help=True)

Split = Annotated[str, typer.Option("--split", help="Of a MATH or FlashRAG folder.")]
ChunkSize = Annotated[int, typer.Option(min=1, help="Of Markdown and text: characters of a passage.")]
ChunkOverlap = Annotated[int, typer.Option(min=0, help="Characters that a passage repeats of the one before, at most.")]


@corpus.command("create")
def create(
    name: Name,
    source: From,
    split: Split = "train",
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
        made = upload(client, "corpora", name, Sources(rows, skip_empty=skip_empty, on_error=on_error))
        said = f"corpus {name}: {made['documents']} documents, indexed"
        report(made, said, "mathrag dataset create NAME --from PATH", as_json)


@corpus.command("list")
def list_corpora(as_json: AsJson = False) -> None:
    """All corpora, newest first."""
    with reported(as_json=as_json), Client() as client:
        rows = list(client.all(texts.listed("corpora")))
        if as_json:
            print_json(rows)
        else:
            table(("NAME", "DOCUMENTS", "INDEXED", "CREATED"), [_row(row) for row in rows])


@corpus.command("index", cls=Mutation)
def index(name: Name, as_json: AsJson = False) -> None:
    """Build its indexes as the settings are now; what is there and sound stays."""
    with reported(as_json=as_json), Client() as client:
        built = client.send(texts.index(name))
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
    with reported(as_json=as_json), Client() as client:
        found = client.send(texts.contamination(name, questions))
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


@corpus.command()
def show(name: Corpus, as_json: AsJson = False) -> None:
    """One corpus: how many documents, whether it is indexed, and the hash of its content."""
    stored.show("corpora", name, f"mathrag corpus preview {name}", as_json)


@corpus.command()
def preview(name: Corpus, limit: Limit = 5, as_json: AsJson = False) -> None:
    """The first documents of a corpus."""
    stored.preview("corpora", name, ("problem", "text"), limit, as_json)


corpus.command("orphans", cls=Mutation)(corpus_orphans.orphans)


@corpus.command(cls=LocalCommand)
def delete(name: Corpus, yes: Yes = False, data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Delete a corpus that no job uses, as the owner of the database; its documents go with the next purge."""
    stored.delete("corpus", name, yes, data_dir, as_json)


def _row(row: Any) -> tuple[object, ...]:
    return row["name"], row["documents"], "yes" if row["indexed"] else "no", row["created_at"][:19]


def _index_row(row: Any) -> tuple[object, ...]:
    return row["kind"], row["index"], row["documents"], "was there" if row["reused"] else f"{row['seconds']} s"

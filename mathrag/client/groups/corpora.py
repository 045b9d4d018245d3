"""Corpora: collections of documents to search."""

from collections.abc import Callable
from typing import Any

from mathrag.client import texts
from mathrag.client.answers import (
    Corpus,
    CorpusDetails,
    CorpusDocument,
    CorpusUpload,
    DocumentPreview,
    Indexes,
    Leaks,
    Orphans,
)
from mathrag.client.operations import C, Group, Listing, Operation
from mathrag.client.request import MOST_OF_A_PAGE, Request, segment
from mathrag.client.uploads import (
    Format,
    Progress,
    Source,
    Unusable,
    Upload,
    file_format,
    file_of,
    make_error_options,
    rows_of,
)
from shared.ingest import paths


def create(
    name: str,
    source: Source,
    *,
    split: str = "train",
    format: Format = "auto",  # noqa: A002 - what the API calls it
    delimiter: str | None = None,
    reader: str | None = None,
    skip_empty: bool = False,
    on_error: Unusable = "reject",
    progress: Callable[[Progress], None] | None = None,
) -> Request[Any]:
    """Upload documents and index them; repeating the same upload changes nothing.

    Args:
        name: name of the corpus.
        source: a file (JSON lines, CSV, Parquet, Markdown, text), a folder (MATH, BEIR, FlashRAG, AutoRAG), or rows.
        split: split of a MATH or FlashRAG folder.
        format: format of a file; "auto" detects it from the first bytes.
        delimiter: delimiter of CSV: "comma", "semicolon" or "tab"; None detects it from the header.
        reader: name of a plug-in of the service that reads the file, instead of `format`.
        skip_empty: whether to leave out lines without text.
        on_error: "reject" stores nothing if a line is invalid; "skip" stores all other lines.
        progress: called while lines are sent; the method returns when both indexes are built.
    """
    if reader is not None:
        how = make_error_options(on_error, skip_empty=skip_empty)
        return texts.upload("corpora", file_of(source, progress), name, reader=reader, **how)
    kind = file_format(format)
    rows = rows_of(source, lambda path: paths.corpus_lines(path, split=split, format=kind, delimiter=delimiter))
    upload = Upload(rows, progress, skip_empty=skip_empty, on_error=on_error)
    return upload.count_left_out(texts.upload("corpora", upload.lines(source), name, **upload.options()))


def list_corpora() -> Request[Any]:
    """List all corpora, newest first."""
    return texts.list_texts("corpora", MOST_OF_A_PAGE)


def get(name: str) -> Request[Any]:
    """Fetch a corpus with its indexes and the lengths of its texts."""
    return texts.get("corpora", name)


def documents(name: str) -> Request[Any]:
    """List all documents in the corpus's order, with texts of up to 4,000 characters."""
    return texts.entries("corpora", name, MOST_OF_A_PAGE)


def document(name: str, hash: str) -> Request[Any]:  # noqa: A002 - what the API calls it
    """Show a document in full, by its hash."""
    return Request(path=f"/v1/corpora/{segment(name)}/documents/{segment(hash)}")


def index(name: str) -> Request[Any]:
    """Build the indexes that the present settings require; valid indexes are kept."""
    return texts.index(name)


def contamination(name: str, dataset: str) -> Request[Any]:
    """Count the questions of a dataset whose own problem is in the corpus."""
    return texts.contamination(name, dataset)


def orphans() -> Request[Any]:
    """List the indexes on Elasticsearch that nothing uses."""
    return texts.orphans()


def delete_orphans() -> Request[Any]:
    """Delete the indexes on Elasticsearch that nothing uses, for good."""
    return texts.orphans(delete=True)


class Corpora(Group[C]):
    """Corpora: collections of documents to search."""

    create = Operation(create, CorpusUpload)
    list = Listing(list_corpora, Corpus)
    get = Operation(get, CorpusDetails)
    documents = Listing(documents, DocumentPreview)
    document = Operation(document, CorpusDocument)
    index = Operation(index, Indexes)
    contamination = Operation(contamination, Leaks)
    orphans = Operation(orphans, Orphans)
    delete_orphans = Operation(delete_orphans, Orphans)

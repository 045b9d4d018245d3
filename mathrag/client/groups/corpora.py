"""Corpora: collections of documents to search."""

from collections.abc import Callable

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
from mathrag.client.request import Json, Request
from mathrag.client.uploads import Format, Progress, Source, Unusable, Upload, file_of, rows_of
from shared.ingest import paths
from shared.ingest.rows import Format as FileFormat


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
) -> Request[Json]:
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
        file = file_of(source, progress)
        return texts.upload("corpora", file, name, reader=reader, skip_empty=skip_empty, on_error=on_error)
    kind = FileFormat(format)
    rows = rows_of(source, lambda path: paths.corpus_lines(path, split=split, format=kind, delimiter=delimiter))
    upload = Upload(rows, progress, skip_empty=skip_empty, on_error=on_error)
    lines = upload.lines(source)
    return upload.count_left_out(
        texts.upload("corpora", lines, name, format="jsonl", skip_empty=skip_empty, on_error=on_error)
    )


class Corpora(Group[C]):
    """Corpora: collections of documents to search."""

    create = Operation(create, CorpusUpload)
    list = Listing(texts.list_corpora, Corpus)
    get = Operation(texts.get_corpus, CorpusDetails)
    documents = Listing(texts.documents, DocumentPreview)
    document = Operation(texts.document, CorpusDocument)
    index = Operation(texts.index, Indexes)
    contamination = Operation(texts.contamination, Leaks)
    orphans = Operation(texts.orphans, Orphans)
    delete_orphans = Operation(texts.delete_orphans, Orphans)

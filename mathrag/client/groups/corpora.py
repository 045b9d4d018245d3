"""Corpora: collections of documents to search."""

from collections.abc import Callable, Mapping
from functools import partial

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
from mathrag.client.uploads import Format, Progress, Source, Unusable, Upload, file_of, list_pairs, rows_of
from mathrag.reading import paths
from mathrag.reading.columns import DOCUMENTS
from mathrag.reading.rows import Format as FileFormat


def create(
    name: str,
    source: Source,
    *,
    split: str = "train",
    format: Format = "auto",  # noqa: A002 - what the API calls it
    delimiter: str | None = None,
    columns: Mapping[str, str] | None = None,
    reader: str | None = None,
    skip_empty: bool = False,
    on_error: Unusable = "reject",
    progress: Callable[[Progress], None] | None = None,
) -> Request[Json]:
    """Upload documents and index them; repeating the same upload changes nothing.

    Args:
        name: name of the corpus.
        source: a file (JSON lines, CSV, Parquet, PDF, Word, HTML, Markdown, text), a folder (MATH, BEIR, FlashRAG,
            AutoRAG, or documents), or rows.
        split: split of a MATH or FlashRAG folder.
        format: format of a file; "auto" detects it from the first bytes.
        delimiter: delimiter of CSV: "comma", "semicolon" or "tab"; None detects it from the header.
        columns: names of columns by field, such as `{"text": "Inhalt"}`; other fields have their known names.
        reader: name of a plug-in of the service that reads the file, instead of `format`.
        skip_empty: whether to leave out lines without text.
        on_error: "reject" stores nothing if a line is invalid; "skip" stores all other lines.
        progress: called while lines are sent; the method returns when both indexes are built.
    """
    pairs = list_pairs(columns, DOCUMENTS)
    options = {"skip_empty": skip_empty, "on_error": on_error, "column": pairs or None}
    if reader is not None:
        file = file_of(source, progress)
        return texts.upload("corpora", file, name, reader=reader, **options)
    kind = FileFormat(format)
    read = partial(paths.corpus_lines, split=split, format=kind, delimiter=delimiter, pairs=pairs)
    rows = rows_of(source, read)
    upload = Upload(rows, progress, skip_empty=skip_empty, on_error=on_error)
    return upload.count_left_out(texts.upload("corpora", upload.lines(source), name, format="jsonl", **options))


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

"""Read a judged collection: a folder in BEIR's layout."""

import hashlib
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec

from services.retriever.ports import Batch
from services.retriever.texts import make_indexed_text
from shared import canonical
from shared.errors import Invalid, NotFound
from shared.ingest import datasets as datasets_module
from shared.ingest import paths
from shared.ingest.lines import Reader
from shared.replies import CorpusRecord

CORPUS = "corpus.jsonl"
BATCH = 1000


class Queries(msgspec.Struct, frozen=True, kw_only=True):
    """The queries of one split and their judgements; every query has a relevant document."""

    texts: dict[str, str]
    judged: dict[str, dict[str, int]]
    """Maps a query to {relevant document: grade}."""
    themselves: frozenset[str]
    """Queries that are documents, too, and must not be among their own hits."""
    unjudged: int = 0
    """Number of further queries of the split without a relevant document: they have no recall, and are left out."""
    unasked: int = 0
    """Number of further queries that the split judges and `queries.jsonl` does not hold."""
    absent: int = 0
    """Number of relevant documents that the corpus does not hold: no search can find them."""

    def only(self, chosen: set[str]) -> "Queries":
        """Return the queries of `chosen`."""
        return Queries(
            texts={query: text for query, text in self.texts.items() if query in chosen},
            judged={query: grades for query, grades in self.judged.items() if query in chosen},
            themselves=self.themselves & chosen,
        )


class Collection:
    """Reads a collection whose documents keep its ids: two documents with the same text stay two."""

    def __init__(self, folder: Path) -> None:
        """Read the documents' ids.

        Raises:
            NotFound, Invalid, InvalidLine: this is no such folder, or a line cannot be used.
        """
        if not folder.exists():
            raise NotFound(f"there is no folder {str(folder)!r}")
        if not (folder / CORPUS).is_file() or not (folder / "qrels").is_dir():
            hint = "write corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv into it"
            raise Invalid(f"{folder.name!r} is not a BEIR folder", hint=hint)
        self._folder = folder
        records = self._open_records()
        self.ids: dict[str, str] = {}
        """Maps keys to ids. A key is the hash of the content, as in a job, so that ties are broken alike."""
        for each in records:
            known = each.document.hash in self.ids
            self.ids[make_twin_key(each.document.hash, _get_id(each)) if known else each.document.hash] = _get_id(each)
        self.skipped = records.skipped
        """Number of documents without any text, which no search can find."""

    @property
    def hash(self) -> str:
        """Return the SHA-256 of the documents' file, in hex."""
        with (self._folder / CORPUS).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def batches(self) -> Iterator[Batch]:
        """Yield the documents that an index is built from."""
        keys = {document: key for key, document in self.ids.items()}
        batch: list[tuple[str, str]] = []
        for each in self._open_records():
            batch.append((keys[_get_id(each)], _get_text(each)))
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    def texts(self, documents: AbstractSet[str]) -> dict[str, str]:
        """Return the text of each of these ids."""
        return {_get_id(each): _get_text(each) for each in self._open_records() if _get_id(each) in documents}

    def splits(self) -> list[str]:
        """List the splits that have judgements."""
        return sorted(file.stem for file in (self._folder / "qrels").glob("*.tsv"))

    def queries(self, split: str) -> Queries:
        """Return the queries and judgements of `split`.

        Raises:
            Invalid, InvalidLine: there is no such split, it judges none of the queries, or a line cannot be used.
        """
        items = list(datasets_module.read_dataset(paths.dataset_lines(self._folder, split=split)))
        grades = {each.custom_id: each.gold_documents or {} for each in items if each.custom_id}
        judged = {query: _select_relevant(found) for query, found in grades.items() if _select_relevant(found)}
        if not judged:
            hint = "compare the ids in the first column with `_id` in queries.jsonl"
            raise Invalid(f"qrels/{split}.tsv names a relevant document for none of the queries", hint=hint)
        texts = {each.custom_id: each.question for each in items if each.custom_id in judged}
        known = set(self.ids.values())
        return Queries(
            texts=texts,
            judged=judged,
            themselves=self._find_own_documents(texts),
            unjudged=len(items) - len(judged),
            unasked=len(self._read_judgements(split)) - len(items),
            absent=sum(document not in known for found in judged.values() for document in found),
        )

    def _read_judgements(self, split: str) -> dict[str, dict[str, int]]:
        return paths.read(self._folder / "qrels" / f"{split}.tsv", f"qrels/{split}.tsv")

    def _find_own_documents(self, queries: Mapping[str, str]) -> frozenset[str]:
        """Find the queries that are documents of the collection, under the same id (as in ArguAna).

        BEIR drops every hit with the query's id, which takes for granted that ids are of one kind. Cranfield numbers
        both from 1, and has document 225 among those relevant to query 225. So the document must also hold the query's
        words.
        """
        alike = queries.keys() & set(self.ids.values())
        texts = self.texts(alike) if alike else {}
        return frozenset(query for query in alike if _normalise(queries[query]) in _normalise(texts[query]))

    def _open_records(self) -> Reader[CorpusRecord]:
        rows = paths.corpus_lines(self._folder / CORPUS)
        return Reader(rows, lambda line, _: datasets_module.record(line), datasets_module.document_id, skip_empty=True)


def make_twin_key(content: str, document: str) -> str:
    """Make a key for a document whose content has a key already."""
    return canonical.digest([content, document]).hex()


def _normalise(text: str) -> str:
    return " ".join(canonical.normalise(text).lower().split())


def _select_relevant(grades: Mapping[str, int]) -> dict[str, int]:
    return {document: grade for document, grade in grades.items() if grade > 0}


def _get_id(record: CorpusRecord) -> str:
    if record.external_id is None:
        raise Invalid(f"a document of {CORPUS} has no `_id`, and judgements name documents by it")
    return record.external_id


def _get_text(record: CorpusRecord) -> str:
    return make_indexed_text(record.document.problem, record.document.text)

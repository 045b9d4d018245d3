"""A judged collection: a folder in BEIR's layout."""

import hashlib
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

import msgspec

from services.retriever.ports import Batch
from services.retriever.texts import indexed_text
from shared.contracts import canonical
from shared.contracts.documents import CorpusRecord
from shared.errors import Invalid, NotFound
from shared.ingest import corpora, datasets, paths, qrels
from shared.ingest.reader import Reader

CORPUS = "corpus.jsonl"
BATCH = 1000


class Queries(msgspec.Struct, frozen=True, kw_only=True):
    """What one split asks and judges; every query has a relevant document."""

    texts: dict[str, str]
    judged: dict[str, dict[str, int]]
    """Query -> {relevant document: grade}."""
    themselves: frozenset[str]
    """Those that are documents, too, and must not be among their own hits."""
    unjudged: int = 0
    """Further queries of the split, without a relevant document: they have no recall, and are left out."""
    unasked: int = 0
    """Further queries that the split judges and `queries.jsonl` does not hold."""
    absent: int = 0
    """Relevant documents that the corpus does not hold: nobody can find them."""

    def only(self, chosen: set[str]) -> "Queries":
        """Those of `chosen`."""
        return Queries(
            texts={query: text for query, text in self.texts.items() if query in chosen},
            judged={query: grades for query, grades in self.judged.items() if query in chosen},
            themselves=self.themselves & chosen,
        )


class Collection:
    """Documents keep the ids of the collection: two of the same text are two, as its judgements have them."""

    def __init__(self, folder: Path) -> None:
        """Read the documents' ids.

        Raises:
            NotFound, Invalid, InvalidLine: this is no such folder, or a line cannot be used.
        """
        if not folder.exists():
            raise NotFound(f"There is no folder {str(folder)!r}")
        if not (folder / CORPUS).is_file() or not (folder / "qrels").is_dir():
            hint = "write corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv into it"
            raise Invalid(f"{folder.name!r} is not a BEIR folder", hint=hint)
        self._folder = folder
        records = self._records()
        self.ids: dict[str, str] = {}
        """Key -> id. A key is the hash of the content, as in a job, so that ties are broken alike."""
        for each in records:
            known = each.document.hash in self.ids
            self.ids[twin(each.document.hash, _id(each)) if known else each.document.hash] = _id(each)
        self.skipped = records.skipped
        """Documents without any text, which nobody can find."""

    @property
    def hash(self) -> str:
        """SHA-256 of the documents' file, in hex."""
        with (self._folder / CORPUS).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def batches(self) -> Iterator[Batch]:
        """What an index is built from."""
        keys = {document: key for key, document in self.ids.items()}
        batch: list[tuple[str, str]] = []
        for each in self._records():
            batch.append((keys[_id(each)], _text(each)))
            if len(batch) == BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    def texts(self, documents: AbstractSet[str]) -> dict[str, str]:
        """Id -> text, of these ids."""
        return {_id(each): _text(each) for each in self._records() if _id(each) in documents}

    def splits(self) -> list[str]:
        """What there are judgements for."""
        return sorted(file.stem for file in (self._folder / "qrels").glob("*.tsv"))

    def queries(self, split: str) -> Queries:
        """What `split` asks and judges.

        Raises:
            Invalid, InvalidLine: there is no such split, it judges none of the queries, or a line cannot be used.
        """
        items = list(datasets.read_dataset(paths.dataset_lines(self._folder, split=split)))
        grades = {each.custom_id: each.gold_documents or {} for each in items if each.custom_id}
        judged = {query: _relevant(found) for query, found in grades.items() if _relevant(found)}
        if not judged:
            hint = "compare the ids in the first column with `_id` in queries.jsonl"
            raise Invalid(f"qrels/{split}.tsv names a relevant document for none of the queries", hint=hint)
        texts = {each.custom_id: each.question for each in items if each.custom_id in judged}
        known = set(self.ids.values())
        return Queries(
            texts=texts,
            judged=judged,
            themselves=self._themselves(texts),
            unjudged=len(items) - len(judged),
            unasked=len(self._judged(split)) - len(items),
            absent=sum(document not in known for found in judged.values() for document in found),
        )

    def _judged(self, split: str) -> dict[str, dict[str, int]]:
        return qrels.read(self._folder / "qrels" / f"{split}.tsv", f"qrels/{split}.tsv")

    def _themselves(self, queries: Mapping[str, str]) -> frozenset[str]:
        """Collections such as ArguAna ask with their own documents, whose ids the queries keep.

        BEIR drops every hit of the query's id. That takes for granted that ids are of one kind; Cranfield numbers both
        from 1, and has document 225 among those relevant to query 225. So the document must hold the query's words.
        """
        alike = queries.keys() & set(self.ids.values())
        texts = self.texts(alike) if alike else {}
        return frozenset(query for query in alike if _plain(queries[query]) in _plain(texts[query]))

    def _records(self) -> Reader[CorpusRecord]:
        rows = paths.corpus_lines(self._folder / CORPUS)
        return Reader(rows, lambda line, _: corpora.record(line), corpora.identifier, skip_empty=True)


def twin(content: str, document: str) -> str:
    """The key of a document whose content has one already."""
    return canonical.digest([content, document]).hex()


def _plain(text: str) -> str:
    return " ".join(canonical.normalise(text).lower().split())


def _relevant(grades: Mapping[str, int]) -> dict[str, int]:
    return {document: grade for document, grade in grades.items() if grade > 0}


def _id(record: CorpusRecord) -> str:
    if record.external_id is None:
        raise Invalid(f"a document of {CORPUS} has no `_id`, and judgements name documents by it")
    return record.external_id


def _text(record: CorpusRecord) -> str:
    return indexed_text(record.document.problem, record.document.text)

"""Finds questions of a dataset that a corpus already answers, by comparing every question with every document."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from anyio import to_thread
from sqlalchemy import text

from shared.rag.duplicates import QuestionIndex, has_answer
from shared.storage import corpora
from shared.storage.database import Database, make_not_found

DATASET = text("SELECT id FROM datasets WHERE name = :name")
ITEMS = text("""
    SELECT ordinal, question, gold FROM items WHERE dataset_id = :of AND ordinal > :after ORDER BY ordinal LIMIT :n""")
PASSAGES = text("""
    SELECT count(*) FROM corpus_documents c JOIN documents d ON d.hash = c.hash
    WHERE c.corpus_id = :corpus AND btrim(d.problem, E' \\t\\r\\n') = ''""")
DOCUMENTS = text("""
    SELECT c.ordinal, c.external_id, encode(c.hash, 'hex') AS hash, d.problem, d.body
    FROM corpus_documents c JOIN documents d ON d.hash = c.hash
    WHERE c.corpus_id = :of AND c.ordinal > :after ORDER BY c.ordinal LIMIT :n""")
BLOCK = 5000
"""Number of questions held in memory; the corpus is read once for each block."""
BATCH = 250
"""Number of documents compared at a time, in a thread."""
EXAMPLES = 20


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and a document with the same problem."""

    index: int
    """Index of the item in the dataset, from 0."""
    question: str
    """The question."""
    id: str
    """Id of the document as it was uploaded."""
    document: str
    """Hash of the document."""
    problem: str
    """Problem of the document."""
    exact: bool
    """Whether the texts are equal except for spelling variants, blanks and formatting. If false, they have the same
    numbers, operators, relations and variables, and their shingles of three words have a Jaccard index of at least 0.8.
    """
    same_answer: bool | None
    """Whether the document has the item's gold answer; null if the item has none."""


class Leaks(msgspec.Struct, frozen=True, kw_only=True):
    """Questions of a dataset whose own problem is in a corpus."""

    corpus: str
    """Name of the corpus."""
    dataset: str
    """Name of the dataset."""
    items: int
    """Number of items in the dataset."""
    documents: int
    """Number of documents in the corpus."""
    passages: int
    """Number of documents without a problem. They are not compared, because it is unknown which question they answer.
    """
    exact: int
    """Number of items with a document whose problem is the same text."""
    near: int
    """Number of further items with a document whose problem is a near-duplicate."""
    share: float
    """Share of affected items: (exact + near) / items."""
    pairs: int
    """Number of matching pairs of an item and a document."""
    same_answer: int
    """Number of pairs whose document has the item's gold answer. With `duplicates: same-answer`, searches leave out
    these documents and exact matches."""
    examples: list[Leak]
    """The first pairs, in the order of items and documents."""


class _LeakCounts:
    """Counts leaks."""

    def __init__(self) -> None:
        self.items = self.pairs = self.same_answer = 0
        self.exact: set[int] = set()
        self.any: set[int] = set()
        self.examples: list[Leak] = []

    def add(self, asked: Sequence[Any], questions: QuestionIndex, batch: Sequence[Any]) -> None:
        """Compare these documents with these questions."""
        for row in batch:
            for place, exact in questions.twins(row.problem):
                item = asked[place]
                same = None if item.gold is None else has_answer(row.body, item.gold)
                self.pairs += 1
                self.same_answer += bool(same)
                self.any.add(item.ordinal)
                if exact:
                    self.exact.add(item.ordinal)
                if len(self.examples) < EXAMPLES:
                    values = {"question": item.question, "problem": row.problem, "exact": exact, "same_answer": same}
                    self.examples.append(Leak(index=item.ordinal, id=row.external_id, document=row.hash, **values))


async def scan(database: Database, corpus: str, dataset: str) -> Leaks:
    """Compare all questions of the dataset with all problems of the corpus.

    Raises:
        NotFound: the corpus or the dataset does not exist.
    """
    found = await corpora.get(database, corpus)
    async with database.transaction() as connection:
        number = (await connection.execute(DATASET, {"name": dataset})).scalar()
        if number is None:
            raise await make_not_found(connection, "dataset", dataset)
        passages = (await connection.execute(PASSAGES, {"corpus": found.id})).scalar_one()
    tally = _LeakCounts()
    async for items in _read_batches(database, ITEMS, number, BLOCK):
        tally.items += len(items)
        questions = await to_thread.run_sync(QuestionIndex, [row.question for row in items])
        async for batch in _read_batches(database, DOCUMENTS, found.id, BATCH):
            await to_thread.run_sync(tally.add, items, questions, batch)
    affected = len(tally.any)
    return Leaks(
        corpus=corpus,
        dataset=dataset,
        items=tally.items,
        documents=found.documents,
        passages=passages,
        exact=len(tally.exact),
        near=affected - len(tally.exact),
        share=affected / tally.items if tally.items else 0.0,
        pairs=tally.pairs,
        same_answer=tally.same_answer,
        examples=tally.examples,
    )


async def _read_batches(database: Database, statement: Any, of: int, size: int) -> AsyncIterator[Sequence[Any]]:
    """Yield rows by position; each batch is a separate short read, so no transaction stays open."""
    after = -1
    while True:
        async with database.transaction() as connection:
            rows = (await connection.execute(statement, {"of": of, "after": after, "n": size})).all()
        if rows:
            yield rows
        if len(rows) < size:
            return
        after = rows[-1].ordinal

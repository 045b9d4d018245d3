"""Which questions of a dataset a corpus answers already: every question against every document, before any job."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from anyio import to_thread
from sqlalchemy import text

from shared.rag.duplicates import has_answer
from shared.rag.twins import Questions
from shared.storage import corpora
from shared.storage.database import Database
from shared.storage.unknown import not_found

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
"""Questions that are held in memory; the corpus is read once for each block."""
BATCH = 250
"""Documents that are looked at in one go, in a thread."""
EXAMPLES = 20
EXAMPLE: dict[str, Any] = {
    "corpus": "math", "dataset": "math-500", "items": 500, "documents": 7500, "passages": 0, "exact": 1, "near": 2,
    "share": 0.006, "pairs": 4, "same_answer": 2, "examples": [{
        "index": 17, "question": "What is $2+3$?", "id": "train/algebra/12", "document": "9f2c…",
        "problem": "What is  $2 + 3$?", "exact": True, "same_answer": True,
    }],
}  # fmt: skip


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """A question, and a document whose problem it is."""

    index: int
    question: str
    id: str
    """Of the document, as it was uploaded."""
    document: str
    """Its hash."""
    problem: str
    exact: bool
    """The same text but for spelling, blanks and formatting; else the same numbers, operators, relations and variables,
    and shingles of three words with a Jaccard index of 0.8 or more."""
    same_answer: bool | None
    """Whether the document has the item's gold answer; null: the item has none."""


class Leaks(msgspec.Struct, frozen=True, kw_only=True):
    """How many questions of a dataset have their own problem in a corpus."""

    corpus: str
    dataset: str
    items: int
    documents: int
    passages: int
    """Documents without a problem: what they answer is not known, and they are compared with nothing."""
    exact: int
    """Items with a document whose problem is the same text."""
    near: int
    """Further items with one whose problem is a near-duplicate."""
    share: float
    """(exact + near) / items."""
    pairs: int
    """Of an item and a document."""
    same_answer: int
    """Pairs whose document has the item's gold answer: with `duplicates: same-answer` searches leave out these, and
    the same texts."""
    examples: list[Leak]
    """The first, in the order of the items' blocks and the documents."""


class _Tally:
    """Counts leaks."""

    def __init__(self) -> None:
        self.items = self.pairs = self.same_answer = 0
        self.exact: set[int] = set()
        self.any: set[int] = set()
        self.examples: list[Leak] = []

    def add(self, asked: Sequence[Any], questions: Questions, batch: Sequence[Any]) -> None:
        """Hold these documents against these questions."""
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
                    shown = {"question": item.question, "problem": row.problem, "exact": exact, "same_answer": same}
                    self.examples.append(Leak(index=item.ordinal, id=row.external_id, document=row.hash, **shown))


async def scan(database: Database, corpus: str, dataset: str) -> Leaks:
    """All questions of the dataset against all problems of the corpus.

    Raises:
        NotFound: there is no such corpus or dataset.
    """
    found = await corpora.get(database, corpus)
    async with database.transaction() as connection:
        number = (await connection.execute(DATASET, {"name": dataset})).scalar()
        if number is None:
            raise await not_found(connection, "dataset", dataset)
        passages = (await connection.execute(PASSAGES, {"corpus": found.id})).scalar_one()
    tally = _Tally()
    async for asked in _batches(database, ITEMS, number, BLOCK):
        tally.items += len(asked)
        questions = await to_thread.run_sync(Questions, [row.question for row in asked])
        async for batch in _batches(database, DOCUMENTS, found.id, BATCH):
            await to_thread.run_sync(tally.add, asked, questions, batch)
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


async def _batches(database: Database, statement: Any, of: int, size: int) -> AsyncIterator[Sequence[Any]]:
    """By place, each batch a short read of its own."""
    after = -1
    while True:
        async with database.transaction() as connection:
            rows = (await connection.execute(statement, {"of": of, "after": after, "n": size})).all()
        if rows:
            yield rows
        if len(rows) < size:
            return
        after = rows[-1].ordinal

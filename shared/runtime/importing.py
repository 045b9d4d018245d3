"""Import the answers of another system: store them together with the `imported` job that grades them.

Grading is ordinary: the job's samples request it when they run, and equal pairs of answer and gold are graded once.
"""

import hashlib
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from sqlalchemy import text

from shared.contracts import canonical
from shared.errors import Invalid
from shared.ingest.given_answers import ImportedAnswer, ItemIndex
from shared.runtime import job_names
from shared.runtime.drafting import Drafting
from shared.runtime.submission import ImportSummary, Submission
from shared.runtime.submit import insert
from shared.settings import Settings
from shared.storage.copying import copy
from shared.storage.database import Database
from shared.storage.unknown import make_not_found

DATASET = text("SELECT id FROM datasets WHERE name = :name")
ITEMS = text("SELECT custom_id, question FROM items WHERE dataset_id = :dataset ORDER BY ordinal")
COLUMNS = ("job", "ordinal", "repeat", "content")


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The job, and how much of its dataset it covers."""

    job: uuid.UUID
    answers: int
    missing: int
    """Items of the dataset without an answer; the job covers the others."""
    matched: dict[str, int]
    """Number of answers by what named their item: "id", "question", "index" or "order"."""
    empty: list[int]
    """Lines of empty answers, which are wrong."""


class _ImportTotals:
    """Totals over the answers that were stored so far."""

    def __init__(self) -> None:
        self.answers = 0
        self.items: set[int] = set()
        self.lowest: int | None = None
        self.repeats = 0
        self.content = hashlib.sha256()
        self.matched: Counter[str] = Counter()
        self.empty: list[int] = []

    def add(self, each: ImportedAnswer, content: bytes) -> None:
        self.answers += 1
        self.items.add(each.ordinal)
        self.matched[each.matched_by] += 1
        if each.is_empty:
            self.empty.append(each.line)
        self.lowest = each.repeat if self.lowest is None else min(self.lowest, each.repeat)
        self.repeats = max(self.repeats, each.repeat + 1)
        self.content.update(canonical.digest([each.ordinal, each.repeat]) + hashlib.sha256(content).digest())


async def load_items(database: Database, dataset: str) -> ItemIndex:
    """Load the dataset's items by their ids and questions, as the lines of a file name them.

    Raises:
        NotFound: there is no such dataset.
    """
    async with database.transaction() as connection:
        number = (await connection.execute(DATASET, {"name": dataset})).scalar()
        if number is None:
            raise await make_not_found(connection, "dataset", dataset)
        rows = (await connection.execute(ITEMS, {"dataset": number})).all()
    return ItemIndex((row.custom_id, row.question) for row in rows)


async def submit_imported(
    database: Database,
    settings: Settings,
    submission: Submission,
    items: ItemIndex,
    batches: AsyncIterator[list[ImportedAnswer]],
) -> Submitted:
    """Store the answers and insert the job that grades them, in one transaction.

    Raises:
        Conflict: a job has this name already.
        Invalid: there are no answers, or the repeats do not start at 0.
        InvalidLine: from `batches`.
        TooLarge, TooMany: more than the operator allows.
    """
    job, tally = uuid.uuid4(), _ImportTotals()
    async with database.transaction() as connection:
        await job_names.reserve(connection, [submission.name])
        await copy(connection, "given", COLUMNS, _answer_rows(job, batches, tally))
        if not tally.answers:
            raise Invalid(
                "the upload holds no answers",
                hint="send one line for each answer; lines that were left out are no answers",
            )
        if tally.lowest:
            hint = f"add {tally.lowest} to `first_repeat`: the number that the first repeat has in the file"
            raise Invalid(f"the lowest repeat is {tally.lowest}, and repeats are counted from 0", hint=hint)
        missing = items.count - len(tally.items)
        imported = ImportSummary(
            answers=tally.answers, missing=missing, hash=tally.content.hexdigest(), matched=dict(tally.matched)
        )
        submission = msgspec.structs.replace(submission, repeats=tally.repeats, job=job, imported=imported)
        await insert(connection, settings, [await Drafting(connection, settings).draft(submission)])
    return Submitted(job=job, answers=tally.answers, missing=missing, matched=dict(tally.matched), empty=tally.empty)


async def _answer_rows(
    job: uuid.UUID, batches: AsyncIterator[list[ImportedAnswer]], tally: _ImportTotals
) -> AsyncIterator[tuple[Any, ...]]:
    async for batch in batches:
        for each in batch:
            content = canonical.encode(each.given)
            tally.add(each, content)
            yield job, each.ordinal, each.repeat, content

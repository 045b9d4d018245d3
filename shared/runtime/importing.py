"""Have the answers of another system graded: they are stored, with a job of `imported` over them, in one transaction.

Grading is ordinary: the job's samples ask for it once they run, and equal pairs of answer and gold are graded once.
"""

import hashlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from sqlalchemy import text

from shared.contracts import canonical
from shared.errors import Invalid
from shared.ingest.given_answers import Answered, Items
from shared.runtime import job_names
from shared.runtime.drafting import Drafting, Imported, Submission
from shared.runtime.submit import insert
from shared.settings import Settings
from shared.storage.copying import copy
from shared.storage.database import Database
from shared.storage.unknown import not_found

DATASET = text("SELECT id FROM datasets WHERE name = :name")
ITEMS = text("SELECT custom_id, question FROM items WHERE dataset_id = :dataset ORDER BY ordinal")
COLUMNS = ("job", "ordinal", "repeat", "content")


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """The job, and over how much of its dataset it is."""

    job: uuid.UUID
    answers: int
    missing: int
    """Items of the dataset that have no answer: the job is over the others."""


class _Tally:
    """What was stored so far."""

    def __init__(self) -> None:
        self.answers = 0
        self.items: set[int] = set()
        self.lowest: int | None = None
        self.repeats = 0
        self.content = hashlib.sha256()

    def add(self, each: Answered, content: bytes) -> None:
        self.answers += 1
        self.items.add(each.ordinal)
        self.lowest = each.repeat if self.lowest is None else min(self.lowest, each.repeat)
        self.repeats = max(self.repeats, each.repeat + 1)
        self.content.update(canonical.digest([each.ordinal, each.repeat]) + hashlib.sha256(content).digest())


async def items_of(database: Database, dataset: str) -> Items:
    """The dataset's items, as lines name them.

    Raises:
        NotFound: there is no such dataset.
    """
    async with database.transaction() as connection:
        number = (await connection.execute(DATASET, {"name": dataset})).scalar()
        if number is None:
            raise await not_found(connection, "dataset", dataset)
        rows = (await connection.execute(ITEMS, {"dataset": number})).all()
    return Items((row.custom_id, row.question) for row in rows)


async def submit_given(
    database: Database, settings: Settings, submission: Submission, items: Items, batches: AsyncIterator[list[Answered]]
) -> Submitted:
    """Store the answers and insert the job that grades them: all of it or nothing.

    Raises:
        Conflict: a job has this name already.
        Invalid: there are no answers, or none is the first of its item.
        InvalidLine: from `batches`.
        TooLarge, TooMany: more than the operator allows.
    """
    job, tally = uuid.uuid4(), _Tally()
    async with database.transaction() as connection:
        await job_names.reserve(connection, [submission.name])
        await copy(connection, "given", COLUMNS, _rows(job, batches, tally))
        if not tally.answers:
            raise Invalid("the upload holds no answers", hint="send one JSON object per line")
        if tally.lowest:
            hint = f"add {tally.lowest} to `first_repeat`: the number that the first repeat has in the file"
            raise Invalid(f"the lowest repeat is {tally.lowest}, and repeats are counted from 0", hint=hint)
        missing = items.count - len(tally.items)
        imported = Imported(job=job, answers=tally.answers, missing=missing, hash=tally.content.hexdigest())
        submission = msgspec.structs.replace(submission, repeats=tally.repeats, imported=imported)
        await insert(connection, settings, [await Drafting(connection, settings).draft(submission)])
    return Submitted(job=job, answers=tally.answers, missing=missing)


async def _rows(
    job: uuid.UUID, batches: AsyncIterator[list[Answered]], tally: _Tally
) -> AsyncIterator[tuple[Any, ...]]:
    async for batch in batches:
        for each in batch:
            content = canonical.encode(each.given)
            tally.add(each, content)
            yield job, each.ordinal, each.repeat, content

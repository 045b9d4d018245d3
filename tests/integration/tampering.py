"""Rows that somebody changed, seen by the audit before anybody commits: the change is rolled back afterwards."""

import uuid
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from shared.audit import Violation, check
from shared.replies import Atom, CorpusRecord, Rule
from shared.samples import DatasetItem
from shared.storage import corpora, datasets
from shared.storage import labels as stored_labels
from shared.storage import rules as stored_rules
from shared.storage.database import Database
from shared.storage.labels import LabelSetDraft, NewLabel
from shared.storage.rules import ImportOrigin
from tests.integration.scene import DOCUMENTS, Uncommitted, furnish, run_sql, scalar, submit_job
from tests.integration.test_audit import staged

T = TypeVar("T")

QUESTIONS = [
    DatasetItem(
        question=f"What is {n} plus {n}?", gold=str(2 * n), gold_documents={f"d{n}": 1}, subject="sums", level="1",
        custom_id=f"q{n}", alternatives=n % 2,
    )
    for n in range(5)
]  # fmt: skip
TRIGGERS = "SELECT DISTINCT tgrelid::regclass::text FROM pg_trigger WHERE NOT tgisinternal ORDER BY 1"


async def uploaded(database: Database) -> uuid.UUID:
    """A completed job over an uploaded dataset and corpus, in a cell of an experiment; a second one that waits."""
    await furnish(database)
    await datasets.create(database, "asked", _batches(QUESTIONS))
    records = [CorpusRecord(document=each, external_id=f"d{n}", meta={}) for n, each in enumerate(DOCUMENTS)]
    await corpora.create(database, "shelf", _batches(records))
    await run_sql(
        database, "UPDATE corpora SET dense_index = (SELECT min(dense_index) FROM corpora), sparse_index ="
        " (SELECT min(sparse_index) FROM corpora) WHERE name = 'shelf'")  # fmt: skip
    await run_sql(database, "INSERT INTO experiments (name, document) VALUES ('grid', '{}')")
    rules = [
        Rule(head=Atom("r", 0, 1), body=(Atom("s", 0, 1),), support=n, body_size=9, confidence=0.1) for n in (1, 2)
    ]
    await stored_rules.create_imported(database, "bank", ImportOrigin("amie"), _batches(rules))
    job = await submit_job(database, dataset="asked", corpus="shelf", experiment=1, params={"rules": "bank"})
    await run_sql(
        database, "INSERT INTO experiment_cells (experiment_id, ordinal, dataset, corpus, variant, pipeline, point,"
        " seed, job_id) SELECT 1, 0, 'asked', 'shelf', 'v', pipeline, '{}', 0, id FROM jobs")  # fmt: skip
    await staged(database)
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    await labelled(database, job)
    await submit_job(database, "closed-book", name="waiting")
    return job


async def labelled(database: Database, job: uuid.UUID) -> None:
    """A set of one answer of the job, with a label."""
    made, _ = await stored_labels.create(database, LabelSetDraft("answers", "answers", str(job), 1, 0), "ana")
    await stored_labels.add_label(database, made, 1, "ana", NewLabel("tie", blind=True, note=""))


async def _batches(rows: Iterable[T]) -> AsyncIterator[list[T]]:
    yield list(rows)


async def audited(database: Database, job: uuid.UUID, *statements: str) -> list[Violation]:
    """What the audit finds after these statements, none of which is committed.

    Raises:
        DBAPIError: one of them is refused.
    """
    async with database.engine.connect() as connection:
        for statement in statements:
            await connection.execute(text(statement))
        found = await check(Uncommitted(connection), job)
        await connection.rollback()
    return found


async def as_owner(owner: Database, job: uuid.UUID, statement: str) -> list[Violation]:
    """The same as an owner who turns the triggers off, and on again afterwards."""
    async with owner.engine.connect() as connection:
        tables = list(await connection.scalars(text(TRIGGERS)))
    off, on = ([f"ALTER TABLE {table} {how} TRIGGER USER" for table in tables] for how in ("DISABLE", "ENABLE"))
    return await audited(owner, job, *off, statement, "SET CONSTRAINTS ALL IMMEDIATE", *on)


def refused(error: DBAPIError) -> bool:
    """By a missing right, by a trigger, or by what holds between tables; anything else is a defect of the test."""
    state: str = getattr(error.orig, "sqlstate", "")
    return state == "42501" or state.startswith("23") or "can only be updated to DEFAULT" in str(error)

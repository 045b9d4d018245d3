"""One question that somebody waits for: a job of one sample, over a dataset that the same question shares."""

import asyncio
import hashlib
import time
import uuid

from sqlalchemy import text

from shared.contracts import canonical
from shared.contracts.datasets import DatasetItem
from shared.contracts.samples import Item
from shared.storage.database import Database

RANK = 0
"""Its calls are claimed before those of every batch, as soon as their model is resident."""
FIRST_LOOK_S = 0.05
LONGEST_PAUSE_S = 0.5
# `:` is in no name that people choose, so a dataset of theirs is never in the way.
PREFIX = "online:"
INSERT = text("""
    INSERT INTO datasets (name, hash, items, online) VALUES (:name, :hash, 1, true)
    ON CONFLICT (name) DO NOTHING RETURNING id""")
INSERT_ITEM = text("""
    INSERT INTO items (dataset_id, ordinal, hash, question, alternatives) VALUES (:dataset, 0, :hash, :question, 0)""")
ENDED = text("SELECT ended_at IS NOT NULL FROM jobs WHERE public_id = :job")


def dataset_name(question: str) -> str:
    """The name of the dataset that holds this question alone."""
    return f"{PREFIX}{_content(question).hex()}"


async def provide(database: Database, question: str) -> None:
    """Have that dataset; it is in no list of datasets."""
    async with database.transaction() as connection:
        values = {"name": dataset_name(question), "hash": hashlib.sha256(_content(question)).digest()}
        created = (await connection.execute(INSERT, values)).scalar()
        if created is not None:
            item_hash = bytes.fromhex(Item(ordinal=0, question=question).hash)
            await connection.execute(INSERT_ITEM, {"dataset": created, "hash": item_hash, "question": question})


def _content(question: str) -> bytes:
    """As an upload of the same one line is hashed."""
    return canonical.digest(
        DatasetItem(question=question, gold=None, gold_documents=None, subject=None, level=None, custom_id=None)
    )


async def wait(database: Database, job: uuid.UUID, most_s: float) -> None:
    """Return when the job has ended, at the latest after `most_s`; no connection is held in between."""
    deadline, pause = time.monotonic() + most_s, FIRST_LOOK_S
    while (left := deadline - time.monotonic()) > 0 and not await _has_ended(database, job):
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE_S)


async def _has_ended(database: Database, job: uuid.UUID) -> bool:
    async with database.statement() as connection:
        return bool((await connection.execute(ENDED, {"job": job})).scalar())

"""Single questions for which a client waits: jobs of one sample; equal questions share a dataset."""

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
"""These calls are claimed before those of batches, as soon as their model is resident."""
FIRST_LOOK_S = 0.05
LONGEST_PAUSE_S = 0.5
# Names that users choose cannot contain `:`, so this prefix never collides with theirs.
PREFIX = "online:"
INSERT = text("""
    INSERT INTO datasets (name, hash, items, online) VALUES (:name, :hash, 1, true)
    ON CONFLICT (name) DO NOTHING RETURNING id""")
INSERT_ITEM = text("""
    INSERT INTO items (dataset_id, ordinal, hash, question, alternatives) VALUES (:dataset, 0, :hash, :question, 0)""")
ENDED = text("SELECT ended_at IS NOT NULL FROM jobs WHERE public_id = :job")


def dataset_name(question: str) -> str:
    """Return the name of the dataset that holds only this question."""
    return f"{PREFIX}{_content(question).hex()}"


async def provide_dataset(database: Database, question: str) -> None:
    """Create that dataset unless it exists; it is not listed."""
    async with database.transaction() as connection:
        values = {"name": dataset_name(question), "hash": hashlib.sha256(_content(question)).digest()}
        created = (await connection.execute(INSERT, values)).scalar()
        if created is not None:
            item_hash = bytes.fromhex(Item(ordinal=0, question=question).hash)
            await connection.execute(INSERT_ITEM, {"dataset": created, "hash": item_hash, "question": question})


def _content(question: str) -> bytes:
    """Return the hash that an upload of this single line would have."""
    return canonical.digest(
        DatasetItem(question=question, gold=None, gold_documents=None, subject=None, level=None, custom_id=None)
    )


async def wait_for_job(database: Database, job: uuid.UUID, most_s: float) -> None:
    """Wait until the job has ended or `most_s` seconds have passed; no connection is held between the checks."""
    deadline, pause = time.monotonic() + most_s, FIRST_LOOK_S
    while (left := deadline - time.monotonic()) > 0 and not await has_ended(database, job):
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE_S)


async def has_ended(database: Database, job: uuid.UUID) -> bool:
    """Tell whether the job has ended, in any state."""
    async with database.statement() as connection:
        return bool((await connection.execute(ENDED, {"job": job})).scalar())

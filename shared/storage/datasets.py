"""Datasets: questions under a name, in order."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.samples import Item
from shared.errors import Conflict, Invalid, NotFound
from shared.ingest.datasets import DatasetItem
from shared.storage import pages
from shared.storage.database import Database
from shared.storage.names import checked

COLUMNS = "id, name, encode(hash, 'hex') AS hash, items, created_at"
ONE = text(f"SELECT {COLUMNS} FROM datasets WHERE name = :name")  # noqa: S608 - constants
LIST = text(f"SELECT {COLUMNS} FROM datasets WHERE NOT online AND id < :before ORDER BY id DESC LIMIT :n")  # noqa: S608
SCOPE = pages.scope("datasets")
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag datasets'))")
INSERT = text("INSERT INTO datasets (name, hash, items) VALUES (:name, '', 0) RETURNING id")
INSERT_ITEMS = text("""
    INSERT INTO items (dataset_id, ordinal, hash, question, gold, gold_documents, subject, level, custom_id)
    SELECT :dataset, u.ordinal, u.hash, u.question, u.gold, CAST(u.gold_documents AS jsonb), u.subject, u.level,
        u.custom_id
    FROM unnest(CAST(:ordinals AS integer[]), CAST(:hashes AS bytea[]), CAST(:questions AS text[]),
        CAST(:golds AS text[]), CAST(:gold_documents AS text[]), CAST(:subjects AS text[]), CAST(:levels AS text[]),
        CAST(:custom_ids AS text[]))
        u(ordinal, hash, question, gold, gold_documents, subject, level, custom_id)""")
FINISH = text("UPDATE datasets SET hash = :hash, items = :items WHERE id = :dataset")


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset as users see it."""

    id: int
    name: str
    hash: str
    """SHA-256 over the items with all their fields, in order."""
    items: int
    created_at: datetime


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """What an upload became."""

    dataset: Dataset
    new: bool
    """False: the same items were there under this name."""


async def create(database: Database, name: str, batches: AsyncIterator[list[DatasetItem]]) -> Created:
    """Store an upload, all of it or nothing; the same upload again finds what is there.

    Raises:
        Conflict: the name has other items.
        Invalid: the name cannot be used, or there are no items.
        InvalidLine: from `batches`.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        row = (await connection.execute(ONE, {"name": checked(name)})).mappings().first()
        if row is not None:
            return Created(dataset=await _same(_dataset(row), batches), new=False)
        dataset = int((await connection.execute(INSERT, {"name": name})).scalar_one())
        content, items = hashlib.sha256(), 0
        async for batch in batches:
            await _insert(connection, dataset, items, batch)
            _add(content, batch)
            items += len(batch)
        if items == 0:
            raise Invalid("the upload holds no items", hint="send one JSON object per line")
        await connection.execute(FINISH, {"dataset": dataset, "hash": content.digest(), "items": items})
        row = (await connection.execute(ONE, {"name": name})).mappings().one()
        return Created(dataset=_dataset(row), new=True)


async def _same(dataset: Dataset, batches: AsyncIterator[list[DatasetItem]]) -> Dataset:
    content = hashlib.sha256()
    async for batch in batches:
        _add(content, batch)
    if content.hexdigest() != dataset.hash:
        raise Conflict(f"dataset {dataset.name!r} exists with other items", hint="choose another name")
    return dataset


def _add(content: "hashlib._Hash", batch: Sequence[DatasetItem]) -> None:
    for item in batch:
        content.update(canonical.digest(item))


async def _insert(connection: AsyncConnection, dataset: int, first: int, batch: Sequence[DatasetItem]) -> None:
    values = {
        "dataset": dataset,
        "ordinals": list(range(first, first + len(batch))),
        "hashes": [_hash(item) for item in batch],
        "questions": [item.question for item in batch],
        "golds": [item.gold for item in batch],
        "gold_documents": [_json(item.gold_documents) for item in batch],
        "subjects": [item.subject for item in batch],
        "levels": [item.level for item in batch],
        "custom_ids": [item.custom_id for item in batch],
    }
    await connection.execute(INSERT_ITEMS, values)


def _hash(item: DatasetItem) -> bytes:
    return bytes.fromhex(Item(ordinal=0, question=item.question, gold=item.gold).hash)


def _json(grades: dict[str, int] | None) -> str | None:
    return None if grades is None else msgspec.json.encode(grades).decode()


async def get(database: Database, name: str) -> Dataset:
    """The dataset called `name`.

    Raises:
        NotFound: there is none.
    """
    async with database.transaction() as connection:
        row = (await connection.execute(ONE, {"name": name})).mappings().first()
    if row is None:
        raise NotFound(f"no dataset {name!r}", hint="mathrag dataset list")
    return _dataset(row)


async def listed(database: Database, limit: int, cursor: str | None = None) -> pages.Page[Dataset]:
    """Datasets, newest first."""
    before = pages.decode(cursor, SCOPE, 1)[0] if cursor else pages.LARGEST_KEY
    async with database.transaction() as connection:
        rows = (await connection.execute(LIST, {"before": before, "n": limit + 1})).mappings()
        found = [_dataset(row) for row in rows]
    return pages.page(found, limit, SCOPE, *(dataset.id for dataset in found[:limit][-1:]))


def _dataset(row: RowMapping) -> Dataset:
    return Dataset(**row)

"""Store datasets: named, ordered lists of questions."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import RowMapping, text

from shared.contracts import canonical
from shared.contracts.datasets import DatasetItem
from shared.contracts.samples import Item
from shared.errors import Conflict, Invalid
from shared.storage import pages
from shared.storage.copying import copy
from shared.storage.database import Database
from shared.storage.names import check_name
from shared.storage.unknown import make_not_found

COLUMNS = "id, name, encode(hash, 'hex') AS hash, items, grader, created_at"
ONE = text(f"SELECT {COLUMNS} FROM datasets WHERE name = :name")  # noqa: S608 - constants
LIST = text(f"SELECT {COLUMNS} FROM datasets WHERE NOT online AND id < :before ORDER BY id DESC LIMIT :n")  # noqa: S608
SCOPE = pages.cursor_scope("datasets")
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag datasets'))")
INSERT = text("INSERT INTO datasets (name, hash, items, grader) VALUES (:name, '', 0, :grader) RETURNING id")
ITEMS = ("dataset_id", "ordinal", "hash", "question", "gold", "gold_documents", "subject", "level", "custom_id",
         "alternatives", "expected", "query")  # fmt: skip
FINISH = text("UPDATE datasets SET hash = :hash, items = :items WHERE id = :dataset")


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset as users see it."""

    id: int
    name: str
    hash: str
    """SHA-256 of the items with all their fields, in order."""
    items: int
    created_at: datetime
    grader: str | None = None
    """Default grader of answers; null means mathematics."""


class CreatedDataset(msgspec.Struct, frozen=True, kw_only=True):
    """Result of an upload."""

    dataset: Dataset
    new: bool
    """False if the same dataset existed already."""
    alternatives: int
    """Number of items with further gold answers, any of which is correct."""


def start_content_hash(grader: str | None) -> "hashlib._Hash":
    """Start a dataset's hash with the grader that it declares; the items follow."""
    return hashlib.sha256(b"" if grader is None else canonical.digest(["grader", grader]))


class Digest:
    """The hash that identifies a dataset, updated with every item."""

    def __init__(self, grader: str | None = None) -> None:
        self.items = 0
        self.alternatives = 0
        self._content = start_content_hash(grader)

    def add(self, batch: Sequence[DatasetItem]) -> None:
        """Count and hash the next items."""
        for item in batch:
            self._content.update(canonical.digest(item))
            self.alternatives += bool(item.expected and item.expected.golds)
        self.items += len(batch)

    @property
    def content(self) -> bytes:
        """SHA-256 over the grader and all items so far."""
        return self._content.digest()


async def create(
    database: Database, name: str, batches: AsyncIterator[list[DatasetItem]], grader: str | None = None
) -> CreatedDataset:
    """Store an upload completely or not at all; repeating an upload returns the existing dataset.

    Args:
        grader: the default grader of answers.

    Raises:
        Conflict: a dataset with this name has other items.
        Invalid: the name cannot be used, or there are no items.
        InvalidLine: from `batches`.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        row = (await connection.execute(ONE, {"name": check_name(name)})).mappings().first()
        digest = Digest(grader)
        if row is not None:
            dataset = await _check_same_content(_dataset(row), batches, digest)
            return CreatedDataset(dataset=dataset, new=False, alternatives=digest.alternatives)
        number = int((await connection.execute(INSERT, {"name": name, "grader": grader})).scalar_one())
        await copy(connection, "items", ITEMS, _rows(number, batches, digest))
        if digest.items == 0:
            raise Invalid("the upload holds no items", hint="send one JSON object per line")
        await connection.execute(FINISH, {"dataset": number, "hash": digest.content, "items": digest.items})
        row = (await connection.execute(ONE, {"name": name})).mappings().one()
        return CreatedDataset(dataset=_dataset(row), new=True, alternatives=digest.alternatives)


async def _check_same_content(dataset: Dataset, batches: AsyncIterator[list[DatasetItem]], digest: Digest) -> Dataset:
    async for batch in batches:
        digest.add(batch)
    if digest.content.hex() != dataset.hash:
        raise Conflict(
            f"dataset {dataset.name!r} exists with other items or another grader", hint="choose another name"
        )
    return dataset


async def _rows(
    dataset: int, batches: AsyncIterator[list[DatasetItem]], digest: Digest
) -> AsyncIterator[tuple[Any, ...]]:
    async for batch in batches:
        for ordinal, item in enumerate(batch, start=digest.items):
            yield item_row(dataset, ordinal, item)
        digest.add(batch)


def item_row(dataset: int, ordinal: int, item: DatasetItem) -> tuple[Any, ...]:
    """Make the row of an item, with the columns of `ITEMS`."""
    known = (item.question, item.gold, _json(item.gold_documents), item.subject, item.level, item.custom_id)
    return (dataset, ordinal, _hash(item), *known, item.alternatives, _json(item.expected), _json(item.query))


def _hash(item: DatasetItem) -> bytes:
    return bytes.fromhex(Item(ordinal=0, question=item.question, gold=item.gold).hash)


def _json(said: object | None) -> str | None:
    """Encode a value for a JSON column; None stays NULL."""
    return None if said is None else msgspec.json.encode(said).decode()


async def get(database: Database, name: str) -> Dataset:
    """Get the dataset called `name`.

    Raises:
        NotFound: there is none.
    """
    async with database.transaction() as connection:
        row = (await connection.execute(ONE, {"name": name})).mappings().first()
        if row is None:
            raise await make_not_found(connection, "dataset", name)
    return _dataset(row)


async def list_datasets(database: Database, limit: int, cursor: str | None = None) -> pages.Page[Dataset]:
    """List datasets, newest first."""
    before = pages.decode_cursor(cursor, SCOPE, 1)[0] if cursor else pages.LARGEST_KEY
    async with database.transaction() as connection:
        rows = (await connection.execute(LIST, {"before": before, "n": limit + 1})).mappings()
        found = [_dataset(row) for row in rows]
    return pages.make_page(found, limit, SCOPE, *(dataset.id for dataset in found[:limit][-1:]))


def _dataset(row: RowMapping) -> Dataset:
    return Dataset(**row)

"""Datasets: questions under a name, in order."""

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
from shared.storage.names import checked
from shared.storage.unknown import not_found

COLUMNS = "id, name, encode(hash, 'hex') AS hash, items, grader, created_at"
ONE = text(f"SELECT {COLUMNS} FROM datasets WHERE name = :name")  # noqa: S608 - constants
LIST = text(f"SELECT {COLUMNS} FROM datasets WHERE NOT online AND id < :before ORDER BY id DESC LIMIT :n")  # noqa: S608
SCOPE = pages.scope("datasets")
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
    """SHA-256 over the items with all their fields, in order."""
    items: int
    created_at: datetime
    grader: str | None = None
    """How its answers are graded unless a job says otherwise; None: as mathematics."""


class Created(msgspec.Struct, frozen=True, kw_only=True):
    """What an upload became."""

    dataset: Dataset
    new: bool
    """False: the same items were there under this name."""
    alternatives: int
    """Items with further gold answers: any of them is right."""


def content_hash(grader: str | None) -> "hashlib._Hash":
    """What a dataset's hash begins with, before its items: the grader that it declares."""
    return hashlib.sha256(b"" if grader is None else canonical.digest(["grader", grader]))


class _Digest:
    """What identifies an upload, updated batch by batch."""

    def __init__(self, grader: str | None) -> None:
        self.items = 0
        self.alternatives = 0
        self._content = content_hash(grader)

    def add(self, batch: Sequence[DatasetItem]) -> None:
        for item in batch:
            self._content.update(canonical.digest(item))
            self.alternatives += bool(item.expected and item.expected.golds)
        self.items += len(batch)

    @property
    def content(self) -> bytes:
        return self._content.digest()


async def create(
    database: Database, name: str, batches: AsyncIterator[list[DatasetItem]], grader: str | None = None
) -> Created:
    """Store an upload, all of it or nothing; the same upload again finds what is there.

    Args:
        grader: how its answers are graded unless a job says otherwise.

    Raises:
        Conflict: the name has other items.
        Invalid: the name cannot be used, or there are no items.
        InvalidLine: from `batches`.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        row = (await connection.execute(ONE, {"name": checked(name)})).mappings().first()
        digest = _Digest(grader)
        if row is not None:
            dataset = await _same(_dataset(row), batches, digest)
            return Created(dataset=dataset, new=False, alternatives=digest.alternatives)
        number = int((await connection.execute(INSERT, {"name": name, "grader": grader})).scalar_one())
        await copy(connection, "items", ITEMS, _rows(number, batches, digest))
        if digest.items == 0:
            raise Invalid("the upload holds no items", hint="send one JSON object per line")
        await connection.execute(FINISH, {"dataset": number, "hash": digest.content, "items": digest.items})
        row = (await connection.execute(ONE, {"name": name})).mappings().one()
        return Created(dataset=_dataset(row), new=True, alternatives=digest.alternatives)


async def _same(dataset: Dataset, batches: AsyncIterator[list[DatasetItem]], digest: _Digest) -> Dataset:
    async for batch in batches:
        digest.add(batch)
    if digest.content.hex() != dataset.hash:
        raise Conflict(
            f"dataset {dataset.name!r} exists with other items or another grader", hint="choose another name"
        )
    return dataset


async def _rows(
    dataset: int, batches: AsyncIterator[list[DatasetItem]], digest: _Digest
) -> AsyncIterator[tuple[Any, ...]]:
    async for batch in batches:
        for ordinal, item in enumerate(batch, start=digest.items):
            known = (item.question, item.gold, _json(item.gold_documents), item.subject, item.level, item.custom_id)
            yield (dataset, ordinal, _hash(item), *known, item.alternatives, _json(item.expected), _json(item.query))
        digest.add(batch)


def _hash(item: DatasetItem) -> bytes:
    return bytes.fromhex(Item(ordinal=0, question=item.question, gold=item.gold).hash)


def _json(said: object | None) -> str | None:
    """As it is stored: nothing where the item says nothing."""
    return None if said is None else msgspec.json.encode(said).decode()


async def get(database: Database, name: str) -> Dataset:
    """The dataset called `name`.

    Raises:
        NotFound: there is none.
    """
    async with database.transaction() as connection:
        row = (await connection.execute(ONE, {"name": name})).mappings().first()
        if row is None:
            raise await not_found(connection, "dataset", name)
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

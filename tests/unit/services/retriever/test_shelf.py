"""The retriever's cache of documents: bounded, and what a search has found stays found while others fill the cache."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from services.retriever.builds import DocumentCache
from tests.unit.services.retriever.test_searches import MANY, TWIN

pytestmark = pytest.mark.anyio

HASHES = [hash_ for hash_, _ in MANY]
ROOM_FOR_TEN = 5_000
"""Bytes; more than a search of the test needs at once, less than two."""


class Row(NamedTuple):
    hash: bytes
    problem: str
    body: str = ""


class Database:
    def __init__(self, slow: str = "") -> None:
        self.slow = slow
        self.waits = asyncio.Event()
        self.gate = asyncio.Event()
        self.queries: list[set[str]] = []

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator["Database"]:
        yield self

    async def execute(self, _query: Any, values: dict[str, list[bytes]]) -> list[Row]:
        self.queries.append({each.hex() for each in values["hashes"]})
        if self.slow in self.queries[-1]:
            self.waits.set()
            await self.gate.wait()
        return [Row(each, TWIN) for each in values["hashes"]]


def documents(database: Database, most_bytes: int) -> DocumentCache:
    made: Any = database
    return DocumentCache(made, most_bytes)


async def test_what_a_search_has_found_is_not_lost_while_others_fill_the_cache() -> None:
    database = Database(slow=HASHES[5])
    cache = documents(database, ROOM_FOR_TEN)
    await cache.of(HASHES[:5])
    searching = asyncio.create_task(cache.of(HASHES[:6]))
    await database.waits.wait()
    for hash_ in HASHES[10:]:
        await cache.of([hash_])
    database.gate.set()
    assert (await searching).keys() == set(HASHES[:6])


async def test_the_cache_has_an_upper_bound_in_bytes() -> None:
    database = Database()
    cache = documents(database, ROOM_FOR_TEN)
    for hash_ in HASHES:
        await cache.of([hash_])
    database.queries.clear()
    await cache.of(HASHES[-5:])
    assert database.queries == []
    await cache.of(HASHES[:1])
    assert database.queries == [{HASHES[0]}]

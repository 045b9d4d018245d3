import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import anyio
import pytest
from anyio.abc import TaskGroup

from services.retriever.builds import BYTES_PER_S, SMALL_BYTES, BuildQueue, DocumentCache
from tests.unit.services.retriever.test_searches import MANY, TWIN

# The order in which indexes are built, and who waits for whom.


pytestmark = pytest.mark.anyio

LARGE = 100 * SMALL_BYTES


class Builds:
    def __init__(self, tasks: TaskGroup) -> None:
        self.now = 0.0
        self.queue = BuildQueue(lambda: self.now)
        self.running: list[str] = []
        self._tasks = tasks
        self._scopes: dict[str, anyio.CancelScope] = {}

    async def begin(self, name: str, size: int, signature: str = "") -> None:
        self._tasks.start_soon(self._build, name, size, signature or name)
        await anyio.wait_all_tasks_blocked()

    async def end(self, name: str) -> None:
        self._scopes[name].cancel()
        await anyio.wait_all_tasks_blocked()

    async def _build(self, name: str, size: int, signature: str) -> None:
        with anyio.CancelScope() as self._scopes[name]:
            async with self.queue.take_turn(signature, size):
                self.running.append(name)
                try:
                    await anyio.sleep_forever()
                finally:
                    self.running.remove(name)


@pytest.fixture
async def building() -> AsyncIterator[Builds]:
    async with anyio.create_task_group() as tasks:
        yield Builds(tasks)
        tasks.cancel_scope.cancel()


async def test_a_small_corpus_does_not_wait_for_a_large_one(building: Builds) -> None:
    await building.begin("large", LARGE)
    await building.begin("small", SMALL_BYTES)
    assert building.running == ["large", "small"]


async def test_two_large_corpora_are_built_one_after_the_other(building: Builds) -> None:
    await building.begin("first", LARGE)
    await building.begin("second", LARGE)
    assert building.running == ["first"]
    await building.end("first")
    assert building.running == ["second"]


async def test_small_corpora_start_before_larger_ones_that_came_first(building: Builds) -> None:
    for name in ("running", "running too"):
        await building.begin(name, 1)
    for name, size in (("large", LARGE), ("medium", 2000), ("small", 1000)):
        await building.begin(name, size)
    await building.end("running")
    assert building.running == ["running too", "small"]
    await building.end("small")
    assert building.running == ["running too", "medium"]


async def test_a_large_corpus_is_overtaken_only_for_as_long_as_it_takes_itself(building: Builds) -> None:
    for name in ("running", "running too"):
        await building.begin(name, 1)
    await building.begin("large", LARGE)
    building.now = LARGE / BYTES_PER_S - 1
    await building.begin("earlier", 1)
    building.now = LARGE / BYTES_PER_S + 1
    await building.begin("later", 1)
    await building.end("running")
    assert building.running == ["running too", "earlier"]
    await building.end("running too")
    assert building.running == ["earlier", "large"]


async def test_an_index_is_not_built_twice_at_once(building: Builds) -> None:
    await building.begin("one", 1, signature="same")
    await building.begin("again", 1, signature="same")
    await building.begin("other", 2)
    assert (building.running, building.queue.signatures) == (["one", "other"], {"same", "other"})
    await building.end("one")
    assert building.running == ["other", "again"]


async def test_a_waiting_build_whose_request_has_ended_is_dropped(building: Builds) -> None:
    await building.begin("first", LARGE)
    await building.begin("gone", LARGE)
    await building.begin("third", LARGE)
    await building.end("gone")
    await building.end("first")
    assert building.running == ["third"]


# The retriever's cache of documents: bounded, and what a search has found stays found while others fill the cache.

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

"""Group commit: one run at a time, for all who came meanwhile."""

import asyncio
from collections.abc import Sequence

import pytest

from shared.runtime.queue import GroupCommit

pytestmark = pytest.mark.anyio


class Store:
    def __init__(self) -> None:
        self.runs: list[list[int]] = []
        self.go = asyncio.Semaphore(0)

    async def run(self, items: Sequence[int]) -> list[int]:
        self.runs.append(list(items))
        await self.go.acquire()
        if min(items) < 0:
            raise ValueError(min(items))
        return [2 * item for item in items]


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_the_first_is_served_at_once_and_those_who_come_meanwhile_together() -> None:
    store = Store()
    together = GroupCommit(store.run)
    tasks = [asyncio.create_task(together.submit(1))]
    await turns()
    tasks += [asyncio.create_task(together.submit(item)) for item in (2, 3)]
    await turns()
    assert store.runs == [[1]]
    store.go.release()
    await turns()
    assert store.runs == [[1], [2, 3]]
    store.go.release()
    assert await asyncio.gather(*tasks) == [2, 4, 6]


async def test_an_error_reaches_all_of_its_run_and_nobody_else() -> None:
    store = Store()
    together = GroupCommit(store.run)
    first = asyncio.create_task(together.submit(1))
    await turns()
    failing = [asyncio.create_task(together.submit(item)) for item in (-1, 2)]
    await turns()
    store.go.release()
    await turns()
    last = asyncio.create_task(together.submit(3))
    await turns()
    store.go.release()
    store.go.release()
    assert await first == 2
    assert [type(error) for error in await asyncio.gather(*failing, return_exceptions=True)] == [ValueError] * 2
    assert await last == 6


async def test_a_caller_that_goes_away_stops_nothing() -> None:
    store = Store()
    together = GroupCommit(store.run)
    gone, stays = (asyncio.create_task(together.submit(item)) for item in (1, 2))
    await turns()
    gone.cancel()
    await turns()
    store.go.release()
    assert await stays == 4
    assert store.runs == [[1, 2]]

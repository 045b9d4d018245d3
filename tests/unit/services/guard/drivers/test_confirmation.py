"""Looks that confirm replies: shared, later than the reply, and not more often than they may be."""

import asyncio

import pytest

from services.guard.drivers import ports
from services.guard.drivers.ports import Confirmation

pytestmark = pytest.mark.anyio


class Server:
    def __init__(self) -> None:
        self.looks: list[asyncio.Future[bool]] = []
        self.confirmation = Confirmation(self._look)

    async def _look(self) -> bool:
        self.looks.append(asyncio.get_running_loop().create_future())
        return await self.looks[-1]

    async def has_looked(self, count: int) -> None:
        while len(self.looks) < count:  # noqa: ASYNC110 - the server tells nobody
            await asyncio.sleep(0)

    def wait(self) -> "asyncio.Task[bool]":
        return asyncio.create_task(self.confirmation.check())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setattr(ports, "INTERVAL_S", 0.0)
    monkeypatch.setattr(ports, "IDLE_INTERVAL_S", 0.0)
    return Server()


async def test_replies_that_wait_at_once_share_a_look(server: Server) -> None:
    waiting = [server.wait() for _ in range(5)]
    await server.has_looked(1)
    server.looks[0].set_result(False)
    assert await asyncio.gather(*waiting) == [False] * 5
    assert len(server.looks) == 1


async def test_a_reply_that_comes_during_a_look_waits_for_the_next(server: Server) -> None:
    first = server.wait()
    await server.has_looked(1)
    second, third = server.wait(), server.wait()
    await asyncio.sleep(0)
    server.looks[0].set_result(True)
    assert await first
    await server.has_looked(2)
    server.looks[1].set_result(False)
    assert await asyncio.gather(second, third) == [False, False]
    assert len(server.looks) == 2


async def test_a_look_that_was_cancelled_is_made_again_for_those_who_wait(server: Server) -> None:
    done = server.wait()
    await server.has_looked(1)
    server.looks[0].set_result(True)
    await done
    cancelled, waiting = server.wait(), server.wait()
    await server.has_looked(2)
    cancelled.cancel()
    await server.has_looked(3)
    server.looks[2].set_result(False)
    assert not await waiting


async def test_while_calls_run_looks_keep_their_interval(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first = server.wait()
    await server.has_looked(1)
    server.looks[0].set_result(True)
    assert await first
    monkeypatch.setattr(ports, "INTERVAL_S", 3600.0)
    with server.confirmation.track_call():
        with server.confirmation.track_call():
            waiting = server.wait()
        await asyncio.sleep(0.01)
        assert len(server.looks) == 1
    await server.has_looked(2)
    server.looks[1].set_result(True)
    assert await waiting


async def test_looks_of_an_idle_server_keep_a_shorter_interval(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "IDLE_INTERVAL_S", 3600.0)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(ports.asyncio, "sleep", sleep)
    for number in range(2):
        waiting = server.wait()
        while len(server.looks) <= number:
            await asyncio.wait([waiting], timeout=0.01)
        server.looks[number].set_result(True)
        assert await waiting
    assert pauses[0] == 0.0
    assert 3500 < pauses[1] <= 3600

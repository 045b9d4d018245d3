"""Whether a service is ready, and whether one that was still answers."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import psutil
import pytest

from mathrag.stack import process
from mathrag.stack.redis import find_free_port
from shared.calls import Lane

pytestmark = pytest.mark.anyio

NO_REDIS = "redis://127.0.0.1:1/0"


@asynccontextmanager
async def listening(answer: bytes) -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("answer", "is_ready"),
    [(b"HTTP/1.1 200 OK\r\n\r\n", True), (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False), (b"", False)],
    ids=["well", "refuses", "closes"],
)
async def test_whoever_takes_the_request_answers_whatever_it_says(answer: bytes, is_ready: bool) -> None:
    async with listening(answer) as port:
        assert await process.make_http_answer_test(port)(0)
        assert await process.make_http_test(port)(0) is is_ready


async def test_a_service_that_says_nothing_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "ANSWER_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not await process.make_http_answer_test(silent.getsockname()[1])(0)


async def test_nor_does_one_that_does_not_listen() -> None:
    assert not await process.make_http_answer_test(find_free_port())(0)


async def test_a_worker_is_not_blamed_for_a_redis_that_is_away() -> None:
    assert await process.make_heartbeat_answer_test(NO_REDIS, Lane.JUDGE)(psutil.Process().pid)


@pytest.fixture
def stopped_child() -> Iterator[None]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as forked:
        child = psutil.Process(forked.pid)
        child.suspend()
        while child.status() != psutil.STATUS_STOPPED:
            time.sleep(0.01)
        yield
        forked.kill()


@pytest.mark.usefixtures("stopped_child")
async def test_a_worker_whose_child_is_stopped_does_not_answer() -> None:
    assert not await process.make_heartbeat_answer_test(NO_REDIS, Lane.JUDGE)(psutil.Process().pid)

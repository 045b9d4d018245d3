"""Connections that must not wait for ever for a host that is gone: the kernel probes their other end."""

import asyncio
import socket
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url, text

from shared.keepalive import IDLE_S, LOST_S
from shared.lease.lease import GuardClient
from shared.storage.database import Database
from tests.faults.processes import until
from tests.faults.proxy import Proxy
from tests.integration.test_guard_service import calls

KEEPALIVE = 2
"""The timer of a connection that is probed when it has been silent, in the kernel's table of connections."""

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform != "linux", reason="reads Linux' table of connections"),
]


def is_probed(port: int) -> bool:
    """Whether there are connections to this port of 127.0.0.1, and each is probed."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    timers = [line[5] for line in lines if line[2] == f"0100007F:{port:04X}" and line[3] == "01"]
    return bool(timers) and all(
        int(timer.partition(":")[0]) == KEEPALIVE and int(timer.partition(":")[2], 16) <= IDLE_S * 100
        for timer in timers
    )


async def test_both_ends_of_a_connection_to_the_database_are_probed(database_url: str) -> None:
    url = make_url(database_url)
    assert url.port is not None
    with Proxy(url.port) as proxy:
        through = url.set(port=proxy.port).render_as_string(hide_password=False)
        database = Database(through, pinned=True)
        try:
            assert await database.column(text("SHOW tcp_keepalives_idle"), {}) == [str(IDLE_S)]
            assert await database.column(text("SHOW tcp_user_timeout"), {}) == [str(LOST_S * 1000)]
            await asyncio.to_thread(until, "it is probed", lambda: is_probed(proxy.port))
        finally:
            await database.close()


async def test_a_guard_that_is_silent_is_probed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # the kernel accepts what nobody answers
        port = silent.getsockname()[1]
        client = GuardClient(f"http://127.0.0.1:{port}")
        running = asyncio.ensure_future(anext(client.run(1, calls(1, 1))))
        try:
            await asyncio.to_thread(until, "it is probed", lambda: is_probed(port))
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            await client.close()

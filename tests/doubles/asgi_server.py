"""An ASGI application behind a real uvicorn on a free port: in the event loop of the test, or in a thread."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import NamedTuple

import anyio
import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from shared.access.connections import bound_connections
from shared.settings import Limits


@asynccontextmanager
async def serve_app(app: FastAPI) -> AsyncIterator[str]:
    """Serve the application and yield its URL; it has stopped after the block."""
    config = uvicorn.Config(
        app, port=0, http=bound_connections(Limits()), ws="none", log_level="warning", lifespan="on"
    )
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    with anyio.fail_after(60):
        while not server.started and not running.done():  # noqa: ASYNC110 - uvicorn tells it by a flag
            await asyncio.sleep(0.01)
    if running.done():
        raise RuntimeError("the application did not start")
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        with anyio.fail_after(60, shield=True):
            await running


LONGEST_S = 60.0
"""Upper bound of every wait; what is waited for comes much sooner."""


class Listening(NamedTuple):
    """A running server."""

    server: uvicorn.Server
    port: int

    def connect(self, *, receive_bytes: int | None = None) -> socket.socket:
        """A new connection; `receive_bytes`: how much the client's kernel keeps for it."""
        client = socket.socket()
        if receive_bytes is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.settimeout(LONGEST_S)
        client.connect(("127.0.0.1", self.port))
        return client

    @property
    def connections(self) -> int:
        """Count the open connections."""
        return len(self.server.server_state.connections)


@contextmanager
def serve_in_thread(app: ASGIApp, limits: Limits) -> Iterator[Listening]:
    """Serve the application as the services do; it has stopped after the block."""
    config = uvicorn.Config(
        app,
        port=0,
        http=bound_connections(limits),
        ws="none",
        log_level="error",
        lifespan="off",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield Listening(server, server.servers[0].sockets[0].getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(LONGEST_S)


def wait_until(condition: Callable[[], bool]) -> None:
    """Return once the condition holds; fail if it never does."""
    end = time.monotonic() + LONGEST_S
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.01)


def receive_all(client: socket.socket) -> bytes:
    """Receive until the server closes the connection."""
    parts = []
    try:
        while part := client.recv(1 << 16):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def status(answer: bytes) -> int | None:
    """Return the status of the first response; None if there is none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None

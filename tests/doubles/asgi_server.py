"""An ASGI application behind a real uvicorn on a free port, as services serve it, in the event loop of the test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import uvicorn
from fastapi import FastAPI

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

"""Serve the HTTP applications of orchestrator, guard and retriever with bounded connections."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvicorn
from anyio import CancelScope
from starlette.requests import Request
from starlette.types import ASGIApp

from shared.access.connections import bound_connections
from shared.errors import BadRequest
from shared.limits import Limits

T = TypeVar("T")


def serve(app: ASGIApp, limits: Limits, *, host: str, port: int, stop_s: int | None = None) -> None:
    """Serve until the process is told to stop, which open requests may then delay by `stop_s` seconds."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        http=bound_connections(limits),
        ws="none",
        log_level="warning",
        log_config=None,
        timeout_graceful_shutdown=stop_s,
    )


async def finish_while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, which is cancelled when the client closes the connection.

    The body of `request` must have been read.

    Raises:
        BadRequest: the client has closed the connection, so that nobody reads the answer.
    """
    with CancelScope() as scope:
        watching = asyncio.create_task(_cancel_without_client(request, scope))
        try:
            return await work
        finally:
            watching.cancel()
    raise BadRequest("the client closed the connection before the answer", hint="send the request again, and wait")


async def _cancel_without_client(request: Request, scope: CancelScope) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    scope.cancel()

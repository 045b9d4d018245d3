"""Serve the HTTP applications of orchestrator, guard and retriever with bounded connections."""

import uvicorn
from starlette.types import ASGIApp

from shared.access.connections import bound_connections
from shared.limits import Limits


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

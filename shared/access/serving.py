"""How orchestrator, guard and retriever serve HTTP: alike, with bounded connections."""

import uvicorn
from starlette.types import ASGIApp

from shared.access.connections import bounded
from shared.limits import Limits


def serve(app: ASGIApp, limits: Limits, *, host: str, port: int, stop_s: int | None = None) -> None:
    """Serve until the process is told to end; `stop_s`: longest that open requests then hold back the end."""
    uvicorn.run(
        app,
        host=host,
        port=port,
        http=bounded(limits),
        ws="none",
        log_level="warning",
        log_config=None,
        timeout_graceful_shutdown=stop_s,
    )

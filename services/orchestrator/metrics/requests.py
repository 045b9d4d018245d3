"""Requests to the API, counted while they pass."""

import time

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.orchestrator.metrics.catalogue import BY_NAME

# One more series for each, and nobody reads it.
disable_created_metrics()  # type: ignore[no-untyped-call]

UNKNOWN = "unknown"
"""The route of a request that none matches: paths that anybody may invent are no labels."""


class Requests:
    """The two metrics of requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        made = BY_NAME["mathrag_http_requests_total"]
        self.total = Counter(made.name, made.help, made.labels, registry=registry)
        timed = BY_NAME["mathrag_http_request_duration_seconds"]
        self.duration = Histogram(timed.name, timed.help, timed.labels, registry=registry)


class CountRequests:
    """Counts each request when its response begins; a stream may go on for hours after that."""

    def __init__(self, app: ASGIApp, requests: Requests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, counted)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNKNOWN)
        self._requests.total.labels(scope["method"], route, str(status)).inc()
        self._requests.duration.labels(scope["method"], route).observe(seconds)

"""Counts requests to the API as they pass."""

import time

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.orchestrator.metrics.catalogue import BY_NAME

# Drop the `_created` series: there would be one more for each metric, and nobody reads them.
disable_created_metrics()  # type: ignore[no-untyped-call]

UNKNOWN = "unknown"
"""Label for requests that match no route: their paths are arbitrary and must not become labels."""


class Requests:
    """The two metrics about requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        made = BY_NAME["mathrag_http_requests_total"]
        self.total = Counter(made.name, made.help, made.labels, registry=registry)
        timed = BY_NAME["mathrag_http_request_duration_seconds"]
        self.duration = Histogram(timed.name, timed.help, timed.labels, registry=registry)


class CountRequests:
    """Counts each request when its response begins, because a stream may last for hours."""

    def __init__(self, app: ASGIApp, requests: Requests) -> None:
        self._app = app
        self._requests = requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def send_and_count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._count(scope, message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, send_and_count)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", UNKNOWN)
        self._requests.total.labels(scope["method"], route, str(status)).inc()
        self._requests.duration.labels(scope["method"], route).observe(seconds)

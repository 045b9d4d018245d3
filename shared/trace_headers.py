"""The current trace goes along with what is sent: W3C's `traceparent`. Where nothing is traced, there is none."""

import httpx2
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

_PROPAGATOR = TraceContextTextMapPropagator()


def trace_headers() -> dict[str, str]:
    """What carries the current span to another process."""
    headers: dict[str, str] = {}
    _PROPAGATOR.inject(headers)
    return headers


async def add_trace_headers(request: httpx2.Request) -> None:
    """A hook for the requests of an `httpx2.AsyncClient`."""
    request.headers.update(trace_headers())

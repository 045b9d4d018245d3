"""Propagate the current trace to other processes with W3C's header `traceparent`; without tracing there is none."""

from functools import cache
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


def trace_headers() -> dict[str, str]:
    """Return the headers that propagate the current span."""
    headers: dict[str, str] = {}
    _propagator().inject(headers)
    return headers


async def add_trace_headers(request: httpx2.Request) -> None:
    """Add the headers to a request; a hook for `httpx2.AsyncClient`."""
    request.headers.update(trace_headers())


@cache
def _propagator() -> "TraceContextTextMapPropagator":
    # Only services trace: the command line checks a configuration of models without these packages.
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()

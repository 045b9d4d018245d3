"""HTTP headers between processes: the API key, and the trace in W3C's `traceparent`."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the command line imports neither before it sends a request
    import httpx2
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator


def authorization(key: str) -> dict[str, str]:
    """Return the header `Authorization: Bearer KEY`; empty without a key."""
    return {"Authorization": f"Bearer {key}"} if key else {}


def key_of(header: str) -> str | None:
    """Return the key in the value of `Authorization`; None if it has none."""
    scheme, _, key = header.partition(" ")
    return key.strip() or None if scheme.lower() == "bearer" else None


def trace_headers() -> dict[str, str]:
    """Return the headers that propagate the current span; empty without tracing."""
    headers: dict[str, str] = {}
    _propagator().inject(headers)
    return headers


async def add_trace_headers(request: "httpx2.Request") -> None:
    """Add the headers to a request; a hook for `httpx2.AsyncClient`."""
    request.headers.update(trace_headers())


@cache
def _propagator() -> "TraceContextTextMapPropagator":
    # Only services trace: the command line checks a configuration of models without these packages.
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator()

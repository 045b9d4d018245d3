"""Spans, for those who make them. Off unless the operator names a collector; then nothing of the SDK is imported.

Every part of the project calls these functions and knows nothing of OpenTelemetry; off, each costs a comparison.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import httpx2

from shared.settings import Telemetry
from shared.telemetry.references import SpanRef

if TYPE_CHECKING:
    from shared.telemetry.exporting import Tracing

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's own variables; `telemetry.otlp_endpoint` wins over them."""
UNTRACED = ("/healthz", "/readyz", "/metrics", "/state")
"""Paths that machines poll: a span for each would bury the others."""

Attributes = Mapping[str, Any]


class Kind(Enum):
    """OpenTelemetry's kinds of spans."""

    INTERNAL = "internal"
    CLIENT = "client"
    PRODUCER = "producer"
    CONSUMER = "consumer"


class Span(Protocol):
    """A span that is open."""

    @property
    def trace_id(self) -> str | None:
        """32 hex digits; None where nothing is traced."""
        ...

    def set(self, attributes: Attributes) -> None:
        """Add attributes; None values are left out."""
        ...

    def fail(self, kind: str) -> None:
        """Mark it as failed, with a word and not with a message: messages may hold what users wrote."""
        ...


class _NoSpan:
    """Where nothing is traced."""

    trace_id = None

    def set(self, attributes: Attributes) -> None:
        """Nothing."""

    def fail(self, kind: str) -> None:
        """Nothing."""


_tracing: "Tracing | None" = None
_OFF: AbstractContextManager[Span] = nullcontext(_NoSpan())


def start(settings: Telemetry, service: str) -> None:
    """Begin to export, if a collector is named. In a process that forks: in the child, whose threads live."""
    if settings.otlp_endpoint or any(os.environ.get(name) for name in ENDPOINTS):
        from shared.telemetry.exporting import exporting

        install(exporting(settings, service))


def install(tracing: "Tracing | None") -> None:
    """Trace with this, or not at all."""
    global _tracing  # one per process, like the provider behind it
    _tracing = tracing


def stop() -> None:
    """Send what is left and end."""
    if _tracing is not None:
        _tracing.stop()
    install(None)


def on() -> bool:
    """Whether anything is traced."""
    return _tracing is not None


def content() -> bool:
    """Whether prompts, answers and questions may stand in spans."""
    return _tracing is not None and _tracing.content


def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: Kind = Kind.INTERNAL,
    links: Iterable[SpanRef | None] = (),
    root: bool = False,
) -> AbstractContextManager[Span]:
    """A span around the block, child of the current one or, as a `root`, with a trace of its own."""
    if _tracing is None:
        return _OFF
    return _tracing.span(name, attributes or {}, kind=kind, links=links, root=root)


def past(
    name: str,
    begun: datetime,
    ended: datetime,
    attributes: Attributes,
    *,
    ref: SpanRef | None = None,
    parent: SpanRef | None = None,
    events: Iterable[tuple[str, datetime]] = (),
    failure: str | None = None,
) -> None:
    """A span of something that has ended, under an id of its own where `ref` gives one."""
    if _tracing is not None:
        _tracing.past(name, begun, ended, attributes, ref=ref, parent=parent, events=events, failure=failure)


def link(ref: SpanRef) -> None:
    """Link the current span to another, which may not be there yet."""
    if _tracing is not None:
        _tracing.link(ref)


def current() -> SpanRef | None:
    """The span around the caller."""
    return _tracing.current() if _tracing is not None else None


def headers() -> dict[str, str]:
    """What carries the current span to another process: W3C `traceparent`."""
    return _tracing.headers() if _tracing is not None else {}


def hooks() -> dict[str, list[Callable[[httpx2.Request], Awaitable[None]]]]:
    """What `httpx2.AsyncClient(event_hooks=...)` wants, so that requests carry `headers()`."""
    return {"request": [_carry] if _tracing is not None else []}


async def _carry(request: httpx2.Request) -> None:
    request.headers.update(headers())


def server() -> Any:
    """What `FastAPI(telemetry=...)` wants: one span a request, none for what machines poll."""
    return {"operation_spans": False, "logs": False, "metrics": False, "exclude": _polled}


def _polled(scope: Mapping[str, Any]) -> bool:
    return scope.get("path") in UNTRACED

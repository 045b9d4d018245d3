"""Spans, made with OpenTelemetry's API, which does nothing until `shared.telemetry.exporting` gives it a tracer."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, NoOpTracer, Span, SpanContext, SpanKind, TraceFlags, Tracer
from opentelemetry.trace.status import Status, StatusCode

from shared.telemetry.conventions import ERROR_TYPE
from shared.telemetry.references import SpanRef

UNTRACED = ("/healthz", "/readyz", "/metrics", "/state")
"""Paths that machines poll: a span for each would bury the others."""

Attributes = Mapping[str, Any]
"""None values are left out."""

_OFF = NoOpTracer()
_tracer: Tracer = _OFF
_content = False
given: ContextVar[SpanRef | None] = ContextVar("given", default=None)
"""The ids of the span that is being made, where they are known before it is."""


def install(tracer: Tracer = _OFF, *, content: bool = False) -> None:
    """Trace with this, or not at all; `content`: prompts, answers and questions may stand in spans."""
    global _tracer, _content  # one per process, like the provider behind it
    _tracer, _content = tracer, content


def on() -> bool:
    """Whether anything is traced."""
    return _tracer is not _OFF


def content() -> bool:
    """Whether prompts, answers and questions may stand in spans."""
    return _content


@contextmanager
def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Iterable[SpanRef | None] = (),
    root: bool = False,
) -> Iterator[Span]:
    """A span around the block, child of the current one or, as a `root`, with a trace of its own.

    An exception's type is noted, its message is not: it may hold what users wrote.
    """
    with _tracer.start_as_current_span(
        name,
        context=Context() if root else None,
        kind=kind,
        attributes=present(attributes or {}),
        links=[Link(_context(link)) for link in links if link is not None],
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        try:
            yield opened
        except (Exception, asyncio.CancelledError) as error:
            fail(opened, type(error).__name__)
            raise


def fail(failed: Span, kind: str) -> None:
    """Mark a span as failed, with a word and not with a message: messages may hold what users wrote."""
    failed.set_attribute(ERROR_TYPE, kind)
    failed.set_status(Status(StatusCode.ERROR, kind))


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
    token = given.set(ref)
    try:
        made = _tracer.start_span(
            name, context=_under(ref, parent), attributes=present(attributes), start_time=_ns(begun)
        )
    finally:
        given.reset(token)
    for event, at in events:
        made.add_event(event, timestamp=_ns(at))
    if failure:
        fail(made, failure)
    made.end(_ns(ended))


def link(ref: SpanRef) -> None:
    """Link the current span to another, which may not be there yet."""
    trace.get_current_span().add_link(_context(ref))


def current() -> SpanRef | None:
    """The span around the caller."""
    found = trace.get_current_span().get_span_context()
    return SpanRef(found.trace_id, found.span_id) if found.is_valid else None


def present(attributes: Attributes) -> dict[str, Any]:
    """Those that have a value: OpenTelemetry warns of None."""
    return {name: value for name, value in attributes.items() if value is not None}


def server() -> Any:
    """What `FastAPI(telemetry=...)` wants: one span a request, none for what machines poll."""
    return {"operation_spans": False, "logs": False, "metrics": False, "exclude": _polled}


def _polled(scope: Mapping[str, Any]) -> bool:
    return scope.get("path") in UNTRACED


def _under(ref: SpanRef | None, parent: SpanRef | None) -> Context | None:
    """Under its parent; a span with ids of its own is a root without one, any other belongs to the current."""
    if parent is None:
        return Context() if ref else None
    return trace.set_span_in_context(NonRecordingSpan(_context(parent)), Context())


def _context(ref: SpanRef) -> SpanContext:
    return SpanContext(ref.trace, ref.span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1e9)

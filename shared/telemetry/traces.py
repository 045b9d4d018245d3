"""Make spans with OpenTelemetry's API, which does nothing until `shared.telemetry.exporter` installs a tracer."""

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
"""Paths that machines poll, whose spans would bury the others."""

Attributes = Mapping[str, Any]
"""Attributes of a span; those that are None are left out."""

_OFF = NoOpTracer()
_tracer: Tracer = _OFF
_content = False
chosen_ids: ContextVar[SpanRef | None] = ContextVar("given", default=None)
"""The ids of the span that is being made, if they were chosen before."""


def install_tracer(tracer: Tracer = _OFF, *, content: bool = False) -> None:
    """Trace with `tracer`, by default not at all; `content` allows prompts, answers and questions in spans."""
    global _tracer, _content  # one per process, like the provider behind it
    _tracer, _content = tracer, content


def is_on() -> bool:
    """Tell whether this process makes spans."""
    return _tracer is not _OFF


def keeps_content() -> bool:
    """Tell whether spans may contain prompts, answers and questions."""
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
    """Open a span around the block: a child of the current one or, as a `root`, with a trace of its own.

    An exception's type is recorded, but not its message, which may contain what users wrote.
    """
    with _tracer.start_as_current_span(
        name,
        context=Context() if root else None,
        kind=kind,
        attributes=drop_none(attributes or {}),
        links=[Link(_span_context(link)) for link in links if link is not None],
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        try:
            yield opened
        except (Exception, asyncio.CancelledError) as error:
            fail(opened, type(error).__name__)
            raise


def fail(failed: Span, kind: str) -> None:
    """Mark a span as failed with a `kind` instead of a message, which may contain what users wrote."""
    failed.set_attribute(ERROR_TYPE, kind)
    failed.set_status(Status(StatusCode.ERROR, kind))


def add_past_span(
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
    """Make a span of something that has ended, with the ids of `ref` if given."""
    token = chosen_ids.set(ref)
    try:
        made = _tracer.start_span(
            name, context=_parent_context(ref, parent), attributes=drop_none(attributes), start_time=_to_ns(begun)
        )
    finally:
        chosen_ids.reset(token)
    for event, at in events:
        made.add_event(event, timestamp=_to_ns(at))
    if failure:
        fail(made, failure)
    made.end(_to_ns(ended))


def link(ref: SpanRef) -> None:
    """Link the current span to another, which may not exist yet."""
    trace.get_current_span().add_link(_span_context(ref))


def find_current() -> SpanRef | None:
    """Return the span around the caller; None outside of any."""
    found = trace.get_current_span().get_span_context()
    return SpanRef(found.trace_id, found.span_id) if found.is_valid else None


def drop_none(attributes: Attributes) -> dict[str, Any]:
    """Drop attributes that are None, of which OpenTelemetry warns."""
    return {name: value for name, value in attributes.items() if value is not None}


def make_server_options() -> Any:
    """Return the options of `FastAPI(telemetry=...)`: one span per request, but none for `UNTRACED`."""
    return {"operation_spans": False, "logs": False, "metrics": False, "exclude": _is_polled}


def _is_polled(scope: Mapping[str, Any]) -> bool:
    return scope.get("path") in UNTRACED


def _parent_context(ref: SpanRef | None, parent: SpanRef | None) -> Context | None:
    """Return the context of a past span: its parent's; without one, a root if it has chosen ids, else the current."""
    if parent is None:
        return Context() if ref else None
    return trace.set_span_in_context(NonRecordingSpan(_span_context(parent)), Context())


def _span_context(ref: SpanRef) -> SpanContext:
    return SpanContext(ref.trace, ref.span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _to_ns(at: datetime) -> int:
    return int(at.timestamp() * 1e9)

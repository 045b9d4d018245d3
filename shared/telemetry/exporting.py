"""The side of traces that knows OpenTelemetry's SDK; imported only where a collector is named."""

import asyncio
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from shared.settings import Telemetry
from shared.telemetry.conventions import ERROR_TYPE, SCHEMA_URL
from shared.telemetry.references import SpanRef
from shared.telemetry.traces import Attributes, Kind

KINDS = {
    Kind.INTERNAL: SpanKind.INTERNAL,
    Kind.CLIENT: SpanKind.CLIENT,
    Kind.PRODUCER: SpanKind.PRODUCER,
    Kind.CONSUMER: SpanKind.CONSUMER,
}
TRACES = "/v1/traces"
PATIENCE_S = 2.0
"""Longest that a batch is tried, where OTEL_EXPORTER_OTLP_TIMEOUT says nothing: a process that ends waits for it."""

_given: ContextVar[SpanRef | None] = ContextVar("_given", default=None)
_PROPAGATOR = TraceContextTextMapPropagator()


class Ids(RandomIdGenerator):
    """Random ids, but for a span whose ids are known before it is made."""

    def generate_trace_id(self) -> int:
        """The given trace id, or a random one."""
        given = _given.get()
        return given.trace if given else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """The given span id, or a random one."""
        given = _given.get()
        return given.span if given else super().generate_span_id()


class OpenSpan:
    """A span of the SDK, as `traces.Span`."""

    def __init__(self, span: trace.Span) -> None:
        self._span = span

    @property
    def trace_id(self) -> str | None:
        """32 hex digits."""
        return trace.format_trace_id(self._span.get_span_context().trace_id)

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""
        self._span.set_attributes(_present(attributes))

    def fail(self, kind: str) -> None:
        """Mark it as failed."""
        self._span.set_attribute(ERROR_TYPE, kind)
        self._span.set_status(Status(StatusCode.ERROR, kind))


class Tracing:
    """A provider with one processor, and the spans that the project makes."""

    def __init__(self, service: str, processor: SpanProcessor, *, content: bool = False) -> None:
        resource = Resource.create({"service.name": f"mathrag-{service}", "service.version": version("mathrag-gate")})
        self.provider = TracerProvider(resource=resource, id_generator=Ids())
        self.provider.add_span_processor(processor)
        self.content = content
        self._tracer = self.provider.get_tracer("mathrag", version("mathrag-gate"), schema_url=SCHEMA_URL)

    @contextmanager
    def span(
        self, name: str, attributes: Attributes, *, kind: Kind, links: Iterable[SpanRef | None], root: bool
    ) -> Iterator[OpenSpan]:
        """See `traces.span`. An exception's type is noted, its message is not: it may hold what users wrote."""
        with self._tracer.start_as_current_span(
            name,
            context=Context() if root else None,
            kind=KINDS[kind],
            attributes=_present(attributes),
            links=[Link(_context(link)) for link in links if link is not None],
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            opened = OpenSpan(span)
            try:
                yield opened
            except (Exception, asyncio.CancelledError) as error:
                opened.fail(type(error).__name__)
                raise

    def past(
        self,
        name: str,
        begun: datetime,
        ended: datetime,
        attributes: Attributes,
        *,
        ref: SpanRef | None,
        parent: SpanRef | None,
        events: Iterable[tuple[str, datetime]],
        failure: str | None,
    ) -> None:
        """See `traces.past`."""
        token = _given.set(ref)
        try:
            span = self._tracer.start_span(
                name, context=self._under(ref, parent), attributes=_present(attributes), start_time=_ns(begun)
            )
        finally:
            _given.reset(token)
        for event, at in events:
            span.add_event(event, timestamp=_ns(at))
        if failure:
            OpenSpan(span).fail(failure)
        span.end(_ns(ended))

    def _under(self, ref: SpanRef | None, parent: SpanRef | None) -> Context | None:
        """Under its parent; a span with ids of its own is a root without one, any other belongs to the current."""
        if parent is None:
            return Context() if ref else None
        return trace.set_span_in_context(NonRecordingSpan(_context(parent)), Context())

    def link(self, ref: SpanRef) -> None:
        """See `traces.link`."""
        trace.get_current_span().add_link(_context(ref))

    def current(self) -> SpanRef | None:
        """See `traces.current`."""
        found = trace.get_current_span().get_span_context()
        return SpanRef(found.trace_id, found.span_id) if found.is_valid else None

    def headers(self) -> dict[str, str]:
        """See `traces.headers`."""
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier

    def stop(self) -> None:
        """Send what is left."""
        self.provider.shutdown()


def exporting(settings: Telemetry, service: str) -> Tracing:
    """Traces to the collector that the settings or OpenTelemetry's variables name; also those that FastAPI makes."""
    endpoint = settings.otlp_endpoint.rstrip("/") + TRACES if settings.otlp_endpoint else None
    patience = float(os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT") or PATIENCE_S)
    processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=patience))
    tracing = Tracing(service, processor, content=settings.content)
    trace.set_tracer_provider(tracing.provider)
    return tracing


def _context(ref: SpanRef) -> SpanContext:
    return SpanContext(ref.trace, ref.span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _present(attributes: Attributes) -> dict[str, str | int | float | bool | list[str]]:
    return {name: value for name, value in attributes.items() if value is not None}


def _ns(at: datetime) -> int:
    return int(at.timestamp() * 1e9)

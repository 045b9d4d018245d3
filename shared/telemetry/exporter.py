"""Export spans to a collector with OpenTelemetry's SDK; only imported if a collector is named."""

import os
from importlib.metadata import version

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from shared.settings import Telemetry
from shared.telemetry import traces
from shared.telemetry.traces import SCHEMA_URL

TRACES = "/v1/traces"
PATIENCE_S = 2.0
"""Timeout of a batch unless OTEL_EXPORTER_OTLP_TIMEOUT is set; a process that exits waits for it."""


class SpanIdGenerator(RandomIdGenerator):
    """Makes random ids, except for a span whose ids were chosen before it is made."""

    def generate_trace_id(self) -> int:
        """Return the chosen trace id, or a random one."""
        given = traces.chosen_ids.get()
        return given.trace if given else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """Return the chosen span id, or a random one."""
        given = traces.chosen_ids.get()
        return given.span if given else super().generate_span_id()


def install_sdk(service: str, processor: SpanProcessor, *, content: bool = False) -> TracerProvider:
    """Make the spans of this process with the SDK, and pass each to `processor`."""
    released = version("mathrag-gate")
    resource = Resource.create({"service.name": f"mathrag-{service}", "service.version": released})
    provider = TracerProvider(resource=resource, id_generator=SpanIdGenerator())
    provider.add_span_processor(processor)
    traces.install_tracer(provider.get_tracer("mathrag", released, schema_url=SCHEMA_URL), content=content)
    return provider


def start_export(service: str, settings: Telemetry) -> None:
    """Send spans, including FastAPI's, to the collector that the settings or OpenTelemetry's variables name."""
    endpoint = settings.otlp_endpoint.rstrip("/") + TRACES if settings.otlp_endpoint else None
    patience = float(os.environ.get("OTEL_EXPORTER_OTLP_TIMEOUT") or PATIENCE_S)
    processor = BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, timeout=patience))
    provider = install_sdk(service, processor, content=settings.content)
    trace.set_tracer_provider(provider)

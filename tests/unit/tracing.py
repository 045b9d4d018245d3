"""Spans kept in memory instead of sent."""

from collections.abc import Iterator
from contextlib import contextmanager

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shared.telemetry import exporter, traces


class Spans:
    """What was traced."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def all(self) -> tuple[ReadableSpan, ...]:
        """Every span that has ended, in that order."""
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        """Those of a name."""
        return [span for span in self.all() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        """The only one of a name."""
        (span,) = self.named(name)
        return span


@contextmanager
def tracing(*, content: bool = False) -> Iterator[Spans]:
    """Everything is traced inside the block."""
    memory = InMemorySpanExporter()
    provider = exporter.install_sdk("test", SimpleSpanProcessor(memory), content=content)
    try:
        yield Spans(memory)
    finally:
        provider.shutdown()
        traces.install_tracer()

"""An OTLP/HTTP collector: keeps the spans that services send to it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as WireSpan


class Received(NamedTuple):
    """A span as it arrived; ids in hex."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    links: frozenset[tuple[str, str]]
    attributes: dict[str, object]
    schema: str


class Collector:
    """Collects spans in the order of their arrival."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._spans: list[Received] = []
        self._arrived = threading.Condition()

    def take(self, body: bytes) -> None:
        """Keep the spans of a request."""
        request = ExportTraceServiceRequest.FromString(body)
        with self._arrived:
            for resource in request.resource_spans:
                service = str(_attributes(resource.resource.attributes)["service.name"])
                for scope in resource.scope_spans:
                    self._spans.extend(_read_span(service, span, scope.schema_url) for span in scope.spans)
            self._arrived.notify_all()

    def spans(self, name: str = "", service: str = "") -> list[Received]:
        """Return the spans whose name begins with `name` and whose service ends with `service`."""
        with self._arrived:
            return [s for s in self._spans if s.name.startswith(name) and s.service.endswith(service)]

    def wait_for(self, name: str, count: int = 1) -> list[Received]:
        """Wait for `count` spans whose name begins with `name`, and return them."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: sum(s.name.startswith(name) for s in self._spans) >= count, 60), name
        return self.spans(name)


@contextmanager
def run_collector() -> Iterator[Collector]:
    """Run a collector on a free loopback port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Accept one export."""
            assert self.path == "/v1/traces"
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the signature is the library's
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector = Collector(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _read_span(service: str, span: WireSpan, schema: str) -> Received:
    links = frozenset((link.trace_id.hex(), link.span_id.hex()) for link in span.links)
    return Received(
        service, span.name, span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex(), links,
        _attributes(span.attributes), schema,
    )  # fmt: skip


def _attributes(found: object) -> dict[str, object]:
    return {each.key: _value(each.value) for each in found}  # type: ignore[attr-defined]


def _value(value: AnyValue) -> object:
    return getattr(value, value.WhichOneof("value") or "string_value")

"""What a process says about itself: logs always, traces where the operator names a collector."""

import os
from typing import Any

from opentelemetry import trace

from shared.settings import Settings, Telemetry
from shared.telemetry import logs, traces

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
"""OpenTelemetry's own variables; `telemetry.otlp_endpoint` wins over them."""


def start(service: str, settings: Settings) -> None:
    """Set up the logs and traces of a process that will not fork."""
    logs.configure(settings.telemetry, service)
    start_traces(service, settings.telemetry)


def start_traces(service: str, settings: Telemetry) -> None:
    """Begin to export, if a collector is named. In a process that forks: in the child, whose threads live."""
    if settings.otlp_endpoint or any(os.environ.get(name) for name in ENDPOINTS):
        from shared.telemetry import exporting  # of the SDK nothing is imported in vain

        exporting.export(service, settings)


def stop_traces() -> None:
    """Send what is left, where a process ends without the interpreter's own end."""
    if traces.on():
        provider: Any = trace.get_tracer_provider()
        provider.shutdown()

"""Logs of a process, and traces if the operator names a collector."""

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
    """Export spans if a collector is named. A process that forks must call it in the child: threads do not survive."""
    if settings.otlp_endpoint or any(os.environ.get(name) for name in ENDPOINTS):
        from shared.telemetry import exporter  # the SDK is only imported when it is used

        exporter.start_export(service, settings)


def stop_traces() -> None:
    """Send the remaining spans, in a process that exits without the interpreter's clean-up."""
    if traces.is_on():
        provider: Any = trace.get_tracer_provider()
        provider.shutdown()

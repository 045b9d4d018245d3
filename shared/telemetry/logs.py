"""One format for all log lines, ours and those of libraries: text for a person, JSON in a container.

A line carries the fields that are bound where it is written: service, device, epoch, chunk, job, and its trace."""

import logging
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor

from mathrag.messages import redact
from shared.settings import Telemetry
from shared.telemetry import traces

CONTAINERS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that container engines create."""
QUIET = {
    **dict.fromkeys(("httpx2", "celery", "kombu", "uvicorn", "alembic"), logging.WARNING),
    # It warns at every attempt; the error when a batch is given up is enough.
    "opentelemetry.exporter": logging.ERROR,
}
"""Libraries whose lines below this level are of no use to an operator."""


def configure(settings: Telemetry, service: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to `stream` (stderr), each line with the service's name."""
    handler = logging.StreamHandler(stream or sys.stderr)
    if settings.log_format != "auto":
        is_json = settings.log_format == "json"
    else:
        is_json = "KUBERNETES_SERVICE_HOST" in os.environ or any(file.exists() for file in CONTAINERS)
    handler.setFormatter(_make_formatter(service, as_json=is_json))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=True)


def bind(**fields: object) -> None:
    """Add fields to every line that the current task writes from now on; None removes one."""
    structlog.contextvars.bind_contextvars(**{name: value for name, value in fields.items() if value is not None})
    structlog.contextvars.unbind_contextvars(*(name for name, value in fields.items() if value is None))


def bind_in_block(**fields: object) -> AbstractContextManager[None]:
    """Add fields to the lines that are written inside the block."""
    return structlog.contextvars.bound_contextvars(**fields)


def _make_formatter(service: str, *, as_json: bool) -> logging.Formatter:
    def add_service(_logger: object, _method: str, event: EventDict) -> EventDict:
        return {**event, "service": service}

    known: list[Processor] = [
        add_service,
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _add_trace_id,
        structlog.processors.format_exc_info,
        _redact,
    ]
    text = structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, sort_keys=False)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=known,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(default=str) if as_json else text,
        ],
    )


def _add_trace_id(_logger: object, _method: str, event: EventDict) -> EventDict:
    if ref := traces.find_current():
        event["trace_id"] = ref.trace_id
    return event


def _redact(_logger: object, _method: str, event: EventDict) -> EventDict:
    return {name: redact(value) if isinstance(value, str) else value for name, value in event.items()}

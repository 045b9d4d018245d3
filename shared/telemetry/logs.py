"""One pipe for every log line, ours and the libraries': text for a person, JSON in a container.

A line carries what is bound where it is written: service, device, epoch, chunk, job, and the trace it belongs to.
"""

import logging
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor

from shared.redaction import redacted
from shared.settings import Telemetry
from shared.telemetry import traces

CONTAINERS = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Files that container engines put there."""
QUIET = {
    **dict.fromkeys(("httpx2", "celery", "kombu", "uvicorn", "alembic"), logging.WARNING),
    # A warning for every try; that a batch was given up is an error, and enough.
    "opentelemetry.exporter": logging.ERROR,
}
"""Libraries that say below this level nothing that an operator could use."""


def configure(settings: Telemetry, service: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to `stream` (stderr), each line with the service's name."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_formatter(service, as_json=_as_json(settings)))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=True)


def bind(**fields: object) -> None:
    """Put fields on every line that the current task writes from now on; None takes one away."""
    structlog.contextvars.bind_contextvars(**{name: value for name, value in fields.items() if value is not None})
    structlog.contextvars.unbind_contextvars(*(name for name, value in fields.items() if value is None))


def bound(**fields: object) -> AbstractContextManager[None]:
    """The same for the lines of a block."""
    return structlog.contextvars.bound_contextvars(**fields)


def _as_json(settings: Telemetry) -> bool:
    if settings.log_format != "auto":
        return settings.log_format == "json"
    return "KUBERNETES_SERVICE_HOST" in os.environ or any(file.exists() for file in CONTAINERS)


def _formatter(service: str, *, as_json: bool) -> logging.Formatter:
    def served(_logger: object, _method: str, event: EventDict) -> EventDict:
        return {**event, "service": service}

    known: list[Processor] = [
        served,
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _traced,
        structlog.processors.format_exc_info,
        _without_secrets,
    ]
    text = structlog.dev.ConsoleRenderer(colors=False, pad_event_to=0, sort_keys=False)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=known,
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(default=str) if as_json else text,
        ],
    )


def _traced(_logger: object, _method: str, event: EventDict) -> EventDict:
    if ref := traces.current():
        event["trace_id"] = ref.trace_id
    return event


def _without_secrets(_logger: object, _method: str, event: EventDict) -> EventDict:
    return {name: redacted(value) if isinstance(value, str) else value for name, value in event.items()}

"""One format for all log lines, ours and those of libraries: text for a person, JSON in a container.

A line carries the fields that are bound where it is written: service, device, epoch, chunk, job, and its trace."""

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TextIO

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
_OF_EVERY_RECORD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime"))
"""Attributes of a record that are not fields given as `extra`; formatters of other handlers add the last two."""
_bound: ContextVar[Mapping[str, object]] = ContextVar("bound", default=MappingProxyType({}))


def configure(settings: Telemetry, service: str, stream: TextIO | None = None) -> None:
    """Send every logger of the process to `stream` (stderr), each line with the service's name."""
    handler = logging.StreamHandler(stream or sys.stderr)
    if settings.log_format != "auto":
        is_json = settings.log_format == "json"
    else:
        is_json = "KUBERNETES_SERVICE_HOST" in os.environ or any(file.exists() for file in CONTAINERS)
    handler.setFormatter(LineFormatter(service, as_json=is_json))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.log_level.upper())
    for name, level in QUIET.items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=True)


def bind(**fields: object) -> None:
    """Add fields to every line that the current task writes from now on; None removes one."""
    _bound.set({name: value for name, value in {**_bound.get(), **fields}.items() if value is not None})


@contextmanager
def bind_in_block(**fields: object) -> Iterator[None]:
    """Add fields to the lines that are written inside the block."""
    before = _bound.set({**_bound.get(), **fields})
    try:
        yield
    finally:
        _bound.reset(before)


class LineFormatter(logging.Formatter):
    """Writes a record with the bound fields, those given as `extra`, and its trace, and takes secrets out of it."""

    def __init__(self, service: str, *, as_json: bool) -> None:
        super().__init__()
        self._service = service
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        fields: dict[str, object] = {"service": self._service, **_bound.get()}
        fields |= {name: value for name, value in vars(record).items() if name not in _OF_EVERY_RECORD}
        if ref := traces.find_current():
            fields["trace_id"] = ref.trace_id
        if record.stack_info:
            fields["stack"] = record.stack_info
        fields = {name: redact(value) if isinstance(value, str) else value for name, value in fields.items()}
        event, level = redact(record.getMessage()), record.levelname.lower()
        traceback = redact(self.formatException(record.exc_info)) if record.exc_info and record.exc_info[0] else ""
        if self._as_json:
            known = {"event": event, **fields, "level": level, "logger": record.name, "timestamp": at}
            return json.dumps(known | ({"exception": traceback} if traceback else {}), default=str)
        words = " ".join(f"{name}={_quote(value)}" for name, value in fields.items())
        line = f"{at} [{level:<9}] {event} [{record.name}] {words}"
        return f"{line}\n{traceback}" if traceback else line


def _quote(value: object) -> str:
    """Write a field's value, in quotation marks if it has blanks."""
    text = str(value)
    return repr(text) if any(map(str.isspace, text)) else text

"""Log lines: one pipe, two forms, what is bound, and no secret."""

import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest
import structlog

from shared.redaction import redact
from shared.settings import Telemetry
from shared.telemetry import logs, traces
from tests.unit.tracing import tracing

pytestmark = pytest.mark.anyio

KEY = "mrg_0011aabb_" + "5e" * 32


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.contextvars.clear_contextvars()


def configured(log_format: str = "json", log_level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    logs.configure(Telemetry(log_format=log_format, log_level=log_level), "judge", stream)  # type: ignore[arg-type]
    return stream


def only(stream: io.StringIO) -> dict[str, object]:
    (line,) = stream.getvalue().splitlines()
    found: dict[str, object] = json.loads(line)
    return found


def test_a_json_line_says_who_and_when() -> None:
    stream = configured()
    logging.getLogger("shared.runtime.worker").warning("chunk of %d broke off", 16)
    line = only(stream)
    assert line.pop("timestamp", "").endswith("Z")  # type: ignore[attr-defined]
    assert line == {
        "event": "chunk of 16 broke off", "level": "warning", "logger": "shared.runtime.worker", "service": "judge",
    }  # fmt: skip


def test_a_text_line_is_for_a_person() -> None:
    stream = configured("text")
    with logs.bind_in_block(epoch=3):
        logging.getLogger("a").info("opened")
    assert "{" not in stream.getvalue()
    assert "opened" in stream.getvalue()
    assert "epoch=3" in stream.getvalue()


def test_what_is_bound_is_on_every_line_and_goes_again() -> None:
    stream = configured()
    log = logging.getLogger("a")
    with logs.bind_in_block(device="cpu:0"):
        logs.bind(epoch=3, job_id=None)
        log.info("inside", extra={"calls": 2})
    logs.bind(epoch=None)
    log.info("outside")
    inside, outside = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (inside["device"], inside["epoch"], inside["calls"]) == ("cpu:0", 3, 2)
    assert not {"device", "epoch", "calls", "job_id"} & outside.keys()


def test_a_line_names_the_trace_it_belongs_to() -> None:
    stream = configured()
    with tracing(), traces.span("a"):
        logging.getLogger("a").info("inside")
        current = traces.find_current()
    assert current is not None
    assert only(stream)["trace_id"] == current.trace_id


def test_an_exception_is_one_line_of_json() -> None:
    stream = configured()
    logging.getLogger("a").error("failed", exc_info=ValueError("broken"))
    assert "ValueError: broken" in str(only(stream)["exception"])


def test_levels_are_the_operators() -> None:
    stream = configured(log_level="info")
    logging.getLogger("a").debug("no")
    logging.getLogger("httpx2").info("no")
    logging.getLogger("celery.worker").info("no")
    assert not stream.getvalue()
    logging.getLogger("httpx2").warning("yes")
    assert only(stream)["event"] == "yes"


def test_warnings_of_libraries_go_the_same_way() -> None:
    stream = configured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("an old way", DeprecationWarning, stacklevel=1)
    assert "an old way" in str(only(stream)["event"])


def test_configured_twice_writes_once() -> None:
    configured()
    stream = configured()
    logging.getLogger("a").info("once")
    assert only(stream)["event"] == "once"


@pytest.mark.parametrize(("in_container", "as_json"), [(True, True), (False, False)])
def test_auto_is_json_in_a_container(in_container: bool, as_json: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CONTAINERS", ())
    if in_container:
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    else:
        monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    stream = configured("auto")
    logging.getLogger("a").info("x")
    assert stream.getvalue().startswith("{") is as_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql+asyncpg://app:s3cret@db:5432/m", "postgresql+asyncpg://app:***@db:5432/m"),
        ("redis://:s3cret@cache:6379/0 is away", "redis://:***@cache:6379/0 is away"),
        ("Authorization: Bearer abc.def-1", "Authorization: Bearer ***"),
        (f"key {KEY} refused", "key mrg_0011aabb_*** refused"),
        ("http://127.0.0.1:8080/v1/jobs?name=a@b", "http://127.0.0.1:8080/v1/jobs?name=a@b"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_secrets_are_taken_out(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_no_field_and_no_traceback_holds_a_secret() -> None:
    stream = configured()
    away = ConnectionError("redis://:s3cret@cache:6379")
    logging.getLogger("a").error("at %s", "redis://:s3cret@cache", exc_info=away, extra={"url": "x://u:s3cret@h"})
    assert "s3cret" not in stream.getvalue()

"""Spans and log lines: what others rely on, and no secret."""

import asyncio
import io
import json
import logging
import subprocess
import sys
import uuid
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime

import httpx2
import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace import StatusCode

from mathrag.messages import redact
from shared import telemetry
from shared.calls import Decoding, End, ModelAnswer, ModelCall
from shared.headers import add_trace_headers, trace_headers
from shared.replies import FailureKind
from shared.settings import Telemetry
from shared.telemetry import logs, traces
from tests.unit.tracing import tracing

pytestmark = pytest.mark.anyio

# Spans: nothing when off, and the ids, links and failures that others rely on.

AT = datetime(2026, 1, 1, tzinfo=UTC)
JOB = uuid.UUID("6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11")
CALL = ModelCall(id=7, model_id=1, prompt="What is 2+3?", decoding=Decoding(max_tokens=9), seed=5)
WORKER = "import sys, shared.runtime.process, services.guard.guard; print(*sys.modules)"


def test_off_is_off() -> None:
    with traces.span("a", {"b": 1}) as span:
        span.set_attributes({"c": 2})
        traces.fail(span, "broken")
        traces.link(traces.make_job_ref(JOB))
        traces.add_past_span("job", AT, AT, {}, ref=traces.make_job_ref(JOB), failure="refused")
        request = httpx2.Request("GET", "http://guard/run")
        asyncio.run(add_trace_headers(request))
        assert (span.get_span_context().is_valid, trace_headers(), traces.find_current()) == (False, {}, None)
    assert not traces.is_on()
    assert request.headers.keys() == {"host"}


def test_off_imports_nothing_of_the_sdk() -> None:
    loaded = subprocess.run([sys.executable, "-c", WORKER], capture_output=True, text=True, check=True).stdout.split()
    assert not [name for name in loaded if name.startswith(("opentelemetry.sdk.trace", "opentelemetry.exporter"))]


@pytest.mark.parametrize("variable", telemetry.ENDPOINTS)
def test_opentelemetrys_own_variables_name_a_collector(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr("shared.telemetry.exporter.start_export", lambda service, settings: started.append(service))
    telemetry.start_traces("guard", Telemetry())
    assert not started
    monkeypatch.setenv(variable, "http://collector:4318")
    telemetry.start_traces("guard", Telemetry())
    assert started == ["guard"]


def test_a_jobs_trace_has_the_jobs_id() -> None:
    assert traces.make_job_ref(JOB).trace_id == JOB.hex
    assert traces.make_sample_ref(JOB, 12) == (JOB.int, 12)
    assert traces.make_job_ref(JOB).span != traces.make_sample_ref(JOB, 2**63 - 1).span


def test_a_traceparent_is_read_and_anything_else_is_not() -> None:
    with tracing(), traces.span("outer"):
        assert traces.parse_traceparent(trace_headers()["traceparent"]) == traces.find_current()
    assert traces.parse_traceparent(None) is None
    assert traces.parse_traceparent("00-zz-1-01") is None


def test_spans_nest_and_roots_do_not() -> None:
    with tracing() as spans, traces.span("outer"):
        outer = traces.find_current()
        with traces.span("inner"):
            pass
        with traces.span("root", links=[outer, None], root=True):
            pass
    inner, root, parent = spans.one("inner"), spans.one("root"), spans.one("outer")
    assert inner.parent == parent.context
    assert root.parent is None
    assert root.context.trace_id != parent.context.trace_id
    assert [link.context.span_id for link in root.links] == [parent.context.span_id]


def test_a_failure_is_a_word_and_never_a_message() -> None:
    with tracing() as spans:
        with pytest.raises(ValueError, match="a secret"), traces.span("a"):
            raise ValueError("a secret question")
        with pytest.raises(asyncio.CancelledError), traces.span("b"):
            raise asyncio.CancelledError
    assert [span.attributes["error.type"] for span in spans.all()] == ["ValueError", "CancelledError"]
    assert all(span.status.status_code is StatusCode.ERROR for span in spans.all())
    assert "secret" not in "".join(span.to_json() for span in spans.all())


def test_what_has_ended_is_a_span_under_a_known_id() -> None:
    with tracing() as spans, traces.span("elsewhere"):
        traces.add_past_span(
            "job", AT, AT.replace(second=9), {}, ref=traces.make_job_ref(JOB), events=[("running", AT)]
        )
        traces.add_past_span(
            "s",
            AT,
            AT,
            {},
            ref=traces.make_sample_ref(JOB, 3),
            parent=traces.make_job_ref(JOB),
            failure="refused",
        )
        traces.add_past_span("call", AT, AT, {})
    job, sample, call = spans.one("job"), spans.one("s"), spans.one("call")
    assert (job.context.trace_id, job.context.span_id, job.parent) == (*traces.make_job_ref(JOB), None)
    assert job.end_time - job.start_time == 9_000_000_000
    assert [event.name for event in job.events] == ["running"]
    assert (sample.context.trace_id, sample.context.span_id) == (JOB.int, 3)
    assert sample.parent.span_id == traces.make_job_ref(JOB).span
    assert sample.attributes["error.type"] == "refused"
    assert call.parent.span_id == spans.one("elsewhere").context.span_id


def test_an_open_span_can_be_linked_later() -> None:
    with tracing() as spans, traces.span("request"):
        traces.link(traces.make_job_ref(JOB))
    assert [link.context.trace_id for link in spans.one("request").links] == [JOB.int]


async def test_requests_carry_the_current_span() -> None:
    sent: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return httpx2.Response(200)

    with tracing():
        transport = httpx2.MockTransport(answer)
        async with httpx2.AsyncClient(transport=transport, event_hooks={"request": [add_trace_headers]}) as client:
            with traces.span("outer"):
                await client.get("http://guard/run")
                assert traces.parse_traceparent(sent[0].headers["traceparent"]) == traces.find_current()


def test_a_model_call_speaks_genai_and_openinference() -> None:
    answer = ModelAnswer(text="5", finish_reason="stop", prompt_tokens=4, completion_tokens=1)
    with tracing() as spans, traces.open_span(CALL, model="qwen", backend="process", concurrency=2) as span:
        traces.record_answer(span, CALL, answer)
    made = spans.one("chat qwen")
    attributes = dict(made.attributes)
    assert attributes[gen_ai.GEN_AI_REQUEST_MODEL] == attributes["llm.model_name"] == "qwen"
    assert attributes[gen_ai.GEN_AI_USAGE_INPUT_TOKENS] == 4
    assert attributes[gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS] == attributes["llm.token_count.completion"] == 1
    assert attributes[gen_ai.GEN_AI_RESPONSE_FINISH_REASONS] == ("stop",)
    assert (attributes["openinference.span.kind"], attributes["mathrag.call.id"]) == ("LLM", 7)
    assert made.status.status_code is StatusCode.UNSET
    assert "2+3" not in made.to_json()


def test_content_is_there_when_it_is_asked_for() -> None:
    with (
        tracing(content=True) as spans,
        traces.open_span(CALL, model="qwen", backend="process", concurrency=1) as span,
    ):
        traces.record_answer(span, CALL, ModelAnswer(text="5"))
    attributes = spans.one("chat qwen").attributes
    assert (attributes["input.value"], attributes["output.value"]) == ("What is 2+3?", "5")
    assert '"content": "What is 2+3?"' in attributes["gen_ai.input.messages"]


@pytest.mark.parametrize(
    ("answer", "word"),
    [
        (ModelAnswer(failure=FailureKind.TIMEOUT, detail="x"), "timeout"),
        (ModelAnswer(end=End.LAPSED), "lapsed"),
        (ModelAnswer(text="5"), None),
    ],
)
def test_a_model_call_that_fails_says_how(answer: ModelAnswer, word: str | None) -> None:
    with tracing() as spans, traces.open_span(CALL, model="qwen", backend="process", concurrency=1) as span:
        traces.record_answer(span, CALL, answer)
    assert spans.one("chat qwen").attributes.get("error.type") == word


def test_the_conventions_are_the_installed_ones() -> None:
    names = {value for name, value in vars(traces).items() if name.isupper() and isinstance(value, str)}
    installed = {value for name, value in vars(gen_ai).items() if name.startswith("GEN_AI_") and isinstance(value, str)}
    assert {name for name in names if name.startswith("gen_ai.")} <= installed
    assert list(Schemas)[-1].value == traces.SCHEMA_URL


@pytest.mark.parametrize(("path", "traced"), [("/v1/jobs", True), ("/healthz", False), ("/metrics", False)])
def test_what_machines_poll_is_not_traced(path: str, *, traced: bool) -> None:
    assert traces.make_server_options()["exclude"]({"path": path}) is not traced


# Log lines: one pipe, two forms, what is bound, and no secret.

KEY = "mrg_0011aabb_" + "5e" * 32


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)


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

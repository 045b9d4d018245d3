"""How values become Prometheus' text, and how requests are counted."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.types import Message, Receive, Scope, Send

from services.orchestrator.metrics import BOUNDS, CountRequests, Distribution, MetricValues, Requests

pytestmark = pytest.mark.anyio
ANSWERED = {"lane": "judge", "role": "judge"}


def shown(values: MetricValues) -> str:
    registry = CollectorRegistry()
    registry.register(values)
    return generate_latest(registry).decode()


def test_counters_add_up() -> None:
    values = MetricValues()
    for by in (2, 3):
        values.count("mathrag_steps_total", ["reused"], by)
    values.count("mathrag_steps_total", ["computed"], 1)
    assert 'mathrag_steps_total{source="reused"} 5.0' in shown(values)
    assert 'mathrag_steps_total{source="computed"} 1.0' in shown(values)


def test_gauges_are_what_is_now() -> None:
    values = MetricValues()
    values.show([("mathrag_jobs", ["running"], 2), ("mathrag_jobs", ["paused"], 1)])
    values.show([("mathrag_jobs", ["running"], 1)])
    assert 'mathrag_jobs{state="running"} 1.0' in shown(values)
    assert "paused" not in shown(values)


def test_buckets_are_cumulated() -> None:
    found = Distribution()
    found.add(0, 3, 0.02)
    found.add(len(BOUNDS), 1, 500.0)
    cumulated = dict(found.cumulate())
    assert (cumulated["0.01"], cumulated["120.0"], cumulated["+Inf"]) == (3, 3, 4)
    assert found.total == 500.02


def test_a_histogram_is_shown_with_its_sum() -> None:
    values = MetricValues()
    values.observe("mathrag_call_duration_seconds", list(ANSWERED.values()), 1, 4, 0.08)
    text = shown(values)
    assert 'mathrag_call_duration_seconds_bucket{lane="judge",le="0.025",role="judge"} 4.0' in text
    assert 'mathrag_call_duration_seconds_sum{lane="judge",role="judge"} 0.08' in text
    assert 'mathrag_call_duration_seconds_count{lane="judge",role="judge"} 4.0' in text


async def nothing() -> Message:
    return {"type": "http.request"}


class Sent:
    def __init__(self) -> None:
        self.messages: list[Message] = []

    async def __call__(self, message: Message) -> None:
        self.messages.append(message)


def counting(application: object) -> tuple[CountRequests, CollectorRegistry]:
    registry = CollectorRegistry()
    return CountRequests(application, Requests(registry)), registry  # type: ignore[arg-type]


async def test_a_stream_counts_when_it_begins() -> None:
    seen: list[float | None] = []

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = type("Route", (), {"path": "/v1/jobs/{job}/events"})
        await send({"type": "http.response.start", "status": 200})
        seen.append(registry.get_sample_value("mathrag_http_requests_total", labels))
        await send({"type": "http.response.body", "body": b""})

    labels = {"method": "GET", "route": "/v1/jobs/{job}/events", "status": "200"}
    counted, registry = counting(stream)
    sent = Sent()
    await counted({"type": "http", "method": "GET"}, nothing, sent)
    assert seen == [1.0]
    assert [message["type"] for message in sent.messages] == ["http.response.start", "http.response.body"]
    assert registry.get_sample_value("mathrag_http_request_duration_seconds_count", _without_status(labels)) == 1.0


def _without_status(labels: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in labels.items() if name != "status"}


async def test_the_lifespan_is_no_request() -> None:
    passed: list[str] = []

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope["type"])

    counted, _ = counting(application)
    await counted({"type": "lifespan"}, nothing, Sent())
    assert passed == ["lifespan"]

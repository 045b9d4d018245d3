"""Metrics, and the dashboards and alert rules that ask for them."""

import json
import re
from collections.abc import Set as AbstractSet
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from starlette.types import Message, Receive, Scope, Send

from services.orchestrator.metrics import (
    BOUNDS,
    BY_NAME,
    CATALOGUE,
    CountRequests,
    Distribution,
    Metric,
    MetricValues,
    Requests,
)
from shared.settings import REPOSITORY
from tests.unit.cases import named

pytestmark = pytest.mark.anyio

# What is provisioned for Prometheus and Grafana fits the metrics that there are.

FOLDER = REPOSITORY / "deploy" / "observability"
BOARD: dict[str, Any] = json.loads((FOLDER / "grafana" / "dashboards" / "mathrag.json").read_text("utf-8"))
PANELS: list[dict[str, Any]] = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
EXPRESSIONS = [target["expr"] for panel in PANELS for target in panel["targets"]]
NAME = re.compile(r"\b(?:mathrag|process)_\w+")
SELECTOR = re.compile(r"(mathrag_\w+)\{([^}]*)\}")
GROUPED = re.compile(r"by \(([^)]*)\) \(+(?:rate|increase)?\(?(mathrag_\w+)")
PROCESS = {"process_resident_memory_bytes"}
"""What prometheus_client says of its process, and the dashboard shows."""


def metric_of(name: str) -> Metric:
    return BY_NAME.get(name) or BY_NAME[re.sub("_(count|sum|bucket)$", "", name)]


def loaded(path: str) -> Any:
    return yaml.safe_load((FOLDER / path).read_text("utf-8"))


def unknown_names(expression: str, others: AbstractSet[str] = PROCESS) -> list[str]:
    names = set(NAME.findall(expression))
    if not names:
        return ["no metric"]
    if unknown := sorted(name for name in names - others if not exists(name)):
        return unknown
    labels = [(name, re.findall(r"(\w+)(?:=~|!=|=)", selector)) for name, selector in SELECTOR.findall(expression)]
    labels += [(name, [each for each in by.split(", ") if each != "le"]) for by, name in GROUPED.findall(expression)]
    return [f"{name}: {label}" for name, used in labels for label in used if label not in metric_of(name).labels]


def exists(name: str) -> bool:
    try:
        return bool(metric_of(name))
    except KeyError:
        return False


def misread(expression: str, period: str, others: AbstractSet[str] = PROCESS) -> list[str]:
    return [
        name
        for name in sorted(set(NAME.findall(expression)) - others)
        if bool(re.search(rf"(?:rate|increase)\({name}(?:\{{[^}}]*\}})?\[{period}\]\)", expression))
        is not (metric_of(name).kind != "gauge")
    ]


def test_every_query_asks_for_metrics_that_exist() -> None:
    assert {each: faults for each in EXPRESSIONS if (faults := named(unknown_names, each))} == {}


def test_counters_are_shown_as_rates_and_gauges_as_they_are() -> None:
    assert {each: names for each in EXPRESSIONS if (names := named(misread, each, r"\$__rate_interval"))} == {}


def test_every_metric_is_on_the_dashboard() -> None:
    shown = {metric_of(name).name for name in NAME.findall(" ".join(EXPRESSIONS)) if name not in PROCESS}
    assert shown == BY_NAME.keys()


def test_panels_can_be_told_apart() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert len(set(places)) == len(places)
    assert all(panel["description"] for panel in PANELS)


def test_the_data_source_is_a_variable() -> None:
    (variable,) = BOARD["templating"]["list"]
    assert (variable["name"], variable["type"]) == ("datasource", "datasource")
    sources = [panel["datasource"] for panel in PANELS] + [
        target["datasource"] for p in PANELS for target in p["targets"]
    ]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)
    provisioned = loaded("grafana/provisioning/datasources/mathrag.yaml")["datasources"]
    assert variable["current"]["value"] in {source["uid"] for source in provisioned}


def test_names_follow_prometheus() -> None:
    for metric in CATALOGUE:
        assert re.fullmatch(r"mathrag_[a-z_]+", metric.name)
        assert (metric.kind == "counter") is metric.name.endswith("_total")
        assert metric.kind != "histogram" or metric.name.endswith("_seconds")
        assert metric.help.endswith(".")


def test_every_metric_is_documented() -> None:
    page = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text("utf-8")
    for metric in CATALOGUE:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        assert f"| `{metric.name}` | {metric.kind} | {labels} |" in page


def test_one_orchestrator_is_scraped() -> None:
    (job,) = loaded("prometheus.yml")["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["orchestrator:8080"]}]


# How values become Prometheus' text, and how requests are counted.

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


# The alert rules for Prometheus ask for metrics that the orchestrator exports, and are explained.

RULES: list[dict[str, Any]] = [rule for group in loaded("alerts.yml")["groups"] for rule in group["rules"]]
NAMES = [rule["alert"] for rule in RULES]
ALERTS = [(rule["alert"], rule) for rule in RULES]
FUNCTIONS = {"sum", "rate", "increase", "histogram_quantile", "vector"}
OPERATORS = {"by", "on", "and", "or", "le"}
BRACKETS = ("()", "[]", "{}")
DURATION = re.compile(r"\d+[smhd]")


def unexported(expression: str) -> list[str]:
    if unknown := unknown_names(expression, frozenset()):
        return unknown
    names = sorted(set(NAME.findall(expression)))
    return [name for name in names if (name != metric_of(name).name) is not (metric_of(name).kind == "histogram")]


def unreadable(rule: dict[str, Any]) -> list[str]:
    expression = re.sub(r'"[^"]*"', "", rule["expr"])
    called = set(re.findall(r"(\w+) ?\(", expression))
    right = {
        "fields": rule.keys() <= {"alert", "expr", "for", "labels", "annotations"},
        "labels": rule["labels"].keys() == {"severity"},
        "for": DURATION.fullmatch(rule.get("for", "1m")),
        "brackets": all(expression.count(opening) == expression.count(closing) for opening, closing in BRACKETS),
        f"functions {called}": called <= FUNCTIONS | OPERATORS,
        "comparison": re.search(r" (?:==|>|<) [\d.]+$", expression),
    }
    return [part for part, well in right.items() if not well]


def empty_labels(rule: dict[str, Any]) -> set[str]:
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    kept = {label for labels, _ in GROUPED.findall(rule["expr"]) for label in labels.split(", ")}
    if "sum" not in rule["expr"]:
        kept = set(metric_of(NAME.findall(rule["expr"])[0]).labels)
    return shown - kept


def test_every_rule_names_exported_metrics_alone() -> None:
    assert {name: faults for name, rule in ALERTS if (faults := named(unexported, rule["expr"]))} == {}


def test_counters_are_compared_as_rates_and_gauges_as_they_are() -> None:
    found = {name: named(misread, rule["expr"], r"\d+[mh]", frozenset()) for name, rule in ALERTS}
    assert {name: names for name, names in found.items() if names} == {}


def test_a_rule_is_written_as_prometheus_reads_it() -> None:
    assert {name: faults for name, rule in ALERTS if (faults := named(unreadable, rule))} == {}


def test_a_summary_shows_labels_that_the_alert_has() -> None:
    assert {name: labels for name, rule in ALERTS if (labels := named(empty_labels, rule))} == {}


@pytest.mark.parametrize(
    ("watched", "metric"),
    [
        ("query time", "mathrag_http_request_duration_seconds"),
        ("retrieval success", "mathrag_attempts_total"),
        ("CRAG's decisions", "mathrag_decisions_total"),
        ("cache hits", "mathrag_question_vectors_total"),
        ("errors", "mathrag_samples_ended_total"),
    ],
)
def test_what_seed_document_001_wants_watched_has_an_alert(watched: str, metric: str) -> None:
    names = {metric_of(name).name for rule in RULES for name in NAME.findall(rule["expr"])}
    assert metric in names
    assert f"| {watched}" in (REPOSITORY / "docs" / "reference" / "metrics.md").read_text("utf-8")


def test_every_alert_is_explained() -> None:
    page = (REPOSITORY / "docs" / "reference" / "metrics.md").read_text("utf-8")
    assert len(set(NAMES)) == len(NAMES)
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_prometheus_loads_the_rules() -> None:
    assert loaded("prometheus.yml")["rule_files"] == ["alerts.yml"]
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text("utf-8"))
    mounted = "./deploy/observability/alerts.yml:/etc/prometheus/alerts.yml:ro"
    assert mounted in compose["services"]["prometheus"]["volumes"]
    assert (FOLDER / "alerts.yml").is_file()

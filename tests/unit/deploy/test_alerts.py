"""The alert rules for Prometheus ask for metrics that the orchestrator exports, and are explained."""

import re
from typing import Any

import pytest
import yaml

from shared.settings import REPOSITORY
from tests.unit.deploy.test_dashboard import FOLDER, GROUPED, NAME, SELECTOR, loaded, metric_of

RULES: list[dict[str, Any]] = [rule for group in loaded("alerts.yml")["groups"] for rule in group["rules"]]
NAMES = [rule["alert"] for rule in RULES]
FUNCTIONS = {"sum", "rate", "increase", "histogram_quantile", "vector"}
OPERATORS = {"by", "on", "and", "or", "le"}
DURATION = re.compile(r"\d+[smhd]")


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_every_rule_names_exported_metrics_alone(rule: dict[str, Any]) -> None:
    """With labels that they have, and series that their kind has."""
    expression = rule["expr"]
    names = set(NAME.findall(expression))
    assert names
    for name in names:
        metric = metric_of(name)
        assert (name != metric.name) is (metric.kind == "histogram")
    for name, selector in SELECTOR.findall(expression):
        assert set(re.findall(r"(\w+)(?:=~|!=|=)", selector)) <= set(metric_of(name).labels)
    for labels, name in GROUPED.findall(expression):
        assert set(labels.split(", ")) <= {*metric_of(name).labels, "le"}


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_counters_are_compared_as_rates_and_gauges_as_they_are(rule: dict[str, Any]) -> None:
    """A counter only grows, so that an alert on its value would never end."""
    for name in set(NAME.findall(rule["expr"])):
        rated = bool(re.search(rf"(?:rate|increase)\({name}(?:\{{[^}}]*\}})?\[\d+[mh]\]\)", rule["expr"]))
        assert rated is (metric_of(name).kind != "gauge")


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_rule_is_written_as_prometheus_reads_it(rule: dict[str, Any]) -> None:
    """Known fields, durations with a unit, closed brackets, known functions, and a comparison at the end."""
    assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"].keys() == {"severity"}
    assert DURATION.fullmatch(rule.get("for", "1m"))
    expression = re.sub(r'"[^"]*"', "", rule["expr"])
    for opening, closing in ("()", "[]", "{}"):
        assert expression.count(opening) == expression.count(closing)
    assert set(re.findall(r"(\w+) ?\(", expression)) <= FUNCTIONS | OPERATORS
    assert re.search(r" (?:==|>|<) [\d.]+$", expression)


@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_a_summary_shows_labels_that_the_alert_has(rule: dict[str, Any]) -> None:
    """A label that the expression has summed away is empty."""
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    kept = {label for labels, _ in GROUPED.findall(rule["expr"]) for label in labels.split(", ")}
    if "sum" not in rule["expr"]:
        kept = set(metric_of(NAME.findall(rule["expr"])[0]).labels)
    assert shown <= kept


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
    """Its list of metrics; the page says which alert is whose."""
    names = {metric_of(name).name for rule in RULES for name in NAME.findall(rule["expr"])}
    assert metric in names
    assert f"| {watched}" in (REPOSITORY / "docs" / "how-to" / "telemetry.md").read_text("utf-8")


def test_every_alert_is_explained() -> None:
    """By its name, which is unique."""
    page = (REPOSITORY / "docs" / "how-to" / "telemetry.md").read_text("utf-8")
    assert len(set(NAMES)) == len(NAMES)
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_prometheus_loads_the_rules() -> None:
    """Compose mounts them beside its configuration."""
    assert loaded("prometheus.yml")["rule_files"] == ["alerts.yml"]
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text("utf-8"))
    mounted = "./deploy/observability/alerts.yml:/etc/prometheus/alerts.yml:ro"
    assert mounted in compose["services"]["prometheus"]["volumes"]
    assert (FOLDER / "alerts.yml").is_file()

"""The alert rules for Prometheus ask for metrics that the orchestrator exports, and are explained."""

import re
from typing import Any

import pytest
import yaml

from shared.settings import REPOSITORY
from tests.unit.cases import named
from tests.unit.services.orchestrator.test_metrics import FOLDER, GROUPED, NAME, loaded, metric_of, misread, unknown_names

pytestmark = pytest.mark.anyio

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
    assert f"| {watched}" in (REPOSITORY / "docs" / "how-to" / "telemetry.md").read_text("utf-8")


def test_every_alert_is_explained() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "telemetry.md").read_text("utf-8")
    assert len(set(NAMES)) == len(NAMES)
    assert [name for name in NAMES if f"`{name}`" not in page] == []


def test_prometheus_loads_the_rules() -> None:
    assert loaded("prometheus.yml")["rule_files"] == ["alerts.yml"]
    compose = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text("utf-8"))
    mounted = "./deploy/observability/alerts.yml:/etc/prometheus/alerts.yml:ro"
    assert mounted in compose["services"]["prometheus"]["volumes"]
    assert (FOLDER / "alerts.yml").is_file()

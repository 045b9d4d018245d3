"""What is provisioned for Prometheus and Grafana fits the metrics that there are."""

import pytest
import json
import re
from collections.abc import Set as AbstractSet
from typing import Any

import yaml

from services.orchestrator.metrics import BY_NAME, CATALOGUE, Metric
from shared.settings import REPOSITORY
from tests.unit.cases import named

pytestmark = pytest.mark.anyio

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

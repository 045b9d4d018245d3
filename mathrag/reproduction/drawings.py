"""The paper's figures 3 to 6 from a run: memory over time, accuracy, the gate's correlation, the grid of weights."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from mathrag.reproduction.page import Results
from mathrag.reproduction.table import Line
from shared.contracts.samples import GateDecision
from shared.pages.figures import accuracy, heatmap, memory, rho
from shared.pages.figures.figure import Figure


def drawn(results: Results) -> Iterator[Figure]:
    """In the paper's order; what a run has no data for is left out.

    Raises:
        Unavailable: the extra `report` is not installed.
    """
    if rows := residencies(results.jobs):
        yield memory.chart(rows, title="Memory over time: one model at a time", name="memory")
    yield accuracy.chart(points(results.lines), title="Accuracy, and the paper's", name="accuracy")
    for variant, report in results.jobs.items():
        decision = report["gate"] and msgspec.convert(report["gate"], GateDecision)
        if decision and decision.documents:
            yield rho.chart(decision, title="Do rules agree with the judge?", name=f"rho-{variant}")
    if results.heatmap is not None:
        yield heatmap.chart(cells(results.heatmap), title="Accuracy by weights", name="weights")


def points(lines: Sequence[Line]) -> list[accuracy.Row]:
    """Ours with Wilson's interval, the paper's as a diamond."""
    return [
        accuracy.Row(
            label=each.variant, value=each.accuracy.value, low=each.accuracy.low, high=each.accuracy.high, n=each.items,
            published=each.paper.accuracy if each.paper else None,
        )
        for each in lines
    ]  # fmt: skip


def residencies(jobs: Mapping[str, Any]) -> list[memory.Row]:
    """Each once, however many jobs it answered; models that are named by several jobs are in one residency."""
    found = {each["epoch"]: each for report in jobs.values() for each in report["residencies"]}
    return [
        memory.Row(
            device=each["device"], epoch=epoch, model=model, opened_at=datetime.fromisoformat(each["opened_at"]),
            closed_at=datetime.fromisoformat(each["closed_at"]) if each["closed_at"] else None,
            mib=each["memory_mib"].get(model),
        )
        for epoch, each in sorted(found.items())
        if each["opened_at"] is not None
        for model in each["models"]
    ]  # fmt: skip


def cells(report: Mapping[str, Any]) -> list[heatmap.Row]:
    """Of the grid over both weights."""
    return [_cell(row, row["result"]) for row in report["rows"]]


def _cell(row: Mapping[str, Any], result: Mapping[str, Any] | None) -> heatmap.Row:
    """Without a job nothing was run: no order follows from two weights of 0."""
    known = result["accuracy"] if result else {}
    return heatmap.Row(
        rrf_weight=row["point"]["rrf_weight"], quality_weight=row["point"]["quality_weight"], value=known.get("value"),
        low=known.get("low"), high=known.get("high"), n=known.get("graded", 0), job=row["job"],
    )  # fmt: skip

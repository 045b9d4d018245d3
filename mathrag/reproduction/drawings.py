"""Draw the paper's figures 3 to 6 from a run: memory over time, accuracy, gate correlation, grid of weights."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from mathrag.reproduction.page import Results
from mathrag.reproduction.table import VariantLine
from shared.contracts.samples import GateDecision
from shared.pages.figures import accuracy, heatmap, memory, rho
from shared.pages.figures.figure import Figure


def draw_figures(results: Results) -> Iterator[Figure]:
    """Yield the figures in the paper's order; those without data are left out.

    Raises:
        NotInstalled: the extra `report` is not installed.
    """
    if rows := list_residencies(results.jobs):
        yield memory.draw(rows, title="Memory over time: one model at a time", name="memory")
    yield accuracy.draw(list_points(results.lines), title="Accuracy, and the paper's", name="accuracy")
    for variant, report in results.jobs.items():
        decision = report["gate"] and msgspec.convert(report["gate"], GateDecision)
        if decision and decision.documents:
            yield rho.draw(decision, title="Do rules agree with the judge?", name=f"rho-{variant}")
    if results.heatmap is not None:
        yield heatmap.draw(list_cells(results.heatmap), title="Accuracy by weights", name="weights")


def list_points(lines: Sequence[VariantLine]) -> list[accuracy.AccuracyRow]:
    """Return the points of the accuracy figure: ours with Wilson's interval, the paper's as a diamond."""
    return [
        accuracy.AccuracyRow(
            label=each.variant, value=each.accuracy.value, low=each.accuracy.low, high=each.accuracy.high, n=each.items,
            published=each.paper.accuracy if each.paper else None,
        )
        for each in lines
    ]  # fmt: skip


def list_residencies(jobs: Mapping[str, Any]) -> list[memory.MemoryRow]:
    """Return a row for each model of each residency; a residency that several jobs share occurs once."""
    found = {each["epoch"]: each for report in jobs.values() for each in report["residencies"]}
    return [
        memory.MemoryRow(
            device=each["device"], epoch=epoch, model=model, opened_at=datetime.fromisoformat(each["opened_at"]),
            closed_at=datetime.fromisoformat(each["closed_at"]) if each["closed_at"] else None,
            mib=each["memory_mib"].get(model),
        )
        for epoch, each in sorted(found.items())
        if each["opened_at"] is not None
        for model in each["models"]
    ]  # fmt: skip


def list_cells(report: Mapping[str, Any]) -> list[heatmap.WeightsRow]:
    """Return the cells of the grid over both weights."""
    return [_make_cell(row, row["result"]) for row in report["rows"]]


def _make_cell(row: Mapping[str, Any], result: Mapping[str, Any] | None) -> heatmap.WeightsRow:
    """Return a cell; without a result (both weights 0, which gives no order) its values are None."""
    known = result["accuracy"] if result else {}
    return heatmap.WeightsRow(
        rrf_weight=row["point"]["rrf_weight"], quality_weight=row["point"]["quality_weight"], value=known.get("value"),
        low=known.get("low"), high=known.get("high"), n=known.get("items", 0), job=row["job"],
    )  # fmt: skip

"""What the first page says of all jobs together: figures, comparisons, notes."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from shared.pages.figures import Figure, accuracy, endings, heatmap
from shared.pages.words import finding
from shared.rag.taxonomy import Ending

NOTHING: dict[str, Any] = {"value": None, "low": None, "high": None, "graded": 0}
"""Accuracy of a cell that was not run."""
WEIGHTS = ("rrf_weight", "quality_weight")
MOST = 60
"""Rows of a figure; more can be read in the table."""
POOLED = "Over all datasets"
Shown = tuple[list[endings.Row], accuracy.Row]
"""How a system's samples ended, and how many of its items are right."""


def figures(reports: Sequence[Any], experiment: Any) -> Iterator[Figure]:
    """Accuracy and endings of the jobs, or of the experiment's systems; its grids of weights."""
    compared = experiment and experiment["comparisons"]
    shown = list(_systems(compared, reports) if compared else _jobs(reports))
    yield accuracy.chart([row for _, row in shown[:MOST]])
    if told := [row for ended, _ in shown[:MOST] for row in ended if row.n]:
        yield endings.chart(told)
    if experiment:
        yield from _weights(experiment["rows"])


def headline(reports: Sequence[Any], comparison: Any, experiment: Any) -> str:
    """What the report found: of its comparison, else of its one job."""
    compared = comparison or ((experiment or {}).get("comparisons") or {}).get("pooled")
    if compared and compared.get("finding"):
        return str(compared["finding"])
    return finding(reports[0]) if len(reports) == 1 else f"{len(reports)} jobs, which were not compared"


def comparisons(comparison: Any, experiment: Any) -> Iterator[dict[str, Any]]:
    """Each with a title, its pairs in words and its notes."""
    if comparison:
        yield {"title": "Of all jobs", **comparison}
    compared = experiment and experiment["comparisons"]
    if compared:
        yield {"title": POOLED, **compared["pooled"]}
        for dataset, found in compared["datasets"].items():
            yield {"title": dataset, **found}


def notes(reports: Sequence[Any], experiment: Any) -> Iterator[str]:
    """Warnings of the jobs by name, then those of the experiment."""
    for report in reports:
        for note in report["notes"]:
            yield f"{report['name']}: {note}"
    yield from (experiment or {}).get("notes", ())
    if len(reports) > MOST:
        yield f"figures show no more than {MOST} of {len(reports)} jobs"


def _jobs(reports: Sequence[Any]) -> Iterator[Shown]:
    """Each job by its name; those that share one, with the beginning of the id."""
    often = Counter(report["name"] for report in reports)
    for report in reports:
        label = report["name"] if often[report["name"]] == 1 else f"{report['name']} {report['id'][:8]}"
        items = _items(report["accuracy"]["graded"], report)
        row = _accurate(label, report["accuracy"], items, report["settings"]["dataset"])
        yield _ended(label, [report]), row


def _systems(compared: Any, reports: Sequence[Any]) -> Iterator[Shown]:
    """Each system over all datasets; on each alone only its accuracy."""
    by_id = {report["id"]: report for report in reports}
    for group, found in ((POOLED, compared["pooled"]), *compared["datasets"].items()):
        for system in found["jobs"]:
            own = [by_id[job] for job in system["jobs"] if job in by_id] if group == POOLED else []
            name = system["name"]
            yield _ended(name, own), _accurate(name, system["accuracy"], system["items"], group)


def _accurate(label: str, found: Any, items: int, group: str) -> accuracy.Row:
    return accuracy.Row(
        label=label, value=found["value"], low=found["low"], high=found["high"], n=items, group=group
    )  # fmt: skip


def _ended(label: str, reports: Sequence[Any]) -> list[endings.Row]:
    counts = {ending.value: sum(report["endings"].get(ending, 0) for report in reports) for ending in Ending}
    return endings.of(label, counts, sum(_items(sum(report["endings"].values()), report) for report in reports))


def _items(samples: int, report: Any) -> int:
    repeats: int = report["settings"]["repeats"]
    return math.ceil(samples / repeats)


def _weights(cells: Sequence[Any]) -> Iterator[Figure]:
    """One for each dataset, variant, seed and rest of the point, where cells differ in both weights."""
    grids: dict[tuple[str, ...], list[heatmap.Row]] = {}
    for cell in cells:
        if all(weight in cell["point"] for weight in WEIGHTS):
            rest = {name: value for name, value in cell["point"].items() if name not in WEIGHTS}
            said = [f"{name} {value}" for name, value in rest.items()]
            seed = [f"seed {cell['seed']}"] if cell["seed"] is not None else []
            grids.setdefault((f"{cell['variant']} over {cell['dataset']}", *said, *seed), []).append(_cell(cell))
    for number, (grid, rows) in enumerate(grids.items(), 1):
        name = heatmap.NAME if len(grids) == 1 else f"{heatmap.NAME}-{number}"
        yield heatmap.chart(rows, title=f"Accuracy by weights: {', '.join(grid)}", name=name)


def _cell(cell: Any) -> heatmap.Row:
    found = cell["result"]["accuracy"] if cell["result"] else NOTHING
    return heatmap.Row(
        rrf_weight=cell["point"][WEIGHTS[0]],
        quality_weight=cell["point"][WEIGHTS[1]],
        value=found["value"],
        low=found["low"],
        high=found["high"],
        n=found["graded"],
        job=cell["job"],
    )

"""Figures, comparisons and notes of the first page, which covers all jobs."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from shared.pages import figures
from shared.pages.figures import Figure
from shared.pages.formatting import explain_missing_answers, format_headline
from shared.rag.provenance import Ending

NOTHING: dict[str, Any] = {"value": None, "low": None, "high": None, "items": 0}
"""Accuracy of a cell that was not run."""
WEIGHTS = ("rrf_weight", "quality_weight")
MOST = 60
"""Largest number of rows in a figure; the table has all."""
POOLED = "Over all datasets"
Shown = tuple[list[figures.EndingRow], figures.AccuracyRow]
"""Rows of a system: how its samples ended, and its accuracy."""


def list_figures(reports: Sequence[Any], experiment: Any) -> Iterator[Figure]:
    """Yield accuracy and endings of the jobs or of the experiment's systems, then its grids of weights."""
    compared = experiment and experiment["comparisons"]
    rows_by_dataset = list(_list_systems(compared, reports) if compared else _list_jobs(reports))
    yield figures.draw_accuracy([row for _, row in rows_by_dataset[:MOST]])
    if rows := [row for ended, _ in rows_by_dataset[:MOST] for row in ended if row.n]:
        yield figures.draw_endings(rows)
    if experiment:
        yield from _draw_weights(experiment["rows"])


def find_headline(reports: Sequence[Any], comparison: Any, experiment: Any) -> str:
    """Return the main finding: that of the comparison, else that of the only job."""
    compared = comparison or ((experiment or {}).get("comparisons") or {}).get("pooled")
    if compared and compared.get("finding"):
        return str(compared["finding"])
    return format_headline(reports[0]) if len(reports) == 1 else f"{len(reports)} jobs, which were not compared"


def list_comparisons(comparison: Any, experiment: Any) -> Iterator[dict[str, Any]]:
    """Yield each comparison with a title, its pairs in words and its notes."""
    if comparison:
        yield {"title": "All jobs", **comparison}
    compared = experiment and experiment["comparisons"]
    if compared:
        yield {"title": POOLED, **compared["pooled"]}
        for dataset, found in compared["datasets"].items():
            yield {"title": dataset, **found}


def list_notes(reports: Sequence[Any], experiment: Any) -> Iterator[str]:
    """Yield the notes of each job with its name, then those of the experiment."""
    for report in reports:
        unreadable = explain_missing_answers(report["extraction"], report["accuracy"])
        if unreadable and len(reports) > 1:  # of one job it is the headline
            yield f"{report['name']}: {unreadable}"
        for note in report["notes"]:
            yield f"{report['name']}: {note}"
    yield from (experiment or {}).get("notes", ())
    if len(reports) > MOST:
        yield f"figures show no more than {MOST} of {len(reports)} jobs"


def _list_jobs(reports: Sequence[Any]) -> Iterator[Shown]:
    """Yield rows of each job; jobs with the same name are labelled with the beginning of the id, too."""
    often = Counter(report["name"] for report in reports)
    for report in reports:
        label = report["name"] if often[report["name"]] == 1 else f"{report['name']} {report['id'][:8]}"
        found = report["accuracy"]
        row = _make_accuracy_row(label, found, found["items"], report["settings"]["dataset"])
        yield _make_ending_rows(label, [report]), row


def _list_systems(compared: Any, reports: Sequence[Any]) -> Iterator[Shown]:
    """Yield rows of each system over all datasets, then its accuracy on each dataset."""
    by_id = {report["id"]: report for report in reports}
    for group, found in ((POOLED, compared["pooled"]), *compared["datasets"].items()):
        for system in found["jobs"]:
            own = [by_id[job] for job in system["jobs"] if job in by_id] if group == POOLED else []
            name = system["name"]
            yield _make_ending_rows(name, own), _make_accuracy_row(name, system["accuracy"], system["items"], group)


def _make_accuracy_row(label: str, found: Any, items: int, group: str) -> figures.AccuracyRow:
    return figures.AccuracyRow(
        label=label, value=found["value"], low=found["low"], high=found["high"], n=items, group=group
    )  # fmt: skip


def _make_ending_rows(label: str, reports: Sequence[Any]) -> list[figures.EndingRow]:
    counts = {ending.value: sum(report["endings"].get(ending, 0) for report in reports) for ending in Ending}
    items = sum(report["items"] for report in reports)
    return figures.make_ending_rows(label, counts, items if _have_equal_repeats(reports) else 0)


def _have_equal_repeats(reports: Sequence[Any]) -> bool:
    """Tell whether all items of these jobs have equally many ended samples."""
    repeats = {report["settings"]["repeats"] for report in reports}
    return len(repeats) < 2 and all(
        sum(report["endings"].values()) == report["items"] * report["settings"]["repeats"] for report in reports
    )


def _draw_weights(cells: Sequence[Any]) -> Iterator[Figure]:
    """Yield a heat map for each dataset, variant, seed and remaining parameters whose cells set both weights."""
    grids: dict[tuple[str, ...], list[figures.WeightsRow]] = {}
    for cell in cells:
        if all(weight in cell["point"] for weight in WEIGHTS):
            rest = {name: value for name, value in cell["point"].items() if name not in WEIGHTS}
            settings = [f"{name} {value}" for name, value in rest.items()]
            seed = [f"seed {cell['seed']}"] if cell["seed"] is not None else []
            grids.setdefault((f"{cell['variant']} over {cell['dataset']}", *settings, *seed), []).append(
                _make_cell(cell)
            )
    for number, (grid, rows) in enumerate(grids.items(), 1):
        name = "weights" if len(grids) == 1 else f"weights-{number}"
        yield figures.draw_weights(rows, title=f"Accuracy by weights: {', '.join(grid)}", name=name)


def _make_cell(cell: Any) -> figures.WeightsRow:
    found = cell["result"]["accuracy"] if cell["result"] else NOTHING
    return figures.WeightsRow(
        rrf_weight=cell["point"][WEIGHTS[0]],
        quality_weight=cell["point"][WEIGHTS[1]],
        value=found["value"],
        low=found["low"],
        high=found["high"],
        n=found["items"],
        job=cell["job"],
    )

"""Serves `/experiments`: grids of jobs as figures, with their findings."""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Response
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.deps import RequestDeps
from services.orchestrator.experiments.report import (
    NO_AXIS,
    VARIANT,
    Axes,
    ChosenAxes,
    ExperimentReport,
    Row,
    choose,
    find_axes,
    locate_cell,
    report,
    split_by_figure,
)
from services.orchestrator.reports.comparison import parse_measure
from services.orchestrator.web.compare import make_rows, select_notes
from services.orchestrator.web.page import Visitor, page
from shared.pages.charts import HeatCell, IntervalPoint, draw_heat_table, draw_points
from shared.pages.pages import format_query
from shared.pages.plots import SERIES
from shared.shapes import ACCURACY
from shared.storage import database, experiments

router = APIRouter()
MOST_PICTURES = 12
FEW = 12
"""Number of systems that the table shows at first."""


class ListQuery(BaseModel):
    """Which page of the list to show."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=database.LARGEST)] = database.DEFAULT
    cursor: str | None = None


class ExperimentQuery(BaseModel):
    """How to show an experiment: its measure and its axes."""

    model_config = ConfigDict(extra="forbid")

    x: str | None = None
    y: str | None = None
    measure: str = ACCURACY


class GridFigure(NamedTuple):
    """Holds a drawn figure of a grid: a heat map, or lines along one parameter."""

    title: str
    drawn: Markup
    note: str = ""


@page(router, "/experiments")
async def list_experiments(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists the experiments, newest first."""
    query = visit.query(ListQuery)
    found = await experiments.list_experiments(deps.database, query.limit, query.cursor)
    return visit.show(
        "experiments/list.html", title="Experiments", json="/v1/experiments", found=found,
        query=query.model_dump(exclude={"cursor"}, exclude_defaults=True), first=query.cursor is not None,
    )  # fmt: skip


@page(router, "/experiments/{experiment}")
async def show_experiment(visit: Visitor, deps: RequestDeps, experiment: str) -> Response:
    """Shows the findings of an experiment, its grid, and every cell."""
    query = visit.query(ExperimentQuery)
    found = await report(deps.database, experiment, parse_measure(query.measure))
    known = find_axes(found.rows)
    at = choose(known, query.x, query.y)
    drawn = draw_figures(found.rows, known, at)
    measure = query.model_dump(include={"measure"}, exclude_defaults=True)
    pooled = found.comparisons.pooled if found.comparisons else None
    # The comparisons of each dataset alone; empty if there is only one dataset.
    datasets = found.comparisons.datasets if found.comparisons else {}
    return visit.show(
        "experiments/one.html", title=found.name,
        json=f"/v1/experiments/{found.id}/report{format_query(measure)}",
        found=found, pooled=pooled, known=known, at=at, no_axis=NO_AXIS, pictures=drawn[:MOST_PICTURES],
        hidden=len(drawn) - len(drawn[:MOST_PICTURES]), few=FEW, headline=write_headline(found),
        rows=make_rows(pooled) if pooled else [],
        datasets={name: {"found": each, "rows": make_rows(each)} for name, each in datasets.items()},
        notes=list(dict.fromkeys([*found.notes, *(select_notes(pooled) if pooled else ())])),
    )  # fmt: skip


def write_headline(found: ExperimentReport) -> str:
    """Return the finding, or the reason why it is missing."""
    if found.comparisons:
        return found.comparisons.pooled.finding
    figures = [row.result.measured.value for row in found.rows if row.result and row.result.measured.value is not None]
    if not figures:
        return f"{found.name}: nothing has been measured yet"
    ends = dict.fromkeys(f"{100 * figure:.1f}".removesuffix(".0") for figure in (min(figures), max(figures)))
    return f"{found.name}: {found.measure} is {' to '.join(ends)} %; nothing is compared"


def draw_figures(cells: Sequence[Row], known: Axes, at: ChosenAxes) -> list[GridFigure]:
    """Return one figure for each combination of the parameters that are on neither axis."""
    if at.x is None:
        return []
    if at.y is None:
        several = split_by_figure(cells, known, (at.x, None if at.x == VARIANT else VARIANT))
        return [_draw_lines(title, part, known, at.x) for title, part in several.items()]
    values = [row.result.measured.value for row in cells if row.result and row.result.measured.value is not None]
    ends = (min(values, default=0.0), max(values, default=1.0))
    columns, rows = (at.x, known[at.x]), (at.y, known[at.y])
    figures = []
    for title, part in split_by_figure(cells, known, (at.x, at.y)).items():
        places = [locate_cell(row) for row in part]
        heat = {(place[at.x], place[at.y]): _make_cell(row) for place, row in zip(places, part, strict=True)}
        drawn = draw_heat_table(heat, columns, rows, caption=title, low=ends[0], high=ends[1])
        figures.append(GridFigure(title, drawn))
    return figures


def _make_cell(row: Row) -> HeatCell:
    href = f"/jobs/{row.job}" if row.job else None
    mean = row.result.measured if row.result else None
    if mean is None or mean.value is None:
        return HeatCell(None, "nothing graded" if row.state == "completed" else row.state, href=href)
    between = "" if mean.low is None or mean.high is None else f"{100 * mean.low:.0f} to {100 * mean.high:.0f}"
    live = "" if row.state in ("completed", "failed", "cancelled") else f" {row.state}"
    return HeatCell(mean.value, f"{100 * mean.value:.1f}", between + live, href)


def _draw_lines(title: str, cells: Sequence[Row], known: Axes, x: str) -> GridFigure:
    series: dict[str, dict[str, IntervalPoint]] = {}
    for row in cells:
        mean = row.result.measured if row.result else None
        found = series.setdefault(row.variant if x != VARIANT else title or "all", {})
        if mean is not None and mean.value is not None:
            ends = (mean.value if bound is None else bound for bound in (mean.low, mean.high))
            found[locate_cell(row)[x]] = IntervalPoint(mean.value, *ends)
    note = f"{len(series) - SERIES} variants are not drawn" if len(series) > SERIES else ""
    measured = {name: found for name, found in series.items() if found}
    return GridFigure(title, draw_points(measured or series, x, known[x]), note)

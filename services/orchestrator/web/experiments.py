"""`/experiments`: grids of jobs as pictures, with what they found."""

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Response
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.deps import RequestDeps
from services.orchestrator.experiments.axes import NO_AXIS, VARIANT, Axes, Chosen, apart, axes, choose, place
from services.orchestrator.experiments.report import ExperimentReport, Row, report
from services.orchestrator.reports.measuring import chosen
from services.orchestrator.web.compare import MEASURES, notes, rows
from services.orchestrator.web.page import Visitor, page
from shared.contracts.measures import ACCURACY
from shared.pages.charts.heat import Figure, heat
from shared.pages.charts.points import MOST as MOST_LINES
from shared.pages.charts.points import Point, points
from shared.pages.pages import address
from shared.storage import experiments, pages

router = APIRouter()
MOST_PICTURES = 12
FEW = 12
"""Systems that the table shows at first."""


class Listing(BaseModel):
    """Which page of the list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=pages.LARGEST)] = pages.DEFAULT
    cursor: str | None = None


class Looking(BaseModel):
    """How an experiment is looked at."""

    model_config = ConfigDict(extra="forbid")

    x: str | None = None
    y: str | None = None
    measure: str = ACCURACY


class Picture(NamedTuple):
    """A grid, or lines along one parameter."""

    title: str
    drawn: Markup
    note: str = ""


@page(router, "/experiments")
async def listed(visit: Visitor, deps: RequestDeps) -> Response:
    """Newest first."""
    asked = visit.query(Listing)
    found = await experiments.listed(deps.database, asked.limit, asked.cursor)
    return visit.show(
        "experiments/list.html", title="Experiments", json="/v1/experiments", found=found,
        query=asked.model_dump(exclude={"cursor"}, exclude_defaults=True), first=asked.cursor is not None,
    )  # fmt: skip


@page(router, "/experiments/{experiment}")
async def one(visit: Visitor, deps: RequestDeps, experiment: str) -> Response:
    """What it found, its grid, and every cell."""
    asked = visit.query(Looking)
    found = await report(deps.database, experiment, chosen(asked.measure))
    known = axes(found.rows)
    at = choose(known, asked.x, asked.y)
    drawn = pictures(found.rows, known, at)
    pooled = found.comparisons.pooled if found.comparisons else None
    return visit.show(
        "experiments/one.html", title=found.name, json=f"/v1/experiments/{found.id}/report{address(_measure(asked))}",
        found=found, pooled=pooled, known=known, at=at, no_axis=NO_AXIS, pictures=drawn[:MOST_PICTURES],
        hidden=len(drawn) - len(drawn[:MOST_PICTURES]), measures=MEASURES, few=FEW, headline=headline(found),
        rows=rows(pooled) if pooled else [],
        datasets=_alone(found), notes=[*found.notes, *(notes(pooled) if pooled else ())],
    )  # fmt: skip


def _measure(asked: Looking) -> dict[str, object]:
    return asked.model_dump(include={"measure"}, exclude_defaults=True)


def headline(found: ExperimentReport) -> str:
    """What was found, or why nothing can be said."""
    if found.comparisons:
        return found.comparisons.pooled.finding
    figures = [row.result.measured.value for row in found.rows if row.result and row.result.measured.value is not None]
    if not figures:
        return f"{found.name}: nothing was measured yet"
    ends = dict.fromkeys(f"{100 * figure:.1f}".removesuffix(".0") for figure in (min(figures), max(figures)))
    return f"{found.name}: {found.measure} is {' to '.join(ends)} %; nothing is compared"


def _alone(found: ExperimentReport) -> dict[str, dict[str, object]]:
    """Each dataset by itself; none where there is only one."""
    datasets = found.comparisons.datasets if found.comparisons else {}
    return {name: {"found": each, "rows": rows(each)} for name, each in datasets.items()}


def pictures(cells: Sequence[Row], known: Axes, at: Chosen) -> list[Picture]:
    """One for each combination of what stands on no axis."""
    if at.x is None:
        return []
    if at.y is None:
        several = apart(cells, known, (at.x, None if at.x == VARIANT else VARIANT))
        return [_lines(title, part, known, at.x) for title, part in several.items()]
    values = [row.result.measured.value for row in cells if row.result and row.result.measured.value is not None]
    ends = (min(values, default=0.0), max(values, default=1.0))
    return [
        Picture(title, _heat(title, part, known, (at.x, at.y), ends))
        for title, part in apart(cells, known, (at.x, at.y)).items()
    ]


def _heat(title: str, cells: Sequence[Row], known: Axes, at: tuple[str, str], ends: tuple[float, float]) -> Markup:
    x, y = at
    figures = {(place(row)[x], place(row)[y]): _figure(row) for row in cells}
    return heat(figures, (x, known[x]), (y, known[y]), caption=title, low=ends[0], high=ends[1])


def _figure(row: Row) -> Figure:
    href = f"/jobs/{row.job}" if row.job else None
    mean = row.result.measured if row.result else None
    if mean is None or mean.value is None:
        return Figure(None, "nothing graded" if row.state == "completed" else row.state, href=href)
    between = "" if mean.low is None or mean.high is None else f"{100 * mean.low:.0f} to {100 * mean.high:.0f}"
    live = "" if row.state in ("completed", "failed", "cancelled") else f" {row.state}"
    return Figure(mean.value, f"{100 * mean.value:.1f}", between + live, href)


def _lines(title: str, cells: Sequence[Row], known: Axes, x: str) -> Picture:
    series: dict[str, dict[str, Point]] = {}
    for row in cells:
        mean = row.result.measured if row.result else None
        found = series.setdefault(row.variant if x != VARIANT else title or "all", {})
        if mean is not None and mean.value is not None:
            ends = (mean.value if bound is None else bound for bound in (mean.low, mean.high))
            found[place(row)[x]] = Point(mean.value, *ends)
    note = f"{len(series) - MOST_LINES} variants are not drawn" if len(series) > MOST_LINES else ""
    return Picture(title, points(_with_points(series), x, known[x]), note)


def _with_points(series: Mapping[str, Mapping[str, Point]]) -> Mapping[str, Mapping[str, Point]]:
    return {name: found for name, found in series.items() if found} or series

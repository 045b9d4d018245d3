"""Serves `/compare`: several jobs side by side, and which of them differ."""

from collections import Counter
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict

from services.orchestrator.api.submissions import Named
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.comparison import CORRECTED, compare_jobs
from services.orchestrator.reports.comparison_views import Compared, Comparison, Versus
from services.orchestrator.reports.headline import find_best, find_pair
from services.orchestrator.reports.measure_means import parse_measure
from services.orchestrator.web.page import Visit, Visitor, page
from shared.errors import Invalid
from shared.pages.charts.whiskers import draw_whisker
from shared.pages.pages import format_query
from shared.rag.provenance import Ending
from shared.shapes import ACCURACY, EXACT, SCORE
from shared.storage import database, datasets
from shared.storage import jobs as stored_jobs

router = APIRouter()
FEWEST, MOST = 2, 8
RECENT = 100
"""Number of completed jobs that are offered for comparison."""
MEASURES = (ACCURACY, EXACT, SCORE)
Jobs = Annotated[list[str], Query(alias="jobs", default_factory=list)]


class JobChoiceQuery(BaseModel):
    """The jobs to choose from."""

    model_config = ConfigDict(extra="ignore")

    dataset: Named | None = None
    baseline: str | None = None
    measure: str = ACCURACY


class SystemRow(NamedTuple):
    """Shows a system and how it differs from the baseline or from the best system."""

    system: Compared
    reference: bool
    """Whether this is the system that the others are compared with."""
    versus: Versus | None
    """Comparison with the reference; None for the reference itself, or if nothing was compared."""
    figure: Markup | None
    difference: Markup | None
    verdict: str
    changed: str | None
    """Address of the samples that changed; None if none did, or if one of the two systems has several jobs."""


@page(router, "/compare")
async def compare(visit: Visitor, deps: RequestDeps, names: Jobs) -> Response:
    """Compares two to eight jobs; without any, lists jobs to choose from."""
    query = visit.query(JobChoiceQuery)
    several = list(dict.fromkeys(filter(None, (query.baseline, *names))))
    if not several:
        return await _choose(visit, deps, query.dataset)
    check_number(len(several))
    found = await compare_jobs(deps.database, several, query.baseline, parse_measure(query.measure))
    others = {"baseline": query.baseline, "measure": query.measure}
    parameters = urlencode([("job", name) for name in several] + [each for each in others.items() if each[1]])
    return visit.show(
        "compare/jobs.html", title="Compare", json=f"/v1/comparison?{parameters}", found=found, names=several,
        asked=query,
        notes=select_notes(found),
        measures=MEASURES, rows=make_rows(found),
        endings=[each.value for each in Ending if any(each.value in job.endings for job in found.jobs)],
    )  # fmt: skip


def check_number(count: int) -> None:
    """Check that this many jobs fit side by side on a page.

    Raises:
        Invalid: there are too few or too many.
    """
    if not FEWEST <= count <= MOST:
        raise Invalid(
            f"`jobs`: {count or 'no'} job{'s' * (count != 1)} chosen, and a comparison needs {FEWEST} to {MOST}",
            hint="choose again at /compare; GET /v1/comparison compares up to 30 jobs",
        )


def select_notes(found: Comparison) -> list[str]:
    """Return the remarks on a comparison, without that on the correction, which the table explains."""
    return [note for note in found.notes if note != CORRECTED.format(len(found.pairs))]


def make_rows(found: Comparison) -> list[SystemRow]:
    """Return the systems, best first; those without a measurement come last."""
    first = None if found.baseline is not None else find_best(found.jobs)
    references = {first} if first else {pair.right for pair in found.pairs}
    widest = max([abs(bound) for each in found.pairs for bound in _list_bounds(each)], default=1.0) or 1.0
    by_name = {each.name: each for each in found.jobs}
    ordered = sorted(found.jobs, key=lambda each: (each.measured.value is None, -(each.measured.value or 0.0)))
    return [
        SystemRow(
            system, system.name in references, versus, _draw_figure(system), _draw_difference(versus, widest),
            describe_verdict(versus),
            _link_changed(system, by_name[versus.right]) if versus and versus.gained + versus.lost else None,
        )
        for system in ordered
        for versus in [find_pair(found.pairs, system.name, first)]
    ]  # fmt: skip


def _draw_figure(system: Compared) -> Markup | None:
    mean = system.measured
    return None if mean.value is None else draw_whisker(mean.value, mean.low or 0.0, mean.high or 0.0)


def _draw_difference(versus: Versus | None, widest: float) -> Markup | None:
    wide = versus and (versus.corrected or versus.difference)
    return draw_whisker(wide.value or 0.0, wide.low, wide.high, start=-widest, end=widest) if wide else None


def _link_changed(left: Compared, right: Compared) -> str | None:
    if len(left.jobs) > 1 or len(right.jobs) > 1:
        return None
    return f"/compare/changed{format_query({'left': left.jobs[0], 'right': right.jobs[0]})}"


def _list_bounds(pair: Versus) -> tuple[float, ...]:
    wide = pair.corrected or pair.difference
    return (wide.low, wide.high) if wide else ()


def describe_verdict(pair: Versus | None) -> str:
    """State the verdict in words, without the figures that stand beside it."""
    if pair is None:
        return ""
    if pair.difference is None or pair.difference.value is None:
        return "nothing in common to compare"
    if pair.separable:
        return "better" if pair.difference.value > 0 else "worse"
    if not pair.gained + pair.lost:
        return "no difference on any item"
    return "not separable" + (f"; about {pair.needed:,} items would tell them apart" if pair.needed else "")


async def _choose(visit: Visit, deps: Deps, dataset: str | None) -> Response:
    recent = await stored_jobs.list_jobs(deps.database, RECENT, None, stored_jobs.JobSelection(state="completed"))
    counts = Counter(job.dataset for job in recent.data)
    often = [name for name, count in counts.items() if count >= FEWEST]
    chosen_dataset = dataset or next(iter([*often, *counts]), None)
    known = [each.name for each in (await datasets.list_datasets(deps.database, database.LARGEST)).data]
    found: list[stored_jobs.Job] = []
    if chosen_dataset is not None:
        filters = stored_jobs.JobSelection(state="completed", dataset=chosen_dataset)
        found = (await stored_jobs.list_jobs(deps.database, RECENT, None, filters)).data
    return visit.show(
        "compare/choose.html", title="Compare",
        json=f"/v1/jobs{format_query({'state': 'completed', 'dataset': chosen_dataset})}",
        datasets=known, dataset=chosen_dataset, found=[_make_reference(job, found) for job in found], most=MOST,
    )  # fmt: skip


def _make_reference(job: stored_jobs.Job, among: list[stored_jobs.Job]) -> tuple[str, stored_jobs.Job]:
    """Return the job's name or, if an earlier release let another job use the same name, its id; with the job."""
    alone = sum(each.name == job.name for each in among) == 1
    return (job.name if alone else str(job.id)), job

"""`/compare`: several jobs side by side, and which of them differ."""

from collections import Counter
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict

from services.orchestrator.api.submissions import Named
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.compared import Compared, Comparison, Versus
from services.orchestrator.reports.comparison import CORRECTED, compare_jobs
from services.orchestrator.reports.finding import against, best
from services.orchestrator.reports.measuring import chosen
from services.orchestrator.web.page import Visit, Visitor, page
from shared.contracts.measures import ACCURACY, EXACT, SCORE
from shared.errors import Invalid
from shared.pages.charts.whiskers import whisker
from shared.pages.pages import address
from shared.rag.taxonomy import Ending
from shared.storage import datasets, job_list, jobs, pages

router = APIRouter()
FEWEST, MOST = 2, 8
RECENT = 100
"""Completed jobs among which one chooses."""
MEASURES = (ACCURACY, EXACT, SCORE)
Jobs = Annotated[list[str], Query(alias="jobs", default_factory=list)]


class Choice(BaseModel):
    """Which jobs one may choose from."""

    model_config = ConfigDict(extra="ignore")

    dataset: Named | None = None
    baseline: str | None = None
    measure: str = ACCURACY


class Row(NamedTuple):
    """A system, and how it stands against the baseline or the best one."""

    system: Compared
    reference: bool
    """Others are held against it."""
    versus: Versus | None
    """None: it is that one, or nothing was compared."""
    figure: Markup | None
    difference: Markup | None
    verdict: str
    changed: str | None
    """Where the samples are that changed; None: none did, or the two have several jobs."""


@page(router, "/compare")
async def compare(visit: Visitor, deps: RequestDeps, names: Jobs) -> Response:
    """Two to eight jobs; without any, which there are to choose from."""
    asked = visit.query(Choice)
    several = list(dict.fromkeys(filter(None, (asked.baseline, *names))))
    if not several:
        return await _choose(visit, deps, asked.dataset)
    check_number(len(several))
    found = await compare_jobs(deps.database, several, asked.baseline, chosen(asked.measure))
    others = {"baseline": asked.baseline, "measure": asked.measure}
    query = urlencode([("job", name) for name in several] + [each for each in others.items() if each[1]])
    return visit.show(
        "compare/jobs.html", title="Compare", json=f"/v1/comparison?{query}", found=found, names=several, asked=asked,
        notes=notes(found),
        measures=MEASURES, rows=rows(found),
        endings=[each.value for each in Ending if any(each.value in job.endings for job in found.jobs)],
    )  # fmt: skip


def check_number(count: int) -> None:
    """Return if so many jobs can stand side by side on a page.

    Raises:
        Invalid: they are too few, or too many.
    """
    if not FEWEST <= count <= MOST:
        raise Invalid(
            f"`jobs`: {count or 'no'} job{'s' * (count != 1)} chosen, and a comparison needs {FEWEST} to {MOST}",
            hint="choose again at /compare; the API compares up to 30: /v1/comparison",
        )


def notes(found: Comparison) -> list[str]:
    """What a reader must know, without the correction, of which the table speaks."""
    return [note for note in found.notes if note != CORRECTED.format(len(found.pairs))]


def rows(found: Comparison) -> list[Row]:
    """Best first; those without a figure last."""
    first = None if found.baseline is not None else best(found.jobs)
    held = {first} if first else {pair.right for pair in found.pairs}
    widest = max([abs(bound) for each in found.pairs for bound in _bounds(each)], default=1.0) or 1.0
    by_name = {each.name: each for each in found.jobs}
    ordered = sorted(found.jobs, key=lambda each: (each.measured.value is None, -(each.measured.value or 0.0)))
    return [
        Row(
            system, system.name in held, versus, _figure(system), _difference(versus, widest), verdict(versus),
            _changed(system, by_name[versus.right]) if versus and versus.gained + versus.lost else None,
        )
        for system in ordered
        for versus in [against(found.pairs, system.name, first)]
    ]  # fmt: skip


def _figure(system: Compared) -> Markup | None:
    mean = system.measured
    return None if mean.value is None else whisker(mean.value, mean.low or 0.0, mean.high or 0.0)


def _difference(versus: Versus | None, widest: float) -> Markup | None:
    wide = versus and (versus.corrected or versus.difference)
    return whisker(wide.value or 0.0, wide.low, wide.high, start=-widest, end=widest) if wide else None


def _changed(left: Compared, right: Compared) -> str | None:
    if len(left.jobs) > 1 or len(right.jobs) > 1:
        return None
    return f"/compare/changed{address({'left': left.jobs[0], 'right': right.jobs[0]})}"


def _bounds(pair: Versus) -> tuple[float, ...]:
    wide = pair.corrected or pair.difference
    return (wide.low, wide.high) if wide else ()


def verdict(pair: Versus | None) -> str:
    """In words, without the figures that stand beside it."""
    if pair is None:
        return ""
    if pair.difference is None or pair.difference.value is None:
        return "nothing in common to compare"
    if pair.separable:
        return "better" if pair.difference.value > 0 else "worse"
    if not pair.gained + pair.lost:
        return "no difference on any item"
    return "not separable" + (f"; about {pair.needed:,} items would tell" if pair.needed else "")


async def _choose(visit: Visit, deps: Deps, dataset: str | None) -> Response:
    recent = await job_list.listed(deps.database, RECENT, None, job_list.Filters(state="completed"))
    asked = Counter(job.dataset for job in recent.data)
    often = [name for name, count in asked.items() if count >= FEWEST]
    shown = dataset or next(iter([*often, *asked]), None)
    known = [each.name for each in (await datasets.listed(deps.database, pages.LARGEST)).data]
    found: list[jobs.Job] = []
    if shown is not None:
        filters = job_list.Filters(state="completed", dataset=shown)
        found = (await job_list.listed(deps.database, RECENT, None, filters)).data
    return visit.show(
        "compare/choose.html", title="Compare", json=f"/v1/jobs{address({'state': 'completed', 'dataset': shown})}",
        datasets=known, dataset=shown, found=[_named(job, found) for job in found], most=MOST,
    )  # fmt: skip


def _named(job: jobs.Job, among: list[jobs.Job]) -> tuple[str, jobs.Job]:
    """What stands for the job in an address; earlier releases let a name be used again."""
    alone = sum(each.name == job.name for each in among) == 1
    return (job.name if alone else str(job.id)), job

"""Serves `/compare`: jobs side by side, and two samples side by side."""

from collections import Counter
from typing import Annotated, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field

from mathrag.errors import Invalid
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.comparison import (
    CORRECTED,
    Compared,
    Comparison,
    Versus,
    compare_jobs,
    find_best,
    find_pair,
    parse_measure,
)
from services.orchestrator.web.page import Visit, Visitor, page, parse_as
from services.orchestrator.web.prompts import load_prompt_of, make_difference
from services.orchestrator.web.sample import ContextDocument, documents
from shared.pages.charts import draw_whisker
from shared.pages.pages import format_query
from shared.rag.provenance import Ending
from shared.records import Provenance
from shared.shapes import ACCURACY
from shared.storage import database, datasets, samples
from shared.storage.answer_table import KINDS, AnswerFilters, list_answers
from shared.storage.jobs import Job, JobSelection, Named, list_jobs
from shared.storage.provenance import load_provenance

router = APIRouter()
Index = Annotated[int, Field(ge=0, lt=1 << 31)]
Repeat = Annotated[int, Field(ge=0, lt=1 << 15)]


class Cases(BaseModel):
    """Two samples, of one job or of two."""

    model_config = ConfigDict(extra="forbid")

    left: str
    left_index: Index
    left_repeat: Repeat = 0
    right: str
    right_index: Index
    right_repeat: Repeat = 0


class Case(NamedTuple):
    """A sample as the figure shows it."""

    name: str
    """Name of its job."""
    job: str
    sample: Provenance
    documents: list[ContextDocument]

    @property
    def correct(self) -> bool | None:
        """Return the verdict; None if the sample has none."""
        outcome = self.sample.outcome
        return outcome.verdict.correct if outcome and outcome.verdict else None


@page(router, "/compare/cases")
async def cases(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows both samples side by side; without any, a form to choose them."""
    if not visit.request.query_params:
        return visit.show("compare/choose_cases.html", title="Two cases")
    query, both = await _load_both(visit, deps)
    return visit.show(
        "compare/cases.html", title="Two cases", both=both, headline=write_headline(both),
        download=f"/compare/cases.html{format_query(query.model_dump())}",
    )  # fmt: skip


@page(router, "/compare/cases.html")
async def download(visit: Visitor, deps: RequestDeps) -> Response:
    """Serves the figure as one file that loads and runs nothing; mathematics is kept as written."""
    query, both = await _load_both(visit, deps)
    drawn = visit.show(
        "compare/figure.html", title=write_headline(both), both=both, headline=write_headline(both), typesetting=[]
    )
    name = f"cases-{both[0].name}-{query.left_index}-{both[1].name}-{query.right_index}.html"
    drawn.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return drawn


def write_headline(both: tuple[Case, Case]) -> str:
    """Return a title such as "A success and a failure"."""
    words = {(True, False): "A success and a failure", (False, True): "A failure and a success",
             (True, True): "Two successes", (False, False): "Two failures"}  # fmt: skip
    left, right = (case.correct for case in both)
    return "Two cases" if left is None or right is None else words[left, right]


async def _load_both(visit: Visit, deps: Deps) -> tuple[Cases, tuple[Case, Case]]:
    query = visit.query(Cases)
    names = await samples.find_names(deps.database, query.left, query.right)
    left = await load_provenance(deps.database, query.left, query.left_index, query.left_repeat)
    right = await load_provenance(deps.database, query.right, query.right_index, query.right_repeat)
    one = Case(names[0], query.left, left, documents(left))
    return query, (one, Case(names[1], query.right, right, documents(right)))


FEWEST, MOST = 2, 8
RECENT = 100
"""Number of completed jobs that are offered for comparison."""
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
    """Compares two to eight jobs; with one or none, lists jobs to choose from."""
    query = visit.query(JobChoiceQuery)
    several = list(dict.fromkeys(filter(None, (query.baseline, *names))))
    if len(several) < FEWEST:
        return await _offer_jobs(visit, deps, query.dataset, several)
    if len(several) > MOST:
        raise Invalid(
            f"`jobs`: {len(several)} jobs chosen, and at most {MOST} fit side by side",
            hint="choose again at /compare; GET /v1/comparison compares up to 30 jobs",
        )
    found = await compare_jobs(deps.database, several, query.baseline, parse_measure(query.measure))
    prompts = [(name, await load_prompt_of(deps, await deps.job_views.get(deps.database, name))) for name in several]
    first = prompts[0][1]
    others = {"baseline": query.baseline, "measure": query.measure}
    parameters = urlencode([("job", name) for name in several] + [each for each in others.items() if each[1]])
    return visit.show(
        "compare/jobs.html", title="Compare", json=f"/v1/comparison?{parameters}", found=found, names=several,
        asked=query, answers=f"/compare/answers?{urlencode([('jobs', name) for name in several])}",
        notes=select_notes(found),
        prompts=prompts,
        differences=[
            make_difference(first, other) for _, other in prompts[1:] if first and other and first.hash != other.hash
        ],
        rows=make_rows(found),
        endings=[each.value for each in Ending if any(each.value in job.endings for job in found.jobs)],
    )  # fmt: skip


class AnswersQuery(AnswerFilters):
    """Which questions the table of answers shows, and of which jobs."""

    jobs: Annotated[list[str], Field(min_length=1, max_length=MOST)]


@page(router, "/compare/answers")
async def show_answers(visit: Visitor, deps: RequestDeps, names: Jobs) -> Response:
    """Shows the answers of one to eight jobs question by question, those first on which the jobs differ."""
    given = {name: value for name, value in visit.request.query_params.items() if value}
    query = parse_as(AnswersQuery, {**given, "jobs": list(dict.fromkeys(names))})
    listed, found = await list_answers(deps.database, query.jobs, query)
    same = [("jobs", name) for name in query.jobs]
    filters = {"kind": query.kind, "pattern": query.pattern, "cursor": found.next_cursor}
    return visit.show(
        "compare/answers.html", title="Answers", jobs=listed, references=query.jobs, found=found, kinds=KINDS,
        query=query, back=f"/compare/answers?{visit.request.url.query}", compared=f"/compare?{urlencode(same)}",
        further=f"/compare/answers?{urlencode([*same, *(each for each in filters.items() if each[1])])}",
    )  # fmt: skip


def select_notes(found: Comparison) -> list[str]:
    """Return the remarks on a comparison, without that on the correction, which the table explains."""
    return [note for note in found.notes if note != CORRECTED.format(len(found.pairs))]


def make_rows(found: Comparison) -> list[SystemRow]:
    """Return the systems, best first; those without a measurement come last."""
    first = None if found.baseline is not None else find_best(found.jobs)
    references = {first} if first else {pair.right for pair in found.pairs}
    by_name = {each.name: each for each in found.jobs}
    wides = [wide for pair in found.pairs if (wide := pair.corrected or pair.difference)]
    widest = max((abs(bound) for wide in wides for bound in (wide.low, wide.high)), default=1.0) or 1.0
    rows = []
    for system in sorted(found.jobs, key=lambda each: (each.measured.value is None, -(each.measured.value or 0.0))):
        mean, figure, difference, changed = system.measured, None, None, None
        if mean.value is not None:
            figure = draw_whisker(mean.value, mean.low or 0.0, mean.high or 0.0)
        versus = find_pair(found.pairs, system.name, first)
        if versus and (wide := versus.corrected or versus.difference):
            difference = draw_whisker(wide.value or 0.0, wide.low, wide.high, start=-widest, end=widest)
        if versus and versus.gained + versus.lost:
            left, right = system.jobs, by_name[versus.right].jobs
            if len(left) == len(right) == 1:
                changed = f"/compare/changed{format_query({'left': left[0], 'right': right[0]})}"
        is_reference, verdict = system.name in references, describe_verdict(versus)
        rows.append(SystemRow(system, is_reference, versus, figure, difference, verdict, changed))
    return rows


def describe_verdict(pair: Versus | None) -> str:
    """State the verdict in words, without the figures that are next to it."""
    if pair is None:
        return ""
    if pair.difference is None or pair.difference.value is None:
        return "nothing in common to compare"
    if pair.separable:
        return "better" if pair.difference.value > 0 else "worse"
    if not pair.gained + pair.lost:
        return "no difference on any item"
    return "not separable" + (f"; about {pair.needed:,} items would tell them apart" if pair.needed else "")


async def _offer_jobs(visit: Visit, deps: Deps, dataset: str | None, names: list[str]) -> Response:
    chosen = await deps.job_views.get(deps.database, names[0]) if names else None
    recent = await list_jobs(deps.database, RECENT, None, JobSelection(state="completed"))
    counts = Counter(job.dataset for job in recent.data)
    often = [name for name, count in counts.items() if count >= FEWEST]
    chosen_dataset = chosen.dataset if chosen else dataset or next(iter([*often, *counts]), None)
    known = [each.name for each in (await datasets.list_datasets(deps.database, database.LARGEST)).data]
    found: list[Job] = []
    if chosen_dataset is not None:
        filters = JobSelection(state="completed", dataset=chosen_dataset)
        found = list((await list_jobs(deps.database, RECENT, None, filters)).data)
    if chosen:
        found = [chosen, *(job for job in found if job.id != chosen.id)]
    # By id where an earlier release let several jobs use the same name.
    named = Counter(job.name for job in found)
    references = [(job.name if named[job.name] == 1 else str(job.id), job) for job in found]
    return visit.show(
        "compare/choose.html", title="Compare",
        json=f"/v1/jobs{format_query({'state': 'completed', 'dataset': chosen_dataset})}",
        datasets=known, dataset=chosen_dataset, found=references, most=MOST, chosen=chosen,
    )  # fmt: skip

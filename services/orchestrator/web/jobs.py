"""`/jobs`: the list of jobs, live, with filters, orders and pages."""

from functools import partial
from typing import Any, get_args

from fastapi import APIRouter, Response

from services.orchestrator.api.jobs import listing
from services.orchestrator.api.submissions import JobFilters, State
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.live import Fragment, stream
from services.orchestrator.web.page import Visitor, as_json, environment, page
from shared.pages.charts import funnel
from shared.pages.pages import address
from shared.pages.words import share
from shared.storage.job_list import Sort

router = APIRouter()


@page(router, "/jobs")
async def listed(visit: Visitor, deps: RequestDeps) -> Response:
    """Newest first, or as asked for."""
    filters = visit.query(JobFilters)
    asked = address(filters.model_dump(exclude_defaults=True))
    return visit.show(
        "jobs/jobs.html", title="Jobs", json=f"/v1/jobs{asked}", live=f"/live/jobs{asked}", states=get_args(State),
        sorts=get_args(Sort), **await _shown(deps, filters),
    )  # fmt: skip


@page(router, "/live/jobs")
async def live(visit: Visitor, deps: RequestDeps) -> Response:
    """The rows of the same page, whenever they changed."""
    filters = visit.query(JobFilters)
    return stream(deps, ("jobs", filters.model_dump_json()), partial(_draw, deps, filters))


async def _draw(deps: Deps, filters: JobFilters) -> Fragment:
    return Fragment(environment().get_template("jobs/live.html").render(**await _shown(deps, filters)))


async def _shown(deps: Deps, filters: JobFilters) -> dict[str, Any]:
    found = await listing(deps, filters)
    right = {job.id: share(as_json(job.accuracy)) for job in found.data if job.accuracy and job.accuracy.graded}
    query = filters.model_dump(exclude={"cursor"}, exclude_defaults=True)
    return {"found": found, "right": right, "query": query, "first": filters.cursor is not None, "funnel": funnel}

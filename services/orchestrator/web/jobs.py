"""Serves `/jobs`: the list of jobs, live, with filters, sort orders and pages."""

from functools import partial
from typing import Any, get_args

from fastapi import APIRouter, Response

from services.orchestrator.api.jobs import load_page
from services.orchestrator.api.submissions import JobFilters, State
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.live import Fragment, stream
from services.orchestrator.web.page import Visitor, as_json, make_environment, page
from shared.pages.charts import bars
from shared.pages.formatting import format_share
from shared.pages.pages import format_query
from shared.storage.jobs import Sort

router = APIRouter()


@page(router, "/jobs")
async def list_jobs(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists the jobs, newest first or as requested."""
    filters = visit.query(JobFilters)
    query = format_query(filters.model_dump(exclude_defaults=True))
    return visit.show(
        "jobs/jobs.html", title="Jobs", json=f"/v1/jobs{query}", live=f"/live/jobs{query}", states=get_args(State),
        sorts=get_args(Sort), **await _load_values(deps, filters),
    )  # fmt: skip


@page(router, "/live/jobs")
async def stream_changes(visit: Visitor, deps: RequestDeps) -> Response:
    """Streams the rows of the same page whenever they change."""
    filters = visit.query(JobFilters)
    return stream(deps, ("jobs", filters.model_dump_json()), partial(_draw, deps, filters))


async def _draw(deps: Deps, filters: JobFilters) -> Fragment:
    return Fragment(make_environment().get_template("jobs/live.html").render(**await _load_values(deps, filters)))


async def _load_values(deps: Deps, filters: JobFilters) -> dict[str, Any]:
    found = await load_page(deps, filters)
    right = {job.id: format_share(as_json(job.accuracy)) for job in found.data if job.accuracy and job.accuracy.graded}
    query = filters.model_dump(exclude={"cursor"}, exclude_defaults=True)
    return {"found": found, "right": right, "query": query, "first": filters.cursor is not None, "bars": bars}

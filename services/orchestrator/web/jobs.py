"""`/jobs`: the list of jobs, with filters and pages."""

from typing import get_args

from fastapi import APIRouter, Response

from services.orchestrator.api.submissions import JobFilters, State
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages.pages import address
from shared.storage import jobs

router = APIRouter()


@page(router, "/jobs")
async def listed(visit: Visitor, deps: RequestDeps) -> Response:
    """Newest first."""
    filters = visit.query(JobFilters)
    found = await jobs.listed(deps.database, filters.limit, filters.cursor, filters.filters())
    query = filters.model_dump(exclude={"cursor"}, exclude_defaults=True)
    return visit.show(
        "jobs.html", title="Jobs", json=f"/v1/jobs{address(query)}", found=as_json(found), query=query,
        first=filters.cursor is not None, states=get_args(State),
    )  # fmt: skip

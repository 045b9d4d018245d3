"""Serves `/jobs/{job}/report`: what a job found and what it cost; a report's folder has the same page."""

from fastapi import APIRouter, Response

from services.orchestrator import reports
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages.formatting import format_json
from shared.pages.lines import build_lines

router = APIRouter()


@page(router, "/jobs/{job}/report")
async def report(job: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the report, which is final once the job has ended."""
    found = as_json(await reports.report(deps.database, job, deps.settings.models))
    return visit.show(
        "report/job.html", title=f"Report of {found['name']}", json=f"/v1/jobs/{found['id']}/report", report=found,
        lines=list(build_lines(found)), parameters=format_json(found["settings"]["params"]),
    )  # fmt: skip

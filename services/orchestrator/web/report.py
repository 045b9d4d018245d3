"""`/jobs/{job}/report`: what a job found and what it cost; the same page as in a report's folder."""

import msgspec
from fastapi import APIRouter, Response

from services.orchestrator import reports
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages.report_lines import lines

router = APIRouter()


@page(router, "/jobs/{job}/report")
async def report(job: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Final once the job has ended."""
    found = as_json(await reports.report(deps.database, job, deps.settings.models))
    parameters = msgspec.json.format(msgspec.json.encode(found["settings"]["params"]), indent=2).decode()
    return visit.show(
        "report/job.html", title=f"Report of {found['name']}", json=f"/v1/jobs/{found['id']}/report", report=found,
        lines=list(lines(found)), parameters=parameters,
    )  # fmt: skip

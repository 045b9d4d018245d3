"""Serves `/jobs/{job}/price`: the planned cost of a job if it were submitted now, and its actual cost."""

import uuid
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter, Response

from services.orchestrator.api.plans import PlanJob, PlanRequest, PlanView, plan_request
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.cost import compute_cost
from services.orchestrator.reports.work import count_work
from services.orchestrator.web.messages import try_form
from services.orchestrator.web.page import Visitor, page
from shared.errors import Invalid
from shared.pages.formatting import format_duration_range
from shared.pipelines import registry
from shared.runtime.submit import copy_submission
from shared.storage import jobs

router = APIRouter()
REQUEST_FIELDS = ("dataset", "corpus", "pipeline", "limit", "repeats", "reuse")
"""Fields of a submission that a plan needs, besides parameters and models."""


@page(router, "/jobs/{job}/price")
async def price(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Shows the planned cost beside the actual one."""
    async with deps.database.snapshot() as connection:
        row = await jobs.resolve(connection, job)
        found = (await jobs.load_without_stages(connection, [row]))[row]
        done = await count_work(connection, row)
        cost = await compute_cost(connection, row, deps.settings.models)
    plan = await try_form(partial(_plan, deps, found.id))
    view = plan.value if isinstance(plan.value, PlanView) else None
    return visit.show(
        "job/price.html", title=f"Price of {found.name}", json=f"/v1/jobs/{found.id}/report", job=found, work=done,
        cost=cost, plan=view, between=_format_seconds(view), problem="; ".join(plan.messages.values()),
        took=(found.ended_at - found.created_at).total_seconds() if found.ended_at else None,
    )  # fmt: skip


async def _plan(deps: Deps, job: uuid.UUID) -> PlanView:
    submission = await copy_submission(deps.database, job)
    if submission.pipeline not in registry.list_offered():
        raise Invalid(f"a job of pipeline {submission.pipeline} cannot be planned on its own")
    given = msgspec.to_builtins(submission.params)
    # A job without a grader is graded as mathematics, since its dataset declares none either.
    given["grading"]["grader"] = given["grading"]["grader"] or "math"
    params = registry.get(submission.pipeline).select_read(given)
    request_body: dict[str, Any] = {field: getattr(submission, field) for field in REQUEST_FIELDS}
    return await plan_request(
        PlanRequest(job=PlanJob(params=params, models=dict(submission.models), **request_body)), deps
    )


def _format_seconds(plan: PlanView | None) -> str | None:
    """Return the range of the planned time: shortest if ratings are shared, longest if every sample makes its own;
    None if nothing fits.
    """
    if plan is None or plan.chosen is None:
        return None
    seconds = plan.chosen.seconds
    return format_duration_range(seconds if plan.shared_s is None else plan.shared_s, seconds)

"""`/jobs/{job}/price`: what a job would come to if it were submitted now, and what it took."""

import uuid
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter, Response

from services.orchestrator.api.plans import PlanJob, PlanRequest, PlanView, planned
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.cost import cost
from services.orchestrator.reports.work import work
from services.orchestrator.web.messages import tried
from services.orchestrator.web.page import Visitor, page
from shared.errors import Invalid
from shared.pages.words import seconds_between
from shared.pipelines import registry
from shared.runtime.requeue import like
from shared.storage import jobs

router = APIRouter()
ASKED = ("dataset", "corpus", "pipeline", "limit", "repeats", "reuse")
"""What a plan needs of a submission, besides parameters and models."""


@page(router, "/jobs/{job}/price")
async def price(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Before, by the plan; after, by the calls."""
    async with deps.database.snapshot() as connection:
        row = await jobs.resolve(connection, job)
        found = (await jobs.without_stages(connection, [row]))[row]
        done = await work(connection, row)
        spent = await cost(connection, row, deps.settings.models)
    plan = await tried(partial(_plan, deps, found.id))
    view = plan.value if isinstance(plan.value, PlanView) else None
    return visit.show(
        "job/price.html", title=f"Price of {found.name}", json=f"/v1/jobs/{found.id}/report", job=found, work=done,
        cost=spent, plan=view, between=_seconds(view), problem="; ".join(plan.messages.values()),
        took=(found.ended_at - found.created_at).total_seconds() if found.ended_at else None,
    )  # fmt: skip


async def _plan(deps: Deps, job: uuid.UUID) -> PlanView:
    submission = await like(deps.database, job)
    if submission.pipeline not in registry.offered():
        raise Invalid(f"a job of {submission.pipeline} is not planned by itself")
    params = registry.get(submission.pipeline).only_read(msgspec.to_builtins(submission.params))
    asked: dict[str, Any] = {field: getattr(submission, field) for field in ASKED}
    return await planned(PlanRequest(job=PlanJob(params=params, models=dict(submission.models), **asked)), deps)


def _seconds(plan: PlanView | None) -> str | None:
    """From where ratings are counted once to where every sample asks for itself; None: nothing fits."""
    if plan is None or plan.chosen is None:
        return None
    seconds = plan.chosen.seconds
    return seconds_between(seconds if plan.shared_s is None else plan.shared_s, seconds)

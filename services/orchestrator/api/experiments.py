"""`/v1/experiments`: grids of jobs, submitted whole, looked at, cancelled, resumed and compared as one thing."""

from collections.abc import Sequence
from typing import Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Response

from services.orchestrator.api.comparison import MeasureName
from services.orchestrator.api.etags import UNCHANGED, Seen, tagged
from services.orchestrator.api.flaws import version_warnings
from services.orchestrator.api.jobs import POLL_S, REPLAYED
from services.orchestrator.api.keys import IdempotencyKey, keyed
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.plans import ANSWER as PLANNED
from services.orchestrator.api.plans import PlanView, plan_of
from services.orchestrator.api.routes import Limit, json, route
from services.orchestrator.api.views import edit_warnings
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.experiments import planning, running
from services.orchestrator.experiments.report import ExperimentReport, report
from services.orchestrator.reports.measuring import chosen
from shared.contracts.api_keys import Scope
from shared.contracts.experiments import Experiment
from shared.contracts.measures import ACCURACY
from shared.storage import experiments, pages

router = APIRouter(prefix="/v1/experiments", tags=["experiments"])


class ExperimentLinks(msgspec.Struct, frozen=True, kw_only=True, rename={"itself": "self"}):
    """Where to go from an experiment."""

    itself: str
    report: str
    jobs: str


class ExperimentView(experiments.Standing, frozen=True, kw_only=True):
    """An experiment, and where to go from it."""

    links: ExperimentLinks
    warnings: tuple[str, ...] = ()
    """Only in the answer to its submission: what the submitter should know before waiting for it."""


class ExperimentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What an experiment would come to."""

    name: str
    cells: int
    refused: int
    """Cells that will not be run."""
    jobs: int
    """Distinct ones: cells that ask the same share one."""
    samples: int
    calls: dict[str, planning.RoleCalls]
    """By role, at most."""
    plan: PlanView
    """Loads, seconds and how they are known, for so many calls."""
    notes: list[str]


_ID = "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11"
_CELL: dict[str, Any] = {
    "index": 0, "dataset": "math-500", "corpus": "math", "variant": "dense", "pipeline": "dense",
    "point": {"context_size": 1}, "seed": 0, "job": _ID, "job_name": "gate-or-not-dense-1", "state": "completed",
    "refused": None,
}  # fmt: skip
_COUNTS: dict[str, Any] = {
    "total": 500, "completed": 500, "failed": 0, "cancelled": 0, "in_progress": 0, "unparsed": 0,
}  # fmt: skip
EXAMPLE: dict[str, Any] = {
    "id": _ID, "name": "gate-or-not", "state": "completed", "cells": 1, "refused": 0, "jobs": {"completed": 1},
    "created_at": "2026-11-21T08:00:00Z", "ended_at": "2026-11-21T08:00:41.2Z",
    "baseline": "dense", "request_counts": _COUNTS, "eta_seconds": None,
    "grid": [_CELL],
    "links": {
        "self": f"/v1/experiments/{_ID}", "report": f"/v1/experiments/{_ID}/report",
        "jobs": "/v1/jobs?experiment=gate-or-not",
    },
}  # fmt: skip
REPORT: dict[str, Any] = {
    **{field: EXAMPLE[field] for field in ("id", "name", "state", "baseline", "request_counts")},
    "calls_made": {"generate": 500, "grade": 500, "retrieve": 500}, "model_loads": 1, "notes": [], "comparisons": None,
    "measure": "accuracy",
    "rows": [{**_CELL, "result": {
        "accuracy": {"value": 0.61, "low": 0.567, "high": 0.652, "correct": 305, "graded": 500},
        "measured": {"value": 0.61, "low": 0.567, "high": 0.652, "n": 500},
        "request_counts": _COUNTS, "failures": {}, "gate": None, "calls_made": {"retrieve": 500, "generate": 500},
        "calls_reused": {"grade": 500}, "model_loads": 1, "seconds": 41.2,
    }}],
}  # fmt: skip
PLAN: dict[str, Any] = {
    "name": "gate-or-not", "cells": 4, "refused": 0, "jobs": 4, "samples": 2000,
    "calls": {"judge": {"most": 7500, "apart": 11000}, "generate": {"most": 2000, "apart": 2000}},
    "plan": PLANNED, "notes": [planning.ONCE, planning.UPPER],
}  # fmt: skip
ONE = answers(ExperimentView, EXAMPLE)
ACCEPTED = answers(ExperimentView, EXAMPLE, status=202)
ENTRY: dict[str, Any] = {field: EXAMPLE[field] for field in experiments.Entry.__struct_fields__}


@route(router, "POST", "", Scope.SUBMIT, "Submit an experiment", ACCEPTED, refuses=(404, 409, 429), status_code=202)
async def submit(request: Experiment, deps: RequestDeps, key: IdempotencyKey) -> Response:
    """A grid of jobs (docs/experiments.md). 202: all of them are committed, in one transaction, or none; `Location` is
    the experiment's. With an `Idempotency-Key` it may be sent again (docs/api.md#idempotency).

    Cells that ask the same share a job; jobs share their calls. The same key with the same body answers with the same
    experiment, as for jobs.
    """
    once = keyed(key, "POST /v1/experiments", request.model_dump())
    accepted = await running.submit_once(deps.database, deps.settings, request, once)
    warnings = await to_thread.run_sync(edit_warnings, [variant.pipeline for variant in request.variants])
    warnings += await version_warnings(deps.database, experiment=accepted.experiment)
    return await _answer(deps, accepted.experiment, {REPLAYED: "true"} if accepted.replayed else {}, warnings)


@route(router, "POST", "/plan", Scope.READ, "Plan an experiment", answers(ExperimentPlan, PLAN), refuses=(404,))
async def plan(request: Experiment, deps: RequestDeps) -> Response:
    """Cells, jobs, calls, loads and time. Nothing is made. What jobs share is counted once as far as that can be known,
    and calls are upper ends.
    """
    grid = await running.expanded(deps.database, deps.settings, request)
    async with deps.database.transaction() as connection:
        drafts = await running.drafted(connection, deps.settings, grid.jobs)
        work = await to_thread.run_sync(planning.work, await planning.sized(connection, drafts))
        return json(
            ExperimentPlan(
                name=request.name,
                cells=len(grid.cells),
                refused=sum(cell.refused is not None for cell in grid.cells),
                jobs=len(grid.jobs),
                samples=sum(draft.samples for draft in drafts),
                calls=work.calls,
                plan=await plan_of(connection, deps, work.needs),
                notes=planning.notes(request, grid),
            )
        )


@route(
    router, "GET", "", Scope.READ, "List experiments",
    answers(pages.Page[experiments.Entry], {"data": [ENTRY], "next_cursor": None}),
)  # fmt: skip
async def listed(deps: RequestDeps, limit: Limit = pages.DEFAULT, cursor: str | None = None) -> Response:
    """Newest first."""
    return json(await experiments.listed(deps.database, limit, cursor))


@route(router, "GET", "/{experiment}", Scope.READ, "Get an experiment", ONE | UNCHANGED, refuses=(404, 409))
async def get(experiment: str, deps: RequestDeps, seen: Seen) -> Response:
    """Every cell with its job and state, samples counted, estimate. By id, name, or the first characters of the id."""
    found = await experiments.get(deps.database, experiment)
    return tagged(_view(found), seen=seen, headers=None if found.ended else {"Retry-After": POLL_S})


@route(
    router, "GET", "/{experiment}/report", Scope.READ, "Report on an experiment",
    answers(ExperimentReport, REPORT), refuses=(404, 409),
)  # fmt: skip
async def report_on(experiment: str, deps: RequestDeps, measure: MeasureName = ACCURACY) -> Response:
    """A row per cell: accuracy, or another `measure`, with interval, failures, calls made and reused, loads, the gate's
    decision; and what differs from the baseline.
    """
    return json(await report(deps.database, experiment, chosen(measure)))


@route(
    router, "POST", "/{experiment}/cancel", Scope.SUBMIT, "Cancel an experiment",
    ACCEPTED, refuses=(404, 409), status_code=202,
)  # fmt: skip
async def cancel(experiment: str, deps: RequestDeps) -> Response:
    """Cancel every job of it that has not ended. Again is harmless."""
    return await _answer(deps, await running.cancel(deps.database, experiment))


@route(
    router, "POST", "/{experiment}/resume", Scope.SUBMIT, "Resume an experiment",
    ACCEPTED, refuses=(404, 409, 429), status_code=202,
)  # fmt: skip
async def resume(experiment: str, deps: RequestDeps) -> Response:
    """Requeue its jobs that failed or were cancelled, or hold samples that failed for a passing reason.

    What ended well is not run again, and what failed computes only what it lacks. Again is harmless.
    """
    return await _answer(deps, await running.resume(deps.database, deps.settings, experiment))


async def _answer(
    deps: Deps, number: int, headers: dict[str, str] | None = None, warnings: Sequence[str] = ()
) -> Response:
    deps.wake()
    async with deps.database.snapshot() as connection:
        found = await experiments.view(connection, number)
    location = {"Location": f"/v1/experiments/{found.id}", "Retry-After": POLL_S}
    return tagged(_view(found, warnings), status=202, headers={**location, **(headers or {})})


def _view(found: experiments.Standing, warnings: Sequence[str] = ()) -> ExperimentView:
    at = f"/v1/experiments/{found.id}"
    links = ExperimentLinks(itself=at, report=f"{at}/report", jobs=f"/v1/jobs?experiment={found.name}")
    return ExperimentView(links=links, warnings=tuple(warnings), **msgspec.structs.asdict(found))

"""`/v1/experiments`: grids of jobs, submitted whole, looked at, cancelled, resumed and compared as one thing."""

from collections.abc import Sequence
from typing import Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Response

from services.orchestrator.api import examples
from services.orchestrator.api.etags import UNCHANGED, Seen, tagged
from services.orchestrator.api.flaws import flawed
from services.orchestrator.api.jobs import POLL_S, REPLAYED
from services.orchestrator.api.keys import IdempotencyKey, keyed
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.plans import ANSWER as PLANNED
from services.orchestrator.api.plans import PlanView, planned
from services.orchestrator.api.views import edited
from services.orchestrator.deps import Held, Limit, Resources, json
from services.orchestrator.experiments import planning, running
from services.orchestrator.experiments.report import ExperimentReport, report
from shared.contracts.experiments import Experiment
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


PLAN: dict[str, Any] = {
    "name": "gate-or-not", "cells": 4, "refused": 0, "jobs": 4, "samples": 2000,
    "calls": {"judge": {"most": 7500, "apart": 11000}, "generate": {"most": 2000, "apart": 2000}},
    "plan": PLANNED, "notes": [planning.ONCE, planning.UPPER],
}  # fmt: skip
ONE = answers(ExperimentView, examples.EXPERIMENT)
ACCEPTED = answers(ExperimentView, examples.EXPERIMENT, status=202)
ENTRY: dict[str, Any] = {field: examples.EXPERIMENT[field] for field in experiments.Entry.__struct_fields__}


@router.post("", status_code=202, summary="Submit an experiment", responses=ACCEPTED)
async def submit(request: Experiment, held: Held, key: IdempotencyKey) -> Response:
    """202: all its jobs are committed, in one transaction. Cells that ask the same share a job; jobs share their calls.

    The same `Idempotency-Key` with the same body answers with the same experiment, as for jobs.
    """
    once = keyed(key, "POST /v1/experiments", request.model_dump())
    accepted = await running.submit_once(held.database, held.settings, request, once)
    warnings = await to_thread.run_sync(edited, [variant.pipeline for variant in request.variants])
    warnings += await flawed(held.database, experiment=accepted.experiment)
    return await _answer(held, accepted.experiment, {REPLAYED: "true"} if accepted.replayed else {}, warnings)


@router.post("/plan", summary="Plan an experiment", responses=answers(ExperimentPlan, PLAN))
async def plan(request: Experiment, held: Held) -> Response:
    """Nothing is made. What jobs share is counted once as far as that can be known, and calls are upper ends."""
    grid = await running.expanded(held.database, held.settings, request)
    async with held.database.transaction() as connection:
        drafts = await running.drafted(connection, held.settings, grid.jobs)
        work = await to_thread.run_sync(planning.work, await planning.sized(connection, drafts))
        return json(
            ExperimentPlan(
                name=request.name,
                cells=len(grid.cells),
                refused=sum(cell.refused is not None for cell in grid.cells),
                jobs=len(grid.jobs),
                samples=sum(draft.samples for draft in drafts),
                calls=work.calls,
                plan=await planned(connection, held, work.needs),
                notes=planning.notes(request, grid),
            )
        )


@router.get(
    "",
    summary="List experiments",
    responses=answers(pages.Page[experiments.Entry], {"data": [ENTRY], "next_cursor": None}),
)
async def listed(held: Held, limit: Limit = pages.DEFAULT, cursor: str | None = None) -> Response:
    """Newest first."""
    return json(await experiments.listed(held.database, limit, cursor))


@router.get("/{experiment}", summary="Get an experiment", responses=ONE | UNCHANGED)
async def get(experiment: str, held: Held, seen: Seen) -> Response:
    """Every cell with its job and state, samples counted, estimate. By id, name, or the first characters of the id."""
    found = await experiments.get(held.database, experiment)
    return tagged(_view(found), seen=seen, headers=None if found.ended else {"Retry-After": POLL_S})


@router.get(
    "/{experiment}/report",
    summary="Report on an experiment",
    responses=answers(ExperimentReport, examples.EXPERIMENT_REPORT),
)
async def report_on(experiment: str, held: Held) -> Response:
    """A row per cell: accuracy with interval, failures, calls made and reused, loads, the gate's decision."""
    return json(await report(held.database, experiment))


@router.post("/{experiment}/cancel", status_code=202, summary="Cancel an experiment", responses=ACCEPTED)
async def cancel(experiment: str, held: Held) -> Response:
    """Cancel every job of it that has not ended. Again is harmless."""
    return await _answer(held, await running.cancel(held.database, experiment))


@router.post("/{experiment}/resume", status_code=202, summary="Resume an experiment", responses=ACCEPTED)
async def resume(experiment: str, held: Held) -> Response:
    """Requeue its jobs that failed or were cancelled, or hold samples that failed for a passing reason.

    What ended well is not run again, and what failed computes only what it lacks. Again is harmless.
    """
    return await _answer(held, await running.resume(held.database, held.settings, experiment))


async def _answer(
    held: Resources, number: int, headers: dict[str, str] | None = None, warnings: Sequence[str] = ()
) -> Response:
    held.wake()
    async with held.database.snapshot() as connection:
        found = await experiments.view(connection, number)
    location = {"Location": f"/v1/experiments/{found.id}", "Retry-After": POLL_S}
    return tagged(_view(found, warnings), status=202, headers={**location, **(headers or {})})


def _view(found: experiments.Standing, warnings: Sequence[str] = ()) -> ExperimentView:
    at = f"/v1/experiments/{found.id}"
    links = ExperimentLinks(itself=at, report=f"{at}/report", jobs=f"/v1/jobs?experiment={found.name}")
    return ExperimentView(links=links, warnings=tuple(warnings), **msgspec.structs.asdict(found))

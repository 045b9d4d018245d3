"""Serves `/v1/experiments`: submits, shows, cancels, resumes and compares a grid of jobs as a unit."""

from collections.abc import Sequence

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Response

from services.orchestrator.access.identity import Caller, RequestCaller
from services.orchestrator.api.comparison import MeasureName
from services.orchestrator.api.jobs import POLL_S, REPLAYED
from services.orchestrator.api.plans import PlanView, make_plan
from services.orchestrator.api.routes import (
    UNCHANGED,
    IdempotencyKey,
    Limit,
    Seen,
    answers,
    json,
    make_keyed_request,
    respond_with_tag,
    route,
)
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.experiments import lifecycle, planning
from services.orchestrator.experiments.pilot import Pilot, submit_pilot
from services.orchestrator.experiments.report import ExperimentReport, report
from services.orchestrator.reports.comparison import parse_measure
from services.orchestrator.reports.warnings import list_edit_warnings, list_warnings
from shared.experiments import Experiment, Variant
from shared.shapes import ACCURACY, Scope
from shared.storage import database, experiments
from shared.storage.jobs import list_submitters

router = APIRouter(prefix="/v1/experiments", tags=["experiments"])


class ExperimentLinks(msgspec.Struct, frozen=True, kw_only=True, rename={"itself": "self"}):
    """Addresses of the resources of an experiment."""

    itself: str
    """Address of the experiment."""
    report: str
    """Address of the experiment's report."""
    jobs: str
    """Address of the list of the experiment's jobs."""


class ExperimentView(experiments.Standing, frozen=True, kw_only=True):
    """An experiment with links to its resources."""

    links: ExperimentLinks
    """Addresses of related resources."""
    warnings: tuple[str, ...] = ()
    """Warnings about the submission; only in its response."""


class ExperimentPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Size, calls and time of an experiment."""

    name: str
    """Name of the experiment."""
    cells: int
    """Number of cells: combinations of dataset, variant, grid point and seed."""
    refused: int
    """Number of cells that would be refused; `notes` says why."""
    jobs: int
    """Number of distinct jobs; cells with equal requests share one."""
    samples: int
    """Number of samples of all jobs."""
    calls: dict[str, planning.RoleCalls]
    """Upper bound of the calls, by role."""
    plan: PlanView
    """Loads and seconds for that many calls, and where the figures come from."""
    notes: list[str]
    """Remarks on the plan, such as why cells are refused."""


class PilotView(ExperimentView, frozen=True, kw_only=True):
    """The experiment of a pilot, and the questions and candidates that it leaves out."""

    rest: str | None
    """Dataset of the questions that were not drawn, for a measurement of the chosen pipeline; null if all questions are
    used."""
    left_out: dict[str, str]
    """Default candidates that are not tried, by name, with the reason."""


ONE = answers(ExperimentView)
ACCEPTED = answers(ExperimentView, status=202)


@route(router, "POST", "", Scope.SUBMIT, "Submit an experiment", ACCEPTED, refuses=(404, 409, 429), status_code=202)
async def submit(request: Experiment, deps: RequestDeps, caller: RequestCaller, key: IdempotencyKey) -> Response:
    """Submits a grid of jobs (docs/how-to/experiments.md). 202 means that all jobs are committed in one
    transaction; any other status means that none is. `Location` is the address of the experiment.

    Cells with equal requests share a job, and jobs share their calls. With an `Idempotency-Key` you can safely
    repeat the request: the same key with the same body answers with the same experiment
    (docs/how-to/api.md#idempotency).
    """
    once = make_keyed_request(key, "POST /v1/experiments", request.model_dump())
    async with deps.drafting:
        accepted = await lifecycle.submit_once(deps.database, deps.settings, request, caller.name, once)
    warnings = await _list_warnings(deps, accepted.experiment, request.variants)
    return await _answer(deps, accepted.experiment, {REPLAYED: "true"} if accepted.replayed else {}, warnings)


@route(router, "POST", "/plan", Scope.READ, "Plan an experiment", answers(ExperimentPlan), refuses=(404,))
async def plan(request: Experiment, deps: RequestDeps) -> Response:
    """Returns the cells, jobs, calls, loads and time of an experiment without creating anything. Calls that are
    known to be shared count once; the numbers of calls are upper bounds.
    """
    async with deps.drafting:
        grid = await lifecycle.expand_in_thread(deps.database, deps.settings, request)
        async with deps.database.transaction() as connection:
            drafts = await lifecycle.draft_jobs(connection, deps.settings, grid.jobs)
            work = await to_thread.run_sync(planning.count_work, await planning.load_sizes(connection, drafts))
            return json(
                ExperimentPlan(
                    name=request.name,
                    cells=len(grid.cells),
                    refused=sum(cell.refused is not None for cell in grid.cells),
                    jobs=len(grid.jobs),
                    samples=sum(draft.samples for draft in drafts),
                    calls=work.calls,
                    plan=await make_plan(connection, deps, work.needs),
                    notes=planning.list_notes(request, grid),
                )
            )


@route(
    router, "POST", "/pilot", Scope.SUBMIT, "Run a pilot", answers(PilotView, status=202),
    refuses=(404, 409, 429), status_code=202,
)  # fmt: skip
async def pilot(request: Pilot, deps: RequestDeps, caller: RequestCaller, key: IdempotencyKey) -> Response:
    """Draws questions of a dataset and submits an experiment that answers them by several pipelines
    (docs/how-to/experiments.md#pilot). The experiment's report then has a `recommendation`.

    The datasets of the drawn and the other questions (`rest`) and the experiment are named after the pilot. The
    same key with the same body answers with the same experiment.
    """
    once = make_keyed_request(key, "POST /v1/experiments/pilot", request.model_dump())
    origins = database.Origins(datasets=[request.dataset], corpora=[request.corpus] if request.corpus else ())
    async with deps.drafting, deps.database.in_project_of(origins):
        made = await submit_pilot(deps.database, deps.settings, request, caller.name, once)
    warnings = await _list_warnings(deps, made.experiment.experiment, request.variants)
    view = await _view_submitted(deps, made.experiment.experiment, warnings)
    fields = {**msgspec.structs.asdict(view), "rest": made.rest, "left_out": dict(made.left_out)}
    headers = {REPLAYED: "true"} if made.experiment.replayed else {}
    return respond_with_tag(PilotView(**fields), status=202, headers={**_locate(view), **headers})


@route(router, "GET", "", Scope.READ, "List experiments", answers(database.Page[experiments.Entry]), name="listed")
async def list_experiments(deps: RequestDeps, limit: Limit = database.DEFAULT, cursor: str | None = None) -> Response:
    """Lists the experiments, newest first."""
    return json(await experiments.list_experiments(deps.database, limit, cursor))


@route(router, "GET", "/{experiment}", Scope.READ, "Get an experiment", ONE | UNCHANGED, refuses=(404, 409))
async def get(experiment: str, deps: RequestDeps, seen: Seen) -> Response:
    """Returns every cell with its job and state, the counts of samples, and the estimate."""
    found = await experiments.get(deps.database, experiment)
    return respond_with_tag(_make_view(found), seen=seen, headers=None if found.ended else {"Retry-After": POLL_S})


@route(
    router, "GET", "/{experiment}/report", Scope.READ, "Report on an experiment",
    answers(ExperimentReport), refuses=(404, 409),
)  # fmt: skip
async def report_on(experiment: str, deps: RequestDeps, measure: MeasureName = ACCURACY) -> Response:
    """Returns one row per cell and the differences from the baseline. A row has the accuracy, or another `measure`,
    with its interval, the failures, the calls made and reused, the loads and the gate's decision.
    """
    return json(await report(deps.database, experiment, parse_measure(measure)))


@route(
    router, "POST", "/{experiment}/cancel", Scope.SUBMIT, "Cancel an experiment",
    ACCEPTED, refuses=(404, 409), status_code=202,
)  # fmt: skip
async def cancel(experiment: str, deps: RequestDeps, caller: RequestCaller) -> Response:
    """Cancels every job of the experiment that has not ended. A second request changes nothing."""
    await _check_owns(deps, experiment, caller)
    return await _answer(deps, await lifecycle.cancel(deps.database, experiment))


@route(
    router, "POST", "/{experiment}/resume", Scope.SUBMIT, "Resume an experiment",
    ACCEPTED, refuses=(404, 409, 429), status_code=202,
)  # fmt: skip
async def resume(experiment: str, deps: RequestDeps, caller: RequestCaller) -> Response:
    """Requeues the jobs of the experiment that failed or were cancelled, and those with samples that failed for a
    temporary reason.

    Completed samples do not run again, and failed ones compute only the missing calls. A second request changes
    nothing.
    """
    await _check_owns(deps, experiment, caller)
    async with deps.drafting:
        number = await lifecycle.resume(deps.database, deps.settings, experiment, caller.name)
    return await _answer(deps, number)


async def _check_owns(deps: Deps, experiment: str, caller: Caller) -> None:
    async with deps.database.transaction() as connection:
        number = await experiments.resolve(connection, experiment)
    submitters = await list_submitters(deps.database, experiment=number)
    caller.check_owns(submitters, f"experiment {experiment}")


async def _list_warnings(deps: Deps, number: int, variants: Sequence[Variant]) -> list[str]:
    warnings = await to_thread.run_sync(list_edit_warnings, [variant.pipeline for variant in variants])
    return warnings + await list_warnings(deps.database, experiment=number)


async def _answer(
    deps: Deps, number: int, headers: dict[str, str] | None = None, warnings: Sequence[str] = ()
) -> Response:
    found = await _view_submitted(deps, number, warnings)
    return respond_with_tag(found, status=202, headers={**_locate(found), **(headers or {})})


async def _view_submitted(deps: Deps, number: int, warnings: Sequence[str]) -> ExperimentView:
    deps.wake()
    async with deps.database.snapshot() as connection:
        return _make_view(await experiments.view(connection, number), warnings)


def _locate(found: ExperimentView) -> dict[str, str]:
    return {"Location": f"/v1/experiments/{found.id}", "Retry-After": POLL_S}


def _make_view(found: experiments.Standing, warnings: Sequence[str] = ()) -> ExperimentView:
    at = f"/v1/experiments/{found.id}"
    links = ExperimentLinks(itself=at, report=f"{at}/report", jobs=f"/v1/jobs?experiment={found.name}")
    return ExperimentView(links=links, warnings=tuple(warnings), **msgspec.structs.asdict(found))

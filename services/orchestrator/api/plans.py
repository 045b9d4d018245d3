"""Serves plans: which models a job's work would have resident on which device, at what cost, and why no alternative is
better.
"""

from functools import partial
from typing import Annotated, Self

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Invalid
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.jobs import JobRequest
from services.orchestrator.api.routes import answers, json, route
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.experiments import planning
from services.orchestrator.scheduling import demands, whatif
from services.orchestrator.scheduling.demands import (
    MeasuredSeconds,
    MeasuredSecondsReader,
    Needs,
    load_demands,
    load_rooms,
)
from services.orchestrator.scheduling.whatif import (
    MOST_DEVICES,
    MOST_MODELS,
    DeviceWanted,
    ModelWanted,
    RetrievalWanted,
    Speed,
)
from shared.fields import WHOLE, Stored
from shared.lease.memory import Hardware
from shared.lease.plan import Demand, Option, RetrievalDemand, Room, plan
from shared.runtime.advance import JobSpecs
from shared.runtime.submit import Drafting
from shared.shapes import Scope
from shared.storage import configurations, jobs
from shared.storage.devices import list_model_names

router = APIRouter(prefix="/v1", tags=["plans"])
MOST_QUESTIONS = 1 << 24


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """The cheapest plan that fits, and the alternatives."""

    chosen: Option | None
    """The cheapest plan; null if no plan fits (`why` says what would help) or if no model has work."""
    why: str
    """Why this plan is the cheapest, or why no plan fits."""
    others: list[Option]
    """The best plan of every other kind; a refused plan has the reason."""
    resident: dict[str, list[str]]
    """Models that each device holds now."""
    calls: dict[str, int] | None = None
    """Upper bound of the calls by role, if every document is rated once; null for a submitted job."""
    shared_s: float | None = None
    """Seconds of the cheapest plan if calls are shared as in `calls`; `chosen` assumes that every sample makes its own
    calls. Null for a submitted job."""


class Speeds(BaseModel):
    """Speed of the hardware, for values that were not measured (docs/how-to/planning.md has the defaults)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, strict=True)

    disk_mib_s: Speed = Hardware().disk_mib_s
    """Reading speed of the disk in MiB/s."""
    gpu_mib_s: Speed = Hardware().gpu_mib_s
    """Reading speed of the GPU's memory in MiB/s."""
    cpu_mib_s: Speed = Hardware().cpu_mib_s
    """Reading speed of the main memory in MiB/s."""

    def hardware(self) -> Hardware:
        """Return the hardware from which times are estimated."""
        return Hardware(**self.model_dump())


class PlanJob(JobRequest):
    """A hypothetical job. It needs no name, and no dataset if `questions` is given."""

    name: str = "plan"
    """Name of the job; only shown in the plan."""
    dataset: Stored = ""
    """Dataset; empty if `questions` is given."""


class PlanRequest(BaseModel):
    """A hypothetical job as for `POST /v1/jobs`, or models by their metadata, on the existing devices or on others."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": make_example("PlanRequest")},
    )

    job: PlanJob | None = None
    """Hypothetical job; null if `models` describe the work."""
    questions: Annotated[int, Field(ge=1, le=MOST_QUESTIONS), WHOLE] | None = None
    """Number of questions, instead of a dataset."""
    models: Annotated[list[ModelWanted], Field(max_length=MOST_MODELS)] = []
    """Models by their metadata. With a `job` they replace its models of the same roles and take over their calls."""
    devices: Annotated[list[DeviceWanted], Field(max_length=MOST_DEVICES)] = []
    """Devices that replace the configured ones; empty for the configured ones."""
    retrieval: RetrievalWanted | None = None
    """Retrieval that may share the GPU with the models; null leaves it out."""
    speeds: Speeds = Speeds()
    """Speed of the hardware, for values that were not measured."""

    @model_validator(mode="after")
    def _require_one_of_both(self) -> Self:
        if self.job is None and not self.models:
            raise ValueError("neither `job` nor `models` is given; give one of them")
        if self.job is not None and bool(self.job.dataset) == (self.questions is not None):
            raise ValueError("exactly one of `job.dataset` and `questions` must be given")
        return self


@route(router, "GET", "/jobs/{job}/plan", Scope.READ, "Plan the rest of a job", answers(PlanView), refuses=(404, 409))
async def of_job(job: str, deps: RequestDeps) -> Response:
    """Returns the residencies in order with their memory in MiB and the budget, the flips, the seconds and the
    reasons, for the calls that the job still has to make (docs/how-to/api.md#plans).

    Open calls are counted exactly; later ones are upper bounds. Other jobs' calls are not included.
    """
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
        spec = (await JobSpecs().load(connection, {row}, set()))[row]
        found = await jobs.view(connection, row)
        wanted = await demands.estimate_live(connection, row, spec, found.request_counts.total)
        return json(await make_plan(connection, deps, wanted))


@route(router, "POST", "/plan", Scope.READ, "Plan a hypothetical job", answers(PlanView), refuses=(404,))
async def what_if(request: PlanRequest, deps: RequestDeps) -> Response:
    """Plans a job that is not submitted, or models and devices that do not exist yet, in the form of `GET
    /v1/jobs/{job}/plan` (docs/how-to/api.md#plans).

    Nothing is stored or loaded. The number of calls is an upper bound: the calls of one question times the number
    of samples.
    """
    return json(await plan_request(request, deps))


async def plan_request(request: PlanRequest, deps: Deps) -> PlanView:
    """Return the answer of `POST /v1/plan`.

    Raises:
        NotFound, Invalid: a name or a value of the request cannot be used; the message names it.
    """
    retrieval = request.retrieval.retrieval() if request.retrieval else None
    async with deps.database.transaction() as connection:
        there = whatif.make_rooms(request.devices) or await load_rooms(connection, deps.settings.all_devices())
        hardware, on_gpu = request.speeds.hardware(), whatif.on_gpu(there[0].device)
        if request.job is None:
            wanting = whatif.make_demands(request.models, hardware, on_gpu=on_gpu)
            return await _plan_view(connection, wanting, there, None, retrieval)
        submission = request.job.submission(await configurations.find_newest(connection))
        draft = await Drafting(connection, deps.settings).draft(submission, request.questions)
        work = await to_thread.run_sync(planning.count_work, await planning.load_sizes(connection, [draft]))
        alone = await to_thread.run_sync(demands.estimate_new, draft.spec, draft.samples)
        views = []
        for wanted in (alone, work.needs):
            found = await _load_demands(connection, deps, wanted, hardware)
            if request.devices:
                found = [msgspec.structs.replace(demand, device=None) for demand in found]
            replaced = whatif.replace_models(found, wanted, request.models, hardware, on_gpu=on_gpu)
            views.append(await _plan_view(connection, replaced.demands, there, replaced.order, retrieval))
    view, shared = views
    calls = {role: each.most for role, each in work.calls.items()}
    return msgspec.structs.replace(view, calls=calls, shared_s=shared.chosen and shared.chosen.seconds)


async def make_plan(connection: AsyncConnection, deps: Deps, wanted: Needs) -> PlanView:
    """Plan this work on the current devices."""
    wanting = await _load_demands(connection, deps, wanted, Hardware())
    there = await load_rooms(connection, deps.settings.all_devices())
    return await _plan_view(connection, wanting, there, wanted.order)


async def _load_demands(connection: AsyncConnection, deps: Deps, wanted: Needs, hardware: Hardware) -> list[Demand]:
    measured: dict[str, MeasuredSeconds] = {
        device.id: await MeasuredSecondsReader(device.id).read(connection) for device in deps.settings.all_devices()
    }
    return await load_demands(connection, deps.settings.models, wanted.wanted, measured, hardware)


async def _plan_view(
    connection: AsyncConnection,
    wanting: list[Demand],
    there: list[Room],
    order: tuple[int, ...] | None,
    retrieval: RetrievalDemand | None = None,
) -> PlanView:
    try:
        found = await to_thread.run_sync(partial(plan, wanting, there, order=order, retrieval=retrieval))
    except ValueError as error:
        raise Invalid(f"`models`: {error}", hint="use fewer models or devices; see GET /v1/gpus") from error
    return PlanView(
        chosen=found.chosen,
        why=found.why,
        others=list(found.others),
        resident={room.device: await list_model_names(connection, room.resident) for room in there},
    )

"""Serves `/v1/gpus`, `/v1/now` and `/v1/shares`: devices, the current work of the stack, and what each key uses."""

from typing import Annotated

import httpx2
import msgspec
from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field
from redis.exceptions import RedisError

from mathrag.errors import NotFound, Unavailable
from mathrag.messages import make_hint
from services.orchestrator.access.identity import Actor, RequestCaller
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.routes import answers, json, route
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.probes import TOLERATED
from services.orchestrator.scheduling.scheduler import NextFlip, predict_next_flip
from shared.lease.lease import RedisLease
from shared.runtime import queue
from shared.runtime.shares import Shares, load_shares
from shared.shapes import Scope, allows
from shared.storage import database, devices, jobs

router = APIRouter(prefix="/v1/gpus", tags=["gpus"])
GUARD_S = 1.0
"""Longest wait for the guard in seconds. Only the guard knows its current state; if it does not answer, the view says
so.
"""
MOST_REASON = 500

Device = Annotated[str, Path(max_length=200, examples=["cpu:0"])]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease that Redis holds and that workers read."""

    epoch: int
    """Number of the residency; it grows with every change of the resident models."""
    phase: str
    """Phase of the residency."""
    models: list[str]
    """Names of the models that the lease covers."""


class GuardState(msgspec.Struct, frozen=True, kw_only=True):
    """State of the device's guard as it reports it; if it does not answer, all fields but `reachable` and `detail` are
    null.
    """

    reachable: bool
    """Whether the guard answered."""
    state: str | None = None
    """Step of the current flip; `open` means that calls are admitted."""
    epoch: int | None = None
    """Number of the residency that the guard serves."""
    in_flight: int | None = None
    """Number of running model calls."""
    detail: str | None = None
    """Why the guard's state is unknown; null if it is known."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Memory of the device's models in MiB."""

    budget: int | None
    """Budget of the device; null if it is configured in another orchestrator."""
    declared: int
    """Sum of the declared footprints of the resident models; it is compared with the budget."""
    measured: float | None
    """Memory of the models' processes, measured when the residency was opened; null if nothing was measured."""
    remark: str | None = None
    """Models on a CPU that use more memory than declared; missing if there are none."""


class DeviceView(devices.DeviceState, frozen=True, kw_only=True):
    """A device, the models that it holds, and the reason."""

    device: str
    """Id of the device, such as `gpu:0`."""
    memory: Memory
    """Memory of the device's models."""
    lease: Lease | None
    """Lease in Redis; null if Redis holds none or does not answer. Without a lease, no worker claims model calls."""
    guard: GuardState
    """State of the guard that loads the device's models."""


class DrainRequest(BaseModel):
    """The reason for a drain; the body may be left out."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": {"reason": "driver update"}},
    )

    reason: Annotated[str, Field(max_length=MOST_REASON, pattern=r"^[^\x00]*$")] | None = None
    """Reason for the drain, which `GET /v1/gpus` shows; null for none."""


DRAINED = make_example(DeviceView, drain={"reason": "driver update", "since": "2026-11-21T08:01:00Z"})
QUARANTINED = make_example(
    DeviceView,
    state="quarantined",
    models=[],
    lease={"epoch": 12, "phase": "quarantined", "models": []},
    guard={"reachable": True, "state": "quarantined", "epoch": None, "in_flight": 0, "detail": None},
    flips=[make_example("QuarantinedFlip")],
)


@route(router, "GET", "", Scope.READ, "List devices", answers(list[DeviceView]), name="listed")
async def list_devices(deps: RequestDeps) -> Response:
    """Lists every device that is configured or has ever held a model, by name, in the form of `GET
    /v1/gpus/{device}`.
    """
    return json(await load_devices(deps))


@route(router, "GET", "/{device}", Scope.READ, "Get a device", answers(DeviceView), refuses=(404,))
async def get(device: Device, deps: RequestDeps) -> Response:
    """Returns the models that the device holds and the reason (docs/how-to/api.md#devices). The response comes from
    the database, the lease and the guard; it also says if the guard does not answer.
    """
    return json(await _make_view(deps, await check_device(deps, device)))


@route(
    router, "POST", "/{device}/drain", Scope.OPERATE, "Drain a device",
    answers(DeviceView, DRAINED, status=202), refuses=(404,), status_code=202,
)  # fmt: skip
async def drain(device: Device, deps: RequestDeps, actor: Actor, request: DrainRequest | None = None) -> Response:
    """Lets calls in flight finish, unloads the models, and loads no model until `release`, even after a restart
    (docs/how-to/api.md#devices).

    Queued calls stay queued, so jobs wait and do not fail. 202 means that the request is stored. The device is
    empty once `state` is `open` or `closed` and `models` is empty. A second request changes nothing.
    """
    await devices.drain_device(
        deps.database, await check_device(deps, device), request.reason if request else None, actor
    )
    deps.wake()
    return json(await _make_view(deps, device), 202)


@route(
    router, "POST", "/{device}/release", Scope.OPERATE, "Release a device",
    answers(DeviceView, status=202), refuses=(404,), status_code=202,
)  # fmt: skip
async def release(device: Device, deps: RequestDeps, actor: Actor) -> Response:
    """Ends the drain; the scheduler continues at once with the queued calls (docs/how-to/api.md#devices). A second
    request changes nothing.
    """
    await devices.release_device(deps.database, await check_device(deps, device), actor)
    deps.wake()
    return json(await _make_view(deps, device), 202)


@route(
    router, "POST", "/{device}/retry", Scope.OPERATE, "Retry a device",
    answers(DeviceView, QUARANTINED, status=202), refuses=(404, 503), status_code=202,
)  # fmt: skip
async def retry(device: Device, deps: RequestDeps, actor: Actor) -> Response:
    """Ends the pause of a quarantined device, so that it is tried again as soon as a call needs it
    (docs/how-to/api.md#devices). A device that is not quarantined does not change.
    """
    lease = RedisLease(deps.redis, await check_device(deps, device))
    try:
        is_quarantined = await queue.retry_device(deps.database, lease, device)
    except RedisError as error:
        raise Unavailable(f"Redis does not answer: {error}", hint="mathrag doctor") from error
    if is_quarantined:
        async with deps.database.transaction() as connection:
            await database.record_operation(connection, actor, "gpu.retry", device)
        deps.wake()
    return json(await _make_view(deps, device), 202)


async def load_devices(deps: Deps) -> list[DeviceView]:
    """Return all devices, by name."""
    return [await _make_view(deps, device) for device in sorted(await _get_device_names(deps))]


async def check_device(deps: Deps, device: str) -> str:
    """Return the name of the device after checking that it exists.

    Raises:
        NotFound: no device has this name.
    """
    known = await _get_device_names(deps)
    if device not in known:
        hint = make_hint(device, known, "mathrag gpu")
        raise NotFound(f"no device {device!r}; the devices are {', '.join(sorted(known))}", hint=hint)
    return device


async def _get_device_names(deps: Deps) -> set[str]:
    return {*(device.id for device in deps.settings.all_devices()), *await devices.list_devices(deps.database)}


async def _make_view(deps: Deps, device: str) -> DeviceView:
    own = next((each for each in deps.settings.all_devices() if each.id == device), None)
    rows = await devices.load_device(deps.database, device)
    held, lease = await RedisLease(deps.redis, device).read(), None
    if held is not None:
        async with deps.database.transaction() as connection:
            names = await devices.list_model_names(connection, held.models)
        lease = Lease(epoch=held.epoch, phase=held.phase.value, models=names)
    guard = GuardState(reachable=False, detail="only its own orchestrator can ask this guard")
    if own is not None:
        try:
            reply = await deps.http.get(f"{own.guard_url}/state", timeout=GUARD_S)
            reply.raise_for_status()
            guard = msgspec.convert({**reply.json(), "reachable": True}, GuardState)
        except (httpx2.HTTPError, ValueError) as error:
            guard = GuardState(reachable=False, detail=str(error).partition("\n")[0] or type(error).__name__)
    memory = make_memory(device, rows.models, own.models_mib if own else None)
    return DeviceView(device=device, memory=memory, lease=lease, guard=guard, **msgspec.structs.asdict(rows))


def make_memory(device: str, models: list[devices.ResidentModel], budget: int | None) -> Memory:
    """Return the memory of a device's models, with a remark on those that use more than they declare."""
    measured = [model.measured_mib for model in models if model.measured_mib is not None]
    larger = [
        f"{model.name} uses {model.measured_mib:.0f} MiB, but its `footprint_mib` declares {model.footprint_mib}"
        for model in models
        if device.startswith("cpu")  # GPU memory of processes is not host memory
        and model.footprint_mib
        and (model.measured_mib or 0) > TOLERATED * model.footprint_mib
    ]
    return Memory(
        budget=budget,
        declared=sum(model.footprint_mib for model in models),
        measured=round(sum(measured), 1) if measured else None,
        remark=f"{'; '.join(larger)}: raise it, or the device runs out of memory within its budget" if larger else None,
    )


# Serves `/v1/now`: the models on every device, the work of both lanes, and the conditions of the next flips.

now_router = APIRouter(prefix="/v1/now", tags=["gpus"])


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """The current activity of the service."""

    devices: list[DeviceView]
    """Every device that is configured or has held a model, by name."""
    lanes: list[jobs.LaneWork]
    """Models with calls that are queued in a lane, or that ended in the last 30 s."""
    next_flips: dict[str, NextFlip]
    """The next change of models by device; a device is missing if no call waits for a model that it does not hold."""


@route(now_router, "GET", "", Scope.READ, "Get the current activity", answers(Now))
async def now(deps: RequestDeps) -> Response:
    """Returns the devices in the form of `GET /v1/gpus`, the queued and ended calls by lane and model, and the next
    change of models on each device, with the calls that come before and after it.
    """
    return json(await load_activity(deps))


async def load_activity(deps: Deps) -> Now:
    """Return the current work of the service."""
    devices = await load_devices(deps)
    async with deps.database.snapshot() as connection:
        work = await jobs.load_work(connection)
    flips = {
        each.device: predict_next_flip(each.device, [model.name for model in each.models], work) for each in devices
    }
    return Now(devices=devices, lanes=work, next_flips={name: flip for name, flip in flips.items() if flip is not None})


# Serves `/v1/shares`: what each key may use and has used.

shares_router = APIRouter(prefix="/v1/shares", tags=["gpus"])


@route(shares_router, "GET", "", Scope.READ, "Get the shares of keys", answers(Shares))
async def get_shares(deps: RequestDeps, caller: RequestCaller) -> Response:
    """Returns the weight, project, samples and GPU time of each valid key. A key without the scope `operate` sees only
    itself (docs/how-to/security.md#several-people-on-one-gpu).
    """
    own = None if allows(caller.scopes, Scope.OPERATE) else caller.name
    async with deps.database.snapshot() as connection, database.show_all(connection):
        return json(await load_shares(connection, deps.settings.limits, own))

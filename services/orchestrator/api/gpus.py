"""`/v1/gpus`: what each device holds, why, and whether an operator wants it empty."""

from typing import Annotated, Any

import httpx2
import msgspec
from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.access.identity import Actor
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.probes.device import TOLERATED
from shared import suggestions
from shared.contracts.api_keys import Scope
from shared.errors import NotFound
from shared.lease.lease import RedisLease
from shared.storage import devices

router = APIRouter(prefix="/v1/gpus", tags=["gpus"])
GUARD_S = 1.0
"""Longest wait for the guard: it is asked for what only it knows, and its absence is an answer."""
MOST_REASON = 500

Device = Annotated[str, Path(max_length=200, examples=["cpu:0"])]


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The live copy in Redis that workers read."""

    epoch: int
    phase: str
    models: list[str]


class GuardState(msgspec.Struct, frozen=True, kw_only=True):
    """What the device's guard says of itself; all but `reachable` and `detail` are null where it does not answer."""

    reachable: bool
    state: str | None = None
    """Step of the flip that it is in; `open`: calls are admitted."""
    epoch: int | None = None
    in_flight: int | None = None
    """Model calls that run now."""
    detail: str | None = None
    """Why nothing is known."""


class Memory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """In MiB."""

    budget: int | None
    """Null for a device of another orchestrator's configuration."""
    declared: int
    """Footprints of the resident models, added up: what is held against the budget."""
    measured: float | None
    """Of their processes when the residency was opened; null where nothing was measured."""
    remark: str | None = None
    """Which models of a processor hold more than was declared for them; missing where none does."""


class DeviceView(devices.Held, frozen=True, kw_only=True):
    """A device: what it holds and why."""

    device: str
    memory: Memory
    lease: Lease | None
    """Null: Redis has none, or does not answer; then nobody claims model calls."""
    guard: GuardState


class DrainRequest(BaseModel):
    """Why the device is wanted empty; may be left out."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": {"reason": "driver update"}})

    reason: Annotated[str, Field(max_length=MOST_REASON, pattern=r"^[^\x00]*$")] | None = None


EXAMPLE: dict[str, Any] = {
    "device": "cpu:0", "state": "open", "epoch": 12,
    "models": [{"name": "world-judge", "digest": "a2d1…", "footprint_mib": 96, "measured_mib": 41.5}],
    "drain": None, "memory": {"budget": 160, "declared": 96, "measured": 41.5},
    "lease": {"epoch": 12, "phase": "open", "models": ["world-judge"]},
    "guard": {"reachable": True, "state": "open", "epoch": 12, "in_flight": 8, "detail": None},
    "flips": [{"epoch": 12, "models": ["world-judge"], "cause": "drained", "state": "open", "reason": None,
               "wanted_at": "2026-11-21T08:00:00Z", "opened_at": "2026-11-21T08:00:01Z", "closed_at": None,
               "load_s": 0.42, "declared_mib": 96}],
}  # fmt: skip
EMPTIED: dict[str, Any] = {**EXAMPLE, "drain": {"reason": "driver update", "since": "2026-11-21T08:01:00Z"}}


@route(router, "GET", "", Scope.READ, "List devices", answers(list[DeviceView], [EXAMPLE]))
async def listed(deps: RequestDeps) -> Response:
    """Every device that ever held a model or may, by name, each as in `GET /v1/gpus/{device}`."""
    return json(await every(deps))


@route(router, "GET", "/{device}", Scope.READ, "Get a device", answers(DeviceView, EXAMPLE), refuses=(404,))
async def get(device: Device, deps: RequestDeps) -> Response:
    """What it holds, and why (docs/api.md#devices). From the database's rows; lease and guard are asked, too, and their
    absence is shown, not fatal.
    """
    return json(await _view(deps, await check_device(deps, device)))


@route(
    router, "POST", "/{device}/drain", Scope.OPERATE, "Empty a device",
    answers(DeviceView, EMPTIED, status=202), refuses=(404,), status_code=202,
)  # fmt: skip
async def drain(device: Device, deps: RequestDeps, actor: Actor, request: DrainRequest | None = None) -> Response:
    """Calls in flight end, the models are unloaded, and none is loaded until `release`, whatever is restarted
    (docs/api.md#devices).

    Queued calls stay queued: jobs wait, none fails. 202: it is written down. The device is empty once `state` is
    `open` or `closed` and `models` is empty. Again is harmless.
    """
    await devices.drain(deps.database, await check_device(deps, device), request.reason if request else None, actor)
    deps.wake()
    return json(await _view(deps, device), 202)


@route(
    router, "POST", "/{device}/release", Scope.OPERATE, "Use a device again",
    answers(DeviceView, EXAMPLE, status=202), refuses=(404,), status_code=202,
)  # fmt: skip
async def release(device: Device, deps: RequestDeps, actor: Actor) -> Response:
    """The scheduler goes on at once with what is queued (docs/api.md#devices). Again is harmless."""
    await devices.release(deps.database, await check_device(deps, device), actor)
    deps.wake()
    return json(await _view(deps, device), 202)


async def every(deps: Deps) -> list[DeviceView]:
    """All devices, by name."""
    return [await _view(deps, device) for device in sorted(await _known(deps))]


async def check_device(deps: Deps, device: str) -> str:
    """The device, which there must be.

    Raises:
        NotFound: there is none of this name.
    """
    known = await _known(deps)
    if device not in known:
        hint = suggestions.hint(device, known, "mathrag gpu")
        raise NotFound(f"no device {device!r}; there are: {', '.join(sorted(known))}", hint=hint)
    return device


async def _known(deps: Deps) -> set[str]:
    return {*(device.id for device in deps.settings.all_devices()), *await devices.known(deps.database)}


async def _view(deps: Deps, device: str) -> DeviceView:
    own = next((each for each in deps.settings.all_devices() if each.id == device), None)
    rows = await devices.held(deps.database, device)
    return DeviceView(
        device=device,
        memory=_memory(device, rows.models, own.models_mib if own else None),
        lease=await _lease(deps, device),
        guard=await _guard(deps, own.guard_url)
        if own
        else GuardState(reachable=False, detail="asked by its own orchestrator only"),
        **msgspec.structs.asdict(rows),
    )


def _memory(device: str, models: list[devices.ResidentModel], budget: int | None) -> Memory:
    measured = [model.measured_mib for model in models if model.measured_mib is not None]
    declared = sum(model.footprint_mib for model in models)
    return Memory(
        budget=budget,
        declared=declared,
        measured=round(sum(measured), 1) if measured else None,
        remark=_remark(models) if device.startswith("cpu") else None,  # what processes hold of a GPU is no host memory
    )


def _remark(models: list[devices.ResidentModel]) -> str | None:
    larger = [
        f"{model.name} holds {model.measured_mib:.0f} MiB, its `footprint_mib` says {model.footprint_mib}"
        for model in models
        if model.footprint_mib and (model.measured_mib or 0) > TOLERATED * model.footprint_mib
    ]
    return f"{'; '.join(larger)}: correct it, or the budget promises memory that is not there" if larger else None


async def _lease(deps: Deps, device: str) -> Lease | None:
    lease = await RedisLease(deps.redis, device).read()
    if lease is None:
        return None
    async with deps.database.transaction() as connection:
        names = await devices.names(connection, lease.models)
    return Lease(epoch=lease.epoch, phase=lease.phase.value, models=names)


async def _guard(deps: Deps, url: str) -> GuardState:
    try:
        reply = await deps.http.get(f"{url}/state", timeout=GUARD_S)
        reply.raise_for_status()
        return msgspec.convert({**reply.json(), "reachable": True}, GuardState)
    except (httpx2.HTTPError, ValueError) as error:
        return GuardState(reachable=False, detail=str(error).partition("\n")[0] or type(error).__name__)

"""Serves `/v1/now`: what every device holds, what both lanes do, and what the next flips wait for."""

from typing import Any

import msgspec
from fastapi import APIRouter, Response

from services.orchestrator.api import gpus
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.scheduling.next_flip import NextFlip, predict_next_flip
from shared.shapes import Scope
from shared.storage import jobs

router = APIRouter(prefix="/v1/now", tags=["gpus"])
EXAMPLE: dict[str, Any] = {
    "devices": [gpus.EXAMPLE],
    "lanes": [
        {"lane": "judge", "model": "world-judge", "device": "cpu:0", "queued": 42, "running": 8, "ended": 310,
         "window_s": 30.0},
        {"lane": "generate", "model": "world-generator", "device": "cpu:0", "queued": 500, "running": 0, "ended": 0,
         "window_s": 30.0},
    ],
    "next_flips": {"cpu:0": {"models": ["world-generator"], "waiting": 500, "left": 42, "low_s": 3.6, "high_s": 4.6}},
}  # fmt: skip


class Now(msgspec.Struct, frozen=True, kw_only=True):
    """What the service is doing at this moment."""

    devices: list[gpus.DeviceView]
    lanes: list[jobs.LaneWork]
    """Models with calls that are queued in a lane, or that ended in the last 30 s."""
    next_flips: dict[str, NextFlip]
    """The next flip by device; a device is missing if no call waits for a model that it does not hold."""


@route(router, "GET", "", Scope.READ, "Get the current activity", answers(Now, EXAMPLE))
async def now(deps: RequestDeps) -> Response:
    """Returns the devices as `GET /v1/gpus` shows them, the calls that are queued and ended by lane and model, and what
    flips wait for.
    """
    return json(await load_activity(deps))


async def load_activity(deps: Deps) -> Now:
    """Return what the service is doing now."""
    devices = await gpus.load_devices(deps)
    async with deps.database.snapshot() as connection:
        work = await jobs.load_work(connection)
    flips = {
        each.device: predict_next_flip(each.device, [model.name for model in each.models], work) for each in devices
    }
    return Now(devices=devices, lanes=work, next_flips={name: flip for name, flip in flips.items() if flip is not None})

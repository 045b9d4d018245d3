"""`/`: what each device holds and does now, and what comes next."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Form, Response

from services.orchestrator.api import gpus
from services.orchestrator.api.now import moment
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.live import Fragment, stream
from services.orchestrator.web.page import Visitor, as_json, environment, go_to, page
from shared.contracts.api_keys import Scope
from shared.pages.charts.timeline import timeline
from shared.storage import devices, jobs

router = APIRouter()
LIVE = 8
"""Jobs that are shown; the list of jobs has all."""


@page(router, "/")
async def now(visit: Visitor, deps: RequestDeps) -> Response:
    """Devices, lanes and jobs that run; keeps itself up to date."""
    return visit.show("now/now.html", title="Now", json="/v1/now", **await _values(deps))


@page(router, "/live/now")
async def live(deps: RequestDeps) -> Response:
    """What changed."""
    return stream(deps, "now", partial(_draw, deps))


@page(router, "/gpus/{device}/drain", Scope.OPERATE, method="POST")
async def drain(
    device: str, visit: Visitor, deps: RequestDeps, reason: Annotated[str, Form(max_length=gpus.MOST_REASON)] = ""
) -> Response:
    """As `POST /v1/gpus/{device}/drain`."""
    await devices.drain(deps.database, await gpus.check_device(deps, device), reason.strip() or None, visit.actor)
    deps.wake()
    return go_to("/")


@page(router, "/gpus/{device}/release", Scope.OPERATE, method="POST")
async def release(device: str, visit: Visitor, deps: RequestDeps) -> Response:
    """As `POST /v1/gpus/{device}/release`."""
    await devices.release(deps.database, await gpus.check_device(deps, device), visit.actor)
    deps.wake()
    return go_to("/")


async def _draw(deps: Deps) -> Fragment:
    return Fragment(environment().get_template("now/live.html").render(**await _values(deps)))


async def _values(deps: Deps) -> dict[str, Any]:
    found = as_json(await moment(deps))
    at = datetime.now(UTC)
    drawn = {each["device"]: timeline(each["flips"], each["memory"]["budget"], at) for each in found["devices"]}
    return {"now": found, "timelines": drawn, "jobs": [as_json(job) for job in await _jobs(deps)]}


async def _jobs(deps: Deps) -> list[jobs.Job]:
    """Those that run, counted as rarely as pollers count them."""
    async with deps.database.statement() as connection:
        found = await jobs.live(connection, LIVE)
    return [await deps.job_views.get(deps.database, each) for each in found]

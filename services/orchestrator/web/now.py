"""Serves `/`: what each device holds and does now, and what comes next."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Form, Response

from services.orchestrator.api import gpus
from services.orchestrator.api.now import load_activity
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.live import Fragment, stream
from services.orchestrator.web.page import Visitor, as_json, go_to, make_environment, page
from shared.pages.charts.timeline import draw_timeline
from shared.shapes import Scope
from shared.storage import devices, jobs

router = APIRouter()
LIVE = 8
"""Number of running jobs that are shown; the list of jobs has all."""


@page(router, "/")
async def now(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the devices, lanes and running jobs; the page updates itself."""
    return visit.show("now/now.html", title="Now", json="/v1/now", **await _load_values(deps))


@page(router, "/live/now")
async def stream_changes(deps: RequestDeps) -> Response:
    """Streams the changes of the page."""
    return stream(deps, "now", partial(_draw, deps))


@page(router, "/gpus/{device}/drain", Scope.OPERATE, method="POST")
async def drain(
    device: str, visit: Visitor, deps: RequestDeps, reason: Annotated[str, Form(max_length=gpus.MOST_REASON)] = ""
) -> Response:
    """Drains a device as `POST /v1/gpus/{device}/drain` does."""
    await devices.drain_device(
        deps.database, await gpus.check_device(deps, device), reason.strip() or None, visit.actor
    )
    deps.wake()
    return go_to("/")


@page(router, "/gpus/{device}/release", Scope.OPERATE, method="POST")
async def release(device: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Releases a device as `POST /v1/gpus/{device}/release` does."""
    await devices.release_device(deps.database, await gpus.check_device(deps, device), visit.actor)
    deps.wake()
    return go_to("/")


async def _draw(deps: Deps) -> Fragment:
    return Fragment(make_environment().get_template("now/live.html").render(**await _load_values(deps)))


async def _load_values(deps: Deps) -> dict[str, Any]:
    found = as_json(await load_activity(deps))
    at = datetime.now(UTC)
    drawn = {each["device"]: draw_timeline(each["flips"], each["memory"]["budget"], at) for each in found["devices"]}
    return {"now": found, "timelines": drawn, "jobs": [as_json(job) for job in await _load_jobs(deps)]}


async def _load_jobs(deps: Deps) -> list[jobs.Job]:
    """Return the running jobs, counted as rarely as pollers count them."""
    async with deps.database.statement() as connection:
        found = await jobs.list_live_ids(connection, LIVE)
    return [await deps.job_views.get(deps.database, each) for each in found]

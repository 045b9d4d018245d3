"""Serves `/now` and `/doctor`: the current work of the stack, and its problems."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Form, Response

from services.orchestrator.api import gpus
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.probes import Probe, checks, list_readiness_probes, probes
from services.orchestrator.web.job import Fragment, stream
from services.orchestrator.web.page import Visit, Visitor, as_json, go_to, make_environment, page
from shared.pages.charts import draw_timeline
from shared.shapes import Scope
from shared.storage import devices, jobs

router = APIRouter()
LIVE = 8
"""Number of running jobs that are shown; the list of jobs has all."""


@page(router, "/now")
async def now(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the devices, lanes and running jobs; the page updates itself."""
    return visit.show("now/now.html", title="Now", json="/v1/now", **await _load_values(deps))


@page(router, "/live/now")
async def stream_changes(deps: RequestDeps) -> Response:
    """Streams the changes of the page."""

    async def draw() -> Fragment:
        return Fragment(make_environment().get_template("now/live.html").render(**await _load_values(deps)))

    return stream(deps, "now", draw)


@page(router, "/gpus/{device}/drain", Scope.OPERATE, method="POST")
async def drain(
    device: str, visit: Visitor, deps: RequestDeps, reason: Annotated[str, Form(max_length=gpus.MOST_REASON)] = ""
) -> Response:
    """Drains a device as `POST /v1/gpus/{device}/drain` does."""
    known = await gpus.check_device(deps, device)
    await devices.drain_device(deps.database, known, reason.strip() or None, visit.actor)
    deps.wake()
    return go_to("/now")


@page(router, "/gpus/{device}/release", Scope.OPERATE, method="POST")
async def release(device: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Releases a device as `POST /v1/gpus/{device}/release` does."""
    await devices.release_device(deps.database, await gpus.check_device(deps, device), visit.actor)
    deps.wake()
    return go_to("/now")


async def _load_values(deps: Deps) -> dict[str, Any]:
    found = as_json(await gpus.load_activity(deps))
    at = datetime.now(UTC)
    drawn = {each["device"]: draw_timeline(each["flips"], each["memory"]["budget"], at) for each in found["devices"]}
    async with deps.database.statement() as connection:
        live = await jobs.list_live_ids(connection, LIVE)
    # The running jobs, counted as rarely as pollers count them.
    views = [as_json(await deps.job_views.get(deps.database, each)) for each in live]
    return {"now": found, "timelines": drawn, "jobs": views}


@page(router, "/doctor")
async def doctor(visit: Visitor, deps: RequestDeps) -> Response:
    """Runs the checks of what jobs depend on."""
    return await _show(visit, deps, list_readiness_probes(deps.settings), "/readyz")


@page(router, "/doctor/everything", Scope.OPERATE)
async def check_everything(visit: Visitor, deps: RequestDeps) -> Response:
    """Runs all checks, including those that hash every index and every model file."""
    return await _show(visit, deps, probes(deps.settings), "/v1/checks")


async def _show(visit: Visit, deps: RequestDeps, looked_at: Sequence[Probe], json: str) -> Response:
    found = await checks(looked_at, deps)
    wrong = [check for check in found if not check.ok]
    well = [check for check in found if check.ok]
    return visit.show("doctor/doctor.html", title="Doctor", json=json, wrong=wrong, well=well)

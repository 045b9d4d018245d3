"""`/jobs/{job}`: one job, live: how far it is, how well it does, what was decided."""

import shlex
import uuid
from typing import Any

import msgspec
from fastapi import APIRouter, Response

from services.orchestrator.api import jobs as api
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.live import Fragment, stream
from services.orchestrator.web.page import Visitor, as_json, environment, go_to, page
from services.orchestrator.web.standing import standing
from shared.contracts.api_keys import Scope
from shared.contracts.changed_params import changed
from shared.pipelines import registry
from shared.storage import jobs
from shared.storage.jobs import Job

router = APIRouter()


@page(router, "/jobs/{job}")
async def show(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """By id, by name, or by the first characters of the id."""
    found = await standing(deps, job)
    params = as_json(found.job.params) or found.job.stored_params or {}
    return visit.show(
        "job/job.html", title=found.job.name, json=f"/v1/jobs/{found.job.id}", once=uuid.uuid4().hex,
        differing=dict(changed(params)), parameters=_written(params),
        commands=commands(found.job), offered=found.job.pipeline in registry.offered(), **found.shown(),
    )  # fmt: skip


@page(router, "/live/jobs/{job}")
async def live(deps: RequestDeps, job: str) -> Response:
    """Its state and its progress, whenever they changed."""
    known = await jobs.public_id(deps.database, job)

    async def draw() -> Fragment:
        found = await standing(deps, str(known))
        drawn = environment().get_template("job/live.html").render(**found.shown())
        return Fragment(drawn, last=found.job.ended)

    return stream(deps, ("job", known), draw)


@page(router, "/jobs/{job}/pause", Scope.SUBMIT, method="POST")
async def pause(deps: RequestDeps, job: str) -> Response:
    """Nothing of it is begun any more."""
    await api.pause(job, deps, None)
    return go_to(f"/jobs/{job}")


@page(router, "/jobs/{job}/resume", Scope.SUBMIT, method="POST")
async def resume(deps: RequestDeps, job: str) -> Response:
    """It goes on where it was."""
    await api.resume(job, deps, None)
    return go_to(f"/jobs/{job}")


@page(router, "/jobs/{job}/cancel", Scope.SUBMIT, method="POST")
async def cancel(deps: RequestDeps, job: str) -> Response:
    """It ends now."""
    await api.cancel(job, deps, None)
    return go_to(f"/jobs/{job}")


@page(router, "/jobs/{job}/requeue", Scope.SUBMIT, method="POST")
async def requeue(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """The new job; the same form sent again shows the same job."""
    once = (await visit.request.form()).get("once")
    accepted = await api.requeue(job, deps, str(once) if once else None)
    return go_to(accepted.headers["location"].removeprefix("/v1"))


def commands(job: Job) -> list[str]:
    """What the command line has for this job."""
    name = shlex.quote(job.name)
    ended = [f"mathrag job report {name}", f"mathrag audit {name}", f"mathrag job export {name} --to {name}"]
    return ended if job.ended else [f"mathrag job watch {name}", f"mathrag job cancel {name}"]


def _written(params: Any) -> str:
    """Parameters as JSON that people read."""
    return msgspec.json.format(msgspec.json.encode(params), indent=2).decode()

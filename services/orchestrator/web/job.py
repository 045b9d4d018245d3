"""Serves `/jobs/{job}`: one job, live, with its progress, its accuracy and its decisions."""

import shlex
import uuid

from fastapi import APIRouter, Response

from services.orchestrator.api import jobs as api
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.job_progress import load_progress
from services.orchestrator.web.live import Fragment, stream
from services.orchestrator.web.page import Visitor, as_json, go_to, make_environment, page
from shared.pages.formatting import format_json
from shared.params import list_changes
from shared.pipelines import registry
from shared.shapes import Scope
from shared.storage import jobs as stored_jobs
from shared.storage.jobs import Job

router = APIRouter()


@page(router, "/jobs/{job}")
async def show(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Shows the job with this id, name, or first characters of the id."""
    found = await load_progress(deps, job)
    params = as_json(found.job.params) or found.job.stored_params or {}
    return visit.show(
        "job/job.html", title=found.job.name, json=f"/v1/jobs/{found.job.id}", once=uuid.uuid4().hex,
        differing=dict(list_changes(params)), parameters=format_json(params),
        commands=list_commands(found.job), offered=found.job.pipeline in registry.list_offered(),
        **found.get_template_values(),
    )  # fmt: skip


@page(router, "/live/jobs/{job}")
async def stream_changes(deps: RequestDeps, job: str) -> Response:
    """Streams the job's state and progress whenever they change."""
    known = await stored_jobs.resolve_public_id(deps.database, job)

    async def draw() -> Fragment:
        found = await load_progress(deps, str(known))
        drawn = make_environment().get_template("job/live.html").render(**found.get_template_values())
        return Fragment(drawn, last=found.job.ended)

    return stream(deps, ("job", known), draw)


@page(router, "/jobs/{job}/pause", Scope.SUBMIT, method="POST")
async def pause(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Pauses the job: none of its calls is started any more."""
    await api.pause(job, deps, visit.caller, None)
    return go_to(f"/jobs/{job}")


@page(router, "/jobs/{job}/resume", Scope.SUBMIT, method="POST")
async def resume(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Resumes the job where it was."""
    await api.resume(job, deps, visit.caller, None)
    return go_to(f"/jobs/{job}")


@page(router, "/jobs/{job}/cancel", Scope.SUBMIT, method="POST")
async def cancel(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Cancels the job."""
    await api.cancel(job, deps, visit.caller, None)
    return go_to(f"/jobs/{job}")


@page(router, "/jobs/{job}/requeue", Scope.SUBMIT, method="POST")
async def requeue(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Submits the job again and shows the new job; sending the same form twice shows the same job."""
    once = (await visit.request.form()).get("once")
    accepted = await api.requeue(job, deps, visit.caller, str(once) if once else None)
    return go_to(accepted.headers["location"].removeprefix("/v1"))


def list_commands(job: Job) -> list[str]:
    """Return commands of the command line for this job."""
    name = shlex.quote(job.name)
    ended = [f"mathrag job report {name}", f"mathrag audit {name}", f"mathrag job export {name} --to {name}"]
    return ended if job.ended else [f"mathrag job watch {name}", f"mathrag job cancel {name}"]

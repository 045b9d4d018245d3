"""`/submit`: a job by a form."""

import uuid
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from services.orchestrator.access import sessions
from services.orchestrator.access.scopes import check
from services.orchestrator.api import jobs as api
from services.orchestrator.api import parameters
from services.orchestrator.api.keys import checked
from services.orchestrator.api.plans import PlanJob, PlanRequest, PlanView, planned
from services.orchestrator.api.submissions import JobRequest
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web import job_form
from services.orchestrator.web.messages import Tried, every_message, tried
from services.orchestrator.web.page import Visit, Visitor, go_to, page, parsed
from services.orchestrator.web.plan import drawn
from shared.contracts.api_keys import Scope
from shared.errors import IdempotencyMismatch, Invalid
from shared.runtime.requeue import like
from shared.storage import configurations, jobs

router = APIRouter()
FIELDS = frozenset(JobRequest.model_fields) - {"params"}
NEEDED = {"name": "", "pipeline": ""}
STAND_INS = {"name": "stands-in", "pipeline": job_form.USUAL}
"""For what cannot be used, so that the rest can be checked, too."""
UNREAD = "The pipeline does not read these: empty them, or choose another one."
USED_UP = "this form has made a job already, and its values were changed since. Submit it again to make another job."


class Form(NamedTuple):
    """What was written, and the key by which a second click makes no second job."""

    values: dict[str, str]
    once: str
    tried: Tried = Tried(None, {})


@page(router, "/submit", Scope.SUBMIT)
async def begin(visit: Visitor, deps: RequestDeps) -> Response:
    """With the values of the address, and `from` those of a job."""
    check(visit.request.state.scopes, Scope.READ)
    values = {name: value for name, value in visit.request.query_params.items() if value}
    source = values.pop("from", None)
    if source is not None:
        values = await _like(deps, source) | values
    return await _shown(visit, deps, Form(values, uuid.uuid4().hex))


@page(router, "/submit", Scope.SUBMIT, method="POST")
async def send(visit: Visitor, deps: RequestDeps) -> Response:
    """Submit the job, plan it, or show the fields of another pipeline."""
    check(visit.request.state.scopes, Scope.READ)
    values = await _written(visit.request)
    action, once = values.pop("action", "submit"), values.pop("once", "")
    if action == "fields":
        return await _shown(visit, deps, Form(values, once))
    answer = await _answered(values, once, deps, dry=action == "dry-run")
    if isinstance(answer.error, IdempotencyMismatch):
        answer, once = answer._replace(messages={"": USED_UP}), uuid.uuid4().hex
    if isinstance(answer.value, str):
        return go_to(f"/jobs/{answer.value}")
    return await _shown(visit, deps, Form(values, once, answer))


async def _answered(values: Mapping[str, str], once: str, deps: Deps, *, dry: bool) -> Tried:
    """The plan of a dry run, else the id of the job; or all that is wrong with the values."""
    holding = await configurations.holding(deps.database)
    wrong = every_message(
        {**NEEDED, **values}, lambda left: parsed(JobRequest, job_form.body({**STAND_INS, **left})).submission(holding)
    )
    if wrong:
        return Tried(None, wrong, Invalid.status)
    return await tried(partial(_planned, values, deps) if dry else partial(_submitted, values, once, deps))


async def _submitted(values: Mapping[str, str], once: str, deps: Deps) -> str:
    """The id of the job that this form made, now or before."""
    accepted = await api.submit(parsed(JobRequest, job_form.body(values)), deps, checked(once))
    return accepted.headers["location"].rpartition("/")[2]


async def _planned(values: Mapping[str, str], deps: Deps) -> PlanView:
    request = parsed(JobRequest, job_form.body(values))
    return await planned(PlanRequest(job=PlanJob(**request.model_dump())), deps)


async def _shown(visit: Visit, deps: Deps, form: Form) -> Response:
    offered, messages = await job_form.choices(deps), form.tried.messages
    sections = job_form.read_by(form.values.get("pipeline", offered.pipeline), offered.configured)
    shown = parameters.names(sections)
    unread = [each for each in parameters.parameters(offered.configured) if each.name in form.values.keys() - shown]
    roles = [f"{job_form.MODELS}{role}" for role in deps.settings.roles]
    fields = {*FIELDS, *roles, *shown, *(each.name for each in unread)}
    return visit.show(
        "submit/submit.html", title="Submit a job", status=form.tried.status, values=form.values, once=form.once,
        offered=offered, sections=sections, unread=parameters.Section("not read", UNREAD, tuple(unread)),
        numbers=job_form.NUMBERS, reuse=job_form.REUSE, roles=list(deps.settings.roles), messages=messages,
        others=form.tried.others(fields), **drawn(form.tried.value, deps.settings.all_devices()[0].models_mib),
    )  # fmt: skip


async def _written(request: Request) -> dict[str, str]:
    """The fields of the form that are not empty; browsers end lines with two characters."""
    fields = {name: str(value).replace("\r\n", "\n") for name, value in (await request.form()).items()}
    return {name: value for name, value in fields.items() if value and name != sessions.FIELD}


async def _like(deps: Deps, reference: str) -> dict[str, str]:
    submission = await like(deps.database, await jobs.public_id(deps.database, reference))
    return job_form.written(submission, await job_form.configured(deps))

"""Serves `/submit`: a form that submits a job."""

import uuid
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from fastapi import APIRouter, Request, Response

from services.orchestrator.access import sessions
from services.orchestrator.access.scopes import check_scope
from services.orchestrator.api import jobs as api
from services.orchestrator.api import parameters
from services.orchestrator.api.keys import check_key
from services.orchestrator.api.plans import PlanJob, PlanRequest, PlanView, plan_request
from services.orchestrator.api.submissions import JobRequest
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web import job_form
from services.orchestrator.web.messages import FormResult, list_messages, try_form
from services.orchestrator.web.page import Visit, Visitor, go_to, page, parse_as
from services.orchestrator.web.plan import make_plan_values
from shared.errors import IdempotencyMismatch, Invalid
from shared.runtime.submit import copy_submission
from shared.shapes import Scope
from shared.storage import configurations
from shared.storage import jobs as stored_jobs

router = APIRouter()
FIELDS = frozenset(JobRequest.model_fields) - {"params"}
NEEDED = {"name": "", "pipeline": ""}
STAND_INS = {"name": "stands-in", "pipeline": job_form.USUAL}
"""Values that replace unusable ones, so that the other fields can be checked as well."""
UNREAD = "The pipeline does not read these: clear them, or choose another pipeline."
USED_UP = (
    "this form has already submitted a job, and its values have changed since. Submit it again to create another job."
)


class SubmitForm(NamedTuple):
    """The values of the form, and the idempotency key that prevents a second job on a second click."""

    values: dict[str, str]
    once: str
    tried: FormResult = FormResult(None, {})


@page(router, "/submit", Scope.SUBMIT)
async def begin(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the form with the values of the address, and with those of the job in `from`."""
    check_scope(visit.request.state.scopes, Scope.READ)
    values = {name: value for name, value in visit.request.query_params.items() if value}
    source = values.pop("from", None)
    if source is not None:
        values = await _load_like(deps, source) | values
    return await _show(visit, deps, SubmitForm(values, uuid.uuid4().hex))


@page(router, "/submit", Scope.SUBMIT, method="POST")
async def send(visit: Visitor, deps: RequestDeps) -> Response:
    """Submits the job, plans it, or shows the fields of another pipeline."""
    check_scope(visit.request.state.scopes, Scope.READ)
    values = await _read_fields(visit.request)
    action, once = values.pop("action", "submit"), values.pop("once", "")
    if action == "fields":
        return await _show(visit, deps, SubmitForm(values, once))
    answer = await _check_form(values, once, visit, deps, dry=action == "dry-run")
    if isinstance(answer.error, IdempotencyMismatch):
        answer, once = answer._replace(messages={"": USED_UP}), uuid.uuid4().hex
    if isinstance(answer.value, str):
        return go_to(f"/jobs/{answer.value}")
    return await _show(visit, deps, SubmitForm(values, once, answer))


async def _check_form(values: Mapping[str, str], once: str, visit: Visit, deps: Deps, *, dry: bool) -> FormResult:
    """Return the plan of a dry run, else the id of the job; or everything that is wrong with the values."""
    holding = await configurations.load_newest(deps.database)
    wrong = list_messages(
        {**NEEDED, **values},
        lambda left: parse_as(JobRequest, job_form.make_request_body({**STAND_INS, **left})).submission(holding),
    )
    if wrong:
        return FormResult(None, wrong, Invalid.status)
    return await try_form(partial(_plan, values, deps) if dry else partial(_submit, values, once, visit, deps))


async def _submit(values: Mapping[str, str], once: str, visit: Visit, deps: Deps) -> str:
    """Return the id of the job that this form has submitted, now or before."""
    request = parse_as(JobRequest, job_form.make_request_body(values))
    accepted = await api.submit(request, deps, visit.caller, check_key(once))
    return accepted.headers["location"].rpartition("/")[2]


async def _plan(values: Mapping[str, str], deps: Deps) -> PlanView:
    request = parse_as(JobRequest, job_form.make_request_body(values))
    return await plan_request(PlanRequest(job=PlanJob(**request.model_dump())), deps)


async def _show(visit: Visit, deps: Deps, form: SubmitForm) -> Response:
    offered, messages = await job_form.load_choices(deps), form.tried.messages
    sections = job_form.select_sections(form.values.get("pipeline", offered.pipeline), offered.configured)
    field_names = parameters.get_names(sections)
    unread = [
        each for each in parameters.parameters(offered.configured) if each.name in form.values.keys() - field_names
    ]
    roles = [f"{job_form.MODELS}{role}" for role in deps.settings.roles]
    fields = {*FIELDS, *roles, *field_names, *(each.name for each in unread)}
    return visit.show(
        "submit/submit.html", title="Submit a job", status=form.tried.status, values=form.values, once=form.once,
        offered=offered, sections=sections, unread=parameters.Section("not read", UNREAD, tuple(unread)),
        numbers=job_form.NUMBERS, reuse=job_form.REUSE, roles=list(deps.settings.roles), messages=messages,
        others=form.tried.others(fields),
        **make_plan_values(form.tried.value, deps.settings.all_devices()[0].models_mib),
    )  # fmt: skip


async def _read_fields(request: Request) -> dict[str, str]:
    """Return the fields of the form that are not empty, with normalised line ends: browsers send CRLF."""
    fields = {name: str(value).replace("\r\n", "\n") for name, value in (await request.form()).items()}
    return {name: value for name, value in fields.items() if value and name != sessions.FIELD}


async def _load_like(deps: Deps, reference: str) -> dict[str, str]:
    submission = await copy_submission(deps.database, await stored_jobs.resolve_public_id(deps.database, reference))
    return job_form.format_submission(submission, await job_form.load_default_params(deps))

"""Serves `/submit`, `/plan` and `/jobs/{job}/price`: the form of a job, and its cost."""

import uuid
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import msgspec
from fastapi import APIRouter, Response

from mathrag.errors import IdempotencyMismatch, Invalid
from mathrag.formatting import format_duration_range
from services.orchestrator.access import identity
from services.orchestrator.access.identity import check_scope
from services.orchestrator.api import jobs as api_jobs
from services.orchestrator.api import pipelines
from services.orchestrator.api.jobs import JobRequest
from services.orchestrator.api.plans import PlanJob, PlanRequest, PlanView, plan_request
from services.orchestrator.api.routes import check_key
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.report import compute_cost, count_work, load_token_use
from services.orchestrator.web.page import FormResult, Visit, Visitor, go_to, list_messages, page, parse_as, try_form
from shared.fields import read_docstrings
from shared.models.commands import PRESETS
from shared.pages.charts import draw_memory
from shared.params import Params
from shared.pipelines import registry
from shared.runtime.parameters import parse_params
from shared.runtime.submit import Submission, copy_submission
from shared.settings import Settings
from shared.shapes import Scope
from shared.storage import configurations, database, jobs
from shared.storage.archive import show_archived
from shared.storage.corpora import list_corpora
from shared.storage.datasets import list_datasets
from shared.storage.jobs import JOB_FIELDS, JobFields, resolve_public_id

MODELS = "models."
"""Prefix of a role's model in forms and addresses."""
USUAL = "hybrid"
"""Pipeline that a form starts with."""


def _list_optional_fields() -> Iterator[pipelines.Parameter]:
    """Yield the optional fields of a job with the API's bounds, without those that the form shows by a list of names or
    as lines.
    """
    texts, request = read_docstrings(JobFields), JobRequest.model_json_schema()["properties"]
    for name in JOB_FIELDS:
        if "default" not in request[name] or name in ("corpus", "metadata"):
            continue
        kind = request[name].get("anyOf", [request[name]])[0]
        shown: pipelines.Kind = "choice" if "enum" in kind else "whole" if kind["type"] == "integer" else "text"
        yield pipelines.Parameter(
            name, shown, request[name]["default"], texts.get(name, ""), low=kind.get("minimum"),
            high=kind.get("maximum"), choices=tuple(kind.get("enum", ())), prefix="",
        )  # fmt: skip


OPTIONS = sorted(_list_optional_fields(), key=lambda each: each.kind != "whole")


class Choices(NamedTuple):
    """Names that the form offers, newest first."""

    datasets: list[str]
    corpora: list[str]
    pipelines: tuple[str, ...]
    models: list[str]
    configured: Params
    """Parameters that apply to fields that are left empty."""
    pipeline: str = USUAL


async def load_choices(deps: Deps) -> Choices:
    """Return the names that the form offers."""
    there = await list_datasets(deps.database, database.LARGEST)
    searched = await list_corpora(deps.database, database.LARGEST)
    return Choices(
        datasets=[each.name for each in there.data], corpora=[each.name for each in searched.data],
        pipelines=registry.list_offered(), models=sorted(deps.settings.models),
        configured=await load_default_params(deps),
    )  # fmt: skip


async def load_default_params(deps: Deps) -> Params:
    """Return the parameters of a job that sets none."""
    return parse_params({}, (await configurations.load_newest(deps.database)).params)


def select_sections(pipeline: str, usual: Params) -> list[pipelines.Section]:
    """Return the parameters that the pipeline reads; all, if the pipeline does not exist."""
    known = registry.get(pipeline) if pipeline in registry.list_offered() else None
    return pipelines.list_sections(lambda path: known is None or not known.ignores(path), usual)


def make_request_body(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the API's request body for a form's values. Fields that the form does not know are passed on; the API
    refuses them by name.

    Raises:
        Invalid: a line of the metadata is not of the form KEY=VALUE.
    """
    own = {name: value for name, value in values.items() if not name.startswith((pipelines.PREFIX, MODELS))}
    models = {name.removeprefix(MODELS): value for name, value in values.items() if name.startswith(MODELS)}
    lines = own.pop("metadata", "")
    metadata = {}
    for line in filter(None, (each.strip() for each in lines.splitlines())):
        key, equals, value = line.partition("=")
        if not equals:
            raise Invalid(f"`metadata`: {line!r} is not of the form KEY=VALUE", hint="write one KEY=VALUE on each line")
        metadata[key.strip()] = value.strip()
    params = pipelines.nest(values)
    return {"name": "", "dataset": "", **own, "params": params, "models": models, "metadata": metadata}


def format_submission(submission: Submission, usual: Params) -> dict[str, str]:
    """Return the form values that make the same request, with those parameters that its pipeline reads and that
    differ from `usual`.
    """
    read = pipelines.get_names(select_sections(submission.pipeline, usual))
    before, requested = (pipelines.flatten(msgspec.to_builtins(each)) for each in (usual, submission.params))
    own = {name: getattr(submission, name) for name in JOB_FIELDS if name != "metadata"}
    values = {name: str(value) for name, value in own.items() if value is not None}
    values |= {f"{MODELS}{role}": name for role, name in submission.models.items()}
    values |= {name: value for name, value in requested.items() if name in read and value != before.get(name)}
    metadata = "\n".join(f"{key}={value}" for key, value in submission.metadata.items())
    return {**values, "metadata": metadata} if metadata else values


router = APIRouter()
CARD_MIB = 12_288
"""Memory in MiB of the card that presets are planned for, if none is given."""
LARGEST_MIB = 49_152
SUBMISSION_FIELDS = frozenset(JOB_FIELDS) - {"name", "rank", "metadata"}
"""Fields of a job, besides parameters and models, that a plan takes."""
PLAN_FIELDS = SUBMISSION_FIELDS | {"questions", "memory"}
QUANTISED = {
    f"{name}:{quantisation}": {"preset": name, "quantisation": quantisation}
    for name, preset in PRESETS.items()
    for quantisation in preset.weights_bytes
}
"""Models to plan with that need not be installed, by the names of the command line."""


class Card(NamedTuple):
    """Describes the device to plan for, with its memory for models in MiB."""

    device: str
    mib: int
    top: int
    """Upper end of the slider in MiB."""
    changed: bool
    """Whether it differs from the configured device."""


@page(router, "/plan")
async def what_if(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the form and the plan for its values."""
    query = {name: value for name, value in visit.request.query_params.items() if value}
    card, offered, answer = _choose_card(query, deps.settings), await load_choices(deps), FormResult(None, {})
    if "pipeline" in query:
        answer = await try_form(partial(_plan_query, query, card, deps))
    sections = select_sections(query.get("pipeline", offered.pipeline), offered.configured)
    submission = {
        name: value
        for name, value in query.items()
        if name in SUBMISSION_FIELDS
        or name.startswith(pipelines.PREFIX)
        or (name.startswith(MODELS) and value not in QUANTISED)
    }
    return visit.show(
        "plan/plan.html", title="Plan", status=answer.status, query=query, card=card, offered=offered,
        sections=sections, presets=list(QUANTISED), roles=list(deps.settings.roles), messages=answer.messages,
        others=answer.others({*PLAN_FIELDS, *pipelines.get_names(sections)}),
        adjusted=any(name.startswith(pipelines.PREFIX) for name in query), submission=submission,
        **make_plan_values(answer.value, card.mib),
    )  # fmt: skip


async def _plan_query(query: Mapping[str, str], card: Card, deps: Deps) -> PlanView:
    kept_values = {name: value for name, value in query.items() if name in SUBMISSION_FIELDS or name == "questions"}
    models = {name.removeprefix(MODELS): value for name, value in query.items() if name.startswith(MODELS)}
    questions = {"questions": kept_values.pop("questions")} if "questions" in kept_values else {}
    presets = [{"role": role, **QUANTISED[name]} for role, name in models.items() if name in QUANTISED]
    own = {role: name for role, name in models.items() if name not in QUANTISED}
    job = {**kept_values, "params": pipelines.nest(query), "models": own}
    devices = [{"id": card.device, "budget_mib": card.mib}] if card.changed else []
    request = parse_as(PlanRequest, {"job": job, "models": presets, "devices": devices, **questions})
    return await plan_request(request, deps)


def _choose_card(query: Mapping[str, str], settings: Settings) -> Card:
    """Return the card by the number or the slider, whichever was changed, else the configured device.

    Presets are planned for GPUs: if the service has none, a card with its own memory replaces its device.
    """
    first = settings.all_devices()[0]
    device, configured, top = first.id, first.models_mib, 4 * first.models_mib
    if device.startswith("cpu") and any(value in QUANTISED for value in query.values()):
        device, configured, top = "gpu:0", CARD_MIB, LARGEST_MIB
    mib = configured
    if query.get("device", device) == device:
        was, slider, typed = (_parse_mib(query.get(name), configured) for name in ("was", "card", "memory"))
        mib = slider if typed == was else typed
    return Card(device, mib, max(mib, top), changed=(device, mib) != (first.id, first.models_mib))


def _parse_mib(text: str | None, otherwise: int) -> int:
    """Parse a number of MiB; text that is not a number counts as missing, because the slider sends only numbers."""
    try:
        return round(float(text)) if text else otherwise
    except (ValueError, OverflowError):
        return otherwise


def make_plan_values(answer: object, budget_mib: int) -> dict[str, Any]:
    """Return the values from which a template draws a plan; empty if there is no plan."""
    if not isinstance(answer, PlanView):
        return {"plan": None}
    ways = [each for each in (answer.chosen, *answer.others) if each is not None]
    nearest = ways[:1] if answer.chosen else sorted(ways, key=lambda each: each.peak_mib)[:1]
    bars = []
    for way in nearest:
        # All to the same scale.
        scale = max(max(each.memory_mib, each.budget_mib) for each in way.residencies)
        for each in way.residencies:
            parts = {f"{model.name} ×{model.parallel}": model.memory_mib for model in each.models}
            parts |= {"retrieval": each.retrieval_mib} if each.retrieval_mib else {}
            bars.append({**msgspec.structs.asdict(each), "drawn": draw_memory(parts, each.budget_mib, scale)})
    # The memory with which a refused plan would fit.
    needed = [max(each.memory_mib for each in way.residencies) if way.refused else None for way in ways]
    return {
        "plan": answer, "fits": answer.chosen is not None or not ways, "headline": _write_headline(answer, budget_mib),
        "bars": bars, "ways": list(zip(ways, needed, strict=True)),
    }  # fmt: skip


def _write_headline(answer: PlanView, budget_mib: int) -> str:
    chosen = answer.chosen
    if chosen is None:
        return f"Does not fit {budget_mib:,} MiB" if answer.others else "No model has any work"
    loads = "no load" if not chosen.loads else f"{chosen.loads} load{'s' if chosen.loads > 1 else ''}"
    budget = max((each.budget_mib for each in chosen.residencies), default=budget_mib)
    # With equal calls made once, and with every sample making its own.
    bounds = chosen.seconds if answer.shared_s is None else answer.shared_s, chosen.seconds
    return f"Fits {budget:,} MiB with {loads}, {format_duration_range(*sorted(bounds))}"


SUBMIT_FIELDS = frozenset(JobRequest.model_fields) - {"params"}
NEEDED = {"name": "", "pipeline": ""}
STAND_INS = {"name": "stands-in", "pipeline": USUAL}
"""Values that replace unusable ones, so that the other fields can be checked as well."""
UNREAD = "The pipeline does not read these: clear them, or choose another pipeline."
USED_UP = (
    "this form has already submitted a job, and its values have changed since. Submit it again to create another job."
)


ANSWERING = "generate"
"""Role whose model is among the first fields."""


class SubmitForm(NamedTuple):
    """The values of the form, and the idempotency key that prevents a second job on a second click."""

    values: dict[str, str]
    once: str
    tried: FormResult = FormResult(None, {})
    wants_parameters: bool = False
    """Whether the parameters are to be shown at once."""

    def list_unfolded(self) -> dict[str, bool]:
        """Tell of each fold whether it is open: it holds something that is set or wrong."""
        messages, values = self.tried.messages.keys(), self.values
        usual = {each.name: str(each.default) for each in OPTIONS}
        models = {name for name in values if name.startswith(MODELS)} - {f"{MODELS}{ANSWERING}"}
        return {
            "options": bool(messages & usual.keys())
            or any(values.get(name, default) != default for name, default in usual.items()),
            "models": bool(models) or any(name.startswith("models") for name in messages),
            "parameters": self.wants_parameters or any(name.startswith("params") for name in (*values, *messages)),
        }


@page(router, "/submit", Scope.SUBMIT)
async def begin(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the form with the values of the address, and with those of the job in `from`."""
    check_scope(visit.request.state.scopes, Scope.READ)
    values = {name: value for name, value in visit.request.query_params.items() if value}
    source = values.pop("from", None)
    if source is not None:
        submission = await copy_submission(deps.database, await resolve_public_id(deps.database, source))
        values = format_submission(submission, await load_default_params(deps)) | values
    return await _show(visit, deps, SubmitForm(values, uuid.uuid4().hex))


@page(router, "/submit", Scope.SUBMIT, method="POST")
async def send(visit: Visitor, deps: RequestDeps) -> Response:
    """Submits the job, plans it, or shows the fields of another pipeline."""
    check_scope(visit.request.state.scopes, Scope.READ)
    # The fields of the form that are not empty, with normalised line ends: browsers send CRLF.
    fields = {name: str(value).replace("\r\n", "\n") for name, value in (await visit.request.form()).items()}
    values = {name: value for name, value in fields.items() if value and name != identity.FIELD}
    action, once = values.pop("action", "submit"), values.pop("once", "")
    if action == "fields":
        return await _show(visit, deps, SubmitForm(values, once, wants_parameters=True))
    # The plan of a dry run, else the id of the job; or everything that is wrong with the values.
    holding = await configurations.load_newest(deps.database)
    wrong = list_messages(
        {**NEEDED, **values},
        lambda left: parse_as(JobRequest, make_request_body({**STAND_INS, **left})).submission(holding),
    )
    if wrong:
        answer = FormResult(None, wrong, Invalid.status)
    elif action == "dry-run":
        answer = await try_form(
            lambda: plan_request(
                PlanRequest(job=PlanJob(**parse_as(JobRequest, make_request_body(values)).model_dump())), deps
            )
        )
    else:
        answer = await try_form(partial(_submit, values, once, visit, deps))
    if isinstance(answer.error, IdempotencyMismatch):
        answer, once = answer._replace(messages={"": USED_UP}), uuid.uuid4().hex
    if isinstance(answer.value, str):
        return go_to(f"/jobs/{answer.value}")
    return await _show(visit, deps, SubmitForm(values, once, answer))


async def _submit(values: Mapping[str, str], once: str, visit: Visit, deps: Deps) -> str:
    """Return the id of the job that this form has submitted, now or before."""
    request = parse_as(JobRequest, make_request_body(values))
    accepted = await api_jobs.submit(request, deps, visit.caller, check_key(once))
    return accepted.headers["location"].rpartition("/")[2]


async def _show(visit: Visit, deps: Deps, form: SubmitForm) -> Response:
    offered, messages = await load_choices(deps), form.tried.messages
    sections = select_sections(form.values.get("pipeline", offered.pipeline), offered.configured)
    field_names = pipelines.get_names(sections)
    given = form.values.keys() - field_names
    unread = [each for each in pipelines.parameters(offered.configured) if each.name in given]
    roles = [f"{MODELS}{role}" for role in deps.settings.roles]
    fields = {*SUBMIT_FIELDS, *roles, *field_names, *(each.name for each in unread)}
    return visit.show(
        "submit/submit.html", title="Submit a job", status=form.tried.status, values=form.values, once=form.once,
        offered=offered, sections=sections, unread=pipelines.Section("not read", UNREAD, tuple(unread)),
        options=OPTIONS, roles=list(deps.settings.roles), answering=ANSWERING, unfolded=form.list_unfolded(),
        messages=messages,
        others=form.tried.others(fields),
        **make_plan_values(form.tried.value, deps.settings.all_devices()[0].models_mib),
    )  # fmt: skip


@page(router, "/jobs/{job}/price")
async def price(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Shows the cost of the job if it were submitted now, next to its actual cost."""
    async with deps.database.snapshot() as connection:
        row = await jobs.resolve(connection, job)
        found = (await jobs.load_without_stages(connection, [row]))[row]
        async with show_archived(connection, row, texts=False):
            done = await count_work(connection, row)
            cost = compute_cost(await load_token_use(connection, row), deps.settings.models)
    plan = await try_form(partial(_plan_job, deps, found.id))
    view, between = plan.value if isinstance(plan.value, PlanView) else None, None
    if view is not None and view.chosen is not None:
        # Shortest if ratings are shared, longest if every sample makes its own.
        seconds = view.chosen.seconds
        between = format_duration_range(seconds if view.shared_s is None else view.shared_s, seconds)
    return visit.show(
        "job/price.html", title=f"Price of {found.name}", json=f"/v1/jobs/{found.id}/report", job=found, work=done,
        cost=cost, plan=view, between=between, problem="; ".join(plan.messages.values()),
        took=(found.ended_at - found.created_at).total_seconds() if found.ended_at else None,
    )  # fmt: skip


async def _plan_job(deps: Deps, job: uuid.UUID) -> PlanView:
    submission = await copy_submission(deps.database, job)
    if submission.pipeline not in registry.list_offered():
        message = f"a job of pipeline {submission.pipeline} cannot be planned on its own"
        raise Invalid(message, hint="plan a job of another pipeline: mathrag pipeline list")
    given = msgspec.to_builtins(submission.params)
    # A job without a grader is graded as mathematics, since its dataset declares none either.
    given["grading"]["grader"] = given["grading"]["grader"] or "math"
    params = registry.get(submission.pipeline).select_read(given)
    request_body: dict[str, Any] = {field: getattr(submission, field) for field in SUBMISSION_FIELDS}
    job_plan = PlanJob(params=params, models=dict(submission.models), **request_body)
    return await plan_request(PlanRequest(job=job_plan), deps)

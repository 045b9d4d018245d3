"""Serves `/prompts`: all prompts, their versions, and an editor that tries a prompt on three questions."""

import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from mathrag.errors import Invalid, NotFound
from services.orchestrator.access.identity import FIELD
from services.orchestrator.api import jobs as api_jobs
from services.orchestrator.api.jobs import JobRequest
from services.orchestrator.api.prompts import PromptRequest
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.comparison import PromptDifference, compare_prompts
from services.orchestrator.web.job_form import load_choices
from services.orchestrator.web.page import FormResult, Visit, Visitor, go_to, page, parse_as, try_form
from shared.pages.pages import format_query
from shared.pipelines import registry
from shared.rag.prompts import MOST_EXAMPLES
from shared.records import Provenance
from shared.runtime.pins import choose_prompt
from shared.shapes import Scope
from shared.storage.jobs import Job
from shared.storage.prompts import AnswerPrompt, create_prompt, list_prompts, list_versions, load_prompt
from shared.storage.provenance import load_provenance

router = APIRouter()
TRIED = 3
"""Number of questions that a trial asks: the first ones of the dataset."""
PARTS = ("question", "answer", "context")
"""Fields of an example in the editor, named such as `example-2-answer`."""


class PromptQuery(BaseModel):
    """The content of the page of a prompt."""

    model_config = ConfigDict(extra="forbid")

    version: str | None = None
    other: str | None = None
    """Prompt to compare with, such as `short@1`."""
    trial: str | None = None
    """Job that tries the prompt."""


class TriedQuestion(NamedTuple):
    """One question of a trial."""

    sample: Provenance
    prompt: str | None
    """The prompt as it was sent; None as long as nothing was."""


class Difference(NamedTuple):
    """How two prompts differ."""

    left: AnswerPrompt
    right: AnswerPrompt
    lines: PromptDifference


@page(router, "/prompts")
async def index(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists the newest version of each prompt, with an editor for a new one."""
    return await _show_list(visit, deps, {}, FormResult(None, {}))


async def _show_list(visit: Visit, deps: Deps, values: Mapping[str, str], tried: FormResult) -> Response:
    async with deps.database.statement() as connection:
        found = await list_prompts(connection)
    return visit.show(
        "prompts/list.html", title="Prompts", json="/v1/prompts", status=tried.status, found=found,
        **await _make_editor(deps, values, tried),
    )  # fmt: skip


@page(router, "/prompts/{name}")
async def show(visit: Visitor, deps: RequestDeps, name: str) -> Response:
    """Shows a prompt with its versions, an editor, and the result of a trial."""
    return await _show_prompt(visit, deps, name, visit.query(PromptQuery), None, FormResult(None, {}))


async def _show_prompt(
    visit: Visit, deps: Deps, name: str, query: PromptQuery, values: Mapping[str, str] | None, tried: FormResult
) -> Response:
    async with deps.database.snapshot() as connection:
        versions = await list_versions(connection, name)
        shown = await load_prompt(connection, f"{name}@{query.version}") if query.version else versions[0]
        other = await load_prompt(connection, query.other) if query.other else None
    trial = await deps.job_views.get(deps.database, query.trial) if query.trial else None
    if values is None:
        values = _list_values(shown)
    if trial is not None:
        values = {"dataset": trial.dataset, "corpus": trial.corpus or "", "pipeline": trial.pipeline, **values}
    return visit.show(
        "prompts/one.html", title=f"Prompt {name}", json=f"/v1/prompts/{name}", status=tried.status, shown=shown,
        versions=versions, difference=None if other is None else make_difference(other, shown), trial=trial,
        questions=[] if trial is None else await _load_trial(deps, trial),
        **await _make_editor(deps, values, tried),
    )  # fmt: skip


async def _make_editor(deps: Deps, values: Mapping[str, str], tried: FormResult) -> dict[str, Any]:
    """Return the data of the editor's template: values, messages, and the examples with an empty one."""
    examples = min(_count_examples(values) + 1, MOST_EXAMPLES)
    fields = ["name", "text", "system", "dataset", "corpus", "pipeline"]
    return {
        "values": values, "messages": tried.messages, "others": tried.others(fields), "examples": examples,
        "offered": await load_choices(deps), "tried": TRIED,
    }  # fmt: skip


def _list_values(prompt: AnswerPrompt) -> dict[str, str]:
    """Return the editor's values for a prompt; one that is not stored needs another name to be saved."""
    own = {"name": prompt.name} if prompt.origin == "stored" else {}
    parts = {
        f"example-{number}-{part}": str(getattr(example, part))
        for number, example in enumerate(prompt.examples, 1)
        for part in PARTS
    }
    return {**own, "text": prompt.text, "system": prompt.system, **parts}


def _count_examples(values: Mapping[str, str]) -> int:
    """Return the number of the last example that has a value; a prompt has no more than `MOST_EXAMPLES`."""
    numbers = range(MOST_EXAMPLES, 0, -1)
    return next((each for each in numbers if any(values.get(f"example-{each}-{part}") for part in PARTS)), 0)


@page(router, "/prompts", Scope.SUBMIT, method="POST")
async def save(visit: Visitor, deps: RequestDeps) -> Response:
    """Stores a prompt as the next version of its name, and submits a trial of it if that is asked for."""
    fields = {name: str(value).replace("\r\n", "\n") for name, value in (await visit.request.form()).items()}
    values = {name: value for name, value in fields.items() if name != FIELD}
    tried = await try_form(partial(_save, visit, deps, values))
    if isinstance(tried.value, str):
        return go_to(tried.value)
    try:
        return await _show_prompt(visit, deps, values.get("name", ""), PromptQuery(), values, tried)
    except NotFound:
        return await _show_list(visit, deps, values, tried)


async def _save(visit: Visit, deps: Deps, values: Mapping[str, str]) -> str:
    """Return the address of the page that shows the saved prompt, or the trial.

    Raises:
        Invalid, Conflict, NotFound: the prompt or the trial cannot be made; the message names the field.
    """
    examples = [
        {part: values.get(f"example-{number}-{part}", "") for part in PARTS}
        for number in range(1, _count_examples(values) + 1)
    ]
    body = {name: values.get(name, "") for name in ("name", "text", "system")}
    request = parse_as(PromptRequest, {**body, "examples": [each for each in examples if any(each.values())]})
    is_tried = values.get("action") == "try"
    if is_tried and not values.get("dataset"):
        raise Invalid("`dataset`: choose a dataset", hint="the prompt is tried on its first questions")
    stored, _ = await create_prompt(deps.database, visit.actor, request.name, request.to_content())
    if not is_tried:
        return f"/prompts/{stored.name}"
    job = parse_as(JobRequest, {
        "name": f"{stored.name[:80]}-try-{uuid.uuid4().hex[:8]}", "dataset": values["dataset"],
        "corpus": values.get("corpus") or None, "pipeline": values.get("pipeline") or "", "limit": TRIED,
        "params": {"generate": {"template": stored.pinned}},
    })  # fmt: skip
    accepted = await api_jobs.submit(job, deps, visit.caller, None)
    trial = accepted.headers["location"].rpartition("/")[2]
    return f"/prompts/{stored.name}{format_query({'trial': trial})}"


async def _load_trial(deps: Deps, job: Job) -> list[TriedQuestion]:
    """Load the first questions of a job with the prompts that were sent."""
    found = []
    for number in range(min(TRIED, job.request_counts.total)):
        sample = await load_provenance(deps.database, str(job.id), number, prompts=True)
        sent = [step.prompt for step in sample.steps if step.role == "generate"]
        found.append(TriedQuestion(sample, sent[-1] if sent else None))
    return found


def make_difference(left: AnswerPrompt, right: AnswerPrompt) -> Difference:
    """Return how two prompts differ."""
    return Difference(left, right, compare_prompts(left.to_text(), right.to_text()))


async def load_prompt_of(deps: Deps, job: Job) -> AnswerPrompt | None:
    """Load the prompt for answers that a job uses; None if its pipeline has its own prompt, or none."""
    known = registry.get(job.pipeline) if job.pipeline in registry.names() else None
    if job.params is None or known is None or known.ignores("generate.template"):
        return None
    async with deps.database.statement() as connection:
        try:
            return await load_prompt(connection, job.params.generate.template or "cot")
        except NotFound:
            return None


async def compare_with_shipped(deps: Deps, job: Job, prompt: AnswerPrompt) -> Difference | None:
    """Return how a job's prompt differs from the shipped one that its grader reads; None if it does not."""
    grader = "" if job.params is None else job.params.grading.grader
    async with deps.database.statement() as connection:
        shipped = await load_prompt(connection, choose_prompt(grader) or "cot")
    return None if shipped.hash == prompt.hash else make_difference(shipped, prompt)

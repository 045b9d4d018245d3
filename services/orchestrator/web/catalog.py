"""Serves `/pipelines`, `/models` and the rule banks below `/rules`."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from yaml import YAMLError

from mathrag.errors import Conflict, Invalid
from mathrag.places import config_file
from mathrag.report_lines import format_atom, format_body
from services.orchestrator.access.identity import FIELD
from services.orchestrator.api import models, pipelines
from services.orchestrator.api.chat import ChatRequest, chat
from services.orchestrator.api.rules import RuleFilters
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.corpora import JOBS
from services.orchestrator.web.page import (
    FormResult,
    Visit,
    Visitor,
    as_json,
    go_to,
    page,
    parse_as,
    try_form,
)
from shared import connecting
from shared.connecting import NewModel
from shared.pages.formatting import flatten_tree
from shared.pages.pages import format_query
from shared.pipelines.registry import AFTERWARDS
from shared.pipelines.switches import covers
from shared.settings import load
from shared.shapes import Scope
from shared.storage import configurations, jobs, rules

router = APIRouter()


class ShownRules(RuleFilters):
    """Filters as in the API, but sorted by confidence unless the bank's order is requested."""

    order: rules.Order = "confidence"


@page(router, "/rules/{bank}")
async def show_bank(bank: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows a bank and the rules that match the filters."""
    query = visit.query(ShownRules)
    async with deps.database.transaction() as connection:
        found = await rules.load_details(connection, bank)
        listed = await rules.list_rules(connection, found.name, query.make_selection(), query.limit, query.cursor)
    filters = query.model_dump(exclude={"cursor"}, exclude_defaults=True)
    drawn = [{**each, "body": format_body(each), "head": format_atom(each["head"])} for each in as_json(listed.data)]
    # The API's address of the rules if they are filtered or paged, else that of the bank.
    json = f"/v1/rules/{bank}"
    if filters or query.cursor is not None:
        json += f"/rules{format_query({**filters, 'order': query.order, 'cursor': query.cursor})}"
    return visit.show(
        "rules/one.html", title=bank, json=json, bank=as_json(found), rules=drawn, query=filters,
        cursor=listed.next_cursor, first=query.cursor is not None, asked=query.model_dump(),
    )  # fmt: skip


DOING = {
    "retrieve": "search an index",
    "rerank": "rate relevance with the reranker",
    "embed": "embed a text",
    "judge": "rate a document with the judge model",
    "write": "write a text with the judge model",
    "estimate": "estimate how hard the question is",
    "verify": "check a document's equations",
    "execute": "run the generator's program",
    "rules": "find rules in the bank",
    "grade": "compare answers",
    "generate": "answer with the generator model",
}
"""Description of a call of each role."""


@page(router, "/pipelines")
async def list_pipelines(visit: Visitor) -> Response:
    """Lists the pipelines by name."""
    return visit.show(
        "pipelines/list.html", title="Pipelines", json="/v1/pipelines", pipelines=as_json(await pipelines.list_views())
    )  # fmt: skip


@page(router, "/pipelines/{name}")
async def show_pipeline(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows a pipeline step by step, with the parameters that it reads and the newest jobs that use it."""
    found = as_json(await pipelines.get_details(name))
    holding = await configurations.load_newest(deps.database)
    newest = await jobs.list_jobs(deps.database, JOBS, None, jobs.JobSelection(pipeline=name))
    return visit.show(
        "pipelines/one.html", title=name, json=f"/v1/pipelines/{name}", pipeline=found, doing=DOING,
        jobs=as_json(newest), configured=flatten_tree(holding.params),
        grading=[each["name"] for each in found["parameters"] if covers(each["name"], AFTERWARDS)],
    )  # fmt: skip


@page(router, "/models")
async def list_models(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists every model that a job may name."""
    return visit.show(
        "models/list.html", title="Models", json="/v1/models", models=as_json(await models.list_views(deps))
    )


class ModelChoice(BaseModel):
    """A model to connect."""

    model_config = ConfigDict(extra="forbid")

    what: Annotated[str, Field(max_length=4096)] = ""
    """Ollama's tag, the path of a GGUF file, or an address."""
    served: Annotated[str, Field(max_length=1024)] = ""
    """Which model of the address, if it has several."""
    api_key_env: Annotated[str, Field(max_length=256)] = ""
    """Environment variable with the API key of the address."""
    role: Literal["both", "generate", "judge"] = "both"

    async def change(self) -> tuple[NewModel, str]:
        """Return the model, and the text of the settings file with it.

        Raises:
            Invalid, Unavailable: the model does not exist, or the settings file cannot be changed.
            Conflict: another model has its name.
        """
        new = await connecting.describe_model(
            self.what.strip(), served=self.served or None, api_key_env=self.api_key_env or None
        )
        roles = connecting.ROLES if self.role == "both" else (self.role,)
        try:
            changed = await to_thread.run_sync(
                lambda: connecting.add_model(connecting.read_settings(config_file()), new, roles, load())
            )
        except (ValidationError, YAMLError) as error:
            problem = f"the settings file {config_file()} is not valid"
            raise Invalid(problem, hint="`mathrag config validate` shows the errors") from error
        return new, changed


class ConnectQuery(ModelChoice):
    """The content of the page: the models found, the chosen model, or (`done`) the next step."""

    folder: Annotated[str, Field(max_length=4096)] = ""
    done: str = ""


@page(router, "/models/connect", Scope.OPERATE)
async def show_connect(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the models on this machine, and the settings file with the chosen one."""
    query = visit.query(ConnectQuery)
    return await _show_connect(visit, deps, query, await try_form(query.change) if query.what else FormResult(None, {}))


@page(router, "/models/connect", Scope.OPERATE, method="POST")
async def connect(visit: Visitor, deps: RequestDeps) -> Response:
    """Writes the chosen model into the settings file, which holds from the next start on."""
    fields = {name: str(value) for name, value in (await visit.request.form()).items() if name != FIELD}
    choice = parse_as(ModelChoice, fields)

    async def write() -> str:
        new, text = await choice.change()
        try:
            await to_thread.run_sync(connecting.write_settings, config_file(), text)
        except OSError as error:
            problem = f"{config_file().absolute()} cannot be written: {error.strerror}"
            raise Conflict(problem, hint="go back, and copy the lines that the page shows into it") from error
        return new.name

    written = await try_form(write)
    if isinstance(written.value, str):
        return go_to(f"/models/connect{format_query({'done': written.value})}")
    return await _show_connect(visit, deps, ConnectQuery(**choice.model_dump()), written)


async def _show_connect(visit: Visit, deps: Deps, query: ConnectQuery, tried: FormResult) -> Response:
    found = [] if query.what or query.done else await connecting.find_models([Path(query.folder)] * bool(query.folder))
    new, text = tried.value if isinstance(tried.value, tuple) else (None, "")
    return visit.show(
        "models/connect.html", title="Connect a model", status=tried.status, query=query, found=found,
        messages=tried.messages, new=new, text=text, file=config_file().absolute(), data_dir=deps.settings.data_dir,
    )  # fmt: skip


@page(router, "/models/{name}")
async def show_model(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows one model with its measurements."""
    return await _show_model(name, visit, deps, None, FormResult(None, {}))


@page(router, "/models/{name}/try", Scope.SUBMIT, method="POST")
async def try_model(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Asks the model one question without documents, and shows its answer."""
    question = str((await visit.request.form()).get("question", ""))
    asked = {"question": question, "pipeline": "closed-book", "models": {"generate": name}}

    async def ask() -> Any:
        return msgspec.json.decode((await chat(parse_as(ChatRequest, asked), deps, visit.caller)).body)

    return await _show_model(name, visit, deps, question, await try_form(ask))


async def _show_model(name: str, visit: Visit, deps: Deps, question: str | None, tried: FormResult) -> Response:
    found = as_json(await models.load_details(deps, name))
    return visit.show(
        "models/one.html", title=name, json=f"/v1/models/{name}", status=tried.status, model=found,
        question=question, answer=tried.value, messages=tried.messages,
    )  # fmt: skip

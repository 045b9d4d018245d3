"""Serves `/pipelines`, `/models` and the rule banks below `/rules`."""

from fastapi import APIRouter, Response

from services.orchestrator.api import models, pipelines
from services.orchestrator.api.rules import RuleFilters
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.corpora import JOBS
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages import lines
from shared.pages.formatting import flatten_tree
from shared.pages.pages import format_query
from shared.pipelines.registry import AFTERWARDS
from shared.pipelines.switches import covers
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
    drawn = [
        {**each, "body": lines.format_body(each), "head": lines.format_atom(each["head"])}
        for each in as_json(listed.data)
    ]
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
    "rules": "find rules in the bank",
    "grade": "compare answers",
    "generate": "answer with the generator model",
}
"""What a call of each role does, in words."""


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


@page(router, "/models/{name}")
async def show_model(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows one model with its measurements."""
    found = as_json(await models.load_details(deps, name))
    return visit.show("models/one.html", title=name, json=f"/v1/models/{name}", model=found)

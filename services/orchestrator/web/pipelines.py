"""Serves `/pipelines`: the ways in which questions can be answered."""

from fastapi import APIRouter, Response

from services.orchestrator.api.pipelines import get_details, list_views
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.corpora import JOBS
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages.formatting import flatten_tree
from shared.pipelines.registry import AFTERWARDS
from shared.pipelines.switches import covers
from shared.storage import configurations, jobs

router = APIRouter()
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
        "pipelines/list.html", title="Pipelines", json="/v1/pipelines", pipelines=as_json(await list_views())
    )  # fmt: skip


@page(router, "/pipelines/{name}")
async def show_pipeline(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows a pipeline step by step, with the parameters that it reads and the newest jobs that use it."""
    found = as_json(await get_details(name))
    holding = await configurations.load_newest(deps.database)
    newest = await jobs.list_jobs(deps.database, JOBS, None, jobs.JobSelection(pipeline=name))
    return visit.show(
        "pipelines/one.html", title=name, json=f"/v1/pipelines/{name}", pipeline=found, doing=DOING,
        jobs=as_json(newest), configured=flatten_tree(holding.params),
        grading=[each["name"] for each in found["parameters"] if covers(each["name"], AFTERWARDS)],
    )  # fmt: skip

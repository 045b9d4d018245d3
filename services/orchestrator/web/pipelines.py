"""`/pipelines`: how questions are answered."""

from fastapi import APIRouter, Response

from services.orchestrator.api.pipelines import details, views
from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.corpora import JOBS
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages.differences import leaves
from shared.pipelines.registry import AFTERWARDS, covered
from shared.storage import configurations, job_list

router = APIRouter()
DOING = {
    "retrieve": "search an index",
    "rerank": "rate relevance with the reranker",
    "judge": "rate a document with the judge model",
    "write": "write a text with the judge model",
    "estimate": "estimate how hard the question is",
    "verify": "check a document's equations",
    "rules": "look for rules in the bank",
    "grade": "compare answers",
    "generate": "answer with the generator model",
}
"""What a call of each role does."""


@page(router, "/pipelines")
async def listed(visit: Visitor) -> Response:
    """By name."""
    return visit.show(
        "pipelines/list.html", title="Pipelines", json="/v1/pipelines", pipelines=as_json(await views())
    )  # fmt: skip


@page(router, "/pipelines/{name}")
async def one(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Step by step, with the parameters that it reads, and the newest jobs."""
    found = as_json(await details(name))
    holding = await configurations.holding(deps.database)
    newest = await job_list.listed(deps.database, JOBS, None, job_list.Filters(pipeline=name))
    return visit.show(
        "pipelines/one.html", title=name, json=f"/v1/pipelines/{name}", pipeline=found, doing=DOING,
        jobs=as_json(newest), configured=leaves(holding.params),
        grading=[each["name"] for each in found["parameters"] if covered(each["name"], AFTERWARDS)],
    )  # fmt: skip

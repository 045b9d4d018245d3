"""`/datasets`: what is asked."""

from fastapi import APIRouter, Response

from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.corpora import JOBS, ROWS, Turned
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages.pages import address
from shared.storage import corpora, dataset_details, datasets, job_list, pages, previews

router = APIRouter()
CORPORA = 20
"""The newest, in which leaked answers can be looked for."""


@page(router, "/datasets")
async def listed(visit: Visitor, deps: RequestDeps) -> Response:
    """Newest first."""
    asked = visit.query(Turned)
    found = await datasets.listed(deps.database, pages.DEFAULT, asked.cursor)
    return visit.show(
        "datasets/list.html", title="Datasets", json=f"/v1/datasets{address(asked.model_dump())}", found=as_json(found),
        first=asked.cursor is not None,
    )  # fmt: skip


@page(router, "/datasets/{name}")
async def one(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """What its items have, the items page by page, and who asked them last."""
    asked = visit.query(Turned)
    found = await dataset_details.details(deps.database, name)
    items = await previews.items_of(deps.database, found, ROWS, asked.cursor)
    newest = await job_list.listed(deps.database, JOBS, None, job_list.Filters(dataset=name))
    searched = await corpora.listed(deps.database, CORPORA)
    return visit.show(
        "datasets/one.html", title=name, json=f"/v1/datasets/{name}", dataset=as_json(found), items=as_json(items),
        jobs=as_json(newest), corpora=[each.name for each in searched.data], first=asked.cursor is not None,
    )  # fmt: skip

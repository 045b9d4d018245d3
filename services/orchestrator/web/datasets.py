"""Serves `/datasets`: the questions that jobs answer."""

from fastapi import APIRouter, Response

from services.orchestrator.deps import RequestDeps
from services.orchestrator.web.corpora import JOBS, ROWS, DocumentsQuery
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages.pages import format_query
from shared.storage import corpora, database, jobs
from shared.storage import datasets as stored_datasets

router = APIRouter()
CORPORA = 20
"""Number of the newest corpora that are offered for a scan for leaked answers."""


@page(router, "/datasets")
async def list_datasets(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists the datasets, newest first."""
    query = visit.query(DocumentsQuery)
    found = await stored_datasets.list_datasets(deps.database, database.DEFAULT, query.cursor)
    return visit.show(
        "datasets/list.html", title="Datasets", json=f"/v1/datasets{format_query(query.model_dump())}",
        found=as_json(found),
        first=query.cursor is not None,
    )  # fmt: skip


@page(router, "/datasets/{name}")
async def show_dataset(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows a dataset with counts of its items, the items page by page, and the newest jobs over it."""
    query = visit.query(DocumentsQuery)
    found = await stored_datasets.load_details(deps.database, name)
    items = await stored_datasets.list_items_of(deps.database, found, ROWS, query.cursor)
    newest = await jobs.list_jobs(deps.database, JOBS, None, jobs.JobSelection(dataset=name))
    searched = await corpora.list_corpora(deps.database, CORPORA)
    return visit.show(
        "datasets/one.html", title=name, json=f"/v1/datasets/{name}", dataset=as_json(found), items=as_json(items),
        jobs=as_json(newest), corpora=[each.name for each in searched.data], first=query.cursor is not None,
    )  # fmt: skip

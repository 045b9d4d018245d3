"""Serves `/corpora`, `/datasets` and the list of rule banks."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports import leaks
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages.pages import format_query
from shared.storage import corpora, database, datasets, jobs, rules
from shared.storage.jobs import Named

router = APIRouter()
ROWS = 10
"""Number of documents on a page."""
JOBS = 5


class DocumentsQuery(BaseModel):
    """Which page of a list to show."""

    model_config = ConfigDict(extra="forbid")

    cursor: str | None = None


class ContaminationQuery(BaseModel):
    """The dataset whose questions are searched for."""

    model_config = ConfigDict(extra="forbid")

    dataset: Named | None = None


LISTS: dict[str, tuple[str, Callable[[database.Database, int, str | None], Awaitable[database.Page[Any]]]]] = {
    "/corpora": ("Corpora", corpora.list_corpora),
    "/datasets": ("Datasets", datasets.list_datasets),
    "/rules": ("Rule banks", rules.list_banks),
}
"""Title of each list by its path, and the function that loads a page of it."""


@page(router, "/corpora")
@page(router, "/datasets")
@page(router, "/rules")
async def list_newest(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists the corpora, the datasets or the rule banks, newest first."""
    path = visit.request.scope["route"].path
    (title, load), query = LISTS[path], visit.query(DocumentsQuery)
    found = await load(deps.database, database.DEFAULT, query.cursor)
    return visit.show(
        f"{path[1:]}/list.html", title=title, json=f"/v1{path}{format_query(query.model_dump())}",
        found=as_json(found), first=query.cursor is not None,
    )  # fmt: skip


@page(router, "/corpora/{name}")
async def show_corpus(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows a corpus with its indexes, its documents page by page, and the newest jobs that searched it."""
    query = visit.query(DocumentsQuery)
    found = await corpora.load_details(deps.database, name)
    documents = await datasets.list_documents_of(deps.database, found, ROWS, query.cursor)
    newest = await jobs.list_jobs(deps.database, JOBS, None, jobs.JobSelection(corpus=name))
    return visit.show(
        "corpora/one.html", title=name, json=f"/v1/corpora/{name}", corpus=as_json(found),
        documents=as_json(documents), jobs=as_json(newest), first=query.cursor is not None,
    )  # fmt: skip


@page(router, "/corpora/{name}/documents/{document}")
async def document(name: str, document: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows one document in full."""
    found = as_json(await corpora.load_document(deps.database, name, document))
    return visit.show(
        "corpora/document.html", title=found["places"][0]["id"], json=f"/v1/corpora/{name}/documents/{document}",
        corpus=name, document=found,
    )  # fmt: skip


@page(router, "/corpora/{name}/contamination")
async def contamination(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows which questions of a dataset have their own problem in the corpus; nothing is compared until a dataset
    is chosen.
    """
    query = visit.query(ContaminationQuery)
    corpus = await corpora.get(deps.database, name)
    known = await datasets.list_datasets(deps.database, database.DEFAULT)
    found = await leaks.scan(deps.database, name, query.dataset) if query.dataset else None
    json = f"/v1/corpora/{name}/contamination{format_query(query.model_dump())}" if found else f"/v1/corpora/{name}"
    return visit.show(
        "corpora/contamination.html", title=f"Leaked answers in {name}", json=json, corpus=as_json(corpus),
        datasets=[each.name for each in known.data], chosen=query.dataset, found=as_json(found),
    )  # fmt: skip


CORPORA = 20
"""Number of the newest corpora that are offered for a scan for leaked answers."""


@page(router, "/datasets/{name}")
async def show_dataset(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Shows a dataset with counts of its items, the items page by page, and the newest jobs over it."""
    query = visit.query(DocumentsQuery)
    found = await datasets.load_details(deps.database, name)
    items = await datasets.list_items_of(deps.database, found, ROWS, query.cursor)
    newest = await jobs.list_jobs(deps.database, JOBS, None, jobs.JobSelection(dataset=name))
    searched = await corpora.list_corpora(deps.database, CORPORA)
    return visit.show(
        "datasets/one.html", title=name, json=f"/v1/datasets/{name}", dataset=as_json(found), items=as_json(items),
        jobs=as_json(newest), corpora=[each.name for each in searched.data], first=query.cursor is not None,
    )  # fmt: skip

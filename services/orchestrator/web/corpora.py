"""`/corpora`: what is searched."""

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict

from services.orchestrator.api.submissions import Named
from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports import leaks
from services.orchestrator.web.page import Visitor, as_json, page
from shared.pages.pages import address
from shared.storage import corpora, corpus_details, datasets, job_list, pages, previews

router = APIRouter()
ROWS = 10
"""Documents of a page."""
JOBS = 5


class Turned(BaseModel):
    """Which page of a list is shown."""

    model_config = ConfigDict(extra="forbid")

    cursor: str | None = None


class Asked(BaseModel):
    """Whose questions are looked for."""

    model_config = ConfigDict(extra="forbid")

    dataset: Named | None = None


@page(router, "/corpora")
async def listed(visit: Visitor, deps: RequestDeps) -> Response:
    """Newest first."""
    asked = visit.query(Turned)
    found = await corpora.listed(deps.database, pages.DEFAULT, asked.cursor)
    return visit.show(
        "corpora/list.html", title="Corpora", json=f"/v1/corpora{address(asked.model_dump())}", found=as_json(found),
        first=asked.cursor is not None,
    )  # fmt: skip


@page(router, "/corpora/{name}")
async def one(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Its indexes, its documents page by page, and who searched it last."""
    asked = visit.query(Turned)
    found = await corpus_details.details(deps.database, name)
    documents = await previews.documents_of(deps.database, found, ROWS, asked.cursor)
    newest = await job_list.listed(deps.database, JOBS, None, job_list.Filters(corpus=name))
    return visit.show(
        "corpora/one.html", title=name, json=f"/v1/corpora/{name}", corpus=as_json(found),
        documents=as_json(documents), jobs=as_json(newest), first=asked.cursor is not None,
    )  # fmt: skip


@page(router, "/corpora/{name}/documents/{document}")
async def document(name: str, document: str, visit: Visitor, deps: RequestDeps) -> Response:
    """One document in full."""
    found = as_json(await corpus_details.document(deps.database, name, document))
    return visit.show(
        "corpora/document.html", title=found["places"][0]["id"], json=f"/v1/corpora/{name}/documents/{document}",
        corpus=name, document=found,
    )  # fmt: skip


@page(router, "/corpora/{name}/contamination")
async def contamination(name: str, visit: Visitor, deps: RequestDeps) -> Response:
    """Which questions of a dataset have their own problem in the corpus; nothing is compared until one is chosen."""
    asked = visit.query(Asked)
    corpus = await corpora.get(deps.database, name)
    known = await datasets.listed(deps.database, pages.DEFAULT)
    found = await leaks.scan(deps.database, name, asked.dataset) if asked.dataset else None
    json = f"/v1/corpora/{name}/contamination{address(asked.model_dump())}" if found else f"/v1/corpora/{name}"
    return visit.show(
        "corpora/contamination.html", title=f"Leaked answers in {name}", json=json, corpus=as_json(corpus),
        datasets=[each.name for each in known.data], chosen=asked.dataset, found=as_json(found),
    )  # fmt: skip

"""Serves `/compare/changed`: the samples on which two jobs differ, and one of them as both jobs answered it."""

from typing import Annotated, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field

from services.orchestrator.api.comparison import ChangedQuery, JobPairQuery
from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports.side_by_side import load_side_by_side
from services.orchestrator.web.page import Visitor, page
from shared.pages.pages import format_query
from shared.records import Provenance
from shared.replies import Document
from shared.samples import Candidate
from shared.storage import samples

router = APIRouter()
KINDS = {"changed": "all that changed", "gained": "gained", "lost": "lost"}


class ChangedSampleQuery(JobPairQuery):
    """A sample of the left job, and the job on the right."""

    model_config = ConfigDict(extra="ignore")

    index: Annotated[int, Field(ge=0, lt=1 << 31)]
    repeat: Annotated[int, Field(ge=0, lt=1 << 15)] = 0


class ContextDocument(NamedTuple):
    """A document of a sample's context."""

    hash: str
    text: Document | None
    """Text of the document; None if it was deleted."""
    candidate: Candidate | None
    """Retrieval record of the document; None if nothing is recorded."""
    common: bool
    """Whether the other side has it, too."""


@page(router, "/compare/changed")
async def list_changed(visit: Visitor, deps: RequestDeps) -> Response:
    """Lists the changed samples in the order of the left job's dataset."""
    query = visit.query(ChangedQuery)
    found = await samples.list_changed_samples(deps.database, **query.model_dump())
    stays = query.model_dump(exclude={"cursor"}, exclude_defaults=True)
    return visit.show(
        "compare/changed.html", title="Changed samples", json=f"/v1/comparison/samples{format_query(stays)}",
        found=found,
        asked=query, query=stays, kinds=KINDS, first=query.cursor is not None,
    )  # fmt: skip


@page(router, "/compare/sample")
async def sample(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows the question, both answers, their documents, and the differences between the prompts."""
    query = visit.query(ChangedSampleQuery)
    found = await load_side_by_side(deps.database, **query.model_dump())
    others = {"left": query.left, "right": query.right, "repeat": query.repeat}
    return visit.show(
        "compare/sample.html", title="Side by side", json=f"/v1/comparison/samples/{query.index}{format_query(others)}",
        found=found, asked=query, cases=_link_cases(query, found.right.index),
        sides=[
            (found.left_name, query.left, found.left, documents(found.left, found.right)),
            (found.right_name, query.right, found.right, documents(found.right, found.left)),
        ],
    )  # fmt: skip


def documents(of: Provenance, other: Provenance | None = None) -> list[ContextDocument]:
    """Return a sample's context in the order of its prompt."""
    context = of.outcome.context if of.outcome else ()
    elsewhere = other.outcome.context if other and other.outcome else ()
    known = {each.document: each for each in of.outcome.trace.candidates} if of.outcome else {}
    return [ContextDocument(hash_, of.documents.get(hash_), known.get(hash_), hash_ in elsewhere) for hash_ in context]


def _link_cases(query: ChangedSampleQuery, right_index: int) -> str:
    values = {"left": query.left, "left_index": query.index, "left_repeat": query.repeat}
    values |= {"right": query.right, "right_index": right_index, "right_repeat": query.repeat}
    return f"/compare/cases?{urlencode(values)}"

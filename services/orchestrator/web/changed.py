"""`/compare/changed`: the samples on which two jobs differ, and one of them as both answered it."""

from typing import Annotated, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field

from services.orchestrator.api.comparison import Both, ChangedQuery
from services.orchestrator.deps import RequestDeps
from services.orchestrator.reports.side_by_side import side_by_side
from services.orchestrator.web.page import Visitor, page
from shared.contracts.documents import Document
from shared.contracts.provenance import Provenance
from shared.contracts.samples import Candidate
from shared.pages.pages import address
from shared.storage import changed_samples

router = APIRouter()
KINDS = {"changed": "all that changed", "gained": "gained", "lost": "lost"}


class Place(Both):
    """A sample of the left job, and the job on the right."""

    model_config = ConfigDict(extra="ignore")

    index: Annotated[int, Field(ge=0, lt=1 << 31)]
    repeat: Annotated[int, Field(ge=0, lt=1 << 15)] = 0


class Shown(NamedTuple):
    """A document of a sample's context."""

    hash: str
    text: Document | None
    """None: it was deleted."""
    candidate: Candidate | None
    """How it came there; None: nothing is recorded."""
    common: bool
    """The other side has it, too."""


@page(router, "/compare/changed")
async def changed(visit: Visitor, deps: RequestDeps) -> Response:
    """In the order of the left job's dataset."""
    query = visit.query(ChangedQuery)
    found = await changed_samples.listed(deps.database, **query.model_dump())
    stays = query.model_dump(exclude={"cursor"}, exclude_defaults=True)
    return visit.show(
        "compare/changed.html", title="Changed samples", json=f"/v1/comparison/samples{address(stays)}", found=found,
        asked=query, query=stays, kinds=KINDS, first=query.cursor is not None,
    )  # fmt: skip


@page(router, "/compare/sample")
async def sample(visit: Visitor, deps: RequestDeps) -> Response:
    """Question, answers, documents, and where the prompts differ."""
    asked = visit.query(Place)
    found = await side_by_side(deps.database, **asked.model_dump())
    others = {"left": asked.left, "right": asked.right, "repeat": asked.repeat}
    return visit.show(
        "compare/sample.html", title="Side by side", json=f"/v1/comparison/samples/{asked.index}{address(others)}",
        found=found, asked=asked, cases=_cases(asked, found.right.index),
        sides=[
            (found.left_name, asked.left, found.left, documents(found.left, found.right)),
            (found.right_name, asked.right, found.right, documents(found.right, found.left)),
        ],
    )  # fmt: skip


def documents(of: Provenance, other: Provenance | None = None) -> list[Shown]:
    """A sample's context in the order of its prompt."""
    context = of.outcome.context if of.outcome else ()
    elsewhere = other.outcome.context if other and other.outcome else ()
    known = {each.document: each for each in of.outcome.trace.candidates} if of.outcome else {}
    return [Shown(hash_, of.documents.get(hash_), known.get(hash_), hash_ in elsewhere) for hash_ in context]


def _cases(asked: Place, right_index: int) -> str:
    values = {"left": asked.left, "left_index": asked.index, "left_repeat": asked.repeat}
    values |= {"right": asked.right, "right_index": right_index, "right_repeat": asked.repeat}
    return f"/compare/cases?{urlencode(values)}"

"""Serves `/compare/cases`: two samples as a figure, which can be downloaded as one file."""

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.changed_samples import ContextDocument, documents
from services.orchestrator.web.page import Visit, Visitor, page
from shared.pages.pages import format_query
from shared.records import Provenance
from shared.storage import samples
from shared.storage.provenance import load_provenance

router = APIRouter()
Index = Annotated[int, Field(ge=0, lt=1 << 31)]
Repeat = Annotated[int, Field(ge=0, lt=1 << 15)]


class Cases(BaseModel):
    """Two samples, of one job or of two."""

    model_config = ConfigDict(extra="forbid")

    left: str
    left_index: Index
    left_repeat: Repeat = 0
    right: str
    right_index: Index
    right_repeat: Repeat = 0


class Case(NamedTuple):
    """A sample as the figure shows it."""

    name: str
    """Name of its job."""
    job: str
    sample: Provenance
    documents: list[ContextDocument]

    @property
    def correct(self) -> bool | None:
        """Return the verdict; None if the sample has none."""
        outcome = self.sample.outcome
        return outcome.verdict.correct if outcome and outcome.verdict else None


@page(router, "/compare/cases")
async def cases(visit: Visitor, deps: RequestDeps) -> Response:
    """Shows both samples side by side; without any, a form to choose them."""
    if not visit.request.query_params:
        return visit.show("compare/choose_cases.html", title="Two cases")
    query, both = await _load_both(visit, deps)
    return visit.show(
        "compare/cases.html", title="Two cases", both=both, headline=write_headline(both),
        download=f"/compare/cases.html{format_query(query.model_dump())}",
    )  # fmt: skip


@page(router, "/compare/cases.html")
async def download(visit: Visitor, deps: RequestDeps) -> Response:
    """Serves the figure as one file that loads and runs nothing; mathematics stays as it was written."""
    query, both = await _load_both(visit, deps)
    drawn = visit.show(
        "compare/figure.html", title=write_headline(both), both=both, headline=write_headline(both), typesetting=[]
    )
    name = f"cases-{both[0].name}-{query.left_index}-{both[1].name}-{query.right_index}.html"
    drawn.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return drawn


def write_headline(both: tuple[Case, Case]) -> str:
    """Return a title such as "A success and a failure"."""
    words = {(True, False): "A success and a failure", (False, True): "A failure and a success",
             (True, True): "Two successes", (False, False): "Two failures"}  # fmt: skip
    left, right = (case.correct for case in both)
    return "Two cases" if left is None or right is None else words[left, right]


async def _load_both(visit: Visit, deps: Deps) -> tuple[Cases, tuple[Case, Case]]:
    query = visit.query(Cases)
    names = await samples.find_names(deps.database, query.left, query.right)
    left = await load_provenance(deps.database, query.left, query.left_index, query.left_repeat)
    right = await load_provenance(deps.database, query.right, query.right_index, query.right_repeat)
    one = Case(names[0], query.left, left, documents(left))
    return query, (one, Case(names[1], query.right, right, documents(right)))

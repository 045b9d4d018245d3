"""`/compare/cases`: two samples as a figure, to look at and to download as one file."""

from typing import Annotated, NamedTuple

from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.changed import Shown, documents
from services.orchestrator.web.page import Visit, Visitor, page
from shared.contracts.provenance import Provenance
from shared.pages.pages import address
from shared.storage import changed_samples
from shared.storage.provenance import provenance

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
    """A sample as it is drawn."""

    name: str
    """Of its job."""
    job: str
    sample: Provenance
    documents: list[Shown]

    @property
    def correct(self) -> bool | None:
        """None: it has no verdict."""
        outcome = self.sample.outcome
        return outcome.verdict.correct if outcome and outcome.verdict else None


@page(router, "/compare/cases")
async def cases(visit: Visitor, deps: RequestDeps) -> Response:
    """Both beside each other; without any, a form."""
    if not visit.request.query_params:
        return visit.show("compare/choose_cases.html", title="Two cases")
    asked, both = await _both(visit, deps)
    return visit.show(
        "compare/cases.html", title="Two cases", both=both, headline=headline(both),
        download=f"/compare/cases.html{address(asked.model_dump())}",
    )  # fmt: skip


@page(router, "/compare/cases.html")
async def download(visit: Visitor, deps: RequestDeps) -> Response:
    """The same as one file that needs nothing else and runs nothing: mathematics stays as it was written."""
    asked, both = await _both(visit, deps)
    drawn = visit.show("compare/figure.html", title=headline(both), both=both, headline=headline(both), typesetting=[])
    name = f"cases-{both[0].name}-{asked.left_index}-{both[1].name}-{asked.right_index}.html"
    drawn.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    return drawn


def headline(both: tuple[Case, Case]) -> str:
    """Such as "A success and a failure"."""
    words = {(True, False): "A success and a failure", (False, True): "A failure and a success",
             (True, True): "Two successes", (False, False): "Two failures"}  # fmt: skip
    left, right = (case.correct for case in both)
    return "Two cases" if left is None or right is None else words[left, right]


async def _both(visit: Visit, deps: Deps) -> tuple[Cases, tuple[Case, Case]]:
    asked = visit.query(Cases)
    names = await changed_samples.names(deps.database, asked.left, asked.right)
    left = await provenance(deps.database, asked.left, asked.left_index, asked.left_repeat)
    right = await provenance(deps.database, asked.right, asked.right_index, asked.right_repeat)
    one = Case(names[0], asked.left, left, documents(left))
    return asked, (one, Case(names[1], asked.right, right, documents(right)))

"""`/jobs/{job}/samples/{index}`: one sample with all that its answer was made from."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Path, Query, Response
from markupsafe import Markup

from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.page import Visitor, page
from shared.contracts.provenance import Attempt, Provenance, Step
from shared.contracts.replies import Generated, Rated
from shared.contracts.samples import Candidate
from shared.pages.charts import slope
from shared.pages.decisions import sentence
from shared.pages.pages import address
from shared.pages.replies import summary
from shared.pages.rules import bringing
from shared.rag.candidates import found_order
from shared.storage import documents
from shared.storage.documents import Shown
from shared.storage.jobs import Job
from shared.storage.provenance import provenance

router = APIRouter()
MOST_DOCUMENTS = 50
"""Candidates that the page lists; the API has all."""
MOST_SLOPES = 20
MOST_CALLS = 200
"""Calls that the page lists: the first, and the last quarter, where the answer was written."""
PYTHON = """\
from mathrag.client import jobs
from mathrag.client.client import Client

with Client({url!r}) as client:
    sample = client.send(jobs.sample({job!r}, {index}, {repeat}, prompts=True))
print(sample["state"], sample["text"])
"""


class Ranked(NamedTuple):
    """A candidate document as the page lists it."""

    candidate: Candidate
    found: int
    """Its rank as it was found."""
    name: str
    shown: Shown | None
    """None: the database does not hold it any more."""
    in_prompt: bool
    grade: int | None
    """As the dataset grades it; None: not relevant, or not known."""
    by: str
    """The rules that brought it."""


class Called(NamedTuple):
    """A call as the page lists it."""

    step: Step
    said: str
    ms: float | None
    """Of the accepted attempt."""
    text: str | None
    """What a model wrote, whole."""
    attempts: list[Attempt]
    """The accepted one first."""


@page(router, "/jobs/{job}/samples/{index}")
async def shown(
    job: str,
    visit: Visitor,
    deps: RequestDeps,
    index: Annotated[int, Path(ge=0, lt=1 << 31)],
    repeat: Annotated[int, Query(ge=0, lt=1 << 15)] = 0,
) -> Response:
    """Question, answer, documents, decisions, equations, calls."""
    found = await provenance(deps.database, job, index, repeat, prompts=True)
    of = await deps.job_views.get(deps.database, job)
    ranked = await _ranked(deps, of, found)
    path = f"/v1/jobs/{of.id}/samples/{index}"
    return visit.show(
        "sample/sample.html", title=f"Sample {index} of {of.name}", json=path + _query(found),
        sample=found, job=of, ranked=ranked, chart=_chart(ranked),
        calls=[_called(step) for step in _listed(found.steps)],
        decisions=_decisions(found, ranked),
        candidates=len(found.outcome.trace.candidates) if found.outcome else 0,
        earlier=_beside(of, index, repeat, -1), later=_beside(of, index, repeat, 1),
        copies=_copies(visit, path, of, found),
    )  # fmt: skip


async def _ranked(deps: Deps, job: Job, found: Provenance) -> list[Ranked]:
    """The first candidates in their final order, with their texts."""
    if found.outcome is None:
        return []
    candidates = found.outcome.trace.candidates
    ranks = {each.document: rank for rank, each in enumerate(found_order(candidates), 1)}
    first = sorted(candidates, key=lambda each: each.rank)[:MOST_DOCUMENTS]
    async with deps.database.statement() as connection:
        texts = await documents.shown(connection, job.corpus, [each.document for each in first])
    return [
        Ranked(
            each, ranks[each.document], _name(each, texts.get(each.document)), texts.get(each.document),
            each.document in found.outcome.context, (found.relevant or {}).get(each.document),
            bringing({"paths": each.paths}),
        )
        for each in first
    ]  # fmt: skip


def _name(candidate: Candidate, shown: Shown | None) -> str:
    return (shown and shown.id) or candidate.document[:12]


def _chart(ranked: Sequence[Ranked]) -> Markup | None:
    """None: one document has nowhere to move to."""
    slopes = [
        slope.Slope(each.name, each.found, each.candidate.rank, strong=each.in_prompt, marked=each.grade is not None)
        for each in ranked[:MOST_SLOPES]
    ]
    return slope.chart(slopes, "retrieved", "reranked") if len(slopes) > 1 else None


def _decisions(found: Provenance, ranked: Sequence[Ranked]) -> list[str]:
    names = {each.candidate.document: each.name for each in ranked}
    return [sentence(each, names) for each in found.outcome.trace.decisions] if found.outcome else []


def _listed(steps: Sequence[Step]) -> Sequence[Step]:
    last = MOST_CALLS // 4
    return steps if len(steps) <= MOST_CALLS else [*steps[: MOST_CALLS - last], *steps[-last:]]


def _called(step: Step) -> Called:
    attempt = step.attempt
    reply = attempt.reply if attempt else None
    said = summary(reply, attempt.completion_tokens if attempt else None)
    return Called(
        step=step,
        said=(attempt.unreadable if attempt else None) or said,
        ms=_ms(attempt.started_at, attempt.ended_at) if attempt else None,
        text=reply.text if isinstance(reply, Generated | Rated) else None,
        attempts=[*([attempt] if attempt else []), *step.other_attempts],
    )


def _ms(start: datetime | None, end: datetime | None) -> float | None:
    return 1000 * (end - start).total_seconds() if start and end else None


def _beside(job: Job, index: int, repeat: int, step: int) -> str | None:
    """The address of the sample before or after; None: there is none."""
    place = index * job.repeats + repeat + step
    if not 0 <= place < job.request_counts.total:
        return None
    number, which = divmod(place, job.repeats)
    return f"/jobs/{job.id}/samples/{number}{address({'repeat': which or None})}"


def _query(found: Provenance) -> str:
    return address({"repeat": found.repeat or None, "prompts": "true"})


def _copies(visit: Visitor, path: str, job: Job, found: Provenance) -> list[tuple[str, str]]:
    """How to ask for the same from a shell and from Python."""
    url = str(visit.request.base_url).rstrip("/")
    key = ' -H "Authorization: Bearer $MATHRAG_API_KEY"' if visit.request.state.keyring is not None else ""
    python = PYTHON.format(url=url, job=str(job.id), index=found.index, repeat=found.repeat)
    return [("curl", f"curl -sS{key} {shlex.quote(url + path + _query(found))}"), ("Python", python)]

"""Serves `/jobs/{job}/samples/{index}`: one sample with everything that its answer was made from."""

import shlex
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Path, Query, Response
from markupsafe import Markup

from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.web.page import Visitor, page
from shared.pages.charts import slope
from shared.pages.lines import describe_decision, name_rules, summarise_reply
from shared.pages.pages import format_query
from shared.rag.provenance import sort_as_found
from shared.records import Attempt, Provenance, Step
from shared.replies import Generated, Rated
from shared.samples import Candidate
from shared.storage import corpora
from shared.storage.corpora import Shown
from shared.storage.jobs import Job
from shared.storage.provenance import load_provenance
from shared.storage.samples import Place, neighbours

router = APIRouter()
MOST_DOCUMENTS = 50
"""Number of candidates that the page lists; the API has all."""
MOST_SLOPES = 20
MOST_CALLS = 200
"""Number of calls that the page lists: the first ones, and as the last quarter the final ones, which wrote the
answer.
"""
PYTHON = """\
from mathrag import Client

with Client({url!r}) as client:
    sample = client.jobs.sample({job!r}, {index}, repeat={repeat}, prompts=True)
print(sample.state, sample.text)
"""


class CandidateRow(NamedTuple):
    """A candidate document as the page lists it."""

    candidate: Candidate
    found: int
    """Rank after retrieval."""
    name: str
    shown: Shown | None
    """The document; None if the database no longer holds it."""
    in_prompt: bool
    grade: int | None
    """Relevance grade in the dataset; None if not relevant or unknown."""
    by: str
    """Rules that brought it."""


class CallRow(NamedTuple):
    """A call as the page lists it."""

    step: Step
    said: str
    ms: float | None
    """Duration of the accepted attempt in milliseconds."""
    text: str | None
    """Complete reply of a model."""
    attempts: list[Attempt]
    """Attempts, the accepted one first."""


@page(router, "/jobs/{job}/samples/{index}")
async def show_sample(
    job: str,
    visit: Visitor,
    deps: RequestDeps,
    index: Annotated[int, Path(ge=0, lt=1 << 31)],
    repeat: Annotated[int, Query(ge=0, lt=1 << 15)] = 0,
) -> Response:
    """Shows the question, the answer, documents, decisions, equations and calls of a sample."""
    found = await load_provenance(deps.database, job, index, repeat, prompts=True)
    of = await deps.job_views.get(deps.database, job)
    ranked = await _load_candidates(deps, of, found)
    beside = await neighbours(deps.database, str(of.id), index, repeat)
    path = f"/v1/jobs/{of.id}/samples/{index}"
    return visit.show(
        "sample/sample.html", title=f"Sample {index} of {of.name}", json=path + _query(found),
        sample=found, job=of, ranked=ranked, chart=_draw_ranks(ranked),
        calls=[_make_call_row(step) for step in _select_steps(found.steps)],
        decisions=_describe_decisions(found, ranked),
        candidates=len(found.outcome.trace.candidates) if found.outcome else 0,
        earlier=_make_address(of, beside.earlier), later=_make_address(of, beside.later),
        copies=_list_commands(visit, path, of, found),
    )  # fmt: skip


async def _load_candidates(deps: Deps, job: Job, found: Provenance) -> list[CandidateRow]:
    """Return the first candidates in their final order, with their texts."""
    if found.outcome is None:
        return []
    candidates = found.outcome.trace.candidates
    ranks = {each.document: rank for rank, each in enumerate(sort_as_found(candidates), 1)}
    first = sorted(candidates, key=lambda each: each.rank)[:MOST_DOCUMENTS]
    async with deps.database.statement() as connection:
        texts = await corpora.load_documents(connection, job.corpus, [each.document for each in first])
    return [
        CandidateRow(
            each, ranks[each.document], _name(each, texts.get(each.document)), texts.get(each.document),
            each.document in found.outcome.context, (found.relevant or {}).get(each.document),
            name_rules({"paths": each.paths}),
        )
        for each in first
    ]  # fmt: skip


def _name(candidate: Candidate, shown: Shown | None) -> str:
    return (shown and shown.id) or candidate.document[:12]


def _draw_ranks(ranked: Sequence[CandidateRow]) -> Markup | None:
    """Draw the change of ranks; None for a single document, whose rank cannot change."""
    slopes = [
        slope.Slope(each.name, each.found, each.candidate.rank, strong=each.in_prompt, marked=each.grade is not None)
        for each in ranked[:MOST_SLOPES]
    ]
    return slope.draw_slopes(slopes, "retrieved", "reranked") if len(slopes) > 1 else None


def _describe_decisions(found: Provenance, ranked: Sequence[CandidateRow]) -> list[str]:
    names = {each.candidate.document: each.name for each in ranked}
    return [describe_decision(each, names) for each in found.outcome.trace.decisions] if found.outcome else []


def _select_steps(steps: Sequence[Step]) -> Sequence[Step]:
    last = MOST_CALLS // 4
    return steps if len(steps) <= MOST_CALLS else [*steps[: MOST_CALLS - last], *steps[-last:]]


def _make_call_row(step: Step) -> CallRow:
    attempt = step.attempt
    reply = attempt.reply if attempt else None
    summary = summarise_reply(reply, attempt.completion_tokens if attempt else None)
    return CallRow(
        step=step,
        said=(attempt.unreadable if attempt else None) or summary,
        ms=_compute_ms(attempt.started_at, attempt.ended_at) if attempt else None,
        text=reply.text if isinstance(reply, Generated | Rated) else None,
        attempts=[*([attempt] if attempt else []), *step.other_attempts],
    )


def _compute_ms(start: datetime | None, end: datetime | None) -> float | None:
    return 1000 * (end - start).total_seconds() if start and end else None


def _make_address(job: Job, place: Place | None) -> str | None:
    if place is None:
        return None
    index, repeat = place
    return f"/jobs/{job.id}/samples/{index}{format_query({'repeat': repeat or None})}"


def _query(found: Provenance) -> str:
    return format_query({"repeat": found.repeat or None, "prompts": "true"})


def _list_commands(visit: Visitor, path: str, job: Job, found: Provenance) -> list[tuple[str, str]]:
    """Return commands that request the same sample from a shell and from Python."""
    url = str(visit.request.base_url).rstrip("/")
    key = ' -H "Authorization: Bearer $MATHRAG_API_KEY"' if visit.request.state.keyring is not None else ""
    python = PYTHON.format(url=url, job=str(job.id), index=found.index, repeat=found.repeat)
    return [("curl", f"curl -sS{key} {shlex.quote(url + path + _query(found))}"), ("Python", python)]

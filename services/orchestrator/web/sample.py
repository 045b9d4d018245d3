"""Serves the samples of a job, one sample, and the samples that changed between two jobs."""

import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Form, Path, Query, Response
from pydantic import ConfigDict, Field

from mathrag.formatting import format_counts
from mathrag.report_lines import name_rules
from services.orchestrator.api.comparison import ChangedQuery, JobPairQuery
from services.orchestrator.api.samples import NoteRequest, SampleFilters
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.comparison import load_side_by_side
from services.orchestrator.web.page import Visitor, go_to, page, parse_as
from services.orchestrator.web.prompts import compare_with_shipped, load_prompt_of
from shared.pages import charts
from shared.pages.lines import describe_decision, summarise_reply
from shared.pages.pages import format_query
from shared.pipelines.program_aided import PROGRAM
from shared.rag.answer_metrics import RELEVANT, list_scores
from shared.rag.provenance import Ending, sort_as_found
from shared.recent import LruCache
from shared.records import Attempt, Provenance, Step
from shared.replies import Document, Generated, Rated, Relevance
from shared.samples import Candidate, Strategy
from shared.shapes import Scope
from shared.storage import corpora, jobs, samples
from shared.storage.corpora import Shown
from shared.storage.database import SampleState
from shared.storage.jobs import Job, Subjects
from shared.storage.notes import change_note
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


class PartRow(NamedTuple):
    """A sentence or a document with the label that the judge model gave it."""

    text: str
    words: str
    tone: Literal["right", "wrong", "none"]


class MetricRow(NamedTuple):
    """A score of a metric as the page lists it."""

    name: str
    value: float | None
    note: str
    """Why there is no value, or what the label of the whole says; may be empty."""
    parts: list[PartRow]


SUPPORT_LABELS: Mapping[int | None, tuple[str, Literal["right", "wrong", "none"]]] = {
    3: ("✓ supported", "right"),
    2: ("– not said", "none"),
    1: ("✗ contradicted", "wrong"),
}
"""Words and tone of the labels of `support`."""
SUPPORT_METRICS = ("faithfulness", "citation_recall", "context_recall")
"""Metrics whose parts have these labels."""
OVERALL_LABELS: Mapping[str, Mapping[int | None, str]] = {
    "context_sufficiency": {
        1: "the documents do not answer it", 2: "the documents give several answers", 3: "one answer follows from them",
    },
    "answer_relevance": {
        1: "it declines to answer", 2: "it answers something else", 3: "it answers a part", 4: "it answers all of it",
    },
}  # fmt: skip
"""By metric, words of the label of the whole reply, or of all documents together."""
RATING_METRICS = ("context_relevance", "context_precision")
"""Metrics whose parts are documents with ratings from 1 to 5."""


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
    decided = found.outcome.trace.decisions if found.outcome else ()
    by_program = any((each.stage, each.action) == (PROGRAM, "run") for each in decided)
    prompt = None if by_program else await load_prompt_of(deps, of)
    difference = None if prompt is None else await compare_with_shipped(deps, of, prompt)
    others = await neighbours(deps.database, str(of.id), index, repeat)
    path = f"/v1/jobs/{of.id}/samples/{index}"
    # Draw the change of ranks; None for a single document, whose rank cannot change.
    slopes = [
        charts.Slope(each.name, each.found, each.candidate.rank, strong=each.in_prompt, marked=each.grade is not None)
        for each in ranked[:MOST_SLOPES]
    ]
    ranks = charts.draw_slopes(slopes, "retrieved", "reranked") if len(slopes) > 1 else None
    names = {each.candidate.document: each.name for each in ranked}
    decisions = [describe_decision(each, names) for each in decided]
    # The first calls, and the last ones, which wrote the answer.
    steps: Sequence[Step] = found.steps
    last = MOST_CALLS // 4
    if len(steps) > MOST_CALLS:
        steps = [*steps[: MOST_CALLS - last], *steps[-last:]]
    url = str(visit.request.base_url).rstrip("/")
    key = ' -H "Authorization: Bearer $MATHRAG_API_KEY"' if visit.request.state.keyring is not None else ""
    python = PYTHON.format(url=url, job=str(of.id), index=found.index, repeat=found.repeat)
    commands = [("curl", f"curl -sS{key} {shlex.quote(url + path + _query(found))}"), ("Python", python)]
    return visit.show(
        "sample/sample.html", title=f"Sample {index} of {of.name}", json=path + _query(found),
        sample=found, job=of, ranked=ranked, chart=ranks,
        calls=[_make_call_row(step) for step in steps],
        decisions=decisions,
        candidates=len(found.outcome.trace.candidates) if found.outcome else 0,
        earlier=_make_address(of, others.earlier), later=_make_address(of, others.later),
        copies=commands, prompt=prompt, difference=difference,
        metrics=list(_list_metrics(found, names)), measured=found.code.get("measured"),
        sent=next((step.prompt for step in reversed(found.steps) if step.role == "generate"), None),
    )  # fmt: skip


async def _load_candidates(deps: Deps, job: Job, found: Provenance) -> list[CandidateRow]:
    """Return the first candidates in their final order, with their texts."""
    if found.outcome is None:
        return []
    # Of an answer from elsewhere, only the documents in its prompt are known.
    shown_first = (Candidate(document=each, rank=n) for n, each in enumerate(dict.fromkeys(found.outcome.context), 1))
    candidates = found.outcome.trace.candidates or tuple(shown_first)
    ranks = {each.document: rank for rank, each in enumerate(sort_as_found(candidates), 1)}
    first = sorted(candidates, key=lambda each: each.rank)[:MOST_DOCUMENTS]
    async with deps.database.statement() as connection:
        texts = await corpora.load_documents(connection, job.corpus, [each.document for each in first])
    rows = []
    for each in first:
        shown = texts.get(each.document)
        row = CandidateRow(
            candidate=each,
            found=ranks[each.document],
            name=(shown and shown.id) or each.document[:12],
            shown=shown,
            in_prompt=each.document in found.outcome.context,
            grade=(found.relevant or {}).get(each.document),
            by=name_rules({"paths": each.paths}),
        )
        rows.append(row)
    return rows


def _list_metrics(found: Provenance, names: Mapping[str, str]) -> Iterator[MetricRow]:
    """Yield the scores of a sample; `names` has its documents by hash."""
    scores = (found.outcome.metrics if found.outcome else None) or {}
    listed = [*(name for name in list_scores() if name in scores), *(scores.keys() - {*list_scores()})]
    for name in listed:
        score = scores[name]
        note = score.not_applicable and f"does not apply: {score.not_applicable}"
        if name in OVERALL_LABELS and score.parts:
            note = OVERALL_LABELS[name].get(score.parts[0].label, "")
        if score.failures:
            note = f"between {score.low:.3g} and {score.high:.3g}: labels are missing ({format_counts(score.failures)})"
        parts = []
        for part in score.parts:
            if part.failure:
                parts.append(PartRow(names.get(part.text, part.text), f"? no label: {part.failure}", "none"))
            elif name in RATING_METRICS:
                relevant = (part.label or 0) >= RELEVANT
                name_ = names.get(part.text, part.text[:12])
                parts.append(PartRow(name_, f"{part.label} of 5", "right" if relevant else "none"))
            elif part.text:
                words, tone = (
                    SUPPORT_LABELS.get(part.label, ("– not asked", "none"))
                    if name in SUPPORT_METRICS
                    else (f"label {part.label}", "none")
                )
                disputed = "; another document contradicts it" if part.disputed else ""
                parts.append(PartRow(part.text, words + disputed, tone))
        yield MetricRow(name, score.value, note, parts)


def _make_call_row(step: Step) -> CallRow:
    attempt = step.attempt
    reply = attempt.reply if attempt else None
    summary, ms = summarise_reply(reply, attempt.completion_tokens if attempt else None), None
    if attempt and attempt.started_at and attempt.ended_at:
        ms = 1000 * (attempt.ended_at - attempt.started_at).total_seconds()
    return CallRow(
        step=step,
        said=(attempt.unreadable if attempt else None) or summary,
        ms=ms,
        text=reply.text if isinstance(reply, Generated | Rated | Relevance) else None,
        attempts=[*([attempt] if attempt else []), *step.other_attempts],
    )


def _make_address(job: Job, place: Place | None) -> str | None:
    if place is None:
        return None
    index, repeat = place
    return f"/jobs/{job.id}/samples/{index}{format_query({'repeat': repeat or None})}"


def _query(found: Provenance) -> str:
    return format_query({"repeat": found.repeat or None, "prompts": "true"})


@page(router, "/jobs/{job}/samples/{index}/note", Scope.SUBMIT, method="POST")
async def write_note(
    job: str,
    visit: Visitor,
    deps: RequestDeps,
    index: Annotated[int, Path(ge=0, lt=1 << 31)],
    repeat: Annotated[int, Query(ge=0, lt=1 << 15)] = 0,
    back: Annotated[str, Form()] = "",
) -> Response:
    """Changes the visitor's thumb or note as `PATCH /v1/jobs/{job}/samples/{index}/note` does, and shows the page that
    the form was on.
    """
    form = await visit.request.form()
    given = {name: str(form[name]).replace("\r\n", "\n") for name in ("thumb", "note") if name in form}
    request = parse_as(NoteRequest, given)
    await change_note(deps.database, visit.actor, job, index, repeat, request.to_change())
    if back.startswith("/compare/answers?"):
        return go_to(back)
    return go_to(f"/jobs/{quote(job)}/samples/{index}{format_query({'repeat': repeat or None})}")


_subjects: LruCache[Subjects] = LruCache(256)
"""Subjects by job, cached: they never change, and counting them reads the whole dataset."""


@page(router, "/jobs/{job}/samples")
async def list_samples(visit: Visitor, deps: RequestDeps, job: str) -> Response:
    """Lists the samples in dataset order."""
    filters = visit.query(SampleFilters)
    of = await deps.job_views.get(deps.database, job)
    selection = filters.make_selection()
    found = await samples.list_samples(deps.database, str(of.id), filters.limit, filters.cursor, selection)
    if not (subjects := _subjects.find([of.id])):
        subjects = {of.id: await jobs.load_subjects(deps.database, str(of.id))}
        _subjects.keep(subjects)
    query = filters.model_dump(mode="json", exclude={"cursor"}, exclude_defaults=True)
    query |= {name: str(value).lower() for name, value in query.items() if isinstance(value, bool)}
    return visit.show(
        "samples/samples.html", title=f"Samples of {of.name}", json=f"/v1/jobs/{of.id}/samples{format_query(query)}",
        job=of, found=found, query=query, first=filters.cursor is not None, subjects=subjects[of.id],
        states=[state.word for state in SampleState], endings=[each.value for each in Ending],
        scorers=[each.value for each in Strategy], once=uuid.uuid4().hex,
    )  # fmt: skip


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
    values = {"left": query.left, "left_index": query.index, "left_repeat": query.repeat}
    values |= {"right": query.right, "right_index": found.right.index, "right_repeat": query.repeat}
    return visit.show(
        "compare/sample.html", title="Side by side", json=f"/v1/comparison/samples/{query.index}{format_query(others)}",
        found=found, asked=query, cases=f"/compare/cases?{urlencode(values)}",
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

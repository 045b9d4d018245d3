"""Assembles the report: figures of the samples, cost of the calls, and the settings that both depend on."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from anyio import to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.reports.answers import AnswerAt, AnswersFound
from services.orchestrator.reports.contamination import Contaminated, Contamination
from services.orchestrator.reports.cost import TokenCost, compute_cost
from services.orchestrator.reports.disagreements import Disagreement, Disagreements
from services.orchestrator.reports.drawing import describe_spread, find_drawn_roles
from services.orchestrator.reports.endings import Endings
from services.orchestrator.reports.guidance import Guided, Guiding
from services.orchestrator.reports.repeatability import Repeatability, load_repeatability
from services.orchestrator.reports.retrieval import Findings, Retrieval
from services.orchestrator.reports.scores import Score, Scores
from services.orchestrator.reports.tally import Accuracy, SampleTally, TheirScores
from services.orchestrator.reports.work import Stage, Work, count_work
from shared.pages.formatting import format_accuracy
from shared.params import Params
from shared.pipelines.binding import Pin
from shared.plurals import format_count
from shared.records import Residency
from shared.samples import GateDecision
from shared.settings import Model
from shared.statistics.intervals import Interval, Repeats
from shared.storage import jobs
from shared.storage import samples as stored_samples
from shared.storage.database import Database, try_decode

PINNED = text("""
    SELECT j.pins, j.prepared, j.code -> 'imported' -> 'matched' AS matched,
        encode(j.pipeline_hash, 'hex') AS pipeline_hash FROM jobs j WHERE j.id = :job""")
MODELS = text("SELECT id, name, backend, digest, version FROM models WHERE id = ANY(:ids)")


MATCHED = {
    "id": "id", "question": "question", "index": "index",
    "order": "their order, because neither id nor question is in the dataset,",
}  # fmt: skip
"""What named the item of an imported answer, in words."""


class PinnedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model that answered a role."""

    name: str
    backend: str
    digest: str | None
    version: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that the figures depend on."""

    pipeline: str
    pipeline_hash: str
    dataset: str
    corpus: str | None
    limit: int | None
    """Number of items used, from the start of the dataset; null for all."""
    repeats: int
    reuse: str
    params: Params | None
    """Parameters; null if this release cannot read them, and a note says why."""
    models: dict[str, PinnedModel]
    """Models by role."""
    drawn: list[str] | None
    """Roles whose calls every repeat makes anew; for the others one reply serves all repeats. Null if it cannot be
    determined.
    """


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A job's report."""

    id: uuid.UUID
    name: str
    state: str
    reason: str | None
    seconds: float | None
    """Seconds from submission to end; null while the job runs."""
    created_at: datetime
    ended_at: datetime | None
    request_counts: jobs.RequestCounts
    items: int
    """Number of items with a completed or failed sample."""
    grader: str
    """Grader that decided whether an answer is correct; all accuracies are by it."""
    accuracy: Accuracy
    score: Score | None
    """Mean score of the grader; null if it gives only verdicts."""
    bootstrap: Interval | None
    repeats: Repeats
    strict: Accuracy
    disagreements: int
    answer_at: dict[str, AnswerAt]
    """Share by measure, such as `answer@5` (an answer occurs in the first 5 candidates); empty if not measured."""
    differing: list[Disagreement]
    """The first samples on which the two graders disagree."""
    endings: dict[str, int]
    """Completed and failed samples by how they ended (docs/explanation/statistics.md)."""
    contamination: Contamination | None
    """Near-duplicates in the corpus; null if no search met one."""
    extraction: dict[str, int]
    extracted_by: dict[str, int]
    """Answers by the rule that found them in the reply (docs/how-to/graders.md)."""
    theirs: TheirScores | None
    """The verdicts of the evaluation that an import came with; null if it came with none."""
    failures: dict[str, int]
    grading_failures: dict[str, int]
    truncated: int
    truncated_by: dict[str, int]
    """Why these answers were cut off: the token limit (`length`), or the model server."""
    unscored: int
    duplicates_dropped: int
    refused: int
    decisions: dict[str, dict[str, int]]
    fallbacks: dict[str, dict[str, int]]
    guided: Guided | None
    """How rules guided the questions (docs/how-to/rulerag.md); null if no sample looked for rules."""
    retrieval: Retrieval | None
    """Quality of retrieval; null if the dataset names no relevant documents or nothing was searched."""
    parse_failures: int
    repeatability: Repeatability | None
    """Repeatability of ratings; null if no rating was requested twice (`gate.repeats`; repeats with
    `judge.per_repeat` or `reuse: none`).
    """
    gate: GateDecision | None
    model_loads: int
    model_calls: int
    calls_made: dict[str, int]
    calls_reused: dict[str, int]
    calls_lapsed: int
    stages: dict[str, Stage]
    cost: TokenCost | None
    """Cost of the model calls; null if no model has answered."""
    residencies: tuple[Residency, ...]
    by_level: dict[str, Accuracy]
    by_subject: dict[str, Accuracy]
    notes: list[str]
    settings: Settings


class _JobFacts(NamedTuple):
    """What one snapshot of the database holds about a job, besides its samples."""

    row: int
    job: jobs.Job
    work: Work
    cost: TokenCost | None
    pinned: Any
    models: dict[str, PinnedModel]
    has_gold: bool
    """Whether the dataset names relevant documents."""
    repeatability: Repeatability | None


class _Counts:
    """The counters that every sample passes through."""

    def __init__(self) -> None:
        self.tally, self.findings, self.scores, self.guiding = SampleTally(), Findings(), Scores(), Guiding()
        self.endings, self.contaminated, self.disagreements = Endings(), Contaminated(), Disagreements()
        self.answers = AnswersFound()

    async def add_all(self, database: Database, job: int, *, has_gold: bool) -> None:
        """Count every sample of a job."""
        async for batch in stored_samples.stream_with_outcomes(database, job):
            for part in (
                self.tally, self.endings, self.contaminated, self.disagreements, self.scores, self.guiding,
                self.answers,
            ):  # fmt: skip
                part.add(batch)
            if has_gold:
                relevant = await stored_samples.load_gold_documents(
                    database, job, batch[0][0].index, batch[-1][0].index
                )
                await to_thread.run_sync(self.findings.add, batch, relevant)

    def figures(self, grader: str) -> dict[str, Any]:
        """Return the figures of a report, by field. The first call takes a second, because the intervals import
        scipy.
        """
        return {
            "retrieval": self.findings.figures(),
            "endings": self.endings.counts(),
            "contamination": self.contaminated.figures(),
            "guided": self.guiding.figures(),
            "score": self.scores.figures(grader),
            "answer_at": self.answers.figures(),
            "differing": self.disagreements.first,
            **msgspec.structs.asdict(self.tally.figures()),
        }


async def report(database: Database, reference: str, configured: Mapping[str, Model]) -> Report:
    """Return the report of the job that `reference` names, at the currently configured prices."""
    facts = await _load_facts(database, reference, configured)
    job = facts.job
    counts = _Counts()
    await counts.add_all(database, facts.row, has_gold=facts.has_gold)
    grader = (job.params.grading.grader if job.params else "") or "math"
    figures = await to_thread.run_sync(counts.figures, grader)
    return Report(
        seconds=(job.ended_at - job.created_at).total_seconds() if job.ended_at else None,
        gate=try_decode(facts.pinned.prepared, GateDecision, "")[0],
        grader=grader,
        cost=facts.cost,
        repeatability=facts.repeatability,
        notes=notes(job, counts.tally.count_failures_as_wrong(), facts.pinned.matched),
        settings=await to_thread.run_sync(_make_settings, facts),
        **{field: getattr(job, field) for field in _OF_JOB},
        **figures,
        **msgspec.structs.asdict(facts.work),
    )


async def _load_facts(database: Database, reference: str, configured: Mapping[str, Model]) -> _JobFacts:
    async with database.snapshot() as connection:
        row = await jobs.resolve(connection, reference)
        job = await jobs.view(connection, row)
        pinned = (await connection.execute(PINNED, {"job": row})).one()
        return _JobFacts(
            row=row,
            job=job,
            work=await count_work(connection, row),
            cost=await compute_cost(connection, row, configured),
            pinned=pinned,
            models=await _load_models(connection, pinned.pins),
            has_gold=await stored_samples.has_gold_documents(connection, row),
            repeatability=await load_repeatability(connection, row, job),
        )


def _make_settings(facts: _JobFacts) -> Settings:
    job = facts.job
    return Settings(
        pipeline_hash=facts.pinned.pipeline_hash,
        models=facts.models,
        drawn=find_drawn_roles(job.pipeline, job.params, job.reuse),
        **{field: getattr(job, field) for field in _SETTINGS},
    )


_SETTINGS = ("pipeline", "dataset", "corpus", "limit", "repeats", "reuse", "params")
_OF_JOB = ("id", "name", "state", "reason", "created_at", "ended_at", "request_counts")


async def _load_models(connection: AsyncConnection, pins: Any) -> dict[str, PinnedModel]:
    by_role = msgspec.convert(pins, dict[str, Pin])
    ids = sorted({pin.model_id for pin in by_role.values()})
    rows = {row.id: row for row in await connection.execute(MODELS, {"ids": ids})}
    return {role: _make_pinned(rows[pin.model_id]) for role, pin in sorted(by_role.items())}


def _make_pinned(row: Any) -> PinnedModel:
    return PinnedModel(name=row.name, backend=row.backend, digest=row.digest, version=row.version)


def notes(job: jobs.Job, failed_as_wrong: Accuracy, matched: Mapping[str, int] | None = None) -> list[str]:
    """Return what a reader must know before quoting a figure.

    `failed_as_wrong` is the accuracy with every failed sample as a wrong answer; `matched` counts imported answers by
    what named their item.
    """
    counts = job.request_counts
    texts = [job.unreadable] if job.unreadable else []
    if matched:
        by = "; ".join(f"{MATCHED[what]} {count}" for what, count in sorted(matched.items()))
        texts.append(f"the imported answers were matched with their items by: {by}")
    if job.limit is not None:
        texts.append(f"only the first {job.limit} items of {job.dataset} were used (`limit`)")
    if job.repeats > 1 and job.params is not None:
        texts.append(describe_spread(job.pipeline, job.params, job.reuse))
    if not job.ended:
        texts.append(f"not final: {format_count(counts.in_progress, 'sample is', 'samples are')} still in progress")
    if job.state == "failed":
        texts.append("the job failed before its samples existed; see `reason`")
    elif counts.failed:
        share = format_accuracy(msgspec.to_builtins(failed_as_wrong))
        texts.append(
            f"{counts.failed} failed samples are left out of the accuracy; counted as wrong they would make it {share}"
        )
    return texts

"""The report itself: figures of the samples, cost of the calls, the settings that both depend on."""

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
from services.orchestrator.reports.cost import TokenCost, cost
from services.orchestrator.reports.disagreements import Disagreement, Disagreements
from services.orchestrator.reports.drawing import drawn, spread_note
from services.orchestrator.reports.endings import Endings
from services.orchestrator.reports.guidance import Guided, Guiding
from services.orchestrator.reports.repeatability import Repeatability, repeatability
from services.orchestrator.reports.retrieval import Findings, Retrieval
from services.orchestrator.reports.scores import Score, Scores
from services.orchestrator.reports.tally import Accuracy, Tally
from services.orchestrator.reports.work import Stage, Work, work
from shared.contracts.params import Params
from shared.contracts.provenance import Residency
from shared.contracts.samples import GateDecision
from shared.model_settings import Model
from shared.pipelines.binding import Pin
from shared.statistics.intervals import Interval
from shared.statistics.repeats import Repeats
from shared.storage import gold, jobs, samples
from shared.storage.database import Database
from shared.storage.stored import decoded

PINNED = text("""
    SELECT j.pins, j.prepared, encode(j.pipeline_hash, 'hex') AS pipeline_hash FROM jobs j WHERE j.id = :job""")
MODELS = text("SELECT id, name, backend, digest, version FROM models WHERE id = ANY(:ids)")


class PinnedModel(msgspec.Struct, frozen=True, kw_only=True):
    """The model that answered a role."""

    name: str
    backend: str
    digest: str | None
    version: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the figures depend on."""

    pipeline: str
    pipeline_hash: str
    dataset: str
    corpus: str | None
    limit: int | None
    """Only the first so many items of the dataset were asked; null: all."""
    repeats: int
    reuse: str
    params: Params | None
    """Null: this release cannot read them; a note says why."""
    models: dict[str, PinnedModel]
    """By role."""
    drawn: list[str] | None
    """Roles whose calls every repeat makes anew; one reply serves all repeats of the others. Null: cannot be told."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """A job's report."""

    id: uuid.UUID
    name: str
    state: str
    reason: str | None
    seconds: float | None
    """From submission to end; None while it runs."""
    created_at: datetime
    ended_at: datetime | None
    request_counts: jobs.RequestCounts
    grader: str
    """What decided whether an answer is correct; all figures of accuracy are its own."""
    accuracy: Accuracy
    score: Score | None
    """The mean of what it decided by; None: it has no degrees."""
    bootstrap: Interval | None
    repeats: Repeats
    strict: Accuracy
    disagreements: int
    answer_at: dict[str, AnswerAt]
    """By measure, such as `answer@5`: whether an answer occurs in the first 5 candidates; empty: not measured."""
    differing: list[Disagreement]
    """The first samples that the two graders judge differently."""
    endings: dict[str, int]
    """Completed and failed samples, each by its one ending (docs/statistics.md)."""
    contamination: Contamination | None
    """None: no search met a near-duplicate of its question."""
    extraction: dict[str, int]
    failures: dict[str, int]
    grading_failures: dict[str, int]
    truncated: int
    truncated_by: dict[str, int]
    """What ended these answers: the token limit (`length`), or the model server."""
    unscored: int
    duplicates_dropped: int
    refused: int
    decisions: dict[str, dict[str, int]]
    fallbacks: dict[str, dict[str, int]]
    guided: Guided | None
    """What rules did for the questions (docs/rulerag.md); None: no sample looked for any."""
    retrieval: Retrieval | None
    """None: the dataset names no relevant documents, or nothing was searched."""
    parse_failures: int
    repeatability: Repeatability | None
    """None: no rating was asked for twice (`gate.repeats`; repeats with `judge.per_repeat` or `reuse: none`)."""
    gate: GateDecision | None
    model_loads: int
    model_calls: int
    calls_made: dict[str, int]
    calls_reused: dict[str, int]
    calls_lapsed: int
    stages: dict[str, Stage]
    cost: TokenCost | None
    """None: no model has answered."""
    residencies: tuple[Residency, ...]
    by_level: dict[str, Accuracy]
    by_subject: dict[str, Accuracy]
    notes: list[str]
    settings: Settings


class _Facts(NamedTuple):
    """What one snapshot says of a job, besides its samples."""

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
    """What samples are counted by."""

    def __init__(self) -> None:
        self.tally, self.findings, self.scores, self.guiding = Tally(), Findings(), Scores(), Guiding()
        self.endings, self.contaminated, self.disagreements = Endings(), Contaminated(), Disagreements()
        self.answers = AnswersFound()

    async def add_all(self, database: Database, job: int, *, has_gold: bool) -> None:
        """Count every sample of a job."""
        async for batch in samples.traced(database, job):
            for part in (
                self.tally, self.endings, self.contaminated, self.disagreements, self.scores, self.guiding,
                self.answers,
            ):  # fmt: skip
                part.add(batch)
            if has_gold:
                relevant = await gold.documents(database, job, batch[0][0].index, batch[-1][0].index)
                await to_thread.run_sync(self.findings.add, batch, relevant)

    def figures(self, grader: str) -> dict[str, Any]:
        """The figures of a report, by field. Slow: the intervals import scipy once, which takes a second."""
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
    """The report of the one job that `reference` stands for, at the prices of the models as they are configured now."""
    facts = await _facts(database, reference, configured)
    job = facts.job
    counts = _Counts()
    await counts.add_all(database, facts.row, has_gold=facts.has_gold)
    grader = (job.params.grading.grader if job.params else "") or "math"
    figures = await to_thread.run_sync(counts.figures, grader)
    return Report(
        seconds=(job.ended_at - job.created_at).total_seconds() if job.ended_at else None,
        gate=decoded(facts.pinned.prepared, GateDecision, "")[0],
        grader=grader,
        cost=facts.cost,
        repeatability=facts.repeatability,
        notes=notes(job, figures["accuracy"]),
        settings=await to_thread.run_sync(_settings, facts),
        **{field: getattr(job, field) for field in _OF_JOB},
        **figures,
        **msgspec.structs.asdict(facts.work),
    )


async def _facts(database: Database, reference: str, configured: Mapping[str, Model]) -> _Facts:
    async with database.snapshot() as connection:
        row = await jobs.resolve(connection, reference)
        job = await jobs.view(connection, row)
        pinned = (await connection.execute(PINNED, {"job": row})).one()
        return _Facts(
            row=row,
            job=job,
            work=await work(connection, row),
            cost=await cost(connection, row, configured),
            pinned=pinned,
            models=await _models(connection, pinned.pins),
            has_gold=await gold.known(connection, row),
            repeatability=await repeatability(connection, row, job),
        )


def _settings(facts: _Facts) -> Settings:
    job = facts.job
    return Settings(
        pipeline_hash=facts.pinned.pipeline_hash,
        models=facts.models,
        drawn=drawn(job.pipeline, job.params, job.reuse),
        **{field: getattr(job, field) for field in _SETTINGS},
    )


_SETTINGS = ("pipeline", "dataset", "corpus", "limit", "repeats", "reuse", "params")
_OF_JOB = ("id", "name", "state", "reason", "created_at", "ended_at", "request_counts")


async def _models(connection: AsyncConnection, pins: Any) -> dict[str, PinnedModel]:
    by_role = msgspec.convert(pins, dict[str, Pin])
    ids = sorted({pin.model_id for pin in by_role.values()})
    rows = {row.id: row for row in await connection.execute(MODELS, {"ids": ids})}
    return {role: _pinned(rows[pin.model_id]) for role, pin in sorted(by_role.items())}


def _pinned(row: Any) -> PinnedModel:
    return PinnedModel(name=row.name, backend=row.backend, digest=row.digest, version=row.version)


def notes(job: jobs.Job, accuracy: Accuracy) -> list[str]:
    """What a reader must know before quoting a figure."""
    counts = job.request_counts
    said = [job.unreadable] if job.unreadable else []
    if job.limit is not None:
        said.append(f"only the first {job.limit} items of {job.dataset} were asked (`limit`)")
    if job.repeats > 1 and job.params is not None:
        said.append(spread_note(job.pipeline, job.params, job.reuse))
    if not job.ended:
        said.append(f"not final: {counts.in_progress} samples are still in progress")
    if job.state == "failed":
        said.append("the job failed before its samples existed; see `reason`")
    elif counts.failed:
        share = f"{accuracy.correct} of {accuracy.graded + counts.failed}"
        said.append(f"{counts.failed} failed samples are in no accuracy; counted as wrong it would be {share}")
    return said

"""The report itself: figures of the samples, cost of the calls, the settings that both depend on."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec
from anyio import to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.reports.contamination import Contaminated, Contamination
from services.orchestrator.reports.cost import TokenCost, cost
from services.orchestrator.reports.disagreements import Disagreement, Disagreements
from services.orchestrator.reports.drawing import drawn, spread_note
from services.orchestrator.reports.endings import Endings
from services.orchestrator.reports.repeatability import Repeatability, repeatability
from services.orchestrator.reports.retrieval import Findings, Retrieval
from services.orchestrator.reports.scores import Score, Scores
from services.orchestrator.reports.tally import Accuracy, Tally
from services.orchestrator.reports.work import Stage, work
from shared.contracts.params import Params
from shared.contracts.samples import GateDecision
from shared.pipelines.binding import Pin
from shared.settings import Model
from shared.statistics.intervals import Interval
from shared.statistics.repeats import Repeats
from shared.storage import gold, jobs, samples
from shared.storage.database import Database
from shared.storage.residencies import Residency
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


async def report(database: Database, reference: str, configured: Mapping[str, Model]) -> Report:
    """The report of the one job that `reference` stands for, at the prices of the models as they are configured now."""
    async with database.snapshot() as connection:
        row = await jobs.resolve(connection, reference)
        job = await jobs.view(connection, row)
        done = await work(connection, row)
        spent = await cost(connection, row, configured)
        pinned = (await connection.execute(PINNED, {"job": row})).one()
        models = await _models(connection, pinned.pins)
        judged = await gold.known(connection, row)
        again = await repeatability(connection, row, job)
    tally, findings = Tally(), Findings()
    endings, contaminated, disagreements, scores = Endings(), Contaminated(), Disagreements(), Scores()
    async for batch in samples.traced(database, row):
        for part in (tally, endings, contaminated, disagreements, scores):
            part.add(batch)
        if judged:
            relevant = await gold.documents(database, row, batch[0][0].index, batch[-1][0].index)
            await to_thread.run_sync(findings.add, batch, relevant)
    # In a thread: the intervals import scipy once, which takes a second.
    figures = await to_thread.run_sync(tally.figures)
    found = await to_thread.run_sync(findings.figures)
    contamination = await to_thread.run_sync(contaminated.figures)
    grading = (job.params.grading.grader if job.params else "") or "math"
    settings = Settings(
        pipeline_hash=pinned.pipeline_hash,
        models=models,
        drawn=await to_thread.run_sync(drawn, job.pipeline, job.params, job.reuse),
        **{field: getattr(job, field) for field in _SETTINGS},
    )
    return Report(
        seconds=(job.ended_at - job.created_at).total_seconds() if job.ended_at else None,
        gate=decoded(pinned.prepared, GateDecision, "")[0],
        grader=grading,
        score=await to_thread.run_sync(scores.figures, grading),
        retrieval=found,
        endings=endings.counts(),
        contamination=contamination,
        cost=spent,
        repeatability=again,
        differing=disagreements.first,
        notes=notes(job, figures.accuracy),
        settings=settings,
        **{field: getattr(job, field) for field in _OF_JOB},
        **msgspec.structs.asdict(figures),
        **msgspec.structs.asdict(done),
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


_ACCURACY = {"value": 0.61, "low": 0.567, "high": 0.652, "correct": 305, "graded": 500}
_MODEL = {"name": "world-judge", "backend": "llama.cpp", "digest": "a2d1…", "version": "b6000"}
_MEAN = {"value": 0.47, "low": 0.44, "high": 0.5, "n": 500}
_HIGHER = {
    "value": 0.02,
    "low": 0.005,
    "high": 0.035,
    "p": 0.009,
    "adjusted": 0.009,
    "separable": True,
    "effect": 0.12,
    "n": 500,
}
_CONTAMINATION = {
    "items": 500, "affected": 1, "documents": 1, "share": 0.002,
    "among": {"value": 1.0, "low": 0.207, "high": 1.0, "correct": 1, "graded": 1},
    "others": {"value": 0.609, "low": 0.566, "high": 0.651, "correct": 304, "graded": 499},
}  # fmt: skip
_REPEATABILITY = {
    "documents": 3, "draws": 2, "temperature": 0.1, "same": {"value": 0.667, "low": 0.208, "high": 0.939},
    "agreement": 0.667, "difference": 0.333, "kappa": 0.933, "unrated": 0,
    "table": [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0]],
}  # fmt: skip
_DIFFERING = {"index": 17, "repeat": 0, "answer": "0.5", "gold": "\\frac{2}{4}", "math_verify": True, "strict": False}
_RETRIEVAL = {
    "items": 500,
    "absent": 0,
    "fused": {"nDCG@10": {**_MEAN, "value": 0.45}},
    "final": {"nDCG@10": _MEAN},
    "reranking": {"nDCG@10": _HIGHER},
    "context": _MEAN,
}
EXAMPLE: dict[str, Any] = {
    "id": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "name": "first", "state": "completed", "reason": None,
    "seconds": 41.2, "created_at": "2026-11-21T08:00:00Z", "ended_at": "2026-11-21T08:00:41.2Z",
    "request_counts": {"total": 500, "completed": 500, "failed": 0, "cancelled": 0, "in_progress": 0, "unparsed": 0},
    "grader": "math", "accuracy": _ACCURACY, "score": None, "bootstrap": {"value": 0.61, "low": 0.566, "high": 0.652},
    "repeats": {"accuracies": [0.61], "mean": 0.61, "std": None},
    "strict": _ACCURACY, "disagreements": 1, "differing": [_DIFFERING],
    "endings": {"correct": 305, "truncated": 2, "extraction": 1, "arithmetic": 61, "logic": 131},
    "contamination": _CONTAMINATION, "extraction": {"ok": 497, "missing": 3},
    "failures": {}, "grading_failures": {}, "truncated": 2, "truncated_by": {"length": 2},
    "unscored": 0, "duplicates_dropped": 1, "refused": 0,
    "decisions": {"crag": {"ambiguous": 61, "correct": 402, "incorrect": 37}},
    "fallbacks": {"rewrite": {"timeout": 2}}, "retrieval": _RETRIEVAL,
    "parse_failures": 4, "repeatability": _REPEATABILITY, "gate": None, "model_loads": 2, "model_calls": 3120,
    "calls_made": {"retrieve": 1000, "judge": 2620, "generate": 500, "grade": 480},
    "calls_reused": {"retrieve": 0, "judge": 0, "generate": 0, "grade": 0}, "calls_lapsed": 0,
    "stages": {"judge": {"made": 2620, "reused": 0, "executed": 2620, "seconds": 20.4, "device_s": 19.8,
                         "started_at": "2026-11-21T08:00:07Z", "ended_at": "2026-11-21T08:00:27.4Z",
                         "prompt_tokens": 402000, "completion_tokens": 26200}},
    "cost": {"made": 0.07602, "all": 0.07602, "models": {"world-judge": 0.07602}},
    "residencies": [{"epoch": 12, "device": "cpu:0", "models": ["world-judge"], "cause": "drained", "state": "closed",
                     "opened_at": "2026-11-21T08:00:06Z", "closed_at": "2026-11-21T08:00:28Z",
                     "memory_mib": {"world-judge": 41.5}}],
    "by_level": {"Level 1": _ACCURACY}, "by_subject": {"Algebra": _ACCURACY}, "notes": [],
    "settings": {"pipeline": "mathrag-gate", "pipeline_hash": "77ab…", "dataset": "math-500", "corpus": "math",
                 "limit": None, "repeats": 1, "reuse": "all", "params": {}, "models": {"judge": _MODEL}, "drawn": []},
}  # fmt: skip

"""Thresholds for `crag` from a job whose lists are labelled or judged: can its confidence be trusted?

Labels are the dataset's gold documents, or what the judge said of the same questions in another `crag` job.
"""

import uuid
from collections.abc import Collection, Mapping

import msgspec
from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.samples import Decision, Outcome
from shared.errors import Conflict, Unreadable
from shared.rag.calibration import Calibration, TooFew, calibrate
from shared.rag.crag import Action
from shared.storage import gold, jobs, samples
from shared.storage.samples import Traced

PIPELINE = "crag"
"""Its lists are those of the two indexes, and its decisions of this stage hold the confidence."""
TRUST = 0.9
"""Share of lists that are what the thresholds say."""
EXAMPLE = {
    "id": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "name": "first", "evaluator": "judge", "skipped": 2,
    "calibration": {
        "trust": 0.9, "observations": 210, "relevant": 120,
        "upper": {"value": 0.75, "low": 0.75, "high": 1.0, "met": 1.0},
        "lower": {"value": 0.25, "low": 0.25, "high": 0.5, "met": 0.98},
    },
}  # fmt: skip


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """Thresholds of one evaluator, from one job."""

    id: uuid.UUID
    name: str
    evaluator: str
    skipped: int
    """Answered items with a label to which the evaluator gave no confidence."""
    calibration: Calibration


async def calibrated(
    connection: AsyncConnection, reference: str, trust: float = TRUST, judged_by: str | None = None
) -> Calibrated:
    """Thresholds from every item's first confidence, and whether its first list holds a relevant document.

    That is known from the dataset's gold documents, or, with `judged_by`, from the first lists of another job, which
    its judge called correct or not. Repeats of an item say nothing new and are left out.

    Raises:
        NotFound: no such job.
        Conflict: a job is none of CRAG, they are not about the same, or there are too few items of either kind.
    """
    row, job = await _job(connection, reference)
    judged = None if judged_by is None else await _judged(connection, job, judged_by)
    pairs: list[tuple[float, bool]] = []
    skipped = 0
    async for batch in samples.traced_within(connection, row):
        labels = await _gold_labels(connection, row, batch) if judged is None else judged
        found = observations(batch, labels, job.evaluator)
        pairs += [pair for pair in found if pair is not None]
        skipped += found.count(None)
    try:
        calibration = await to_thread.run_sync(calibrate, pairs, trust)
    except TooFew as few:
        hint = (
            "the dataset's items need `gold_documents` ({} says that nothing is relevant), or another job judged them"
        )
        raise Conflict(f"job {job.name!r}: {few}", hint=hint) from few
    return Calibrated(id=job.id, name=job.name, evaluator=job.evaluator, skipped=skipped, calibration=calibration)


class _Job(msgspec.Struct, frozen=True, kw_only=True):
    id: uuid.UUID
    name: str
    evaluator: str
    searched: tuple[str, str | None]
    """Dataset and corpus."""


async def _job(connection: AsyncConnection, reference: str) -> tuple[int, _Job]:
    """Row id and what is needed of a job that evaluates its lists."""
    row = await jobs.resolve(connection, reference)
    job = await jobs.view(connection, row)
    if job.pipeline != PIPELINE:
        raise Conflict(f"job {job.name!r} is one of `{job.pipeline}`", hint=f"only `{PIPELINE}` says how sure it is")
    if job.params is None:
        raise Unreadable(f"job {job.name!r}: {job.unreadable}", hint="ask the release that ran it")
    searched = (job.dataset, job.corpus)
    return row, _Job(id=job.id, name=job.name, evaluator=job.params.crag.evaluator, searched=searched)


async def _judged(connection: AsyncConnection, job: _Job, reference: str) -> dict[int, bool]:
    """By item: whether the judge of another job called its first list correct."""
    row, judge = await _job(connection, reference)
    if judge.evaluator != "judge" or judge.searched != job.searched:
        raise Conflict(
            f"job {judge.name!r} evaluates {judge.searched} by {judge.evaluator}: it cannot label {job.searched}",
            hint="name a job with `crag.evaluator=judge` over the same dataset and corpus",
        )
    labels: dict[int, bool] = {}
    async for batch in samples.traced_within(connection, row):
        for index, first in _first_decisions(batch, judge.evaluator):
            if first is not None:
                labels[index] = first.action == Action.CORRECT
    return labels


async def _gold_labels(connection: AsyncConnection, job: int, batch: Collection[Traced]) -> dict[int, bool]:
    """By item of the batch that is labelled: whether its first list holds a gold document."""
    indexes = [row.index for row, _ in batch]
    known = await gold.labelled(connection, job, min(indexes), max(indexes))
    relevant = await gold.among(connection, job, min(indexes), max(indexes))
    return gold_labels(batch, known, relevant)


def gold_labels(
    batch: Collection[Traced], known: Collection[int], relevant: Mapping[int, Mapping[str, int]]
) -> dict[int, bool]:
    """By item: whether its first list holds one of its relevant documents; `known` are the items with labels."""
    return {
        row.index: bool(_first_list(outcome) & relevant.get(row.index, {}).keys())
        for row, outcome in batch
        if outcome and row.index in known and row.repeat == 0
    }


def observations(
    batch: Collection[Traced], labels: Mapping[int, bool], evaluator: str
) -> list[tuple[float, bool] | None]:
    """(confidence, relevant) of every answered item that has a label; None where the evaluator itself said nothing."""
    found = [(index, first) for index, first in _first_decisions(batch, evaluator) if index in labels]
    confidences = [(first.detail.get("confidence") if first else None, labels[index]) for index, first in found]
    return [(confidence, label) if isinstance(confidence, float) else None for confidence, label in confidences]


def _first_decisions(batch: Collection[Traced], evaluator: str) -> list[tuple[int, Decision | None]]:
    """(item, the evaluator's own first decision) of every answered item."""
    return [(row.index, _own(outcome, evaluator)) for row, outcome in batch if outcome and row.repeat == 0]


def _own(outcome: Outcome, evaluator: str) -> Decision | None:
    first = next((each for each in outcome.trace.decisions if each.stage == PIPELINE), None)
    return first if first and first.fallback is None and first.detail.get("evaluator") == evaluator else None


def _first_list(outcome: Outcome) -> set[str]:
    return {each.document for each in outcome.trace.candidates if each.dense_rank or each.sparse_rank}

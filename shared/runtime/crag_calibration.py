"""Compute thresholds for `crag` from a job whose result lists have labels.

Labels come from the dataset's gold documents, or from the judge's verdicts in another `crag` job on the same questions.
"""

import uuid
from collections.abc import Collection, Mapping

import msgspec
from anyio import to_thread
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.samples import Decision, Outcome
from shared.errors import Conflict, Unreadable
from shared.rag.calibration import Calibration, TooFewObservations, calibrate
from shared.rag.crag import ListAction
from shared.storage import gold, jobs, samples
from shared.storage.samples import SampleWithOutcome

PIPELINE = "crag"
"""Only this pipeline's decisions hold the evaluator's confidence."""
TRUST = 0.9
"""Default share of lists that must be as the thresholds say."""
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
    """Answered items that have a label but no confidence from the evaluator."""
    calibration: Calibration


async def calibrate_crag(
    connection: AsyncConnection, reference: str, trust: float = TRUST, judged_by: str | None = None
) -> Calibrated:
    """Compute thresholds from each item's first confidence and from whether its first list holds a relevant document.

    The dataset's gold documents tell what is relevant, or, with `judged_by`, the judge of another job. Repeats of an
    item add no information and are left out.

    Raises:
        NotFound: no such job.
        Conflict: a job has another pipeline, dataset or corpus, or there are too few items of either kind.
    """
    row, job = await _find_job(connection, reference)
    judged = None if judged_by is None else await _labels_from_judge(connection, job, judged_by)
    pairs: list[tuple[float, bool]] = []
    skipped = 0
    async for batch in samples.stream_with_outcomes_in(connection, row):
        labels = await _gold_labels(connection, row, batch) if judged is None else judged
        found = observations(batch, labels, job.evaluator)
        pairs += [pair for pair in found if pair is not None]
        skipped += found.count(None)
    try:
        calibration = await to_thread.run_sync(calibrate, pairs, trust)
    except TooFewObservations as few:
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
    """(dataset, corpus)"""


async def _find_job(connection: AsyncConnection, reference: str) -> tuple[int, _Job]:
    """Return the row id and the description of a job of `crag`."""
    row = await jobs.resolve(connection, reference)
    job = await jobs.view(connection, row)
    if job.pipeline != PIPELINE:
        hint = f"name a job of `{PIPELINE}`: only that pipeline records how sure its evaluator was"
        raise Conflict(f"job {job.name!r} runs `{job.pipeline}`, which cannot give thresholds", hint=hint)
    if job.params is None:
        raise Unreadable(f"job {job.name!r}: {job.unreadable}", hint="ask the release that ran it")
    searched = (job.dataset, job.corpus)
    return row, _Job(id=job.id, name=job.name, evaluator=job.params.crag.evaluator, searched=searched)


async def _labels_from_judge(connection: AsyncConnection, job: _Job, reference: str) -> dict[int, bool]:
    """Return, by item, whether the judge of another job called its first list correct."""
    row, judge = await _find_job(connection, reference)
    if judge.evaluator != "judge" or judge.searched != job.searched:
        raise Conflict(
            f"job {judge.name!r} evaluates {judge.searched} by {judge.evaluator}: it cannot label {job.searched}",
            hint="name a job with `crag.evaluator=judge` over the same dataset and corpus",
        )
    labels: dict[int, bool] = {}
    async for batch in samples.stream_with_outcomes_in(connection, row):
        for index, first in _list_first_decisions(batch, judge.evaluator):
            if first is not None:
                labels[index] = first.action == ListAction.CORRECT
    return labels


async def _gold_labels(connection: AsyncConnection, job: int, batch: Collection[SampleWithOutcome]) -> dict[int, bool]:
    """Return, for each labelled item of the batch, whether its first list holds a gold document."""
    indexes = [row.index for row, _ in batch]
    known = await gold.list_labelled_items(connection, job, min(indexes), max(indexes))
    relevant = await gold.read_gold_documents(connection, job, min(indexes), max(indexes))
    return gold_labels(batch, known, relevant)


def gold_labels(
    batch: Collection[SampleWithOutcome], known: Collection[int], relevant: Mapping[int, Mapping[str, int]]
) -> dict[int, bool]:
    """Return, for each item in `known` (those with labels), whether its first list holds a relevant document."""
    return {
        row.index: bool(_collect_first_list(outcome) & relevant.get(row.index, {}).keys())
        for row, outcome in batch
        if outcome and row.index in known and row.repeat == 0
    }


def observations(
    batch: Collection[SampleWithOutcome], labels: Mapping[int, bool], evaluator: str
) -> list[tuple[float, bool] | None]:
    """Return (confidence, relevant) of each answered item with a label; None if it has no confidence."""
    found = [(index, first) for index, first in _list_first_decisions(batch, evaluator) if index in labels]
    confidences = [(first.detail.get("confidence") if first else None, labels[index]) for index, first in found]
    return [(confidence, label) if isinstance(confidence, float) else None for confidence, label in confidences]


def _list_first_decisions(batch: Collection[SampleWithOutcome], evaluator: str) -> list[tuple[int, Decision | None]]:
    """Return (item, the evaluator's first decision) for each answered item."""
    return [
        (row.index, _find_own_decision(outcome, evaluator)) for row, outcome in batch if outcome and row.repeat == 0
    ]


def _find_own_decision(outcome: Outcome, evaluator: str) -> Decision | None:
    first = next((each for each in outcome.trace.decisions if each.stage == PIPELINE), None)
    return first if first and first.fallback is None and first.detail.get("evaluator") == evaluator else None


def _collect_first_list(outcome: Outcome) -> set[str]:
    return {each.document for each in outcome.trace.candidates if each.dense_rank or each.sparse_rank}

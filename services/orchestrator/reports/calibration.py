"""Thresholds for `crag` from a job whose dataset names relevant documents: can its confidence be trusted?"""

import uuid
from collections.abc import Collection, Mapping

import msgspec
from anyio import to_thread

from shared.contracts.samples import Decision, Outcome
from shared.errors import Conflict, Unreadable
from shared.rag.calibration import Calibration, TooFew, calibrate
from shared.storage import gold, jobs, samples
from shared.storage.database import Database
from shared.storage.samples import Traced

PIPELINE = "crag"
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
    """Answered items of which it is known what is relevant, but which the evaluator gave no confidence."""
    calibration: Calibration


async def calibrated(database: Database, reference: str, trust: float) -> Calibrated:
    """Thresholds from every item's first confidence, and whether its first candidates hold a relevant document.

    Repeats of an item say nothing new and are left out.

    Raises:
        Conflict: it is no job of `crag`, or has too few items of either kind.
    """
    async with database.transaction() as connection:
        job = await jobs.view(connection, row := await jobs.resolve(connection, reference))
    if job.pipeline != PIPELINE:
        raise Conflict(f"job {job.name!r} is one of `{job.pipeline}`", hint=f"only `{PIPELINE}` says how sure it is")
    if job.params is None:
        raise Unreadable(f"job {job.name!r}: {job.unreadable}", hint="ask the release that ran it")
    pairs: list[tuple[float, bool]] = []
    skipped = 0
    async for batch in samples.traced(database, row):
        bounds = (batch[0][0].index, batch[-1][0].index)
        relevant = await gold.documents(database, row, *bounds)
        known = await gold.labelled(database, row, *bounds)
        found = observations(batch, known, relevant, job.params.crag.evaluator)
        pairs += [pair for pair in found if pair is not None]
        skipped += found.count(None)
    try:
        calibration = await to_thread.run_sync(calibrate, pairs, trust)
    except TooFew as few:
        hint = "the dataset's items need `gold_documents`; {} says that nothing is relevant"
        raise Conflict(f"job {job.name!r}: {few}", hint=hint) from few
    return Calibrated(
        id=job.id, name=job.name, evaluator=job.params.crag.evaluator, skipped=skipped, calibration=calibration
    )


def observations(
    batch: Collection[Traced], known: Collection[int], gold: Mapping[int, Mapping[str, int]], evaluator: str
) -> list[tuple[float, bool] | None]:
    """(confidence, relevant) of every answered item in `known`; None where the evaluator itself said nothing."""
    answered = [(row.index, outcome) for row, outcome in batch if outcome and row.index in known and row.repeat == 0]
    return [_observation(outcome, gold.get(item, {}), evaluator) for item, outcome in answered]


def _observation(outcome: Outcome, relevant: Mapping[str, int], evaluator: str) -> tuple[float, bool] | None:
    first = next((each for each in outcome.trace.decisions if each.stage == PIPELINE), None)
    confidence = first.detail.get("confidence") if first and _own(first, evaluator) else None
    if not isinstance(confidence, float):
        return None
    found = {each.document for each in outcome.trace.candidates if each.dense_rank or each.sparse_rank}
    return confidence, bool(found & relevant.keys())


def _own(decision: Decision, evaluator: str) -> bool:
    return decision.fallback is None and decision.detail.get("evaluator") == evaluator

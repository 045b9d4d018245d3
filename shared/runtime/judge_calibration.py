"""Calibrate a judge by people's labels: a monotone map from its ratings 1 to 5 to the labels' scale."""

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean
from typing import Any

import msgspec
from anyio import to_thread
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.labels import FEWEST, KINDS
from shared.contracts.params import JudgeCalibration, Params
from shared.errors import Conflict, Invalid
from shared.pipelines.binding import Pin
from shared.plurals import format_count
from shared.rag.prompts import make_template_reference
from shared.statistics.monotone import fit_monotone
from shared.storage import label_sets, labels
from shared.storage.decoding import try_decode_params
from shared.storage.label_sets import LabelSet
from shared.storage.labels import CountedLabels

JUDGE = text("""
    SELECT m.name, encode(m.hash, 'hex') AS hash, j.params, substring(
            convert_from(c.request, 'UTF8') FROM '"template":"(' || :rubric || '@[0-9a-f]+)"') AS rubric
    FROM label_sets l JOIN jobs j ON j.id = l.job_id JOIN samples s ON s.job_id = j.id
    JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id JOIN models m ON m.id = c.model_id
    WHERE l.id = :set AND c.role = 'judge' AND convert_from(c.request, 'UTF8') LIKE '%"' || :rubric || '@%' LIMIT 1""")
(RUBRIC,) = KINDS["documents"].rubrics


class RatingJudge(msgspec.Struct, frozen=True, kw_only=True):
    """What identifies the judge whose ratings are calibrated."""

    model: str
    """Hash of the model (hex)."""
    rubric: str
    """`id@hash` of the rubric."""
    anchors: Mapping[str, str]


class RatingWorth(msgspec.Struct, frozen=True, kw_only=True):
    """One rating of the judge."""

    rating: int
    tasks: int
    """That the judge gave it, and people labelled blindly."""
    mean: float | None
    """Of people's labels; null: they labelled none of these."""
    worth: float
    """The same, made to grow with the rating."""


class LabelCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """A calibration as it is now: another label makes another one."""

    set: str
    hash: str
    """The identity of the calibrated judge: a job that takes `gate.labels` has it in `gate.calibrated.hash`."""
    judge: str
    """Name of the model."""
    judge_hash: str
    tasks: int
    ratings: tuple[RatingWorth, ...]


async def pin_judge_calibration(connection: AsyncConnection, params: Params, pin: Pin | None) -> Params:
    """Add the judge's calibration to the parameters, if they name a label set.

    A calibration that is already there stays: the repeated job pinned it.

    Args:
        connection: an open transaction.
        params: the requested parameters.
        pin: the job's judge.

    Raises:
        NotFound: there is no such set.
        Conflict: see `calibrate_judge`.
        Invalid: the set holds ratings of another judge, by another rubric or between other anchors.
    """
    if not params.gate.labels or params.gate.calibrated is not None:
        return params
    found, judge = await _calibrate(connection, params.gate.labels)
    if pin is None or judge != RatingJudge(
        model=pin.hash, rubric=make_template_reference(RUBRIC), anchors=params.anchors
    ):
        raise Invalid(
            f"`params.gate.labels`: {found.set!r} holds labels of what another judge rated: model {found.judge!r}"
            f" ({judge.model[:12]}), its rubric and anchors",
            hint="label documents of a job with this job's judge",
        )
    worth = tuple(each.worth for each in found.ratings)
    return replace(params, gate=replace(params.gate, calibrated=JudgeCalibration(hash=found.hash, ratings=worth)))


async def calibrate_judge(connection: AsyncConnection, name: str) -> LabelCalibration:
    """Calibrate the judge by the blind labels of the set called `name`.

    Each task counts once, with the mean of its labellers' last labels; abstentions are ignored.

    Raises:
        NotFound: there is no such set.
        Conflict: its tasks are not documents, its job was purged, or too few tasks have a label.
    """
    found, _ = await _calibrate(connection, name)
    return found


async def _calibrate(connection: AsyncConnection, name: str) -> tuple[LabelCalibration, RatingJudge]:
    of = await label_sets.get_set(connection, name)
    model, judge = await _find_judge(connection, of)
    counted = await labels.count_labels(connection, of, blind=True)
    by_rating = _group_by_rating(counted)
    tasks = sum(map(len, by_rating.values()))
    if tasks < FEWEST:
        labelled = format_count(tasks, "task has", "tasks have")
        message = f"label set {name!r}: {labelled} a blind label, and a calibration needs {FEWEST}"
        raise Conflict(message, hint=f"mathrag label next {name}")
    means = [fmean(by_rating[rating]) if rating in by_rating else None for rating in range(1, 6)]
    weights = [len(by_rating.get(rating, ())) for rating in range(1, 6)]
    worth = await to_thread.run_sync(fit_monotone, means, weights)
    ratings = tuple(
        RatingWorth(rating=rating, tasks=weights[rating - 1], mean=means[rating - 1], worth=worth[rating - 1])
        for rating in range(1, 6)
    )
    identity = canonical.digest([judge, of.hash, _sort_votes(counted), worth]).hex()
    return LabelCalibration(
        set=name, hash=identity, judge=model, judge_hash=judge.model, tasks=tasks, ratings=ratings
    ), judge


async def _find_judge(connection: AsyncConnection, of: LabelSet) -> tuple[str, RatingJudge]:
    """Return the name and the identity of the judge that rated the set's documents."""
    if of.what != "documents":
        raise Conflict(f"label set {of.name!r} is one of {of.what}", hint="a calibration needs one of `documents`")
    row = (await connection.execute(JUDGE, {"set": of.id, "rubric": RUBRIC})).first()
    params, _ = try_decode_params(row.params if row else None, "")
    if row is None or params is None:
        raise Conflict(f"label set {of.name!r}: its job was purged, so the judge of its ratings is unknown")
    return row.name, RatingJudge(model=row.hash, rubric=row.rubric, anchors=params.anchors)


def _group_by_rating(counted: CountedLabels) -> dict[Any, list[float]]:
    """Group the mean label of each labelled task by the judge's rating."""
    found: defaultdict[Any, list[float]] = defaultdict(list)
    for task in counted.tasks:
        given = [float(value) for value in counted.labels.get(task.number, {}).values() if value is not None]
        if given:
            found[task.value].append(fmean(given))
    return found


def _sort_votes(counted: CountedLabels) -> list[Any]:
    """Return all labels that count, in a fixed order."""
    votes = ((number, *vote) for number, said in counted.labels.items() for vote in said.items())
    return sorted(vote for vote in votes if vote[-1] is not None)

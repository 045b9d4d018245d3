"""What a judge's ratings are worth to people, from the labels of a set: a growing map of the ratings 1 to 5."""

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
from shared.rag.prompts import template_reference
from shared.statistics.monotone import monotone
from shared.storage import label_sets, labels
from shared.storage.label_sets import LabelSet
from shared.storage.labels import Counted
from shared.storage.stored import decoded_params

JUDGE = text("""
    SELECT m.name, encode(m.hash, 'hex') AS hash, j.params, substring(
            convert_from(c.request, 'UTF8') FROM '"template":"(' || :rubric || '@[0-9a-f]+)"') AS rubric
    FROM label_sets l JOIN jobs j ON j.id = l.job_id JOIN samples s ON s.job_id = j.id
    JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id JOIN models m ON m.id = c.model_id
    WHERE l.id = :set AND c.role = 'judge' AND convert_from(c.request, 'UTF8') LIKE '%"' || :rubric || '@%' LIMIT 1""")
(RUBRIC,) = KINDS["documents"].rubrics


class Judge(msgspec.Struct, frozen=True, kw_only=True):
    """Who gave the ratings, and what of."""

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


async def pinned(connection: AsyncConnection, params: Params, pin: Pin | None) -> Params:
    """The parameters with what the judge's ratings are worth, where a label set is named.

    What is there already stays: it was pinned by the job that this one repeats.

    Args:
        connection: to the database.
        params: as they are asked for.
        pin: the job's judge.

    Raises:
        NotFound: there is no such set.
        Conflict: as of `calibrated`.
        Invalid: the set holds ratings of another judge, by another rubric or between other anchors.
    """
    if not params.gate.labels or params.gate.calibrated is not None:
        return params
    found, judge = await _calibrated(connection, params.gate.labels)
    if pin is None or judge != Judge(model=pin.hash, rubric=template_reference(RUBRIC), anchors=params.anchors):
        raise Invalid(
            f"`params.gate.labels`: {found.set!r} holds labels of what another judge rated: model {found.judge!r}"
            f" ({judge.model[:12]}), its rubric and anchors",
            hint="label documents of a job with this job's judge",
        )
    worth = tuple(each.worth for each in found.ratings)
    return replace(params, gate=replace(params.gate, calibrated=JudgeCalibration(hash=found.hash, ratings=worth)))


async def calibrated(connection: AsyncConnection, name: str) -> LabelCalibration:
    """What the judge's ratings are worth by the blind labels of the set called `name`.

    Each task counts once, with the mean of what its labellers said last; abstentions count for nothing.

    Raises:
        NotFound: there is no such set.
        Conflict: it is not of documents, its job was purged, or too few of its tasks have a label.
    """
    found, _ = await _calibrated(connection, name)
    return found


async def _calibrated(connection: AsyncConnection, name: str) -> tuple[LabelCalibration, Judge]:
    of = await label_sets.one(connection, name)
    model, judge = await _judge(connection, of)
    counted = await labels.counted(connection, of, blind=True)
    said = _by_rating(counted)
    tasks = sum(map(len, said.values()))
    if tasks < FEWEST:
        message = f"label set {name!r}: {tasks} tasks have a blind label, and a calibration needs {FEWEST}"
        raise Conflict(message, hint=f"mathrag label next {name}")
    means = [fmean(said[rating]) if rating in said else None for rating in range(1, 6)]
    weights = [len(said.get(rating, ())) for rating in range(1, 6)]
    worth = await to_thread.run_sync(monotone, means, weights)
    ratings = tuple(
        RatingWorth(rating=rating, tasks=weights[rating - 1], mean=means[rating - 1], worth=worth[rating - 1])
        for rating in range(1, 6)
    )
    identity = canonical.digest([judge, of.hash, _given(counted), worth]).hex()
    return LabelCalibration(
        set=name, hash=identity, judge=model, judge_hash=judge.model, tasks=tasks, ratings=ratings
    ), judge


async def _judge(connection: AsyncConnection, of: LabelSet) -> tuple[str, Judge]:
    """The name of the model that rated the set's documents, and what identifies it."""
    if of.what != "documents":
        raise Conflict(f"label set {of.name!r} is one of {of.what}", hint="a calibration needs one of `documents`")
    row = (await connection.execute(JUDGE, {"set": of.id, "rubric": RUBRIC})).first()
    params, _ = decoded_params(row.params if row else None, "")
    if row is None or params is None:
        raise Conflict(f"label set {of.name!r}: its job was purged, so nobody knows whose ratings they were")
    return row.name, Judge(model=row.hash, rubric=row.rubric, anchors=params.anchors)


def _by_rating(counted: Counted) -> dict[Any, list[float]]:
    """By the judge's rating: of each labelled task the mean of its labels."""
    found: defaultdict[Any, list[float]] = defaultdict(list)
    for task in counted.tasks:
        given = [float(value) for value in counted.labels.get(task.number, {}).values() if value is not None]
        if given:
            found[task.value].append(fmean(given))
    return found


def _given(counted: Counted) -> list[Any]:
    """Every label that counts, in one order."""
    votes = ((number, *vote) for number, said in counted.labels.items() for vote in said.items())
    return sorted(vote for vote in votes if vote[-1] is not None)

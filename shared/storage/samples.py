"""Samples as users see them: pages in dataset order. What one sample's answer was made from: `provenance.py`."""

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec
from sqlalchemy import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.samples import Outcome
from shared.rag.taxonomy import Ended
from shared.storage import endings, jobs, pages
from shared.storage.database import Database
from shared.storage.sql import sql
from shared.storage.states import SampleState
from shared.storage.stored import decoded

# Keyset over the unique index (job_id, kind, ordinal, repeat): every page costs the same.
PAGE = sql("""
    SELECT s.id, s.ordinal, s.repeat, s.state, s.failure, s.detail, s.ended_at, i.custom_id, i.question, i.gold,
        i.subject, i.level, o.outcome, o.correct, o.strict
    FROM samples s JOIN jobs j ON j.id = s.job_id
    JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = :job AND s.kind = 'item' AND (s.ordinal, s.repeat) > (:ordinal, :repeat)
        AND (s.state >= {COMPLETED} OR NOT :ended) AND (o.correct <> o.strict OR NOT :differing)
        AND (NOT o.correct OR NOT :wrong)
    ORDER BY s.ordinal, s.repeat LIMIT :n""")
START = (-1, -1)


class SampleRow(msgspec.Struct, frozen=True, kw_only=True):
    """One sample of a job: the question and how it ended."""

    index: int
    """Of the item, in dataset order, from 0."""
    repeat: int
    custom_id: str | None
    question: str
    gold: str | None
    subject: str | None
    level: str | None
    state: str
    answer: str | None
    extraction: str | None
    truncated: bool
    correct: bool | None
    """By the job's grader; None: no gold answer, or no verdict."""
    strict: bool | None
    """By the strict rules; with a grader beyond mathematics whether it is a gold answer character by character."""
    grading_failure: str | None
    failure: str | None
    detail: str | None
    context: tuple[str, ...]
    """Hashes of the documents in the prompt, in order."""
    duplicates: int
    """Near-duplicates of the question that retrieval dropped."""
    unscored: bool
    """Scoring was asked for and no candidate has a quality."""
    ended_at: datetime | None
    ending: str | None = None
    """Correct, or what was wrong with it (docs/statistics.md); None: cancelled, or not ended yet."""
    ending_reason: str | None = None
    """The rule that says so, with what it saw."""
    truncated_by: str | None = None
    """What ended a truncated text: `length`, `repetition`, `broken_byte`, `cut` or `content_filter`."""
    score: float | None = None
    """What `correct` was decided by, where the grader has degrees: token F1, F1 of a set, or a rating from 1 to 5."""


class Only(msgspec.Struct, frozen=True, kw_only=True):
    """Which samples a list holds."""

    differing: bool = False
    """Those that the two graders judge differently."""
    wrong: bool = False
    """Those whose answer is wrong (`correct` is false); failed samples have no verdict."""


EVERY = Only()
Traced = tuple[SampleRow, Outcome | None]


async def listed(
    database: Database, reference: str, limit: int, cursor: str | None, only: Only = EVERY
) -> pages.Page[SampleRow]:
    """Samples in dataset order, whatever their state."""
    async with database.transaction() as connection:
        job = await jobs.resolve(connection, reference)
        scope = pages.scope("samples", job=str(job), differing=str(only.differing), wrong=str(only.wrong))
        after = pages.decode(cursor, scope, 2) if cursor else START
        found = await _traced(connection, job, after, limit + 1, ended=False, only=only)
    rows = [row for row, _ in found]
    last = rows[:limit][-1:]
    return pages.page(rows, limit, scope, *(key for row in last for key in (row.index, row.repeat)))


async def ended(database: Database, job: int, batch: int = 500) -> AsyncIterator[list[SampleRow]]:
    """All samples that have ended so far, in dataset order: one short read per batch, however slow the reader is."""
    async for found in traced(database, job, batch):
        yield [row for row, _ in found]


async def traced(database: Database, job: int, batch: int = 500) -> AsyncIterator[list[Traced]]:
    """The same with what each came to, and how."""
    after = START
    while True:
        async with database.transaction() as connection:
            found = await traced_after(connection, job, after, batch)
        if not found:
            return
        yield found
        after = _place(found)


async def traced_within(connection: AsyncConnection, job: int, batch: int = 500) -> AsyncIterator[list[Traced]]:
    """The same as a part of the caller's transaction."""
    after = START
    while found := await traced_after(connection, job, after, batch):
        yield found
        after = _place(found)


async def traced_after(connection: AsyncConnection, job: int, after: tuple[int, int], limit: int) -> list[Traced]:
    """Ended samples behind the place (index, repeat), in dataset order."""
    return await _traced(connection, job, after, limit, ended=True)


def _place(found: list[Traced]) -> tuple[int, int]:
    last, _ = found[-1]
    return last.index, last.repeat


async def one(connection: AsyncConnection, job: int, index: int, repeat: int) -> SampleRow | None:
    """A single sample."""
    found = await _traced(connection, job, (index, repeat - 1), 1, ended=False)
    return next((row for row, _ in found if (row.index, row.repeat) == (index, repeat)), None)


async def _traced(
    connection: AsyncConnection, job: int, after: tuple[int, ...], limit: int, *, ended: bool, only: Only = EVERY
) -> list[Traced]:
    place = {"job": job, "ordinal": after[0], "repeat": after[1]}
    values = {**place, "n": limit, "ended": ended, **msgspec.structs.asdict(only)}
    rows = (await connection.execute(PAGE, values)).mappings().all()
    read = [decoded(row["outcome"], Outcome, "its outcome") for row in rows]
    asked = [_subject(row, outcome) for row, (outcome, _) in zip(rows, read, strict=True)]
    ends = await endings.endings(connection, job, asked)
    return [
        (_row(row, outcome, problem, ended), outcome)
        for row, (outcome, problem), ended in zip(rows, read, ends, strict=True)
    ]


def _subject(row: RowMapping, outcome: Outcome | None) -> endings.Subject:
    return endings.Subject(
        sample=row["id"],
        index=row["ordinal"],
        answer=outcome.answer if outcome else None,
        facts=endings.facts(row, outcome),
    )


def _row(row: RowMapping, outcome: Outcome | None, problem: str | None, ended: Ended | None) -> SampleRow:
    copied = ("repeat", "custom_id", "question", "gold", "subject", "level", "correct", "strict", "failure")
    return SampleRow(
        index=row["ordinal"],
        state=SampleState(row["state"]).word,
        answer=outcome.answer if outcome else None,
        extraction=outcome.extraction.value if outcome else None,
        truncated=outcome.truncated if outcome else False,
        grading_failure=outcome.grading_failure if outcome else None,
        context=outcome.context if outcome else (),
        duplicates=len(outcome.trace.duplicates) if outcome else 0,
        truncated_by=(outcome.truncated_by or "length") if outcome and outcome.truncated else None,
        unscored=outcome.trace.unscored if outcome else False,
        ended_at=row["ended_at"],
        detail=problem or row["detail"],
        ending=ended.ending.value if ended else None,
        ending_reason=ended.reason if ended else None,
        score=outcome.verdict.score if outcome and outcome.verdict else None,
        **{field: row[field] for field in copied},
    )

"""Samples as users see them: pages in dataset order. What one sample's answer was made from: `provenance.py`."""

from collections.abc import AsyncIterator
from datetime import datetime
from typing import NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.samples import GateDecision, Outcome, Strategy
from shared.rag.taxonomy import Ended
from shared.storage import endings, jobs, pages
from shared.storage.database import Database
from shared.storage.sample_filters import EVERY, Only, statement
from shared.storage.states import SampleState
from shared.storage.stored import decoded, decoded_params

# A plan for any value would look through all samples where one for this value needs an index.
PLAN_EACH = text("SET LOCAL plan_cache_mode = force_custom_plan")
JOB = text("SELECT repeats, prepared, params FROM jobs WHERE id = :job")
BEHIND = text("""
    SELECT EXISTS (
        SELECT FROM samples WHERE job_id = :job AND kind = 'item' AND (ordinal, repeat) > (:ordinal, :repeat))""")
START = (-1, -1)
LAST, LAST_REPEAT = (1 << 31) - 1, (1 << 15) - 1
WINDOW = 100_000
"""Samples that one page of a filtered list looks through; its cursor goes on behind them."""
MOST_READ = 2_000
"""Of them those whose outcomes are read: a filter that SQL does not know stops there."""
BATCH = 250


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


Traced = tuple[SampleRow, Outcome | None]
Place = tuple[int, int]
"""Index and repeat."""


class _Read(NamedTuple):
    """Rows that were read, and those of them that a list holds."""

    found: list[Traced]
    size: int
    place: Place
    """Of the last row that was read."""


async def listed(
    database: Database, reference: str, limit: int, cursor: str | None, only: Only = EVERY
) -> pages.Page[SampleRow]:
    """Samples in dataset order, whatever their state. A page may hold fewer of them than `limit`, and others follow:
    each looks through a bounded part of the job.
    """
    async with database.transaction() as connection:
        job = await jobs.resolve(connection, reference)
        scope = pages.scope("samples", job=str(job), **{name: str(value) for name, value in only.asked.items()})
        after = _decoded(pages.decode(cursor, scope, 2)) if cursor else START
        if not only.asked:
            found = (await _read(connection, job, after, limit + 1)).found
            return _page([row for row, _ in found], limit, scope, None)
        rows, stopped = await _searched(connection, job, after, limit + 1, only)
    return _page(rows, limit, scope, stopped)


def _decoded(key: tuple[int, ...]) -> Place:
    index, repeat = key
    return index, repeat


def _page(rows: list[SampleRow], limit: int, scope: str, stopped: Place | None) -> pages.Page[SampleRow]:
    """`stopped`: where the search ended although there is more to look through."""
    if len(rows) > limit:
        stopped = rows[limit - 1].index, rows[limit - 1].repeat
    return pages.Page(data=rows[:limit], next_cursor=pages.encode(scope, *stopped) if stopped else None)


async def _searched(
    connection: AsyncConnection, job: int, after: Place, limit: int, only: Only
) -> tuple[list[SampleRow], Place | None]:
    """The next `limit` of these samples, or those in the part that is looked through, and where that ends."""
    until = await _end(connection, job, after, only)
    if until is None:
        return [], None
    await connection.execute(PLAN_EACH)
    found: list[SampleRow] = []
    size, seen = limit, 0
    while len(found) < limit and seen < MOST_READ:
        read = await _read(connection, job, after, size, only=only, until=until)
        found += [row for row, _ in read.found]
        seen += read.size
        if read.size < size:
            after = until - 1, LAST_REPEAT
            break
        after, size = read.place, BATCH
    return found, after if await _goes_on(connection, job, after) else None


async def _end(connection: AsyncConnection, job: int, after: Place, only: Only) -> int | None:
    """The first item behind the part that is looked through; None: none of the job's samples can be one of these."""
    row = (await connection.execute(JOB, {"job": job})).one()
    decision, _ = decoded(row.prepared, GateDecision, "")
    params, _ = decoded_params(row.params, "")
    if only.scored_by is not None and decision is not None and params is not None:
        routed = {Strategy.RULES} if params.route.enabled else set()
        if only.scored_by not in {decision.strategy, *routed}:
            return None
    items = max(1, WINDOW // int(row.repeats))
    return min(after[0] + 1 + items, LAST)


async def _goes_on(connection: AsyncConnection, job: int, after: Place) -> bool:
    place = {"ordinal": after[0], "repeat": after[1]}
    return bool((await connection.execute(BEHIND, {"job": job, **place})).scalar_one())


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


async def traced_after(connection: AsyncConnection, job: int, after: Place, limit: int) -> list[Traced]:
    """Ended samples behind the place (index, repeat), in dataset order."""
    return (await _read(connection, job, after, limit, ended=True)).found


def _place(found: list[Traced]) -> Place:
    last, _ = found[-1]
    return last.index, last.repeat


async def one(connection: AsyncConnection, job: int, index: int, repeat: int) -> SampleRow | None:
    """A single sample."""
    found = (await _read(connection, job, (index, repeat - 1), 1)).found
    return next((row for row, _ in found if (row.index, row.repeat) == (index, repeat)), None)


async def _read(
    connection: AsyncConnection, job: int, after: Place, limit: int, *, ended: bool = False, only: Only = EVERY,
    until: int = LAST,
) -> _Read:  # fmt: skip
    """The next `limit` samples that SQL finds, and which of them are those that are asked for."""
    place = {"job": job, "ordinal": after[0], "repeat": after[1], "until": until}
    found = await connection.execute(statement(only, ended=ended), {**place, "n": limit, **only.values()})
    rows = found.mappings().all()
    read = [(row, *decoded(row["outcome"], Outcome, "its outcome")) for row in rows]
    kept = [each for each in read if only.has(each[1])]
    ends = await endings.endings(connection, job, [_subject(row, outcome) for row, outcome, _ in kept])
    traced = [
        (_row(row, outcome, problem, ended), outcome)
        for (row, outcome, problem), ended in zip(kept, ends, strict=True)
        if only.ending in (None, ended and ended.ending)
    ]
    last = (rows[-1]["ordinal"], rows[-1]["repeat"]) if rows else after
    return _Read(traced, len(rows), last)


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

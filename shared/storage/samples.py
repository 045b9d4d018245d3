"""List samples in dataset order; `provenance.py` loads everything about one sample."""

from collections.abc import AsyncIterator
from typing import NamedTuple

from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.sample_rows import SampleRow
from shared.contracts.samples import GateDecision, Outcome, Strategy
from shared.rag.taxonomy import EndedSample
from shared.storage import endings, jobs, pages
from shared.storage.database import Database
from shared.storage.decoding import try_decode, try_decode_params
from shared.storage.sample_filters import EVERY, SampleSelection, build_statement
from shared.storage.states import SampleState

# A generic plan would scan all samples where a plan for the given values uses an index.
PLAN_EACH = text("SET LOCAL plan_cache_mode = force_custom_plan")
JOB = text("SELECT repeats, prepared, params FROM jobs WHERE id = :job")
BEHIND = text("""
    SELECT EXISTS (
        SELECT FROM samples WHERE job_id = :job AND kind = 'item' AND (ordinal, repeat) > (:ordinal, :repeat))""")
START = (-1, -1)
LAST, LAST_REPEAT = (1 << 31) - 1, (1 << 15) - 1
WINDOW = 100_000
"""Largest number of samples that a page of a filtered list scans; its cursor continues after them."""
MOST_READ = 2_000
"""Largest number of outcomes that a page reads for filters that SQL cannot decide."""
BATCH = 250


SampleWithOutcome = tuple[SampleRow, Outcome | None]
Place = tuple[int, int]
"""(index, repeat)"""


class _ReadBatch(NamedTuple):
    """A batch of rows and those that pass the filters."""

    found: list[SampleWithOutcome]
    size: int
    place: Place
    """Place of the last row in the batch."""


async def list_samples(
    database: Database, reference: str, limit: int, cursor: str | None, only: SampleSelection = EVERY
) -> pages.Page[SampleRow]:
    """List samples in dataset order.

    A page may hold fewer than `limit` samples even if more follow, because each scans a bounded part of the job.
    """
    async with database.transaction() as connection:
        job = await jobs.resolve(connection, reference)
        scope = pages.cursor_scope("samples", job=str(job), **{name: str(value) for name, value in only.asked.items()})
        after = _to_place(pages.decode_cursor(cursor, scope, 2)) if cursor else START
        if not only.asked:
            found = (await _read(connection, job, after, limit + 1)).found
            return _page([row for row, _ in found], limit, scope, None)
        rows, stopped = await _search(connection, job, after, limit + 1, only)
    return _page(rows, limit, scope, stopped)


def _to_place(key: tuple[int, ...]) -> Place:
    index, repeat = key
    return index, repeat


def _page(rows: list[SampleRow], limit: int, scope: str, stopped: Place | None) -> pages.Page[SampleRow]:
    """Make a page; `stopped` is the place where the scan ended, if samples remain."""
    if len(rows) > limit:
        stopped = rows[limit - 1].index, rows[limit - 1].repeat
    return pages.Page(data=rows[:limit], next_cursor=pages.encode_cursor(scope, *stopped) if stopped else None)


async def _search(
    connection: AsyncConnection, job: int, after: Place, limit: int, only: SampleSelection
) -> tuple[list[SampleRow], Place | None]:
    """Return at most `limit` matching samples of the scanned part, and the place where it ends if samples remain."""
    until = await _find_window_end(connection, job, after, only)
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
    return found, after if await _has_more(connection, job, after) else None


async def _find_window_end(connection: AsyncConnection, job: int, after: Place, only: SampleSelection) -> int | None:
    """Return the first item after the part to scan; None if no sample of the job can match."""
    row = (await connection.execute(JOB, {"job": job})).one()
    decision, _ = try_decode(row.prepared, GateDecision, "")
    params, _ = try_decode_params(row.params, "")
    if only.scored_by is not None and decision is not None and params is not None:
        routed = {Strategy.RULES} if params.route.enabled else set()
        if only.scored_by not in {decision.strategy, *routed}:
            return None
    items = max(1, WINDOW // int(row.repeats))
    return min(after[0] + 1 + items, LAST)


async def _has_more(connection: AsyncConnection, job: int, after: Place) -> bool:
    place = {"ordinal": after[0], "repeat": after[1]}
    return bool((await connection.execute(BEHIND, {"job": job, **place})).scalar_one())


async def stream_ended(database: Database, job: int, batch: int = 500) -> AsyncIterator[list[SampleRow]]:
    """Yield batches of all ended samples in dataset order, with one short transaction per batch."""
    async for found in stream_with_outcomes(database, job, batch):
        yield [row for row, _ in found]


async def stream_with_outcomes(
    database: Database, job: int, batch: int = 500
) -> AsyncIterator[list[SampleWithOutcome]]:
    """Yield the same batches with outcomes."""
    after = START
    while True:
        async with database.transaction() as connection:
            found = await load_with_outcomes(connection, job, after, batch)
        if not found:
            return
        yield found
        after = _place(found)


async def stream_with_outcomes_in(
    connection: AsyncConnection, job: int, batch: int = 500
) -> AsyncIterator[list[SampleWithOutcome]]:
    """Yield the same batches with outcomes, in the caller's transaction."""
    after = START
    while found := await load_with_outcomes(connection, job, after, batch):
        yield found
        after = _place(found)


async def load_with_outcomes(
    connection: AsyncConnection, job: int, after: Place, limit: int
) -> list[SampleWithOutcome]:
    """Load ended samples with outcomes after the place (index, repeat), in dataset order."""
    return (await _read(connection, job, after, limit, ended=True)).found


def _place(found: list[SampleWithOutcome]) -> Place:
    last, _ = found[-1]
    return last.index, last.repeat


async def find_sample(connection: AsyncConnection, job: int, index: int, repeat: int) -> SampleRow | None:
    """Find a single sample; None if it does not exist."""
    found = (await _read(connection, job, (index, repeat - 1), 1)).found
    return next((row for row, _ in found if (row.index, row.repeat) == (index, repeat)), None)


async def _read(
    connection: AsyncConnection, job: int, after: Place, limit: int, *, ended: bool = False,
    only: SampleSelection = EVERY, until: int = LAST,
) -> _ReadBatch:  # fmt: skip
    """Read the next `limit` samples that SQL finds, and apply the filters that SQL cannot decide."""
    place = {"job": job, "ordinal": after[0], "repeat": after[1], "until": until}
    found = await connection.execute(build_statement(only, ended=ended), {**place, "n": limit, **only.values()})
    rows = found.mappings().all()
    read = [(row, *try_decode(row["outcome"], Outcome, "its outcome")) for row in rows]
    kept = [each for each in read if only.has(each[1])]
    ends = await endings.find_endings(connection, job, [_subject(row, outcome) for row, outcome, _ in kept])
    traced = [
        (_row(row, outcome, problem, ended), outcome)
        for (row, outcome, problem), ended in zip(kept, ends, strict=True)
        if only.ending in (None, ended and ended.ending)
    ]
    last = (rows[-1]["ordinal"], rows[-1]["repeat"]) if rows else after
    return _ReadBatch(traced, len(rows), last)


def _subject(row: RowMapping, outcome: Outcome | None) -> endings.EndingSubject:
    return endings.EndingSubject(
        sample=row["id"],
        index=row["ordinal"],
        answer=outcome.answer if outcome else None,
        facts=endings.facts_of(row, outcome),
    )


def _row(row: RowMapping, outcome: Outcome | None, problem: str | None, ended: EndedSample | None) -> SampleRow:
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

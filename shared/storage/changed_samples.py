"""Samples that one job has right and another one wrong: the same question, gold answer and repeat in both."""

from typing import Literal, NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.samples import Outcome
from shared.errors import Invalid, NotFound
from shared.storage import jobs, pages
from shared.storage.database import Database
from shared.storage.sql import fill, sql
from shared.storage.stored import decoded

# A question that stands in a dataset twice is matched in order: its first one with the other side's first one.
SIDE = fill("""
    SELECT s.id, s.ordinal, s.repeat, o.correct, i.hash,
        row_number() OVER (PARTITION BY i.hash, s.repeat ORDER BY s.ordinal) AS turn
    FROM samples s JOIN jobs j ON j.id = s.job_id JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id WHERE s.kind = 'item' AND s.job_id = """)
MATCHED = f"""
    WITH one AS ({SIDE} :left_job), other AS ({SIDE} :right_job),
    matched AS (
        SELECT one.ordinal, one.repeat, other.ordinal AS other, one.id AS left_id, other.id AS right_id,
            one.correct AS left_correct, other.correct AS right_correct
        FROM one JOIN other USING (hash, repeat, turn))
    """  # noqa: S608 - parts of this module alone
# One pass for both: the counts stand on every row of the page, and on a single one where the page is empty.
PAGE = sql(f"""{MATCHED},
    changed AS MATERIALIZED (SELECT * FROM matched WHERE left_correct <> right_correct),
    counts AS (
        SELECT count(*) FILTER (WHERE left_correct) AS all_gained, count(*) FILTER (WHERE right_correct) AS all_lost
        FROM changed)
    SELECT c.all_gained, c.all_lost, m.ordinal AS index, m.repeat, m.other AS right_index, i.custom_id, i.question,
        i.gold, i.subject, i.level, m.left_correct, m.right_correct, p.outcome AS left_outcome,
        q.outcome AS right_outcome
    FROM counts c LEFT JOIN (
        SELECT * FROM changed WHERE (ordinal, repeat) > (:ordinal, :after)
            AND (left_correct OR NOT :gained) AND (right_correct OR NOT :lost)
        ORDER BY ordinal, repeat LIMIT :n) m ON true
    LEFT JOIN jobs j ON j.id = :left_job LEFT JOIN items i ON i.dataset_id = j.dataset_id AND i.ordinal = m.ordinal
    LEFT JOIN outcomes p ON p.sample_id = m.left_id LEFT JOIN outcomes q ON q.sample_id = m.right_id
    ORDER BY m.ordinal, m.repeat""")  # noqa: S608
NAMES = text("""
    SELECT l.name AS left_name, r.name AS right_name FROM jobs l CROSS JOIN jobs r
    WHERE l.id = :left_job AND r.id = :right_job""")
OTHER = sql(f"{MATCHED} SELECT other FROM matched WHERE ordinal = :ordinal AND repeat = :repeat")  # noqa: S608
START = (-1, -1)
Only = Literal["changed", "gained", "lost"]


class AnsweredSide(msgspec.Struct, frozen=True, kw_only=True):
    """How one job answered."""

    answer: str | None
    correct: bool
    truncated: bool


class ChangedSample(msgspec.Struct, frozen=True, kw_only=True):
    """A question that one of the two jobs has right."""

    index: int
    """Of the item in the left job's dataset, from 0."""
    right_index: int
    """The same in the right job's dataset."""
    repeat: int
    custom_id: str | None
    question: str
    gold: str | None
    subject: str | None
    level: str | None
    left: AnsweredSide
    right: AnsweredSide


class Match(NamedTuple):
    """Where the right job has the question of the left job's sample."""

    left_name: str
    right_name: str
    """Of the jobs."""
    right_index: int


class ChangedSamples(msgspec.Struct, frozen=True, kw_only=True):
    """A page of them, and how many there are."""

    left_name: str
    right_name: str
    """Of the jobs."""
    gained: int
    """Samples that the left job has right and the right one wrong."""
    lost: int
    """The other way round."""
    data: list[ChangedSample]
    next_cursor: str | None
    """Pass it as `cursor`; none: this is the last page."""


async def listed(
    database: Database, left: str, right: str, only: Only = "changed", limit: int = pages.DEFAULT,
    cursor: str | None = None,
) -> ChangedSamples:  # fmt: skip
    """In the left dataset's order. A sample without a verdict on both sides is in none.

    Raises:
        NotFound: there is no such job.
        Conflict: a reference stands for several jobs.
        Invalid: both are the same job.
        BadRequest: the cursor is of another list.
    """
    async with database.snapshot() as connection:
        both = await _jobs(connection, left, right)
        scope = pages.scope("changed", only=only, **{side: str(job) for side, job in both.items()})
        ordinal, after = pages.decode(cursor, scope, 2) if cursor else START
        values = {
            "ordinal": ordinal,
            "after": after,
            "n": limit + 1,
            "gained": only == "gained",
            "lost": only == "lost",
        }
        named = (await connection.execute(NAMES, both)).one()
        rows = (await connection.execute(PAGE, {**both, **values})).mappings().all()
    found = [_row(row) for row in rows if row["index"] is not None]
    last = found[:limit][-1:]
    page = pages.page(found, limit, scope, *(key for row in last for key in (row.index, row.repeat)))
    return ChangedSamples(
        **named._mapping,
        gained=rows[0]["all_gained"],
        lost=rows[0]["all_lost"],
        data=page.data,
        next_cursor=page.next_cursor,
    )


async def match(database: Database, left: str, right: str, index: int, repeat: int) -> Match:
    """Where the right job's dataset has the question of the left job's sample.

    Raises:
        NotFound: there is no such job or sample, or the right job has none of the same question.
        Conflict, Invalid: as for `listed`.
    """
    async with database.snapshot() as connection:
        both = await _jobs(connection, left, right)
        named = (await connection.execute(NAMES, both)).one()
        found = (await connection.execute(OTHER, {**both, "ordinal": index, "repeat": repeat})).scalar()
    if found is None:
        raise NotFound(
            f"no sample {index}, repeat {repeat}, that both {left!r} and {right!r} have",
            hint="samples are the same where question, gold answer and repeat are",
        )
    return Match(named.left_name, named.right_name, found)


async def names(database: Database, left: str, right: str) -> tuple[str, str]:
    """Of two jobs, which may be one and the same.

    Raises:
        NotFound: there is no such job.
        Conflict: a reference stands for several jobs.
    """
    async with database.snapshot() as connection:
        both = {"left_job": await jobs.resolve(connection, left), "right_job": await jobs.resolve(connection, right)}
        found = (await connection.execute(NAMES, both)).one()
    return found.left_name, found.right_name


async def _jobs(connection: AsyncConnection, left: str, right: str) -> dict[str, int]:
    both = {"left_job": await jobs.resolve(connection, left), "right_job": await jobs.resolve(connection, right)}
    if both["left_job"] == both["right_job"]:
        raise Invalid(f"`right`: {right!r} is the same job as `left`", hint="name two jobs")
    return both


def _row(row: RowMapping) -> ChangedSample:
    copied = ("index", "right_index", "repeat", "custom_id", "question", "gold", "subject", "level")
    return ChangedSample(
        left=_side(row["left_outcome"], correct=row["left_correct"]),
        right=_side(row["right_outcome"], correct=row["right_correct"]),
        **{field: row[field] for field in copied},
    )


def _side(stored: bytes, *, correct: bool) -> AnsweredSide:
    outcome, problem = decoded(stored, Outcome, "its outcome")
    return AnsweredSide(
        answer=outcome.answer if outcome else problem, correct=correct, truncated=bool(outcome and outcome.truncated)
    )

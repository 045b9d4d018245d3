"""List samples that only one of two jobs answered correctly: same question, gold answer and repeat in both."""

from typing import Literal, NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.samples import Outcome
from shared.errors import Invalid, NotFound
from shared.storage import jobs, pages
from shared.storage.database import Database
from shared.storage.decoding import try_decode
from shared.storage.sql import fill_names, sql

# A question that occurs several times in a dataset is matched in order: first with first, second with second.
SIDE = fill_names("""
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
# One pass for page and counts: each row has the counts, and an empty page still has one row with them.
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
    """One job's answer."""

    answer: str | None
    correct: bool
    truncated: bool


class ChangedSample(msgspec.Struct, frozen=True, kw_only=True):
    """A question that only one of the two jobs answered correctly."""

    index: int
    """Index of the item in the left job's dataset, from 0."""
    right_index: int
    """Index of the item in the right job's dataset, from 0."""
    repeat: int
    custom_id: str | None
    question: str
    gold: str | None
    subject: str | None
    level: str | None
    left: AnsweredSide
    right: AnsweredSide


class Match(NamedTuple):
    """The right job's sample of the same question."""

    left_name: str
    right_name: str
    """Name of the right job."""
    right_index: int


class ChangedSamples(msgspec.Struct, frozen=True, kw_only=True):
    """A page of changed samples, with the totals over all pages."""

    left_name: str
    right_name: str
    """Name of the right job."""
    gained: int
    """Samples that the left job answered correctly and the right one did not."""
    lost: int
    """Samples that the right job answered correctly and the left one did not."""
    data: list[ChangedSample]
    next_cursor: str | None
    """Pass it as `cursor` for the next page; null on the last one."""


async def list_changed_samples(
    database: Database, left: str, right: str, only: Only = "changed", limit: int = pages.DEFAULT,
    cursor: str | None = None,
) -> ChangedSamples:  # fmt: skip
    """List changed samples in the left dataset's order. Samples without a verdict in both jobs are left out.

    Raises:
        NotFound: there is no such job.
        Conflict: a reference matches several jobs.
        Invalid: both references name the same job.
        BadRequest: the cursor belongs to another list.
    """
    async with database.snapshot() as connection:
        both = await _resolve_both(connection, left, right)
        scope = pages.cursor_scope("changed", only=only, **{side: str(job) for side, job in both.items()})
        ordinal, after = pages.decode_cursor(cursor, scope, 2) if cursor else START
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
    page = pages.make_page(found, limit, scope, *(key for row in last for key in (row.index, row.repeat)))
    return ChangedSamples(
        **named._mapping,
        gained=rows[0]["all_gained"],
        lost=rows[0]["all_lost"],
        data=page.data,
        next_cursor=page.next_cursor,
    )


async def find_match(database: Database, left: str, right: str, index: int, repeat: int) -> Match:
    """Find the right job's sample of the same question as the left job's sample.

    Raises:
        NotFound: there is no such job or sample, or the right job lacks the question.
        Conflict, Invalid: see `list_changed_samples`.
    """
    async with database.snapshot() as connection:
        both = await _resolve_both(connection, left, right)
        named = (await connection.execute(NAMES, both)).one()
        found = (await connection.execute(OTHER, {**both, "ordinal": index, "repeat": repeat})).scalar()
    if found is None:
        raise NotFound(
            f"{left!r} and {right!r} have no common sample {index}, repeat {repeat}",
            hint="two samples match if question, gold answer and repeat are equal",
        )
    return Match(named.left_name, named.right_name, found)


async def find_names(database: Database, left: str, right: str) -> tuple[str, str]:
    """Find the names of two jobs, which may be the same job.

    Raises:
        NotFound: there is no such job.
        Conflict: a reference matches several jobs.
    """
    async with database.snapshot() as connection:
        both = {"left_job": await jobs.resolve(connection, left), "right_job": await jobs.resolve(connection, right)}
        found = (await connection.execute(NAMES, both)).one()
    return found.left_name, found.right_name


async def _resolve_both(connection: AsyncConnection, left: str, right: str) -> dict[str, int]:
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
    outcome, problem = try_decode(stored, Outcome, "its outcome")
    return AnsweredSide(
        answer=outcome.answer if outcome else problem, correct=correct, truncated=bool(outcome and outcome.truncated)
    )

"""Reads the answers of several jobs beside each other, question by question."""

from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from shared.errors import Invalid
from shared.samples import SampleNote
from shared.storage import database as storage
from shared.storage import jobs
from shared.storage.database import Database, sql, try_decode
from shared.storage.notes import load_notes

Kind = Literal["different", "failed", "wrong", "right", "ungraded"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""What jobs made of a question, in the order of the table. `different`: some are right and others are not; `failed`:
one failed, and none is right; `wrong`: all graded answers are wrong; `right`: all are right; `ungraded`: none has a
verdict."""
PATIENCE = text("SET LOCAL statement_timeout = '10s'")
"""A regular expression may take very long."""
INVALID_PATTERN, CANCELED = "2201B", "57014"
"""SQLSTATE of a malformed regular expression, and of a statement that took too long."""
LONGEST_TEXT = 600

# Questions are the same where question and expected answer are, as in a comparison; of repeats, the first one counts.
ROWS = sql("""
    WITH answers AS MATERIALIZED (
        SELECT s.id, s.job_id, s.ordinal, s.state, s.failure, i.hash, i.question, i.gold, o.answer, o.correct
        FROM samples s JOIN jobs j ON j.id = s.job_id JOIN items i ON {ASKED_BY_SAMPLE}
        LEFT JOIN outcomes o ON o.sample_id = s.id
        WHERE s.job_id = ANY(:jobs) AND s.kind = 'item' AND s.repeat = 0),
    questions AS (
        SELECT hash, min(ordinal) AS place, CASE
            WHEN bool_or(correct) AND (bool_or(NOT correct) OR bool_or(failure IS NOT NULL)) THEN 0
            WHEN bool_or(failure IS NOT NULL) THEN 1
            WHEN bool_or(NOT correct) THEN 2
            WHEN bool_or(correct) THEN 3 ELSE 4 END AS kind
        FROM answers GROUP BY hash
        HAVING CAST(:pattern AS text) = '' OR bool_or(question ~* :pattern) OR bool_or(answer ~* :pattern)),
    shown AS (
        SELECT * FROM questions WHERE CAST(:kind AS integer) IS NULL OR kind = :kind
        ORDER BY kind, place, hash LIMIT :n OFFSET :skip)
    SELECT q.kind, a.* FROM shown q JOIN answers a ON a.hash = q.hash
    ORDER BY q.kind, q.place, q.hash, a.job_id, a.ordinal""")
TEXTS = sql("""
    SELECT DISTINCT ON (t.sample_id) t.sample_id, a.reply
    FROM steps t JOIN calls c ON c.id = t.call_id JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE t.sample_id = ANY(:samples) AND c.role = 'generate'
    ORDER BY t.sample_id, t.position DESC, t.slot DESC""")


class AnswerFilters(BaseModel):
    """Which questions to show, and which page of them."""

    model_config = ConfigDict(extra="forbid")

    kind: Kind | None = None
    pattern: Annotated[str, Field(max_length=200)] = ""
    """Regular expression (of PostgreSQL) for the question or an answer, ignoring case."""
    cursor: str | None = None


class Answered(NamedTuple):
    """One job's answer to a question."""

    ordinal: int
    answer: str | None
    correct: bool | None
    failure: str | None
    text: str | None
    """The beginning of what the model wrote last."""
    notes: tuple[SampleNote, ...]
    """What people think of it."""


class AnsweredQuestion(NamedTuple):
    """A question with the answers of the jobs."""

    question: str
    gold: str | None
    kind: Kind
    by_job: dict[int, Answered]
    """By jobs.id; a job that was not asked the question is missing."""


class _Reply(msgspec.Struct, frozen=True):
    text: str = ""


async def list_answers(
    database: Database, references: Sequence[str], filters: AnswerFilters, limit: int = storage.DEFAULT
) -> tuple[list[tuple[int, str]], storage.Page[AnsweredQuestion]]:
    """Return the jobs (jobs.id and name) in the order of `references`, and a page of questions with their answers.

    Raises:
        NotFound, Conflict: a reference names no job, or several.
        Invalid: the expression is malformed, or takes too long.
        BadRequest: the cursor belongs to another list.
    """
    async with database.snapshot() as connection:
        known = [await jobs.resolve(connection, each) for each in references]
        names = await jobs.load_without_stages(connection, known)
        asked = {"kind": filters.kind, "pattern": filters.pattern, "jobs": ",".join(map(str, sorted(known)))}
        scope = storage.cursor_scope("answers", **asked)
        skip = storage.decode_cursor(filters.cursor, scope, 1)[0] if filters.cursor else 0
        values = {
            "jobs": known, "pattern": filters.pattern, "kind": KINDS.index(filters.kind) if filters.kind else None,
            "n": limit + 1, "skip": max(skip, 0),
        }  # fmt: skip
        await connection.execute(PATIENCE)
        try:
            rows = (await connection.execute(ROWS, values)).all()
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in (INVALID_PATTERN, CANCELED):
                raise
            problem = f"`pattern`: {filters.pattern!r} is no regular expression that can be searched for"
            raise Invalid(problem, hint="put a backslash before . ( ) [ ] * + ? if they are meant literally") from error
        written = await connection.execute(TEXTS, {"samples": [row.id for row in rows]})
        replies = {row.sample_id: row.reply for row in written}
        notes = await load_notes(connection, [row.id for row in rows])
    found: dict[bytes, AnsweredQuestion] = {}
    for row in rows:
        question = found.setdefault(row.hash, AnsweredQuestion(row.question, row.gold, KINDS[row.kind], {}))
        reply = try_decode(replies[row.id], _Reply, "")[0] if row.id in replies else None
        beginning = None if reply is None else reply.text[:LONGEST_TEXT]
        answered = Answered(row.ordinal, row.answer, row.correct, row.failure, beginning, notes.get(row.id, ()))
        question.by_job.setdefault(row.job_id, answered)
    page = storage.make_page(list(found.values()), limit, scope, skip + limit)
    return [(each, names[each].name) for each in known], page

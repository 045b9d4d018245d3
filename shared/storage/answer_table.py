"""Read the answers of several jobs side by side, question by question."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Row, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Invalid
from shared.samples import SampleNote
from shared.storage import database as storage
from shared.storage import jobs
from shared.storage.archive import show_archived
from shared.storage.database import Database, fill_names, get_sqlstate, sql, try_decode
from shared.storage.notes import load_notes
from shared.storage.samples import PLAN_EACH

Kind = Literal["different", "failed", "wrong", "right", "ungraded"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""Results of jobs on a question, in the order of the table. `different`: some are right and others are not; `failed`:
one failed, and none is right; `wrong`: all graded answers are wrong; `right`: all are right; `ungraded`: none has a
verdict."""
PATIENCE = text("SET LOCAL statement_timeout = '10s'")
"""A regular expression may take very long, and so do large jobs."""
INVALID_PATTERN, CANCELED = "2201B", "57014"
"""SQLSTATE of a malformed regular expression, and of a statement that took too long."""
LONGEST_TEXT = 600
WINDOW = 1000
"""Number of items that are searched first for a page. Only where they do not fill it are the jobs read as a whole,
which takes a second for each 100,000 samples."""

# Questions are the same where question and expected answer are, as in a comparison; of repeats, the first one counts.
ANSWERS = fill_names("""
    FROM samples s JOIN jobs j ON j.id = s.job_id JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = ANY(:jobs) AND s.kind = 'item' AND s.repeat = 0""")
NAMES = text("SELECT id, name FROM jobs WHERE id = ANY(:jobs)")
NEXT_QUESTIONS = text("""
    SELECT DISTINCT i.hash FROM jobs j JOIN items i ON i.dataset_id = j.dataset_id
    WHERE j.id = ANY(:jobs) AND i.ordinal >= :place AND i.ordinal < :until""")
# A page begins at (:kind, :place), and skips the :same questions there that the page before it showed.
QUESTIONS = text(f"""
    WITH questions AS (
        SELECT i.hash, min(s.ordinal) AS place, CASE
            WHEN bool_or(o.correct) AND (bool_or(NOT o.correct) OR bool_or(s.failure IS NOT NULL)) THEN 0
            WHEN bool_or(s.failure IS NOT NULL) THEN 1
            WHEN bool_or(NOT o.correct) THEN 2
            WHEN bool_or(o.correct) THEN 3 ELSE 4 END AS kind
        {ANSWERS} AND (CAST(:hashes AS bytea[]) IS NULL OR i.hash = ANY(:hashes))
        GROUP BY i.hash
        HAVING CAST(:pattern AS text) = '' OR any_value(i.question) ~* :pattern OR bool_or(o.answer ~* :pattern))
    SELECT hash, place, kind FROM questions
    WHERE (kind, place) >= (:kind, :place) AND (NOT :one_kind OR kind = :kind) AND place < :until
    ORDER BY kind, place, hash LIMIT :n OFFSET :same""")  # noqa: S608 - parts of this module alone
ROWS = text(f"""
    SELECT i.hash, s.id, s.job_id, s.ordinal, s.failure, i.question, i.gold, o.answer, o.correct
    {ANSWERS} AND i.hash = ANY(:hashes) ORDER BY s.job_id, s.ordinal""")
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
    """The beginning of the model's last text."""
    notes: tuple[SampleNote, ...]
    """Notes of people on it."""


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
        Invalid: the expression is malformed or takes too long, or the jobs are too large.
        BadRequest: the cursor belongs to another list.
    """
    async with database.snapshot() as connection:
        known = [await jobs.resolve(connection, each) for each in references]
        names = {row.id: row.name for row in await connection.execute(NAMES, {"jobs": known})}
        asked = {"kind": filters.kind, "pattern": filters.pattern, "jobs": ",".join(map(str, sorted(known)))}
        scope = storage.cursor_scope("answers", **asked)
        first = KINDS.index(filters.kind) if filters.kind else 0
        kind, place, same = storage.decode_cursor(filters.cursor, scope, 3) if filters.cursor else (first, 0, 0)
        values = {"jobs": known, "pattern": filters.pattern, "kind": kind, "place": place, "same": max(same, 0)}
        await connection.execute(PATIENCE)
        await connection.execute(PLAN_EACH)
        try:
            listed = await _list_questions(connection, {**values, "n": limit + 1}, one_kind=filters.kind is not None)
            hashes = [row.hash for row in listed]
            rows = (await connection.execute(ROWS, {"jobs": known, "hashes": hashes})).all()
        except DBAPIError as error:
            if (refusal := _explain_refusal(error, filters.pattern)) is None:
                raise
            raise refusal from error
        replies: dict[int, bytes] = {}
        for job in known:
            mine = [row.id for row in rows if row.job_id == job]
            async with show_archived(connection, job, mine):
                written = await connection.execute(TEXTS, {"samples": mine})
                replies |= {row.sample_id: row.reply for row in written}
        notes = await load_notes(connection, [row.id for row in rows])
    kinds = {row.hash: KINDS[row.kind] for row in listed}
    found: dict[bytes, AnsweredQuestion] = {}
    for row in rows:
        question = found.setdefault(row.hash, AnsweredQuestion(row.question, row.gold, kinds[row.hash], {}))
        reply = try_decode(replies[row.id], _Reply, "")[0] if row.id in replies else None
        beginning = None if reply is None else reply.text[:LONGEST_TEXT]
        answered = Answered(row.ordinal, row.answer, row.correct, row.failure, beginning, notes.get(row.id, ()))
        question.by_job.setdefault(row.job_id, answered)
    places = [(row.kind, row.place) for row in listed[:limit]]
    last = places[-1] if places else (kind, place)
    same = places.count(last) + (same if last == (kind, place) else 0)
    page = storage.make_page([found[each] for each in hashes], limit, scope, *last, same)
    return [(each, names[each]) for each in known], page


async def _list_questions(connection: AsyncConnection, values: dict[str, Any], *, one_kind: bool) -> Sequence[Row[Any]]:
    """List the questions of a page and the one after it; `one_kind` leaves out other kinds than that of the first."""
    near = {**values, "until": min(values["place"] + WINDOW, storage.LARGEST_KEY)}
    near["hashes"] = (await connection.execute(NEXT_QUESTIONS, near)).scalars().all()
    found = (await connection.execute(QUESTIONS, {**near, "one_kind": True})).all()
    if len(found) < values["n"]:
        every = {**values, "one_kind": one_kind, "hashes": None, "until": storage.LARGEST_KEY}
        found = (await connection.execute(QUESTIONS, every)).all()
    return found


def _explain_refusal(error: DBAPIError, pattern: str) -> Invalid | None:
    """Return what to tell about a statement that PostgreSQL refused; None for an error that is not the request's."""
    state = get_sqlstate(error)
    if state == INVALID_PATTERN:
        hint = "put a backslash before . ( ) [ ] * + ? if they are meant literally"
        return Invalid(f"`pattern`: {pattern!r} is not a regular expression", hint=hint)
    if state != CANCELED:
        return None
    if pattern:
        problem = f"`pattern`: searching these jobs for {pattern!r} takes more than 10 s"
        return Invalid(problem, hint="search for something simpler, or in fewer jobs")
    problem = "`jobs`: these jobs are so large that sorting their questions takes more than 10 s"
    return Invalid(problem, hint="choose fewer jobs, or one kind of questions")

"""Draw the tasks of a label set from a job's judged documents or graded answers, each at most once."""

from typing import Any, NamedTuple

import msgspec
from sqlalchemy import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.grading import Expected
from shared.contracts.labels import KINDS, Content, Value, What, parse_label
from shared.storage.sql import sql

NUL = {"nul": "\\u0000", "instead": "\\ufffd"}
"""A NUL in JSON and its replacement: a model may write one, and PostgreSQL's JSON functions refuse it."""
# Takes the smallest hashes of seed and content, so that equal seeds draw equal tasks from a job.
DOCUMENTS = sql("""
    WITH judged AS (
        SELECT s.kind, s.ordinal, s.repeat, t.position, t.slot,
            CAST(replace(convert_from(c.request, 'UTF8'), :nul, :instead) AS json) AS asked,
            CAST(replace(convert_from(a.reply, 'UTF8'), :nul, :instead) AS json) AS reply
        FROM samples s JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
        JOIN attempts a ON {ACCEPTED_FOR} c.id WHERE s.job_id = :job AND c.role = 'judge'),
    rated AS (
        SELECT *, asked -> 'values' -> 'document' ->> 'doc' AS document,
            CASE WHEN :by_question THEN asked -> 'values' ->> 'question' ELSE '' END AS question
        FROM judged
        WHERE split_part(asked ->> 'template', '@', 1) = ANY(:rubrics) AND reply ->> 'type' = 'rated'),
    firsts AS (
        SELECT DISTINCT ON (document, question) * FROM rated WHERE document IS NOT NULL
        ORDER BY document, question, COALESCE(CAST(asked ->> 'draw' AS integer), 0), kind, ordinal, repeat, position,
            slot)
    SELECT CASE WHEN f.kind = 'item' THEN f.ordinal END AS item, f.repeat,
        COALESCE(NULLIF(f.question, ''), i.question, '') AS question, f.document, d.problem, d.body AS text,
        f.reply ->> 'rating' AS system, count(*) OVER () AS eligible
    FROM firsts f JOIN documents d ON d.hash = decode(f.document, 'hex') JOIN jobs j ON j.id = :job
    LEFT JOIN items i ON i.dataset_id = j.dataset_id AND i.ordinal = f.ordinal AND f.kind = 'item'
    ORDER BY sha256(convert_to(concat_ws(' ', CAST(:seed AS text), f.document, f.question), 'UTF8')), f.document
    LIMIT :size""")
ANSWERS = sql("""
    WITH firsts AS (
        SELECT DISTINCT ON (s.ordinal, o.answer) s.ordinal, s.repeat, o.answer, o.correct
        FROM samples s JOIN outcomes o ON o.sample_id = s.id
        WHERE s.job_id = :job AND s.kind = 'item' AND o.correct IS NOT NULL AND o.answer IS NOT NULL
        ORDER BY s.ordinal, o.answer, s.repeat)
    SELECT s.ordinal AS item, s.repeat, i.question, i.gold, i.expected, s.answer,
        CASE WHEN s.correct THEN 'right' ELSE 'wrong' END AS system, count(*) OVER () AS eligible
    FROM firsts s JOIN jobs j ON j.id = :job JOIN items i ON {ASKED_BY_SAMPLE}
    ORDER BY sha256(convert_to(concat_ws(' ', CAST(:seed AS text), s.ordinal, s.answer), 'UTF8')), s.ordinal
    LIMIT :size""")


class DrawnTask(NamedTuple):
    """A drawn task."""

    item: int | None
    """None for a document of the gate's calibration."""
    repeat: int
    content: Content
    system: Value
    """The verdict of the judge or the grader."""


async def draw_tasks(
    connection: AsyncConnection, job: int, what: What, size: int, seed: int
) -> tuple[list[DrawnTask], int]:
    """Draw at most `size` tasks of a job (row id); return them in drawing order, and how many are eligible.

    If a document was rated several times or an answer given several times, the first one counts.
    """
    kind = KINDS[what]
    values: dict[str, Any] = {"job": job, "size": size, "seed": str(seed)}
    if kind.rubrics:
        values |= {"rubrics": list(kind.rubrics), "by_question": kind.by_question, **NUL}
    rows = (await connection.execute(DOCUMENTS if kind.rubrics else ANSWERS, values)).mappings().all()
    content = _document if kind.rubrics else _answer
    drawn = [DrawnTask(row["item"], row["repeat"], content(row), parse_label(what, row["system"])) for row in rows]
    return drawn, rows[0]["eligible"] if rows else 0


def _document(row: RowMapping) -> Content:
    return Content(**{name: row[name] for name in ("question", "document", "problem", "text")})


def _answer(row: RowMapping) -> Content:
    expected = msgspec.convert(row["expected"] or {}, Expected)
    golds = (*([] if row["gold"] is None else [row["gold"]]), *expected.golds)
    return Content(question=row["question"], golds=golds, choices=expected.choices, answer=row["answer"])

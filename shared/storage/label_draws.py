"""What a label set is drawn from: the documents that a job's judge rated, or its graded answers, each of them once."""

from typing import Any, NamedTuple

import msgspec
from sqlalchemy import RowMapping
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.grading import Expected
from shared.contracts.labels import KINDS, Content, Value, What, parsed
from shared.storage.sql import sql

NUL = {"nul": "\\u0000", "instead": "\\ufffd"}
"""As JSON has it: a model may have written it, and PostgreSQL's functions of JSON refuse it."""
# The smallest hashes of seed and content: the same seed draws the same from the same job.
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


class Drawn(NamedTuple):
    """One task."""

    item: int | None
    """None: a document of the gate's calibration."""
    repeat: int
    content: Content
    system: Value
    """What the judge or the grader said."""


async def draw(connection: AsyncConnection, job: int, what: What, size: int, seed: int) -> tuple[list[Drawn], int]:
    """At most `size` tasks of the job with this row id, in the order of the draw, and how many there are to draw from.

    Of a document that was rated several times the first rating counts, of an answer that was given to a question
    several times the first one.
    """
    kind = KINDS[what]
    values: dict[str, Any] = {"job": job, "size": size, "seed": str(seed)}
    if kind.rubrics:
        values |= {"rubrics": list(kind.rubrics), "by_question": kind.by_question, **NUL}
    rows = (await connection.execute(DOCUMENTS if kind.rubrics else ANSWERS, values)).mappings().all()
    content = _document if kind.rubrics else _answer
    drawn = [Drawn(row["item"], row["repeat"], content(row), parsed(what, row["system"])) for row in rows]
    return drawn, rows[0]["eligible"] if rows else 0


def _document(row: RowMapping) -> Content:
    return Content(**{name: row[name] for name in ("question", "document", "problem", "text")})


def _answer(row: RowMapping) -> Content:
    expected = msgspec.convert(row["expected"] or {}, Expected)
    golds = (*([] if row["gold"] is None else [row["gold"]]), *expected.golds)
    return Content(question=row["question"], golds=golds, choices=expected.choices, answer=row["answer"])

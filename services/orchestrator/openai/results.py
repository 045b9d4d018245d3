"""Writes the results of a batch: lines of its output file and of its error file, as OpenAI's clients read them."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.api.problems import make_problem
from services.orchestrator.openai.answers import Answer, read_answers
from services.orchestrator.openai.chat_jobs import make_failure
from services.orchestrator.openai.lines import EMBEDDINGS
from shared.access.filters import encode_openai_error
from shared.errors import MathragError
from shared.storage.batches import StoredBatch
from shared.storage.database import SampleState

PAGE = 200
"""Number of lines whose answers are in memory at a time."""
PAGE_OF_VECTORS = 10
"""Number of lines in memory at a time if a line may have 2,048 vectors."""
LINES = text("""
    SELECT l.line, l.custom_id, l.ordinal, b.model, b.corpus, b.job, j.pipeline, j.params, j.state AS job_state,
        j.reason, s.id AS sample, s.state, s.failure, s.detail, s.ended_at, o.outcome, g.content AS given
    FROM batch_lines l JOIN batch_jobs b ON b.batch_id = l.batch_id AND b.number = l.job
    LEFT JOIN jobs j ON j.public_id = b.job
    LEFT JOIN samples s ON s.job_id = j.id AND s.kind = 'item' AND s.ordinal = l.ordinal AND s.repeat = 0
    LEFT JOIN outcomes o ON o.sample_id = s.id
    LEFT JOIN given g ON j.pipeline = 'embedding' AND g.job = b.job AND g.ordinal = l.ordinal AND g.repeat = 0
    WHERE l.batch_id = :batch AND l.line > :after ORDER BY l.line LIMIT :n""")
UNANSWERED = {
    "completed": ("batch_cancelled", "the job that answers this line was cancelled"),
    "expired": ("batch_expired", "this request could not be answered before the completion window expired"),
    "cancelled": ("batch_cancelled", "the batch was cancelled before this request was answered"),
}
"""Code and message of a line that was not answered, by how its batch ended."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the encoded result of one line, and the tokens that it adds to the batch's usage."""

    answered: bool
    content: bytes
    """Line of the output file, or of the error file."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


async def read_results(connection: AsyncConnection, batch: StoredBatch) -> AsyncIterator[list[Result]]:
    """Yield the results of all lines in the order of the input file, page by page."""
    after, page = 0, PAGE_OF_VECTORS if batch.endpoint == EMBEDDINGS else PAGE
    while True:
        values = {"batch": batch.id, "after": after, "n": page}
        rows = (await connection.execute(LINES, values)).mappings().all()
        if not rows:
            return
        after = rows[-1]["line"]
        answers = await read_answers(connection, rows)
        yield [_make_result(batch, row, answers.get(row["line"])) for row in rows]


def _make_result(batch: StoredBatch, row: RowMapping, answer: Answer | MathragError | None) -> Result:
    """Build the result: a line that failed on its own has a response with a status; a line that was cut off has an
    error and no response.
    """
    if isinstance(answer, Answer):
        content = _encode(batch, row, _make_response(batch, row, 200, answer.body), None)
        tokens = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
        return Result(answered=True, content=content, **tokens)
    if error := answer or _find_failure(batch, row):
        status = 400 if error.status == 422 else error.status
        body = msgspec.json.decode(
            encode_openai_error(status, error.kind, error.message, error.hint, make_problem(error, "").field)
        )
        return Result(answered=False, content=_encode(batch, row, _make_response(batch, row, status, body), None))
    code, message = UNANSWERED[batch.ends_as]
    return Result(answered=False, content=_encode(batch, row, None, {"code": code, "message": message}))


def _find_failure(batch: StoredBatch, row: RowMapping) -> MathragError | None:
    """Return why the line's sample or its job failed; None if it was cut off."""
    if row["state"] not in (SampleState.COMPLETED, SampleState.FAILED) and row["job_state"] != "failed":
        return None
    reason = f"{row['failure']}: {row['detail']}" if row["failure"] else row["reason"] or "nothing was generated"
    return make_failure(reason, row["job"], row["ordinal"], "input" if batch.endpoint == EMBEDDINGS else "messages")


def _make_response(batch: StoredBatch, row: RowMapping, status: int, body: Any) -> dict[str, Any]:
    return {"status_code": status, "request_id": f"req_{batch.public_id.hex}-{row['line']}", "body": body}


def _encode(batch: StoredBatch, row: RowMapping, response: Any, error: Any) -> bytes:
    """Encode one line; equal rows always give equal bytes."""
    id_ = f"batch_req_{batch.public_id.hex}-{row['line']}"
    return msgspec.json.encode({"id": id_, "custom_id": row["custom_id"], "response": response, "error": error}) + b"\n"

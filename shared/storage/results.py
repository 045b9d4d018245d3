"""Results of a job: each sample with what models said for it, what they rated, and what that took."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.replies import Generated, Rated, Reply
from shared.contracts.requests import DocumentRef, Request
from shared.contracts.samples import Outcome
from shared.rag.graders import Extract
from shared.storage import samples
from shared.storage.database import Database
from shared.storage.library import LibraryCache
from shared.storage.prompts import prompts_of
from shared.storage.provenance import extracting, written
from shared.storage.samples import SampleRow
from shared.storage.sql import sql
from shared.storage.stored import decoded, decoded_params

# Of a batch of samples at once; a request is read only where a rating or a prompt needs it.
CALLS = sql("""
    SELECT s.ordinal, s.repeat, c.role, a.reply, a.prompt_tokens, a.completion_tokens,
        extract(epoch FROM a.ended_at - a.started_at) AS seconds,
        CASE WHEN c.role = 'judge' OR (c.role = 'generate' AND :prompts) THEN c.request END AS request
    FROM samples s JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE s.job_id = :job AND s.kind = 'item' AND (s.ordinal, s.repeat) >= (:first, :first_repeat)
        AND (s.ordinal, s.repeat) <= (:last, :last_repeat) AND c.role IN ('judge', 'write', 'generate')
    ORDER BY s.ordinal, s.repeat, t.position, t.slot""")
PARAMS = text("SELECT params FROM jobs WHERE id = :job")
REPLY: Any = Reply


class ResultRow(SampleRow, frozen=True, kw_only=True):
    """A sample that has ended, with what models said."""

    text: str | None = None
    """All that the generator wrote; of several texts the last one that gives the sample's answer."""
    prompt: str | None = None
    """What the generator was asked for that text; None unless prompts are asked for."""
    judged: tuple[str, ...] = ()
    """Hashes of the documents that the judge rated, in the order of `ratings`; empty where it rated something else."""
    ratings: tuple[int, ...] = ()
    """The judge's ratings, 1 to 5; a reply without a rating is in neither list."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Of all model calls that the sample is made from, also of those that another job had made."""
    seconds: float = 0.0
    """Of these calls, each from start to end, added up: calls that ran at once count each."""


async def ended(database: Database, job: int, *, prompts: bool = False) -> AsyncIterator[list[ResultRow]]:
    """All samples that have ended so far, in dataset order, in batches of two statements or three."""
    library = LibraryCache()
    async with database.transaction() as connection:
        params, _ = decoded_params((await connection.execute(PARAMS, {"job": job})).scalar_one(), "")
    extract = extracting(params)
    async for batch in samples.traced(database, job):
        async with database.transaction() as connection:
            calls = await _calls(connection, job, batch, prompts=prompts)
            asked = await prompts_of(connection, library, _generating(calls)) if prompts else {}
        yield [_row(row, outcome, calls[row.index, row.repeat], asked, extract) for row, outcome in batch]


async def _calls(
    connection: AsyncConnection, job: int, batch: Sequence[samples.Traced], *, prompts: bool
) -> dict[tuple[int, int], list[Any]]:
    """Model calls by item and repeat, in the order in which the sample asked."""
    first, last = batch[0][0], batch[-1][0]
    place = {"first": first.index, "first_repeat": first.repeat, "last": last.index, "last_repeat": last.repeat}
    found: defaultdict[tuple[int, int], list[Any]] = defaultdict(list)
    for row in await connection.execute(CALLS, {"job": job, "prompts": prompts, **place}):
        found[row.ordinal, row.repeat].append(row)
    return found


def _generating(calls: dict[tuple[int, int], list[Any]]) -> set[bytes]:
    """What the generator was asked."""
    return {row.request for rows in calls.values() for row in rows if row.role == "generate"}


def _row(
    row: SampleRow, outcome: Outcome | None, calls: Sequence[Any], prompts: dict[bytes, str], extract: Extract
) -> ResultRow:
    said: list[tuple[str, bytes | None]] = []
    rated: list[tuple[str, int]] = []
    for call in calls:
        reply = decoded(call.reply, REPLY, "")[0]
        if isinstance(reply, Generated) and call.role == "generate":
            said.append((reply.text, call.request))
        if isinstance(reply, Rated):
            rated.append((_document(call.request), reply.rating))
    chosen = written([each for each, _ in said], outcome, extract)
    asked = next((request for each, request in reversed(said) if each == chosen), None)
    return ResultRow(
        text=chosen,
        prompt=prompts.get(asked) if asked is not None else None,
        judged=tuple(document for document, _ in rated if document),
        ratings=tuple(rating for _, rating in rated),
        prompt_tokens=sum(call.prompt_tokens or 0 for call in calls),
        completion_tokens=sum(call.completion_tokens or 0 for call in calls),
        seconds=round(sum(float(call.seconds or 0) for call in calls), 6),
        **msgspec.structs.asdict(row),
    )


def _document(raw: bytes) -> str:
    """The document that a rating is of; empty where the request names none, or several."""
    request = decoded(raw, Request, "")[0]
    value = request.values.get("document") if request is not None else None
    return value.doc if isinstance(value, DocumentRef) else ""

"""Results of a job: each sample with its models' texts, ratings, tokens and times."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.replies import Generated, Rated, Reply
from shared.contracts.requests import DocumentRef, Request
from shared.contracts.sample_rows import SampleRow
from shared.contracts.samples import Outcome
from shared.rag.extraction import Extract
from shared.storage import samples
from shared.storage.database import Database
from shared.storage.decoding import try_decode, try_decode_params
from shared.storage.library import LibraryCache
from shared.storage.prompts import render_prompts
from shared.storage.provenance import find_answering_text, find_extractor
from shared.storage.sql import sql

# Covers a batch of samples; requests are read only for ratings and prompts.
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
    """An ended sample with its models' replies."""

    text: str | None = None
    """The generator's text; of several, the last one with the sample's answer."""
    prompt: str | None = None
    """The prompt of that text; null unless prompts are requested."""
    judged: tuple[str, ...] = ()
    """Hashes of the rated documents, in the order of `ratings`; empty if the judge rated something else."""
    ratings: tuple[int, ...] = ()
    """The judge's ratings from 1 to 5; replies without a rating are in neither list."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Tokens of all the sample's model calls, including calls that another job had made."""
    seconds: float = 0.0
    """Sum of these calls' durations; concurrent calls each count in full."""


async def stream_results(database: Database, job: int, *, prompts: bool = False) -> AsyncIterator[list[ResultRow]]:
    """Yield batches of all samples that have ended so far, in dataset order; a batch takes two or three statements."""
    library = LibraryCache()
    async with database.transaction() as connection:
        params, _ = try_decode_params((await connection.execute(PARAMS, {"job": job})).scalar_one(), "")
    extract = find_extractor(params)
    async for batch in samples.stream_with_outcomes(database, job):
        async with database.transaction() as connection:
            calls = await _calls(connection, job, batch, prompts=prompts)
            prompt_texts = await render_prompts(connection, library, _generate_requests(calls)) if prompts else {}
        yield [_row(row, outcome, calls[row.index, row.repeat], prompt_texts, extract) for row, outcome in batch]


async def _calls(
    connection: AsyncConnection, job: int, batch: Sequence[samples.SampleWithOutcome], *, prompts: bool
) -> dict[tuple[int, int], list[Any]]:
    """Load the model calls by item and repeat, in the order of the sample's requests."""
    first, last = batch[0][0], batch[-1][0]
    place = {"first": first.index, "first_repeat": first.repeat, "last": last.index, "last_repeat": last.repeat}
    found: defaultdict[tuple[int, int], list[Any]] = defaultdict(list)
    for row in await connection.execute(CALLS, {"job": job, "prompts": prompts, **place}):
        found[row.ordinal, row.repeat].append(row)
    return found


def _generate_requests(calls: dict[tuple[int, int], list[Any]]) -> set[bytes]:
    """Return the requests to the generator."""
    return {row.request for rows in calls.values() for row in rows if row.role == "generate"}


def _row(
    row: SampleRow, outcome: Outcome | None, calls: Sequence[Any], prompts: dict[bytes, str], extract: Extract
) -> ResultRow:
    said: list[tuple[str, bytes | None]] = []
    rated: list[tuple[str, int]] = []
    for call in calls:
        reply = try_decode(call.reply, REPLY, "")[0]
        if isinstance(reply, Generated) and call.role == "generate":
            said.append((reply.text, call.request))
        if isinstance(reply, Rated):
            rated.append((_document(call.request), reply.rating))
    chosen = find_answering_text([each for each, _ in said], outcome, extract)
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
    """Return the hash of the rated document; empty if the request names none or several."""
    request = try_decode(raw, Request, "")[0]
    value = request.values.get("document") if request is not None else None
    return value.doc if isinstance(value, DocumentRef) else ""

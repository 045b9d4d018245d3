"""Load the provenance of a sample: its calls, and who answered them, when, and in which epoch."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from anyio import to_thread
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.documents import Document
from shared.contracts.params import Params
from shared.contracts.provenance import Attempt, Equation, Fusion, Place, Provenance, Sent, Source, Step
from shared.contracts.replies import Generated, Reply
from shared.contracts.requests import Request, seed_of
from shared.contracts.samples import Outcome
from shared.errors import NotFound
from shared.mathtext.equations import arithmetic
from shared.pipelines.imported import IMPORTED
from shared.rag.candidates import find_scorer
from shared.rag.extraction import Extract
from shared.rag.graders import grader_of_results
from shared.storage import gold, jobs, samples
from shared.storage.database import Database
from shared.storage.decoding import try_decode, try_decode_params
from shared.storage.library import LibraryCache
from shared.storage.prompts import ROLES, render_prompts
from shared.storage.residencies import load_residencies
from shared.storage.sql import sql
from shared.storage.states import SampleState

TIE_BREAK = "equal scores: the smaller document hash first"
REPLY: Any = Reply

SAMPLE = sql("""
    SELECT s.id, s.ordinal, s.repeat, s.state, s.failure, s.detail, s.ended_at, i.custom_id, i.question, i.gold,
        i.subject, i.level, i.gold_documents, o.outcome, encode(o.record_hash, 'hex') AS record_hash,
        encode(i.hash, 'hex') AS item_hash, encode(sha256(convert_to(i.gold, 'UTF8')), 'hex') AS gold_hash,
        j.code, j.params, encode(j.pipeline_hash, 'hex') AS pipeline_hash,
        encode(sha256(j.prepared), 'hex') AS decision_hash, r.seq, encode(r.hash, 'hex') AS link_hash,
        encode(r.previous, 'hex') AS previous
    FROM samples s JOIN jobs j ON j.id = s.job_id
    JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id LEFT JOIN records r ON r.sample_id = s.id
    WHERE s.job_id = :job AND s.kind = 'item' AND s.ordinal = :ordinal AND s.repeat = :repeat""")
STEPS = text("""
    SELECT t.position, t.slot, t.created, t.call_id, encode(c.key, 'hex') AS key, c.role, c.request,
        c.created_at AS queued_at, m.name AS model, encode(m.hash, 'hex') AS model_hash, m.backend, m.digest, m.version,
        m.options
    FROM steps t JOIN calls c ON c.id = t.call_id JOIN models m ON m.id = c.model_id
    WHERE t.sample_id = :sample ORDER BY t.position, t.slot""")
ATTEMPTS = text("""
    SELECT call_id, accepted, outcome, reply, worker, device, epoch, started_at, ended_at, concurrency,
        encode(prompt_hash, 'hex') AS prompt_hash, prompt_tokens, completion_tokens, finish_reason, prompt_ms,
        completion_ms, trace_id, created_at AS stored_at, encode(sha256(reply), 'hex') AS reply_hash
    FROM attempts WHERE call_id = ANY(:calls) ORDER BY call_id, id""")
SOURCES = text("""
    SELECT DISTINCT ON (t.call_id) t.call_id, j.public_id::text AS job, s.kind, s.ordinal AS index, s.repeat, t.position
    FROM steps t JOIN samples s ON s.id = t.sample_id JOIN jobs j ON j.id = s.job_id
    WHERE t.call_id = ANY(:calls) AND t.created ORDER BY t.call_id, t.sample_id""")
DOCUMENTS = text("SELECT hash, problem, body FROM documents WHERE hash = ANY(:hashes)")


async def load_provenance(
    database: Database, reference: str, index: int, repeat: int = 0, *, prompts: bool = False
) -> Provenance:
    """Load a sample's provenance from one snapshot; with `prompts`, also the prompts of model calls.

    Raises:
        NotFound: no such job or sample.
    """
    async with database.snapshot() as connection:
        job = await jobs.resolve(connection, reference)
        values = {"job": job, "ordinal": index, "repeat": repeat}
        row = (await connection.execute(SAMPLE, values)).mappings().first()
        if row is None:
            raise NotFound(
                f"job {reference!r} has no sample {index}, repeat {repeat}", hint="samples exist once it runs"
            )
        steps = await _steps(connection, row["id"], prompts=prompts)
        outcome, problem = try_decode(row["outcome"], Outcome, "its outcome")
        params, _ = try_decode_params(row["params"], "")
        ended = await samples.find_sample(connection, job, index, repeat)
        text = _text(steps, outcome, params)
        return Provenance(
            index=row["ordinal"],
            state=SampleState(row["state"]).word,
            outcome=outcome,
            text=text,
            equations=await to_thread.run_sync(_equations, text),
            scored_by=find_scorer(outcome.trace) if outcome else None,
            relevant=(await gold.read_gold_documents(connection, job, index, index)).get(index),
            ending=ended.ending if ended else None,
            ending_reason=ended.ending_reason if ended else None,
            detail=problem or row["detail"],
            fusion=Fusion(rrf_k=params.rrf_k if params else None, tie_break=TIE_BREAK),
            link=_place(row),
            steps=steps,
            documents=await _documents(connection, outcome.context if outcome else ()),
            residencies=await load_residencies(connection, _epochs(steps)),
            **{field: row[field] for field in _COPIED},
        )


_COPIED = (
    "repeat", "custom_id", "question", "gold", "gold_documents", "subject", "level", "failure", "ended_at",
    "record_hash", "item_hash", "gold_hash", "pipeline_hash", "decision_hash", "code",
)  # fmt: skip


def _equations(written: str | None) -> tuple[Equation, ...]:
    return tuple(Equation(text=each.text, holds=each.holds) for each in arithmetic(written or ""))


def _text(steps: Sequence[Step], outcome: Outcome | None, params: Params | None) -> str | None:
    replies = [step.attempt.reply for step in steps if step.attempt is not None and step.role == "generate"]
    texts = [reply.text for reply in replies if isinstance(reply, Generated)]
    return find_answering_text(texts, outcome, find_extractor(params))


def find_extractor(params: Params | None) -> Extract:
    """Return the function by which a job finds an answer in a text; without parameters, that of mathematics."""
    return grader_of_results(params.grading.grader if params else "").extract


def find_answering_text(texts: Sequence[str], outcome: Outcome | None, extract: Extract) -> str | None:
    """Return the last generated text with the sample's answer; without an outcome, the last text."""
    if outcome is not None and (given := _find_imported_text(outcome)) is not None:
        return given
    newest = list(reversed(texts))
    answering = (each for each in newest if outcome is not None and extract(each)[0] == outcome.answer)
    return next(answering, newest[0] if newest else None)


def _find_imported_text(outcome: Outcome) -> str | None:
    """Return the text that an answer was imported with."""
    details = (each.detail.get("text") for each in outcome.trace.decisions if each.stage == IMPORTED)
    return next((text for text in details if isinstance(text, str)), None)


def _place(row: RowMapping) -> Place | None:
    if row["seq"] is None:
        return None
    return Place(sequence=row["seq"], hash=row["link_hash"], previous=row["previous"])


async def _steps(connection: AsyncConnection, sample: int, *, prompts: bool) -> tuple[Step, ...]:
    rows = (await connection.execute(STEPS, {"sample": sample})).mappings().all()
    calls = {"calls": [row["call_id"] for row in rows]}
    attempts: dict[int, list[tuple[bool, Attempt]]] = defaultdict(list)
    for row in (await connection.execute(ATTEMPTS, calls)).mappings():
        attempts[row["call_id"]].append((row["accepted"], _attempt(row)))
    sources = {row["call_id"]: _source(row) for row in (await connection.execute(SOURCES, calls)).mappings()}
    requests = {row["request"] for row in rows if prompts and row["role"] in ROLES}
    texts = await render_prompts(connection, LibraryCache(), requests)
    return tuple(
        _step(
            row,
            attempts[row["call_id"]],
            None if row["created"] else sources.get(row["call_id"]),
            texts.get(row["request"]),
        )
        for row in rows
    )


def _source(row: RowMapping) -> Source:
    return Source(**{field: row[field] for field in Source.__struct_fields__})


def _step(row: RowMapping, attempts: Sequence[tuple[bool, Attempt]], source: Source | None, prompt: str | None) -> Step:
    copied = (
        "position", "slot", "created", "role", "key", "model", "model_hash", "backend", "digest", "version", "options",
        "queued_at",
    )  # fmt: skip
    accepted = next((attempt for accepted, attempt in attempts if accepted), None)
    started = accepted.started_at if accepted else None
    return Step(
        request=msgspec.Raw(row["request"]),
        source=source,
        sent=_read_sent(row),
        prompt=prompt,
        queue_ms=(started - row["queued_at"]).total_seconds() * 1000 if started else None,
        attempt=accepted,
        other_attempts=tuple(attempt for accepted, attempt in attempts if not accepted),
        **{field: row[field] for field in copied},
    )


def _read_sent(row: RowMapping) -> Sent | None:
    request, _ = try_decode(row["request"], Request, "")
    if request is None or request.decoding is None:
        return None
    decoding = request.decoding
    seed = seed_of(bytes.fromhex(row["key"]))
    return Sent(temperature=decoding.temperature, max_tokens=decoding.max_tokens, seed=seed)


def _attempt(row: RowMapping) -> Attempt:
    reply, problem = try_decode(row["reply"], REPLY, "the reply")
    rest = {field: value for field, value in row.items() if field not in ("call_id", "accepted", "reply")}
    return Attempt(reply=reply, unreadable=problem, **rest)


async def _documents(connection: AsyncConnection, hashes: Iterable[str]) -> dict[str, Document]:
    rows = await connection.execute(DOCUMENTS, {"hashes": [bytes.fromhex(hash_) for hash_ in hashes]})
    return {row.hash.hex(): Document(problem=row.problem, text=row.body) for row in rows}


def _epochs(steps: Iterable[Step]) -> list[int]:
    return sorted({step.attempt.epoch for step in steps if step.attempt and step.attempt.epoch is not None})

"""Everything that one sample's answer was made from: its calls, who answered them, when, and during which epoch."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Reply
from shared.contracts.documents import Document
from shared.contracts.samples import Outcome
from shared.errors import NotFound
from shared.storage import jobs
from shared.storage.database import Database
from shared.storage.samples import STATES

SAMPLE = text("""
    SELECT s.id, s.ordinal, s.repeat, s.state, s.failure, s.detail, s.ended_at, i.custom_id, i.question, i.gold,
        i.subject, i.level, i.gold_documents, o.outcome, encode(o.record_hash, 'hex') AS record_hash
    FROM samples s JOIN jobs j ON j.id = s.job_id
    JOIN items i ON i.dataset_id = j.dataset_id AND i.ordinal = s.ordinal
    LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = :job AND s.kind = 'item' AND s.ordinal = :ordinal AND s.repeat = :repeat""")
STEPS = text("""
    SELECT t.position, t.slot, t.created, t.call_id, encode(c.key, 'hex') AS key, c.role, c.request, c.failed,
        m.name AS model, m.backend, m.digest
    FROM steps t JOIN calls c ON c.id = t.call_id JOIN models m ON m.id = c.model_id
    WHERE t.sample_id = :sample ORDER BY t.position, t.slot""")
ATTEMPTS = text("""
    SELECT call_id, accepted, outcome, reply, worker, device, epoch, started_at, ended_at, concurrency,
        encode(prompt_hash, 'hex') AS prompt_hash, prompt_tokens, completion_tokens, finish_reason
    FROM attempts WHERE call_id = ANY(:calls) ORDER BY call_id, id""")
DOCUMENTS = text("SELECT hash, problem, body FROM documents WHERE hash = ANY(:hashes)")
RESIDENCIES = text("""
    SELECT r.epoch, r.device, r.cause, r.state, r.opened_at, r.closed_at,
        ARRAY(SELECT m.name FROM models m WHERE m.id = ANY(r.models) ORDER BY m.name) AS models
    FROM residencies r WHERE r.epoch = ANY(:epochs) ORDER BY r.epoch""")


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a call, with the receipt of whoever ran it."""

    outcome: str
    """"value", or the failure's kind."""
    reply: Reply
    worker: str | None
    device: str | None
    epoch: int | None
    started_at: datetime | None
    ended_at: datetime | None
    concurrency: int | None
    prompt_hash: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call that the sample waited for. Steps of the same position waited together."""

    position: int
    slot: int
    created: bool
    """False: another sample or job had asked before, and its reply was used."""
    role: str
    key: str
    """SHA-256 of `request`: the call's identity."""
    model: str
    backend: str
    digest: str | None
    request: msgspec.Raw
    """The canonical bytes that were hashed."""
    attempt: Attempt | None
    """The accepted one."""
    other_attempts: tuple[Attempt, ...]
    """Lapses and infrastructure failures."""


class Residency(msgspec.Struct, frozen=True, kw_only=True):
    """Which models the device held while calls of this sample ran."""

    epoch: int
    device: str
    models: tuple[str, ...]
    cause: str
    state: str
    opened_at: datetime | None
    closed_at: datetime | None


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """One sample, whole."""

    index: int
    repeat: int
    state: str
    custom_id: str | None
    question: str
    gold: str | None
    gold_documents: dict[str, int] | None
    subject: str | None
    level: str | None
    failure: str | None
    detail: str | None
    ended_at: datetime | None
    outcome: Outcome | None
    record_hash: str | None
    """SHA-256 over every key and reply that the outcome was made from."""
    steps: tuple[Step, ...]
    documents: dict[str, Document]
    """The context's documents by hash."""
    residencies: tuple[Residency, ...]


async def provenance(database: Database, reference: str, index: int, repeat: int = 0) -> Provenance:
    """One sample's provenance, all of one instant.

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
        steps = await _steps(connection, row["id"])
        outcome = msgspec.json.decode(row["outcome"], type=Outcome) if row["outcome"] else None
        return Provenance(
            index=row["ordinal"],
            state=STATES[row["state"]],
            outcome=outcome,
            steps=steps,
            documents=await _documents(connection, outcome.context if outcome else ()),
            residencies=await residencies(connection, _epochs(steps)),
            **{field: row[field] for field in _COPIED},
        )


_COPIED = (
    "repeat", "custom_id", "question", "gold", "gold_documents", "subject", "level", "failure", "detail", "ended_at",
    "record_hash",
)  # fmt: skip


async def _steps(connection: AsyncConnection, sample: int) -> tuple[Step, ...]:
    rows = (await connection.execute(STEPS, {"sample": sample})).mappings().all()
    attempts: dict[int, list[tuple[bool, Attempt]]] = defaultdict(list)
    for row in (await connection.execute(ATTEMPTS, {"calls": [row["call_id"] for row in rows]})).mappings():
        attempts[row["call_id"]].append((row["accepted"], _attempt(row)))
    return tuple(_step(row, attempts[row["call_id"]]) for row in rows)


def _step(row: RowMapping, attempts: Sequence[tuple[bool, Attempt]]) -> Step:
    copied = ("position", "slot", "created", "role", "key", "model", "backend", "digest")
    return Step(
        request=msgspec.Raw(row["request"]),
        attempt=next((attempt for accepted, attempt in attempts if accepted), None),
        other_attempts=tuple(attempt for accepted, attempt in attempts if not accepted),
        **{field: row[field] for field in copied},
    )


def _attempt(row: RowMapping) -> Attempt:
    reply = msgspec.json.decode(row["reply"], type=Reply)
    rest = {field: value for field, value in row.items() if field not in ("call_id", "accepted", "reply")}
    return Attempt(reply=reply, **rest)


async def _documents(connection: AsyncConnection, hashes: Iterable[str]) -> dict[str, Document]:
    rows = await connection.execute(DOCUMENTS, {"hashes": [bytes.fromhex(hash_) for hash_ in hashes]})
    return {row.hash.hex(): Document(problem=row.problem, text=row.body) for row in rows}


def _epochs(steps: Iterable[Step]) -> list[int]:
    return sorted({step.attempt.epoch for step in steps if step.attempt and step.attempt.epoch is not None})


async def residencies(connection: AsyncConnection, epochs: Sequence[int]) -> tuple[Residency, ...]:
    """The residencies with these epochs, with their models' names."""
    rows = (await connection.execute(RESIDENCIES, {"epochs": list(epochs)})).mappings()
    return tuple(msgspec.convert(dict(row), Residency) for row in rows)

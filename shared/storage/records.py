"""Load the records of a job and its samples, and store the links of their chain."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.records import CallRecord, Interruption, JobRecord, Link, NamedContent, SampleRecord
from shared.storage.sql import sql
from shared.storage.states import SampleState

JOB = text("""
    SELECT j.public_id::text AS job, j.pipeline, encode(j.pipeline_hash, 'hex') AS pipeline_hash, j.params, j.pins,
        j.repeats, j.reuse, j.total, j.code, j.created_at, encode(sha256(j.prepared), 'hex') AS prepared,
        encode(o.record_hash, 'hex') AS preparation, d.name AS dataset, encode(d.hash, 'hex') AS dataset_hash,
        k.name AS corpus, encode(k.hash, 'hex') AS corpus_hash
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id LEFT JOIN corpora k ON k.id = j.corpus_id
    LEFT JOIN samples s ON s.job_id = j.id AND s.kind = 'prepare'
    LEFT JOIN outcomes o ON o.sample_id = s.id WHERE j.id = :job""")
LAST = text("""
    SELECT r.seq, r.hash, s.ordinal, s.repeat FROM records r JOIN samples s ON s.id = r.sample_id
    WHERE r.job_id = :job ORDER BY r.seq DESC LIMIT 1""")
# Replies to positions before `consumed` belong to the sample. A cancelled sample has consumed none of the replies that
# it waited for at its end; some may still arrive for other samples.
# The next samples come first, along the index of their key: otherwise the planner reads and sorts all remaining samples
# for every batch.
SAMPLES = sql("""
    WITH batch AS MATERIALIZED (
        SELECT * FROM samples WHERE job_id = :job AND kind = 'item' AND (ordinal, repeat) > (:ordinal, :repeat)
        ORDER BY ordinal, repeat LIMIT :n)
    SELECT s.id, s.ordinal, s.repeat, s.state, s.failure, s.detail, s.ended_at, i.custom_id,
        encode(i.hash, 'hex') AS item, encode(sha256(o.outcome), 'hex') AS outcome,
        CASE s.state WHEN {CANCELLED} THEN s.position - 1 ELSE s.position END AS consumed
    FROM batch s JOIN jobs j ON j.id = s.job_id
    JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id ORDER BY s.ordinal, s.repeat""")
# Columns: sample, call, then the fields of CallRecord in order.
CALLS = sql("""
    SELECT t.sample_id, c.id, t.position, t.slot, t.created, encode(c.key, 'hex'), c.created_at, a.outcome,
        encode(sha256(a.reply), 'hex'), a.worker, a.device, a.epoch, a.started_at, a.ended_at, a.created_at,
        a.concurrency, encode(a.prompt_hash, 'hex'), a.prompt_tokens, a.completion_tokens, a.finish_reason,
        a.prompt_ms, a.completion_ms, a.trace_id
    FROM unnest(CAST(:samples AS bigint[]), CAST(:consumed AS integer[])) u(id, consumed)
    JOIN steps t ON t.sample_id = u.id JOIN calls c ON c.id = t.call_id
    LEFT JOIN attempts a ON {ACCEPTED_FOR} t.call_id AND t.position < u.consumed
    ORDER BY t.sample_id, t.position, t.slot""")
INTERRUPTIONS = text("""
    SELECT call_id, outcome, worker, created_at FROM attempts WHERE call_id = ANY(:calls) AND NOT accepted
    ORDER BY call_id, id""")
INSERT = text("""
    INSERT INTO records (job_id, sample_id, seq, hash, previous)
    SELECT :job, * FROM unnest(CAST(:samples AS bigint[]), CAST(:seqs AS integer[]), CAST(:hashes AS bytea[]),
        CAST(:previous AS bytea[]))""")

Key = tuple[int, int]
"""(item, repeat), the order of a chain."""
START: Key = (-1, -1)


class ChainEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a job's chain so far."""

    sequence: int
    """Number of the next link."""
    hash: bytes
    after: Key
    """The last sample with a link."""


async def load_job_record(connection: AsyncConnection, job: int) -> JobRecord:
    """Load the record with which the job's chain begins."""
    row = (await connection.execute(JOB, {"job": job})).mappings().one()
    copied = ("job", "pipeline", "pipeline_hash", "pins", "repeats", "reuse", "total", "code", "created_at")
    return JobRecord(
        params=msgspec.Raw(row["params"]),
        dataset=NamedContent(name=row["dataset"], hash=row["dataset_hash"]),
        corpus=NamedContent(name=row["corpus"], hash=row["corpus_hash"]) if row["corpus"] else None,
        prepared=row["prepared"],
        preparation=row["preparation"],
        **{field: row[field] for field in copied},
    )


async def find_chain_end(connection: AsyncConnection, job: int) -> ChainEnd | None:
    """Find the end of the job's chain; None before its first link."""
    row = (await connection.execute(LAST, {"job": job})).first()
    return ChainEnd(sequence=row.seq + 1, hash=row.hash, after=(row.ordinal, row.repeat)) if row else None


async def load_sample_records(
    connection: AsyncConnection, job: int, after: Key, limit: int
) -> list[tuple[int, SampleRecord]]:
    """Load (samples.id, record) of the job's next `limit` samples, all ended, in the order of the chain."""
    values = {"job": job, "ordinal": after[0], "repeat": after[1], "n": limit}
    rows = (await connection.execute(SAMPLES, values)).mappings().all()
    consumed = {"samples": [row["id"] for row in rows], "consumed": [row["consumed"] for row in rows]}
    calls = await _calls(connection, consumed)
    return [(row["id"], _record(row, calls.get(row["id"], ()))) for row in rows]


async def _calls(connection: AsyncConnection, consumed: dict[str, list[int]]) -> dict[int, tuple[CallRecord, ...]]:
    """Load the call records by sample, in the order of its steps."""
    rows = (await connection.execute(CALLS, consumed)).all()
    answered = sorted({row[1] for row in rows if row.outcome is not None})
    interrupted: dict[int, tuple[Interruption, ...]] = defaultdict(tuple)
    for row in await connection.execute(INTERRUPTIONS, {"calls": answered}):
        interrupted[row[0]] += (Interruption(*row[1:]),)
    steps = groupby(rows, key=lambda row: row[0])
    return {sample: tuple(CallRecord(interrupted[row[1]], *row[2:]) for row in mine) for sample, mine in steps}


def _record(row: RowMapping, calls: tuple[CallRecord, ...]) -> SampleRecord:
    return SampleRecord(
        index=row["ordinal"],
        state=SampleState(row["state"]).word,
        calls=calls,
        **{field: row[field] for field in ("repeat", "item", "custom_id", "failure", "detail", "ended_at", "outcome")},
    )


async def insert_links(connection: AsyncConnection, job: int, samples: Sequence[int], links: Sequence[Link]) -> None:
    """Insert the links of these samples."""
    values = {
        "job": job,
        "samples": samples,
        "seqs": [link.sequence for link in links],
        "hashes": [link.hash for link in links],
        "previous": [link.previous for link in links],
    }
    await connection.execute(INSERT, values)

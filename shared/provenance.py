"""Export the provenance of a job as JSON lines."""

from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict
from shared import canonical
from shared.calls import DocumentRef, Request
from shared.canonical import normalise
from shared.records import EndLine, JobLine, JobRecord, Link, SampleLine, SampleRecord, Texts, genesis
from shared.storage import provenance
from shared.storage.archive import show_archived
from shared.storage.database import TERMINAL, Database, sql

# Read the texts that a record's hashes stand for; each text is named by the SHA-256 of its bytes.

# A cancelled sample has consumed no reply to the calls that it waited for at its end.
CALLS = sql("""
    SELECT t.sample_id, encode(c.key, 'hex') AS key, c.request, encode(sha256(a.reply), 'hex') AS hash, a.reply
    FROM samples s JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    LEFT JOIN attempts a ON {ACCEPTED_FOR} t.call_id AND (s.state <> {CANCELLED} OR t.position < s.position - 1)
    WHERE s.id = ANY(:samples)""")
ENDS = sql("""
    SELECT s.id, i.question, i.gold, o.outcome, encode(sha256(o.outcome), 'hex') AS hash
    FROM samples s JOIN jobs j ON j.id = s.job_id
    JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id WHERE s.id = ANY(:samples)""")
DOCUMENTS = text("SELECT problem, body FROM documents WHERE hash = ANY(:hashes)")
SELECT_PREPARED = text("SELECT prepared, encode(sha256(prepared), 'hex') AS hash, pins FROM jobs WHERE id = :job")
MODELS = text("SELECT name, backend, digest, version, options, needs_lease FROM models WHERE id = ANY(:models)")
_REQUEST = msgspec.json.Decoder(Request)


async def read_job_texts(connection: AsyncConnection, job: int) -> Texts:
    """Read the gate's decision and the identities of the models that the job is pinned to."""
    row = (await connection.execute(SELECT_PREPARED, {"job": job})).one()
    models = await connection.execute(MODELS, {"models": [pin["model_id"] for pin in row.pins.values()]})
    identities = dict(_name_by_hash(list(model)) for model in models)
    return identities | ({row.hash: row.prepared.decode()} if row.prepared is not None else {})


async def read_sample_texts(connection: AsyncConnection, samples: Sequence[int]) -> dict[int, Texts]:
    """Read, by samples.id, the item, the requests, the consumed replies, the documents in requests, and the outcome."""
    found: dict[int, Texts] = defaultdict(dict)
    documents: dict[int, set[str]] = defaultdict(set)
    for row in await connection.execute(CALLS, {"samples": samples}):
        found[row.sample_id][row.key] = row.request.decode()
        documents[row.sample_id] |= list_prompt_documents(_REQUEST.decode(row.request))
        if row.reply is not None:
            found[row.sample_id][row.hash] = row.reply.decode()
    for row in await connection.execute(ENDS, {"samples": samples}):
        found[row.id] |= [_name_by_hash([normalise(row.question), row.gold])]
        if row.outcome is not None:
            found[row.id][row.hash] = row.outcome.decode()
    hashes = set().union(*documents.values())
    rows = await connection.execute(DOCUMENTS, {"hashes": [bytes.fromhex(hash_) for hash_ in sorted(hashes)]})
    library = dict(_name_by_hash([normalise(row.problem), normalise(row.body)]) for row in rows)
    for sample, hashes in documents.items():
        found[sample] |= {hash_: library[hash_] for hash_ in sorted(hashes) if hash_ in library}
    return found


def list_prompt_documents(request: Request) -> set[str]:
    """Return the hashes of the documents in the prompt of a request."""
    values = request.values.values()
    lists = [value for value in values if isinstance(value, list)]
    single = [value for value in values if isinstance(value, DocumentRef)]
    return {reference.doc for references in (single, *lists) for reference in references}


def _name_by_hash(value: Sequence[Any]) -> tuple[str, str]:
    return canonical.digest(value).hex(), canonical.encode(value).decode()


# Read a job's whole provenance, sample by sample.
#
# It is read in short transactions, a batch of samples at a time, so that memory and locks stay small with a slow
# reader.

BATCH = 100
SELECT_JOB = text("""
    SELECT id, state, chain, ended_at, (SELECT count(*) FROM records r WHERE r.job_id = j.id) AS records
    FROM jobs j WHERE id = :job""")
LINKS = text("SELECT sample_id, seq, hash, previous FROM records WHERE sample_id = ANY(:samples)")


class JobExport(msgspec.Struct, frozen=True, kw_only=True):
    """The job's own part: the first and the last hash of the chain, and the texts that the record names."""

    job: int
    """jobs.id"""
    ended_at: datetime
    record: JobRecord
    texts: Texts
    chain: bytes
    records: int
    """Number of links of the chain."""


class SampleExport(msgspec.Struct, frozen=True, kw_only=True):
    """One sample: its link as written, its record from the present rows, and the texts that the record names."""

    record: SampleRecord
    link: Link
    texts: Texts


async def read_job(database: Database, job_id: int) -> JobExport:
    """Read the job's own part.

    Raises:
        Conflict: the job is live, or it ended before records were kept.
    """
    async with database.snapshot() as connection:
        row = (await connection.execute(SELECT_JOB, {"job": job_id})).one()
        if row.chain is None:
            ended = row.state in TERMINAL
            why = "it ended before records were kept" if ended else f"it is {row.state}: records are made at its end"
            raise Conflict(
                f"the job has no provenance records: {why}",
                hint="requeue it" if ended else "wait for its end: mathrag job watch JOB",
            )
        record = await provenance.load_job_record(connection, job_id)
        named = await read_job_texts(connection, job_id)
    return JobExport(
        job=job_id, ended_at=row.ended_at, record=record, texts=named, chain=row.chain, records=row.records
    )


async def read_samples(database: Database, exported: JobExport) -> AsyncIterator[SampleExport]:
    """Yield every sample that has a record, in the order of the chain.

    Raises:
        Conflict: the job was purged during the export.
    """
    after, written = provenance.START, 0
    while written < exported.records:
        async with database.snapshot() as connection:
            ids = await provenance.list_next_samples(connection, exported.job, after, BATCH)
            async with show_archived(connection, exported.job, ids):
                found = await provenance.load_sample_records(connection, exported.job, after, BATCH)
                named = await read_sample_texts(connection, ids)
            links = {row.sample_id: row for row in await connection.execute(LINKS, {"samples": ids})}
            batch = []
            for sample, record in found:
                if (row := links.get(sample)) is not None:
                    link = Link(sequence=row.seq, previous=row.previous, hash=row.hash, record=canonical.encode(record))
                    batch.append(SampleExport(record=record, link=link, texts=named[sample]))
        if not batch:
            raise Conflict("the job was purged while it was exported")
        for each in batch:
            yield each
        after, written = (batch[-1].record.index, batch[-1].record.repeat), written + len(batch)


# Export a job as JSON Lines that can be verified with SHA-256 alone: the job, its samples, the end of the chain.


async def export_lines(database: Database, exported: JobExport) -> AsyncIterator[bytes]:
    """Yield the file line by line."""
    record = canonical.encode(exported.record).decode()
    first = JobLine(hash=genesis(exported.record).hex(), record=record, texts=exported.texts)
    yield canonical.encode(first) + b"\n"
    async for sample in read_samples(database, exported):
        link = sample.link
        line = SampleLine(
            sequence=link.sequence,
            hash=link.hash.hex(),
            previous=link.previous.hex(),
            record=link.record.decode(),
            texts=sample.texts,
        )
        yield canonical.encode(line) + b"\n"
    yield canonical.encode(EndLine(records=exported.records, chain=exported.chain.hex())) + b"\n"

"""Read a job's whole provenance, sample by sample.

It is read in short transactions, a batch of samples at a time, so that memory and locks stay small with a slow reader.
"""

from collections.abc import AsyncIterator
from datetime import datetime

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.provenance_lines import Texts
from shared.contracts.records import JobRecord, Link, SampleRecord
from shared.errors import Conflict
from shared.provenance import texts
from shared.storage import provenance
from shared.storage.database import TERMINAL, Database

BATCH = 100
JOB = text("""
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
        row = (await connection.execute(JOB, {"job": job_id})).one()
        if row.chain is None:
            ended = row.state in TERMINAL
            why = "it ended before records were kept" if ended else f"it is {row.state}: records are made at its end"
            raise Conflict(f"this job has no records: {why}", hint="requeue it" if ended else "mathrag job wait JOB")
        record = await provenance.load_job_record(connection, job_id)
        named = await texts.read_job_texts(connection, job_id)
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
        async with database.transaction() as connection:
            batch = await _read_batch(connection, exported.job, after)
        if not batch:
            raise Conflict("the job was purged while it was exported")
        for sample in batch:
            yield sample
        after, written = (batch[-1].record.index, batch[-1].record.repeat), written + len(batch)


async def _read_batch(connection: AsyncConnection, job_id: int, after: provenance.Key) -> list[SampleExport]:
    found = await provenance.load_sample_records(connection, job_id, after, BATCH)
    ids = [sample for sample, _ in found]
    named = await texts.read_sample_texts(connection, ids)
    links = {row.sample_id: row for row in await connection.execute(LINKS, {"samples": ids})}
    return [
        SampleExport(record=record, link=_make_link(links[sample], record), texts=named[sample])
        for sample, record in found
        if sample in links
    ]


def _make_link(row: object, record: SampleRecord) -> Link:
    return Link(sequence=row.seq, previous=row.previous, hash=row.hash, record=canonical.encode(record))  # type: ignore[attr-defined]

"""I22: every sample of an ended job has its record, and the chain is whole."""

import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping

from sqlalchemy import Row, text

from shared.audit.finding import AuditedJob, Violation
from shared.contracts import canonical
from shared.contracts.records import SampleRecord, genesis
from shared.storage import provenance
from shared.storage.database import sql

BATCH = 200

LINKS = text("SELECT sample_id, seq, hash, previous FROM records WHERE sample_id = ANY(:samples)")
# A job whose first event is its end was over before records were kept.
CHAINLESS = sql("""
    SELECT 'jobs ' || j.id FROM jobs j
    WHERE j.id = :job AND (j.state IN {TERMINAL}) <> (j.chain IS NOT NULL) AND NOT EXISTS (
        SELECT 1 FROM job_events e WHERE e.job_id = j.id AND e.state IN {TERMINAL}
            AND NOT EXISTS (SELECT 1 FROM job_events b WHERE b.job_id = j.id AND b.version < e.version))""")
ORPHANS = sql("""
    SELECT 'records ' || r.sample_id FROM records r LEFT JOIN samples s ON s.id = r.sample_id
    WHERE r.job_id = :job AND (s.job_id <> r.job_id OR s.kind <> 'item' OR s.state < {COMPLETED}) ORDER BY r.seq""")
JOB = text("SELECT chain FROM jobs WHERE id = :job")

Stored = Mapping[int, Row[tuple[int, int, bytes, bytes]]]
"""Links of the chain by sample."""


class ChainFollower:
    """Follows a job's chain and compares it with the job's present rows."""

    def __init__(self, head: bytes) -> None:
        self.last = head
        self.length = 0

    def follow(self, sample: int, record: SampleRecord, links: Stored) -> list[str]:
        """Return what is wrong with the link of the next sample."""
        link = links.get(sample)
        if link is None:
            return ["has ended and has no record"]
        found = []
        if record.state == "completed" and not _is_complete(record):
            found.append("its record lacks an outcome or a reply")
        if hashlib.sha256(link.previous + canonical.encode(record)).digest() != link.hash:
            found.append("its record differs from its rows")
        if link.previous != self.last or link.seq != self.length:
            found.append("its link does not follow the one before")
        self.last, self.length = link.hash, self.length + 1
        return found


def _is_complete(record: SampleRecord) -> bool:
    return record.outcome is not None and all(call.reply is not None for call in record.calls)


async def check_records(audit: AuditedJob) -> list[Violation]:
    """I22: records are complete, follow from the rows, and are chained up to the hash that the job keeps."""
    broken: dict[str, list[str]] = defaultdict(list)
    async for message, row in _find_broken(audit):
        broken[message].append(row)
    return [
        *[Violation(invariant="I22", message=message, rows=tuple(rows)) for message, rows in broken.items()],
        *await audit.find("I22", "ended without a chain, or has one before its end", CHAINLESS),
        *await audit.find("I22", "belongs to no ended sample of the job", ORPHANS),
    ]


async def _find_broken(audit: AuditedJob) -> AsyncIterator[tuple[str, str]]:
    """Yield (problem, row) along the chain; an unfinished chain is not checked."""
    job = audit.job["id"]
    kept = (await audit.connection.execute(JOB, {"job": job})).scalar()
    if kept is None:
        return
    chain = ChainFollower(genesis(await provenance.load_job_record(audit.connection, job)))
    after = provenance.START
    while batch := await provenance.load_sample_records(audit.connection, job, after, BATCH):
        ids = [sample for sample, _ in batch]
        links = {row.sample_id: row for row in await audit.connection.execute(LINKS, {"samples": ids})}
        for sample, record in batch:
            for message in chain.follow(sample, record, links):
                yield message, f"samples {sample}"
        after = (batch[-1][1].index, batch[-1][1].repeat)
    if chain.last != kept:
        yield "its chain does not end where the job says", f"jobs {job}"

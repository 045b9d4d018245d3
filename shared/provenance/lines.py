"""Export a job as JSON Lines that can be verified with SHA-256 alone: the job, its samples, the end of the chain."""

from collections.abc import AsyncIterator

import msgspec

from shared.contracts import canonical
from shared.contracts.provenance_lines import EndLine, JobLine, SampleLine
from shared.contracts.records import genesis
from shared.provenance import export
from shared.storage.database import Database


async def export_lines(database: Database, exported: export.JobExport) -> AsyncIterator[bytes]:
    """Yield the file line by line."""
    encoder = msgspec.json.Encoder(order="deterministic")
    record = canonical.encode(exported.record).decode()
    yield encoder.encode(JobLine(hash=genesis(exported.record).hex(), record=record, texts=exported.texts)) + b"\n"
    async for sample in export.read_samples(database, exported):
        yield encoder.encode(_make_line(sample)) + b"\n"
    yield encoder.encode(EndLine(records=exported.records, chain=exported.chain.hex())) + b"\n"


def _make_line(sample: export.SampleExport) -> SampleLine:
    link = sample.link
    return SampleLine(
        sequence=link.sequence,
        hash=link.hash.hex(),
        previous=link.previous.hex(),
        record=link.record.decode(),
        texts=sample.texts,
    )

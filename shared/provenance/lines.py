"""JSON Lines for whoever wants to verify a job with nothing but SHA-256: the job, its samples, the end of the chain."""

from collections.abc import AsyncIterator

import msgspec

from shared.contracts import canonical
from shared.contracts.records import genesis
from shared.provenance import export
from shared.provenance.texts import Texts
from shared.storage.database import Database


class JobLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="job"):
    """The first line. Its hash is what the first sample follows."""

    hash: str
    record: str
    """A JSON text: `hash` is the SHA-256 of it as it stands."""
    texts: Texts


class SampleLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="sample"):
    """`hash` is the SHA-256 over the 32 bytes of `previous`, then the text `record` as it stands."""

    sequence: int
    hash: str
    previous: str
    record: str
    texts: Texts
    """By name: what the record's hashes stand for, each the SHA-256 of its text."""


class EndLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="end"):
    """The last line: without it the stream broke off."""

    records: int
    chain: str
    """The last line's hash, as the job keeps it."""


async def lines(database: Database, exported: export.JobExport) -> AsyncIterator[bytes]:
    """The whole file, line by line."""
    encoder = msgspec.json.Encoder(order="deterministic")
    record = canonical.encode(exported.record).decode()
    yield encoder.encode(JobLine(hash=genesis(exported.record).hex(), record=record, texts=exported.texts)) + b"\n"
    async for sample in export.samples(database, exported):
        yield encoder.encode(_line(sample)) + b"\n"
    yield encoder.encode(EndLine(records=exported.records, chain=exported.chain.hex())) + b"\n"


def _line(sample: export.SampleExport) -> SampleLine:
    link = sample.link
    return SampleLine(
        sequence=link.sequence,
        hash=link.hash.hex(),
        previous=link.previous.hex(),
        record=link.record.decode(),
        texts=sample.texts,
    )

"""The hashed records of a job and its samples, and their chain. This module is pure: rows in, bytes out.

A record has hashes of the texts (requests, replies, outcomes), but the complete receipts. A link's hash is SHA-256 over
the previous hash, followed by the record's canonical bytes; the first link follows the hash of the job's record.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from shared.contracts import canonical


class NamedContent(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset or a corpus: its name, and the hash of its content."""

    name: str
    hash: str


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a job was to do, and with what code. It omits what may change later, such as name and rank."""

    job: str
    pipeline: str
    pipeline_hash: str
    params: msgspec.Raw
    dataset: NamedContent
    corpus: NamedContent | None
    pins: dict[str, Any]
    """Pinned model of each role."""
    repeats: int
    reuse: str
    total: int
    code: dict[str, Any]
    prepared: str | None
    """SHA-256 of the gate's decision as it is stored."""
    preparation: str | None
    """SHA-256 over every key and reply from which the decision was made."""
    created_at: datetime


class Interruption(msgspec.Struct, frozen=True):
    """An attempt that was not accepted: a lapse, or an infrastructure failure."""

    outcome: str
    worker: str | None
    at: datetime


class CallRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step, its call and the accepted attempt. It is encoded as an array, since a job has hundreds of thousands."""

    interruptions: tuple[Interruption, ...]
    """Attempts before the accepted one."""
    position: int
    slot: int
    created: bool
    """False: the call existed before, and its reply was reused."""
    key: str
    """SHA-256 of the request."""
    queued_at: datetime
    """When the call was first made, by any sample."""
    outcome: str | None = None
    """"value", or the kind of the failure. It is missing, with all fields below, if the sample did not consume the
    reply."""
    reply: str | None = None
    """SHA-256 of the reply as it is stored."""
    worker: str | None = None
    device: str | None = None
    epoch: int | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    stored_at: datetime | None = None
    concurrency: int | None = None
    prompt_hash: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    prompt_ms: float | None = None
    completion_ms: float | None = None
    trace_id: str | None = None


class SampleRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one sample ended, and all replies that it consumed."""

    index: int
    repeat: int
    item: str
    """SHA-256 over question and gold answer."""
    custom_id: str | None = None
    state: str
    failure: str | None = None
    detail: str | None = None
    ended_at: datetime
    outcome: str | None = None
    """SHA-256 of the outcome as it is stored."""
    calls: tuple[CallRecord, ...] = ()


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Position of a record in its job's chain."""

    sequence: int
    """Number of the link, from 0, in sample order."""
    previous: bytes
    hash: bytes
    record: bytes
    """Canonical bytes of the record."""


def genesis(job: JobRecord) -> bytes:
    """Return the hash that the first link follows; it is also the chain of a job without samples."""
    return canonical.digest(job)


def chain_records(samples: Iterable[SampleRecord], sequence: int, previous: bytes) -> Iterator[Link]:
    """Yield the links of consecutive samples, the first of which has the number `sequence`."""
    for sample in samples:
        record = canonical.encode(sample)
        hash_ = hashlib.sha256(previous + record).digest()
        yield Link(sequence=sequence, previous=previous, hash=hash_, record=record)
        sequence, previous = sequence + 1, hash_

"""What is hashed of a job and of each sample, and how these records are chained. Pure: rows in, bytes out.

A record holds hashes of the texts (requests, replies, outcomes), never the texts, and of the receipts everything. A
link's hash is SHA-256 over the hash before it, followed by the record's canonical bytes; the first link follows the
hash of the job's own record.
"""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from shared.contracts import canonical


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset or a corpus: its name, and the hash of its content."""

    name: str
    hash: str


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What a job was asked, and with what code: nothing that changes later, such as its name or rank."""

    job: str
    pipeline: str
    pipeline_hash: str
    params: msgspec.Raw
    dataset: Named
    corpus: Named | None
    pins: dict[str, Any]
    """Model by role."""
    repeats: int
    reuse: str
    total: int
    code: dict[str, Any]
    prepared: str | None
    """SHA-256 of the gate's decision as it is stored."""
    preparation: str | None
    """SHA-256 over every key and reply that the decision was made from."""
    created_at: datetime


class Interruption(msgspec.Struct, frozen=True):
    """An attempt that was not accepted: a lapse, or an infrastructure failure."""

    outcome: str
    worker: str | None
    at: datetime


class CallRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step, its call and the accepted attempt; positional, because a job has hundreds of thousands."""

    interruptions: tuple[Interruption, ...]
    """Before the accepted attempt."""
    position: int
    slot: int
    created: bool
    """False: the reply was there, or asked for by somebody else."""
    key: str
    """SHA-256 of the request."""
    queued_at: datetime
    """When the call was first asked for, by whomever."""
    outcome: str | None = None
    """"value" or the failure's kind; missing, as all that follows, where the sample did not consume the reply."""
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
    """How one sample ended, and all that it consumed."""

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
    """One record's place in its job's chain."""

    sequence: int
    """From 0, in sample order."""
    previous: bytes
    hash: bytes
    record: bytes
    """Canonical."""


def genesis(job: JobRecord) -> bytes:
    """What the first link follows; the whole chain of a job without samples."""
    return canonical.digest(job)


def chained(samples: Iterable[SampleRecord], sequence: int, previous: bytes) -> Iterator[Link]:
    """The links of consecutive samples, the first of which is the job's number `sequence`."""
    for sample in samples:
        record = canonical.encode(sample)
        hash_ = hashlib.sha256(previous + record).digest()
        yield Link(sequence=sequence, previous=previous, hash=hash_, record=record)
        sequence, previous = sequence + 1, hash_

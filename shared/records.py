"""Provenance records of samples, the chain over them, and the lines of their export."""

import hashlib
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from shared import canonical
from shared.replies import Document, Reply
from shared.samples import Outcome, SampleNote, Strategy

# The hashed records of a job and its samples, and their chain. This module is pure: rows in, bytes out.
#
# A record has hashes of the texts (requests, replies, outcomes), but the complete receipts. A link's hash is SHA-256
# over the previous hash, followed by the record's canonical bytes; the first link follows the hash of the job's
# record.


class NamedContent(msgspec.Struct, frozen=True, kw_only=True):
    """A dataset or a corpus: its name, and the hash of its content."""

    name: str
    hash: str


class JobRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The task of a job, and its code. It omits fields that may change later, such as name and rank."""

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


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of a call, with the receipt of the process that ran it."""

    outcome: str
    """"value", or the kind of the failure."""
    reply: Reply | None
    """The reply; null if this release cannot read it (see `unreadable`)."""
    worker: str | None
    device: str | None
    epoch: int | None
    started_at: datetime | None
    ended_at: datetime | None
    concurrency: int | None
    """Calls that the model was computing when this one began, itself included; its numbers may depend on them
    (docs/how-to/operations.md, "The same answer"). Null if no model was asked."""
    prompt_hash: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None
    prompt_ms: float | None
    completion_ms: float | None
    """Time that the model server reports for its work."""
    trace_id: str | None
    stored_at: datetime
    reply_hash: str
    """SHA-256 of the reply as it is stored."""
    unreadable: str | None = None
    """Why the stored reply cannot be shown."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The options that were sent to the model."""

    temperature: float
    max_tokens: int
    seed: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The step that made the call first, and whose reply was reused."""

    job: str
    kind: str
    """"item", or "prepare" for a job's calibration."""
    index: int
    repeat: int
    position: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call that the sample waited for. Steps with the same position waited in parallel."""

    position: int
    slot: int
    created: bool
    """False: an earlier sample or job had made the call, and its reply was reused."""
    source: Source | None
    """The step that had made it; null if this step made it, or that job was purged."""
    role: str
    key: str
    """Identity of the call: the SHA-256 of `request`."""
    model: str
    model_hash: str
    backend: str
    digest: str | None
    version: str
    options: dict[str, Any]
    request: msgspec.Raw
    """The canonical bytes that were hashed; they have the template with its hash, and the texts by hash."""
    sent: Sent | None
    """The options of sampling that were sent; null if the call samples nothing."""
    prompt: str | None = None
    """The prompt; null unless prompts are asked for, and if the template is of another release."""
    queued_at: datetime
    queue_ms: float | None
    """Time from then to the start of the accepted attempt, earlier attempts included."""
    attempt: Attempt | None
    """The accepted attempt."""
    other_attempts: tuple[Attempt, ...]
    """Lapses, and attempts that failed with an infrastructure failure."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Position of the sample in its job's chain."""

    sequence: int
    hash: str
    previous: str


class Fusion(msgspec.Struct, frozen=True, kw_only=True):
    """How ranked lists were fused."""

    rrf_k: int | None
    """Constant of reciprocal rank fusion; null if this release cannot read the job's parameters."""
    tie_break: str


class Residency(msgspec.Struct, frozen=True, kw_only=True):
    """The models that the device held while calls ran."""

    epoch: int
    device: str
    models: tuple[str, ...]
    cause: str
    state: str
    opened_at: datetime | None
    closed_at: datetime | None
    memory_mib: dict[str, float | None]
    """Memory of each model, measured once, when the residency opened; null if it was not measured."""


class Equation(msgspec.Struct, frozen=True, kw_only=True):
    """An equation between numbers in the generated text, as the verifier reads it."""

    text: str
    holds: bool | None
    """Whether the equation holds; null if that cannot be decided."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The complete provenance of one sample."""

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
    text: str | None
    """The generator's complete text; of several, the last one with the sample's answer."""
    equations: tuple[Equation, ...]
    """The first 500 equations of `text`, checked."""
    scored_by: Strategy | None
    """What scored the documents' quality; null if it was not scored."""
    relevant: dict[str, int] | None
    """Grades of the documents that the dataset calls relevant, by hash in the job's corpus; null if it names none."""
    ending: str | None
    """`correct`, or what was wrong (docs/explanation/statistics.md); null if the sample was cancelled or has not
    ended."""
    ending_reason: str | None
    record_hash: str | None
    """SHA-256 over every key and reply from which the outcome was made."""
    item_hash: str
    gold_hash: str | None
    pipeline_hash: str
    decision_hash: str | None
    """Hash of the gate's decision that the sample used."""
    code: dict[str, Any]
    """Commit, version, schema and configuration that accepted the job; signatures and file hashes of its indexes."""
    fusion: Fusion
    link: Place | None
    """Position in the chain; null until the job is finalised."""
    steps: tuple[Step, ...]
    documents: dict[str, Document]
    """Documents of the context, by hash."""
    residencies: tuple[Residency, ...]
    notes: tuple[SampleNote, ...] = ()
    """What people think of the sample."""


Texts = dict[str, str]
"""Maps hashes, in hex, to texts."""


class JobLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="job"):
    """The first line of the file; the first sample's line refers to its hash."""

    hash: str
    record: str
    """A JSON text; `hash` is the SHA-256 of its bytes."""
    texts: Texts


class SampleLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="sample"):
    """One sample; `hash` is the SHA-256 over the 32 bytes of `previous`, followed by the text `record`."""

    sequence: int
    hash: str
    previous: str
    record: str
    texts: Texts
    """Texts whose hashes the record has, by name; each hash is the SHA-256 of its text."""


class EndLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="end"):
    """The last line of the file; without it the file is incomplete."""

    records: int
    chain: str
    """Hash of the last sample's line, which the job stores."""

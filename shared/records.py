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
    """A step, its call and the accepted attempt. A job may have hundreds of thousands."""

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
    cached_tokens: int | None = None


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
    """One execution of a call, as reported by the process that ran it."""

    outcome: str
    """`value`, or the kind of the failure."""
    reply: Reply | None
    """The reply; null if this release cannot read it (see `unreadable`)."""
    worker: str | None
    """Name of the process that ran the call; null if it is unknown."""
    device: str | None
    """Device that held the model; null if no device was needed."""
    epoch: int | None
    """Number of the residency that answered; null if no device was needed."""
    started_at: datetime | None
    """Start of the attempt; null if it is unknown."""
    ended_at: datetime | None
    """End of the attempt; null if it is unknown."""
    concurrency: int | None
    """Number of calls that the model computed when this one began, including this call. The reply may depend on it
    (docs/how-to/operations.md, "The same answer"). Null if no model was called."""
    prompt_hash: str | None
    """SHA-256 of the prompt; null if no model was called."""
    prompt_tokens: int | None
    """Number of prompt tokens, as counted by the model server; null if it did not count."""
    cached_tokens: int | None
    """Number of prompt tokens that the model server took from its cache instead of computing them; null if it did not
    report it."""
    completion_tokens: int | None
    """Number of reply tokens, as counted by the model server; null if it did not count."""
    finish_reason: str | None
    """Why the model server ended the reply, such as `stop` or `length`; null if it did not say."""
    prompt_ms: float | None
    """Milliseconds for the prompt, as reported by the model server; null if it did not report them."""
    completion_ms: float | None
    """Milliseconds for the reply, as reported by the model server; null if it did not report them."""
    trace_id: str | None
    """Id of the trace that has the attempt; null without tracing."""
    stored_at: datetime
    """Time at which the attempt was stored."""
    reply_hash: str
    """SHA-256 of the reply as it is stored."""
    unreadable: str | None = None
    """Why the stored reply cannot be shown; missing if it can."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The options that were sent to the model."""

    temperature: float
    """Sampling temperature."""
    max_tokens: int
    """Maximum length of the reply in tokens."""
    seed: int
    """Random seed, derived from the identity of the call."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The step that made the call first, and whose reply was reused."""

    job: str
    """Id of the job."""
    kind: str
    """`item`, or `prepare` for a job's calibration."""
    index: int
    """Index of the item in the dataset, from 0."""
    repeat: int
    """Number of the repeat, from 0."""
    position: int
    """Position of the step in its sample."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call that the sample waited for. Steps with the same position waited in parallel."""

    position: int
    """Position in the sample, from 0. Steps with the same position waited in parallel."""
    slot: int
    """Number of the step among those with the same position, from 0."""
    created: bool
    """Whether this step made the call. If false, an earlier sample or job had made it, and its reply was reused."""
    source: Source | None
    """The step that made the call first; null if this step made it, or if that job was purged."""
    role: str
    """Role of the call, such as `judge` or `generate`."""
    key: str
    """Identity of the call: the SHA-256 of `request`."""
    model: str
    """Name of the model."""
    model_hash: str
    """Hash that identifies the model's version."""
    backend: str
    """Program that served the model, such as `llama.cpp` or `ollama`."""
    digest: str | None
    """Digest of the model's files; null if the server has none."""
    version: str
    """Version of the model's server; empty if the server reports none."""
    options: dict[str, Any]
    """Options of the model."""
    request: msgspec.Raw
    """The request whose canonical bytes were hashed; it names the template and long texts by their hashes."""
    sent: Sent | None
    """Sampling options that were sent to the model; null if the call samples nothing."""
    prompt: str | None = None
    """The prompt; null unless prompts are requested, and if its template belongs to another release."""
    queued_at: datetime
    """Time at which the call was first queued, by any sample."""
    queue_ms: float | None
    """Milliseconds from `queued_at` to the start of the accepted attempt, including earlier attempts; null without an
    accepted attempt."""
    attempt: Attempt | None
    """The attempt whose reply counts; null without one."""
    other_attempts: tuple[Attempt, ...]
    """Attempts that lapsed or failed with an infrastructure failure."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Position of the sample in its job's chain."""

    sequence: int
    """Number of the sample in the chain, from 0."""
    hash: str
    """Hash of this link: the SHA-256 over `previous` and the record."""
    previous: str
    """Hash of the previous link."""


class Fusion(msgspec.Struct, frozen=True, kw_only=True):
    """How ranked lists were fused."""

    rrf_k: int | None
    """Constant of reciprocal rank fusion; null if this release cannot read the job's parameters."""
    tie_break: str
    """How documents with equal scores are ordered."""


class Residency(msgspec.Struct, frozen=True, kw_only=True):
    """The models that the device held while calls ran."""

    epoch: int
    """Number of the residency; it grows with every change of the resident models."""
    device: str
    """Id of the device."""
    models: tuple[str, ...]
    """Names of the models that the device held."""
    cause: str
    """Why the scheduler loaded these models, such as `first` or `drained`."""
    state: str
    """State of the residency."""
    opened_at: datetime | None
    """Time from which the models answered calls; null if they never did."""
    closed_at: datetime | None
    """Time at which the residency ended; null if it has not."""
    memory_mib: dict[str, float | None]
    """Memory of each model in MiB, measured when the residency was opened; null for a model that was not measured."""


class Equation(msgspec.Struct, frozen=True, kw_only=True):
    """An equation between numbers in the generated text, as the verifier reads it."""

    text: str
    """The equation."""
    holds: bool | None
    """Whether the equation holds; null if that cannot be decided."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """The complete provenance of one sample."""

    index: int
    """Index of the item in the dataset, from 0."""
    repeat: int
    """Number of the repeat, from 0."""
    state: str
    """State of the sample."""
    custom_id: str | None
    """Id of the item from the upload; null if it has none."""
    question: str
    """The question."""
    gold: str | None
    """The expected answer; null if the item has none."""
    gold_documents: dict[str, int] | None
    """Grades of the item's relevant documents, by their ids in the upload; null if it names none."""
    subject: str | None
    """Subject of the item; null if it has none."""
    level: str | None
    """Level of the item; null if it has none."""
    failure: str | None
    """Kind of the failure; null if the sample did not fail."""
    detail: str | None
    """Description of the failure; null if the sample did not fail."""
    ended_at: datetime | None
    """Time at which the sample ended; null if it has not."""
    outcome: Outcome | None
    """Answer, context and verdict; null if the sample has none."""
    text: str | None
    """The generator's complete text; if there are several, the last one with the sample's answer."""
    equations: tuple[Equation, ...]
    """The first 500 equations of `text`, with the verifier's result."""
    scored_by: Strategy | None
    """Scorer of the documents' quality; null if it was not scored."""
    relevant: dict[str, int] | None
    """Grades of the relevant documents, by their hashes in the job's corpus; null if the dataset names none."""
    ending: str | None
    """`correct`, or the kind of error (docs/explanation/statistics.md); null if the sample was cancelled or has not
    ended."""
    ending_reason: str | None
    """The rule that decided `ending`, with the facts that it used; null without an ending."""
    record_hash: str | None
    """SHA-256 over every key and reply from which the outcome was made."""
    item_hash: str
    """SHA-256 over question and expected answer."""
    gold_hash: str | None
    """SHA-256 of the expected answer; null if the item has none."""
    pipeline_hash: str
    """Hash of the pipeline's name and version; for a plug-in, of its files."""
    decision_hash: str | None
    """Hash of the gate's decision that the sample used; null if it used none."""
    code: dict[str, Any]
    """Commit, version, schema and configuration that accepted the job, and signatures and file hashes of its indexes.
    """
    fusion: Fusion
    """How ranked lists were fused."""
    link: Place | None
    """Position in the job's chain; null until the job is finalised."""
    steps: tuple[Step, ...]
    """Calls that the sample waited for, by position."""
    documents: dict[str, Document]
    """Documents of the context, by hash."""
    residencies: tuple[Residency, ...]
    """Models that the devices held while the calls ran."""
    notes: tuple[SampleNote, ...] = ()
    """Thumbs and notes that people gave the sample."""


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
    """Number of the sample in the chain, from 0."""
    hash: str
    """SHA-256 over the 32 bytes of `previous` and the text `record`, in hex."""
    previous: str
    """Hash of the previous line, in hex."""
    record: str
    """The record as canonical JSON."""
    texts: Texts
    """Texts by the SHA-256 of their bytes, in hex: those whose hashes are in the record."""


class EndLine(msgspec.Struct, frozen=True, kw_only=True, tag_field="line", tag="end"):
    """The last line of the file; without it the file is incomplete."""

    records: int
    chain: str
    """Hash of the last sample's line, which the job stores."""

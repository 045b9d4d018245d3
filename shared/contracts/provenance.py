"""What one sample's answer was made from, as it is shown."""

from datetime import datetime
from typing import Any

import msgspec

from shared.contracts.documents import Document
from shared.contracts.replies import Reply
from shared.contracts.samples import Outcome, Strategy


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of a call, with the receipt of whoever ran it."""

    outcome: str
    """"value", or the failure's kind."""
    reply: Reply | None
    """Null: this release cannot read it, see `unreadable`."""
    worker: str | None
    device: str | None
    epoch: int | None
    started_at: datetime | None
    ended_at: datetime | None
    concurrency: int | None
    """Calls that the model was computing when this one began, itself included: its numbers may depend on them
    (docs/operations.md, "The same answer"). None: no model was asked."""
    prompt_hash: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    finish_reason: str | None
    prompt_ms: float | None
    completion_ms: float | None
    """What the model server says of its own time."""
    trace_id: str | None
    stored_at: datetime
    reply_hash: str
    """SHA-256 of the reply as it is stored."""
    unreadable: str | None = None
    """Why the reply is stored and cannot be shown."""


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """Options as they went to the model."""

    temperature: float
    max_tokens: int
    seed: int


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The step that asked first: its reply was used again."""

    job: str
    kind: str
    """"item", or "prepare": a job's calibration."""
    index: int
    repeat: int
    position: int


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One call that the sample waited for. Steps of the same position waited together."""

    position: int
    slot: int
    created: bool
    """False: another sample or job had asked before, and its reply was used."""
    source: Source | None
    """Who had; None where this step asked itself, or that job was purged."""
    role: str
    key: str
    """SHA-256 of `request`: the call's identity."""
    model: str
    model_hash: str
    backend: str
    digest: str | None
    version: str
    options: dict[str, Any]
    request: msgspec.Raw
    """The canonical bytes that were hashed: template and its hash, texts by hash."""
    sent: Sent | None
    """None: nothing that decodes."""
    prompt: str | None = None
    """What the model was asked; None unless prompts are asked for, and where the template is of another release."""
    queued_at: datetime
    queue_ms: float | None
    """From then to the start of the accepted attempt, earlier tries included."""
    attempt: Attempt | None
    """The accepted one."""
    other_attempts: tuple[Attempt, ...]
    """Lapses and infrastructure failures."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """The sample's link in its job's chain."""

    sequence: int
    hash: str
    previous: str


class Fusion(msgspec.Struct, frozen=True, kw_only=True):
    """How ranked lists were fused."""

    rrf_k: int | None
    """Null: this release cannot read the job's parameters."""
    tie_break: str


class Residency(msgspec.Struct, frozen=True, kw_only=True):
    """Which models the device held while calls ran."""

    epoch: int
    device: str
    models: tuple[str, ...]
    cause: str
    state: str
    opened_at: datetime | None
    closed_at: datetime | None
    memory_mib: dict[str, float | None]
    """By model, measured once, when the residency opened; None: nothing was measured."""


class Equation(msgspec.Struct, frozen=True, kw_only=True):
    """An equation of numbers in the generated text, as the verifier reads it."""

    text: str
    holds: bool | None
    """Null: that cannot be said."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """One sample, whole."""

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
    """All that the generator wrote; of several texts the last one that gives the sample's answer."""
    equations: tuple[Equation, ...]
    """Of `text`, checked; the first 500."""
    scored_by: Strategy | None
    """Who scored the documents' quality; None: nobody did."""
    relevant: dict[str, int] | None
    """Grades of the documents that the dataset calls relevant, by hash in the job's corpus; None: it says nothing."""
    ending: str | None
    """Correct, or what was wrong with it (docs/statistics.md); None: cancelled, or not ended yet."""
    ending_reason: str | None
    record_hash: str | None
    """SHA-256 over every key and reply that the outcome was made from."""
    item_hash: str
    gold_hash: str | None
    pipeline_hash: str
    decision_hash: str | None
    """Of the gate's decision that it was given."""
    code: dict[str, Any]
    """Commit, version, schema and configuration that accepted the job; signatures and file hashes of its indexes."""
    fusion: Fusion
    link: Place | None
    """None until the job is finalised."""
    steps: tuple[Step, ...]
    documents: dict[str, Document]
    """The context's documents by hash."""
    residencies: tuple[Residency, ...]

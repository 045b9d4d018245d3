"""What a worker submits for a call: the reply, and the receipt that tells where and when it was made."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from shared.contracts import canonical
from shared.contracts.replies import INFRASTRUCTURE, Failure, FailureKind, Reply
from shared.redaction import redact


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when a call ran; for model calls stamped by the guard alone."""

    started_at: datetime
    ended_at: datetime
    device: str | None = None
    epoch: int | None = None
    concurrency: int | None = None
    prompt_hash: bytes | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    finish_reason: str | None = None
    prompt_ms: float | None = None
    completion_ms: float | None = None
    trace_id: str | None = None


class AnsweredCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call's reply as a worker submits it."""

    call_id: int
    reply: Reply
    receipt: Receipt

    @property
    def is_infrastructure(self) -> bool:
        """Whether the call was not answered at all, so that it is tried again."""
        return isinstance(self.reply, Failure) and self.reply.kind in INFRASTRUCTURE


def outcome_name(reply: Reply) -> str:
    """Return what `attempts.outcome` holds for the reply: "value", or the kind of its failure."""
    return reply.kind.value if isinstance(reply, Failure) else "value"


def fail_unstorable(answer: AnsweredCall, error: Exception) -> AnsweredCall:
    """Replace an answer that the database cannot store by a failure of the same call."""
    message = redact(f"{type(error).__name__}: {error}".partition("\n")[0])
    failure = Failure(kind=FailureKind.BACKEND_ERROR, detail=f"the reply cannot be stored: {message}"[:500])
    receipt = Receipt(started_at=answer.receipt.started_at, ended_at=answer.receipt.ended_at)
    return AnsweredCall(call_id=answer.call_id, reply=failure, receipt=receipt)


def to_columns(answers: Sequence[AnsweredCall]) -> dict[str, object]:
    """Convert answers to the array parameters of one SQL statement."""
    receipts = [answer.receipt for answer in answers]
    return {
        "calls": [answer.call_id for answer in answers],
        "outcomes": [outcome_name(answer.reply) for answer in answers],
        "replies": [canonical.encode(answer.reply) for answer in answers],
        "devices": [receipt.device for receipt in receipts],
        "epochs": [receipt.epoch for receipt in receipts],
        "started": [receipt.started_at for receipt in receipts],
        "ended": [receipt.ended_at for receipt in receipts],
        "concurrency": [receipt.concurrency for receipt in receipts],
        "prompt_hashes": [receipt.prompt_hash for receipt in receipts],
        "prompt_tokens": [receipt.prompt_tokens for receipt in receipts],
        "completion_tokens": [receipt.completion_tokens for receipt in receipts],
        "finish_reasons": [receipt.finish_reason for receipt in receipts],
        "prompt_ms": [receipt.prompt_ms for receipt in receipts],
        "completion_ms": [receipt.completion_ms for receipt in receipts],
        "trace_ids": [receipt.trace_id for receipt in receipts],
    }

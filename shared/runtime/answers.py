"""What a worker hands in for a call: the reply, and the receipt of where and when it was made."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from shared.contracts import canonical
from shared.contracts.replies import INFRASTRUCTURE, Failure, FailureKind, Reply
from shared.redaction import redacted


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


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """A call's reply as a worker hands it in."""

    call_id: int
    reply: Reply
    receipt: Receipt

    @property
    def is_infrastructure(self) -> bool:
        """Whether the call is to be tried again: it was not answered at all."""
        return isinstance(self.reply, Failure) and self.reply.kind in INFRASTRUCTURE


def outcome_of(reply: Reply) -> str:
    """The word that stands for a reply in `attempts.outcome`: "value" or the failure's kind."""
    return reply.kind.value if isinstance(reply, Failure) else "value"


def unstorable(answer: Answered, error: Exception) -> Answered:
    """The same call, not answered: its reply or receipt holds what no column takes."""
    said = redacted(f"{type(error).__name__}: {error}".partition("\n")[0])
    failure = Failure(kind=FailureKind.BACKEND_ERROR, detail=f"the reply cannot be stored: {said}"[:500])
    receipt = Receipt(started_at=answer.receipt.started_at, ended_at=answer.receipt.ended_at)
    return Answered(call_id=answer.call_id, reply=failure, receipt=receipt)


def columns(answers: Sequence[Answered]) -> dict[str, object]:
    """Answers as the arrays of one statement."""
    receipts = [answer.receipt for answer in answers]
    return {
        "calls": [answer.call_id for answer in answers],
        "outcomes": [outcome_of(answer.reply) for answer in answers],
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

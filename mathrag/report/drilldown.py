"""A sample as a person looks at it: the documents with their ranks and scores, and the calls with their times."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from mathrag.report.source import Sample
from shared.contracts.records import CallRecord
from shared.contracts.replies import Generated, Reply
from shared.contracts.requests import Request
from shared.contracts.samples import Candidate
from shared.pages.replies import summary
from shared.pages.rules import bringing, rules
from shared.rag.candidates import found_order
from shared.storage.samples import SampleRow

_REPLY = msgspec.json.Decoder(Reply)
_REQUEST = msgspec.json.Decoder(Request)
_DOCUMENT = msgspec.json.Decoder(tuple[str, str])


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """A document of the prompt."""

    document: str
    problem: str
    text: str
    before: int | None
    """Rank as fusion ordered the candidates; None: nothing was fused."""
    candidate: Candidate | None
    """None: it came into the prompt by another way than the final order."""
    by: str
    """The rules that brought it; "": none did."""


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """A call that the sample waited for."""

    role: str
    model: str
    said: str
    """What came back, in a few words."""
    waited: float | None
    """Seconds in the queue."""
    ran: float | None
    """Seconds of its accepted attempt."""
    record: CallRecord


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One sample."""

    row: SampleRow
    rules: tuple[tuple[str, str], ...]
    """Name and words of each rule that guided it."""
    passages: tuple[Passage, ...]
    calls: tuple[Made, ...]
    reply: str | None
    """What the generator wrote last, whole."""
    link: str

    @property
    def seconds(self) -> float:
        """Of its own calls, as they ran; replies that were there already took none."""
        return sum(call.ran or 0.0 for call in self.calls if call.record.created)


def entry(sample: Sample, models: Mapping[str, str]) -> Entry:
    """`models` has names by the hash that requests hold."""
    calls = tuple(_made(sample, call, models) for call in sample.record.calls)
    written = [
        _reply(sample, call) for call, made in zip(sample.record.calls, calls, strict=True) if made.role == "generate"
    ]
    texts = [reply.text for reply in written if isinstance(reply, Generated)]
    return Entry(
        row=sample.row,
        rules=_rules(sample),
        passages=tuple(_passages(sample)),
        calls=calls,
        reply=texts[-1] if texts else None,
        link=sample.link,
    )


def before(candidates: Sequence[Candidate]) -> dict[str, int]:
    """Ranks as fusion ordered the documents, ties as everywhere: the smaller hash first."""
    fused = [each for each in found_order(candidates) if each.fused is not None]
    return {each.document: rank for rank, each in enumerate(fused, 1)}


def waited(call: CallRecord) -> float | None:
    """Seconds from when the call was asked for until it ran."""
    return _seconds(call.queued_at, call.started_at)


def ran(call: CallRecord) -> float | None:
    """Seconds of the accepted attempt."""
    return _seconds(call.started_at, call.ended_at)


def role(sample: Sample, call: CallRecord) -> str:
    """Such as "judge"."""
    return _REQUEST.decode(sample.texts[call.key]).role


def _rules(sample: Sample) -> tuple[tuple[str, str], ...]:
    return tuple(rules(msgspec.to_builtins(sample.outcome.trace.decisions))) if sample.outcome else ()


def _passages(sample: Sample) -> list[Passage]:
    candidates = {each.document: each for each in sample.outcome.trace.candidates} if sample.outcome else {}
    ranks = before(list(candidates.values()))
    return [
        Passage(
            document=hash_, problem=problem, text=text, before=ranks.get(hash_), candidate=candidates.get(hash_),
            by=bringing(msgspec.to_builtins(candidates[hash_])) if hash_ in candidates else "",
        )
        for hash_ in sample.row.context
        for problem, text in [_DOCUMENT.decode(sample.texts[hash_]) if hash_ in sample.texts else ("", "")]
    ]  # fmt: skip


def _made(sample: Sample, call: CallRecord, models: Mapping[str, str]) -> Made:
    request = _REQUEST.decode(sample.texts[call.key])
    model = models.get(request.model, request.model[:12])
    said = summary(_reply(sample, call), call.completion_tokens)
    return Made(role=request.role, model=model, said=said, waited=waited(call), ran=ran(call), record=call)


def _reply(sample: Sample, call: CallRecord) -> Reply | None:
    return _REPLY.decode(sample.texts[call.reply]) if call.reply else None


def _seconds(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if start and end else None

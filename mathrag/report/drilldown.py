"""A sample prepared for its page: documents with ranks and scores, and calls with their times."""

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from mathrag.report.source import ReportSample
from shared.calls import Request
from shared.pages.lines import describe_rules, name_rules, summarise_reply
from shared.rag.provenance import sort_as_found
from shared.records import CallRecord
from shared.replies import Generated, Reply
from shared.samples import Candidate, SampleRow

_REPLY = msgspec.json.Decoder(Reply)
_REQUEST = msgspec.json.Decoder(Request)
_DOCUMENT = msgspec.json.Decoder(tuple[str, str])


class PromptDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a document of the prompt and how retrieval ranked it."""

    document: str
    problem: str
    text: str
    before: int | None
    """Rank after fusion; None if nothing was fused."""
    candidate: Candidate | None
    """None if the document is in the prompt without being a candidate of the final order."""
    by: str
    """Names of the rules that led to it; "" if none did."""


class CallEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Describes a call that the sample waited for, with its reply in short and its times."""

    role: str
    model: str
    said: str
    """The reply in a few words."""
    waited: float | None
    """Seconds in the queue."""
    ran: float | None
    """Seconds of its accepted attempt."""
    record: CallRecord


class SampleEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A sample with everything that its page shows."""

    row: SampleRow
    rules: tuple[tuple[str, str], ...]
    """Name and description of each rule that guided the sample."""
    passages: tuple[PromptDocument, ...]
    calls: tuple[CallEntry, ...]
    reply: str | None
    """The generator's last reply in full; None if there is none."""
    link: str

    @property
    def seconds(self) -> float:
        """Run time of the calls that this sample created, in seconds; reused replies took no time."""
        return sum(call.ran or 0.0 for call in self.calls if call.record.created)


def prepare_sample(sample: ReportSample, models: Mapping[str, str]) -> SampleEntry:
    """Prepare a sample for its page; `models` maps the hashes in requests to names."""
    calls = tuple(_describe_call(sample, call, models) for call in sample.record.calls)
    pages = [
        _reply(sample, call) for call, made in zip(sample.record.calls, calls, strict=True) if made.role == "generate"
    ]
    texts = [reply.text for reply in pages if isinstance(reply, Generated)]
    return SampleEntry(
        row=sample.row,
        rules=_describe_rules(sample),
        passages=tuple(_list_passages(sample)),
        calls=calls,
        reply=texts[-1] if texts else None,
        link=sample.link,
    )


def compute_fused_ranks(candidates: Sequence[Candidate]) -> dict[str, int]:
    """Return ranks after fusion by document; among equal scores the smaller hash comes first."""
    fused = [each for each in sort_as_found(candidates) if each.fused is not None]
    return {each.document: rank for rank, each in enumerate(fused, 1)}


def queue_seconds(call: CallRecord) -> float | None:
    """Return the seconds between queueing the call and its start; None if either is unknown."""
    return _compute_seconds(call.queued_at, call.started_at)


def run_seconds(call: CallRecord) -> float | None:
    """Return the run time of the accepted attempt in seconds; None if it is unknown."""
    return _compute_seconds(call.started_at, call.ended_at)


def call_role(sample: ReportSample, call: CallRecord) -> str:
    """Return the role of a call's request, such as "judge"."""
    return _REQUEST.decode(sample.texts[call.key]).role


def _describe_rules(sample: ReportSample) -> tuple[tuple[str, str], ...]:
    return tuple(describe_rules(msgspec.to_builtins(sample.outcome.trace.decisions))) if sample.outcome else ()


def _list_passages(sample: ReportSample) -> list[PromptDocument]:
    candidates = {each.document: each for each in sample.outcome.trace.candidates} if sample.outcome else {}
    ranks = compute_fused_ranks(list(candidates.values()))
    return [
        PromptDocument(
            document=hash_, problem=problem, text=text, before=ranks.get(hash_), candidate=candidates.get(hash_),
            by=name_rules(msgspec.to_builtins(candidates[hash_])) if hash_ in candidates else "",
        )
        for hash_ in sample.row.context
        for problem, text in [_DOCUMENT.decode(sample.texts[hash_]) if hash_ in sample.texts else ("", "")]
    ]  # fmt: skip


def _describe_call(sample: ReportSample, call: CallRecord, models: Mapping[str, str]) -> CallEntry:
    request = _REQUEST.decode(sample.texts[call.key])
    model = models.get(request.model, request.model[:12])
    summary = summarise_reply(_reply(sample, call), call.completion_tokens)
    return CallEntry(
        role=request.role, model=model, said=summary, waited=queue_seconds(call), ran=run_seconds(call), record=call
    )


def _reply(sample: ReportSample, call: CallRecord) -> Reply | None:
    return _REPLY.decode(sample.texts[call.reply]) if call.reply else None


def _compute_seconds(start: datetime | None, end: datetime | None) -> float | None:
    return (end - start).total_seconds() if start and end else None

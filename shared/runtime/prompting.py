"""Calls that a model answers: render the prompt, send it through the guard, read the reply. Both workers use it."""

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime

import msgspec

from shared.contracts.documents import Document
from shared.contracts.guard import Completion, End, ModelCall
from shared.contracts.replies import Failure, FailureKind, Generated, Reply
from shared.contracts.requests import Request, seed_of
from shared.lease.guards import Guards
from shared.models.chat import CUTS, LENGTH
from shared.rag.parsing import PARSERS, parse_rating
from shared.rag.rendering import TemplateChanged, references, rendered
from shared.runtime.answers import Answered, Receipt
from shared.runtime.claims import Claimed
from shared.runtime.execution import Ended, Lapse, Release, Wait
from shared.storage.database import Database
from shared.storage.library import LibraryCache

_REQUEST = msgspec.json.Decoder(Request)


class Prompting:
    """The executor of judge, write and generate calls; a chunk is of one model, so one guard answers it."""

    def __init__(self, database: Database, guards: Guards) -> None:
        self._database = database
        self._guards = guards
        self._library = LibraryCache()

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Ended]:
        """Replies as they come; a call whose model server died comes back as a `Lapse`."""
        prompts, refused = await self._prompts(calls)
        for answer in refused:
            yield answer
        by_id = {call.id: call for call in calls}
        if not prompts:
            return
        async for completion in self._guards.run(calls[0].device, epoch, list(prompts.values())):
            call = by_id[completion.id]
            if completion.end is End.ANSWERED:
                yield Answered(
                    call_id=call.id,
                    reply=read_reply(call.role, completion, _REQUEST.decode(call.request).template),
                    receipt=_receipt(completion, prompts[call.id].prompt),
                )
            else:
                yield _unanswered(completion)

    async def _prompts(self, calls: Sequence[Claimed]) -> tuple[dict[int, ModelCall], list[Answered]]:
        """Model calls by id, and the failures of those whose template or document is not there."""
        requests = {call.id: _REQUEST.decode(call.request) for call in calls}
        async with self._database.statement() as connection:
            hashes = {ref.doc for request in requests.values() for ref in references(request)}
            documents = await self._library.documents(connection, hashes)
        prompts, refused = {}, []
        for call in calls:
            try:
                prompts[call.id] = _model_call(call, requests[call.id], documents)
            except (TemplateChanged, KeyError) as error:
                refused.append(_refused(call, repr(error)))
        return prompts, refused


def _unanswered(completion: Completion) -> Lapse | Release | Wait:
    if completion.end is End.WAITS:
        return Wait(completion.id, completion.what, completion.detail)
    return Lapse(completion.id) if completion.end is End.LAPSED else Release(completion.id)


def _model_call(call: Claimed, request: Request, documents: Mapping[str, Document]) -> ModelCall:
    if request.decoding is None:
        raise ValueError(f"call {call.id} has no decoding")
    return ModelCall(
        id=call.id,
        model_id=call.model_id,
        prompt=rendered(request, documents),
        decoding=request.decoding,
        seed=seed_of(call.key),
        logprobs=request.logprobs,
    )


def read_reply(role: str, completion: Completion, template: str = "") -> Reply:
    """A completion as the reply that its role promises; a judge without a rating is a failure, not a score.

    `template` is the request's, `id@hash`: how a rating is written depends on the rubric.
    """
    if completion.failure is not None:
        return Failure(kind=completion.failure, detail=completion.detail)
    truncated = completion.finish_reason in CUTS
    if role == "judge":
        parse = PARSERS.get(template.partition("@")[0], parse_rating)
        return parse(completion.text, truncated=truncated)
    if not completion.text.strip():
        ended = f", ended by {completion.finish_reason!r}" if truncated else ""
        return Failure(kind=FailureKind.REFUSED, detail=f"the model gave an empty text{ended}")
    return Generated(
        text=completion.text.replace("\0", "�"),
        truncated=truncated,
        truncated_by=completion.finish_reason if truncated and completion.finish_reason != LENGTH else "",
        tokens=completion.tokens,
    )


def _refused(call: Claimed, detail: str) -> Answered:
    now = datetime.now(UTC)
    reply = Failure(kind=FailureKind.BACKEND_ERROR, detail=detail)
    return Answered(call_id=call.id, reply=reply, receipt=Receipt(started_at=now, ended_at=now))


def _receipt(completion: Completion, prompt: str) -> Receipt:
    return Receipt(
        started_at=completion.started_at,
        ended_at=completion.ended_at,
        device=completion.device,
        epoch=completion.epoch,
        concurrency=completion.concurrency,
        prompt_hash=hashlib.sha256(prompt.encode()).digest(),
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        finish_reason=completion.finish_reason or None,
        prompt_ms=completion.prompt_ms,
        completion_ms=completion.completion_ms,
    )

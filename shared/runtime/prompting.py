"""Execute calls to models: render the prompt, send it through the guard, parse the reply. Both workers use it."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import msgspec
from sqlalchemy import text

from shared.calls import Completion, End, ModelCall, Prompt, Request, seed_of, text_of
from shared.lease.lease import Guards
from shared.models.chat import CUT_REASONS, LENGTH
from shared.rag.prompts import (
    PARSERS,
    TemplateChanged,
    TemplateError,
    list_labels,
    parse_rating,
    parse_relevance,
    render_request,
)
from shared.replies import Failure, FailureKind, Generated, Reply
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt
from shared.runtime.worker import CallEnd, Lapse, Release, Wait
from shared.storage.database import Database
from shared.storage.provenance import LibraryCache

_REQUEST = msgspec.json.Decoder(Request)
CONSTRAINED = text("SELECT coalesce((options ->> 'constrain_labels')::boolean, false) FROM models WHERE id = :model")


class PromptExecutor:
    """Executor of judge, write and generate calls. A chunk has one model, so one guard answers it."""

    def __init__(self, database: Database, guards: Guards) -> None:
        self._database = database
        self._guards = guards
        self._library = LibraryCache()

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[CallEnd]:
        """Yield replies as they arrive; a call whose model server died yields a `Lapse`."""
        prompts, refused = await self._prompts(calls)
        for answer in refused:
            yield answer
        by_id = {call.id: call for call in calls}
        if not prompts:
            return
        async for completion in self._guards.run(calls[0].device, epoch, list(prompts.values())):
            call = by_id[completion.id]
            match completion.end:
                case End.ANSWERED:
                    reply = read_reply(_REQUEST.decode(call.request), completion)
                    receipt = _make_receipt(completion, prompts[call.id].prompt)
                    yield AnsweredCall(call_id=call.id, reply=reply, receipt=receipt)
                case End.WAITS:
                    yield Wait(call.id, completion.what, completion.detail)
                case End.LAPSED:
                    yield Lapse(call.id)
                case _:
                    yield Release(call.id)

    async def _prompts(self, calls: Sequence[ClaimedCall]) -> tuple[dict[int, ModelCall], list[AnsweredCall]]:
        """Return the model calls by id, and failures for those whose template or document is missing."""
        requests = {call.id: _REQUEST.decode(call.request) for call in calls}
        async with self._database.statement() as connection:
            documents, templates = await self._library.load_texts(connection, requests.values())
            labels = {id_: list_labels(request) for id_, request in requests.items()}
            if any(labels.values()):
                found = await connection.execute(CONSTRAINED, {"model": calls[0].model_id})
                labels = labels if found.scalar_one() else {}
        prompts, refused = {}, []
        for call in calls:
            request = requests[call.id]
            if request.decoding is None:
                raise ValueError(f"call {call.id} has no decoding")
            try:
                prompts[call.id] = ModelCall(
                    id=call.id,
                    model_id=call.model_id,
                    prompt=render_request(request, documents, templates),
                    decoding=request.decoding,
                    seed=seed_of(call.key),
                    logprobs=request.logprobs,
                    choices=labels.get(call.id, ()),
                )
            except (TemplateChanged, TemplateError, KeyError) as error:
                now = datetime.now(UTC)
                reply = Failure(kind=FailureKind.BACKEND_ERROR, detail=repr(error))
                receipt = Receipt(started_at=now, ended_at=now)
                refused.append(AnsweredCall(call_id=call.id, reply=reply, receipt=receipt))
        return prompts, refused


def read_reply(request: Request, completion: Completion) -> Reply:
    """Parse the completion of a request; a judge's text without a judgement is a failure, not a score."""
    if completion.failure is not None:
        return Failure(kind=completion.failure, detail=completion.detail)
    truncated = completion.finish_reason in CUT_REASONS
    if request.role == "judge":
        rubric = request.template.partition("@")[0]
        if request.logprobs:
            return parse_relevance(completion.text, completion.tokens, rubric, truncated=truncated)
        return PARSERS.get(rubric, parse_rating)(completion.text, truncated=truncated)
    if not completion.text.strip():
        ended = f", ended by {completion.finish_reason!r}" if truncated else ""
        return Failure(kind=FailureKind.REFUSED, detail=f"the model gave an empty text{ended}")
    return Generated(
        text=completion.text.replace("\0", "�"),
        truncated=truncated,
        truncated_by=completion.finish_reason if truncated and completion.finish_reason != LENGTH else "",
        tokens=completion.tokens,
    )


def _make_receipt(completion: Completion, prompt: Prompt) -> Receipt:
    return Receipt(
        started_at=completion.started_at,
        ended_at=completion.ended_at,
        device=completion.device,
        epoch=completion.epoch,
        concurrency=completion.concurrency,
        prompt_hash=hashlib.sha256(text_of(prompt).encode()).digest(),
        prompt_tokens=completion.prompt_tokens,
        cached_tokens=completion.cached_tokens,
        completion_tokens=completion.completion_tokens,
        finish_reason=completion.finish_reason or None,
        prompt_ms=completion.prompt_ms,
        completion_ms=completion.completion_ms,
    )

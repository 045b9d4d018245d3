"""Serves `/openai/v1/chat/completions`."""

import time
from collections.abc import AsyncIterator

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse

from services.orchestrator.access.identity import RequestCaller
from services.orchestrator.access.scopes import declare_scope
from services.orchestrator.api.problems import make_problem
from services.orchestrator.api.routes import json
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.openai.chat_jobs import PendingJob, read_answer, submit_chat_job
from services.orchestrator.openai.chat_requests import ChatCompletionRequest
from services.orchestrator.openai.names import find_model
from shared.access.filters import encode_openai_error
from shared.errors import MathragError
from shared.runtime import submit
from shared.shapes import Scope

router = APIRouter(prefix="/chat")
LONGEST_WAIT_S = 600.0
"""Longest wait for an answer in seconds, equal to the default timeout of OpenAI's clients."""
KEEP_ALIVE_S = 5.0
"""Seconds between two comments in a stream that waits, so that no proxy closes it."""
COMMENT = b": waiting\n\n"


@router.post("/completions")
async def create(request: ChatCompletionRequest, deps: RequestDeps, caller: RequestCaller) -> Response:
    """Answers a chat completion, whole or as a stream.

    The reply is stored before any of it is sent, so a stream has the text in one chunk.
    """
    pending = await submit_chat_job(deps, request, await find_model(deps, request.model, "chat"), caller.name)
    if request.stream:
        include_usage = request.stream_options is not None and request.stream_options.include_usage
        return StreamingResponse(_stream(deps, pending, include_usage=include_usage), media_type="text/event-stream")
    await submit.wait_for_job(deps.database, pending.job, LONGEST_WAIT_S)
    return json((await read_answer(deps, pending)).body())


async def _stream(deps: Deps, asked: PendingJob, *, include_usage: bool) -> AsyncIterator[bytes]:
    deadline = time.monotonic() + LONGEST_WAIT_S
    while not await submit.has_ended(deps.database, asked.job) and time.monotonic() < deadline:
        yield COMMENT
        await submit.wait_for_job(deps.database, asked.job, KEEP_ALIVE_S)
    try:
        for chunk in (await read_answer(deps, asked)).chunks(include_usage=include_usage):
            yield chunk
    except MathragError as error:
        field = make_problem(error, "").field
        yield b"data: " + encode_openai_error(error.status, error.kind, error.message, error.hint, field) + b"\n\n"


declare_scope(create, Scope.SUBMIT)

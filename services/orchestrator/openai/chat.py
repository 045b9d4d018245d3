"""OpenAI's chat completions, as jobs of one sample."""

import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mathrag.errors import Invalid, MathragError, Unavailable
from services.orchestrator.access.identity import RequestCaller, declare_scope
from services.orchestrator.api.chat import describe_outcome
from services.orchestrator.api.routes import json, make_problem
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.openai.models import NamedModel, find_model
from shared.access.filters import encode_openai_error
from shared.calls import MAX_QUESTION, Decoding, Message
from shared.pipelines.conversation import CONVERSATION
from shared.replies import FailureKind
from shared.runtime.parameters import parse_params
from shared.runtime.submit import (
    RANK,
    Submission,
    choose_draw,
    has_ended,
    question_for,
    submit,
    submit_conversations,
    wait_for_job,
)
from shared.samples import Conversation
from shared.shapes import Scope
from shared.storage import configurations, jobs
from shared.storage.database import sql
from shared.storage.datasets import provide_unlisted


class StrictBody(BaseModel):
    """A body or a part of one: unknown fields are refused, unless their value is null."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, body: Any) -> Any:
        if not isinstance(body, Mapping):
            return body
        return {name: value for name, value in body.items() if value is not None}


def put_in_list(value: Any) -> Any:
    """Return a text as the only item of a list, so that an error names the field and not a form of it."""
    return [value] if isinstance(value, str) else value


Nothing = Annotated[list[None], Field(max_length=0)]
"""An empty list; any other is refused as not supported."""
NoTexts = Annotated[Nothing, BeforeValidator(put_in_list, json_schema_input_type=Nothing)]
"""The same for a field that also takes one text."""

# Bodies of `/v1/chat/completions`: supported fields are read, all others are refused by name.
#
# Fields that clients send with a value that changes nothing are accepted with that value only.

MOST_MESSAGES = 1000
LARGEST_SEED = 2**63 - 1


class TextPart(StrictBody):
    """A part of a message; only text is supported."""

    type: Literal["text"]
    text: str


Content = Annotated[
    list[TextPart],
    BeforeValidator(
        lambda content: [{"type": "text", "text": content}] if isinstance(content, str) else content,
        json_schema_input_type=str | list[TextPart],
    ),
]
"""A text, or parts of it."""


class ChatMessage(StrictBody):
    """A message; `developer` is OpenAI's newer word for `system`. Of an answer, all that it holds may be sent again."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Content
    annotations: Nothing | None = None
    tool_calls: Nothing | None = None

    def read(self) -> Message:
        """Join the parts of the message."""
        text = "".join(part.text for part in self.content)
        return Message(role="system" if self.role == "developer" else self.role, content=text)


class TextFormat(StrictBody):
    """The only supported format of an answer."""

    type: Literal["text"]


class StreamOptions(StrictBody):
    """Options for the end of a stream."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False


class ChatCompletionRequest(StrictBody):
    """A conversation to continue."""

    model: Annotated[str, Field(min_length=1, max_length=300)]
    messages: Annotated[list[ChatMessage], Field(min_length=1, max_length=MOST_MESSAGES)]
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    max_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    top_p: Literal[1] | None = None
    presence_penalty: Literal[0] | None = None
    frequency_penalty: Literal[0] | None = None
    logprobs: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    store: Literal[False] | None = None
    response_format: TextFormat | None = None
    modalities: list[Literal["text"]] | None = None
    service_tier: Literal["auto", "default"] | None = None
    stop: NoTexts | None = None
    tools: Nothing | None = None
    tool_choice: Literal["none", "auto"] | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    metadata: dict[str, str] | None = None

    def make_conversation(self, configured: Decoding) -> Conversation:
        """Return the conversation for the generator, word for word, with configured values for fields that the request
        leaves out.

        Raises:
            Invalid: the last message is not the user's.
        """
        decoding = self.make_decoding(configured)
        draw = choose_draw(decoding.temperature, self.seed)
        return Conversation(messages=self._read_messages(), decoding=decoding, draw=draw)

    def _read_messages(self) -> tuple[Message, ...]:
        """Return the messages.

        Raises:
            Invalid: the last one is not the user's.
        """
        messages = tuple(each.read() for each in self.messages)
        if messages[-1].role != "user":
            raise Invalid("`messages`: the last message must be the user's")
        return messages

    def question(self) -> str:
        """Return the only message, as the question for a pipeline.

        Raises:
            Invalid: there are several messages, or the only one is not the user's or too long, or a seed is given.
        """
        messages = self._read_messages()
        if len(messages) > 1:
            raise Invalid("`messages`: a pipeline answers one question; send one user message")
        if not messages[0].content.strip():
            raise Invalid("`messages`: the last message is empty")
        if len(messages[0].content) > MAX_QUESTION:
            raise Invalid(f"`messages`: a question has at most {MAX_QUESTION} characters")
        if self.seed is not None:
            raise Invalid("`seed`: is not supported for pipelines", hint="leave it out")
        return messages[0].content

    def make_decoding(self, configured: Decoding) -> Decoding:
        """Return how the model samples, with configured values for fields that the request leaves out."""
        longest = self.max_completion_tokens or self.max_tokens or configured.max_tokens
        temperature = configured.temperature if self.temperature is None else self.temperature
        return Decoding(temperature=temperature, max_tokens=longest)


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an answer with its usage, and writes it whole or as chunks."""

    id: str
    created: int
    """Creation time in seconds since 1970."""
    model: str
    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    extension: dict[str, Any]
    """The field `mathrag`: the job, and what a pipeline answers beside the text."""

    @property
    def usage(self) -> dict[str, int]:
        """Return the usage with OpenAI's field names."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }

    def body(self) -> dict[str, Any]:
        """Return the answer as a `chat.completion`."""
        message = {"role": "assistant", "content": self.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        head = self._make_head("chat.completion")
        return {**head, "choices": [choice], "usage": self.usage, "mathrag": self.extension}

    def chunks(self, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the answer as server-sent events: role, text, end, and the usage if it is requested."""
        yield self._make_chunk([{"role": "assistant", "content": "", "refusal": None}])
        yield self._make_chunk([{"content": self.text}])
        yield self._make_chunk([{}], self.finish_reason, mathrag=self.extension)
        if include_usage:
            yield self._make_chunk([], usage=self.usage)
        yield b"data: [DONE]\n\n"

    def _make_chunk(self, deltas: list[dict[str, Any]], finish_reason: str | None = None, **more: Any) -> bytes:
        choices = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason} for delta in deltas]
        value = {**self._make_head("chat.completion.chunk"), "choices": choices, **more}
        return b"data: " + msgspec.json.encode(value) + b"\n\n"

    def _make_head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


USAGE = sql("""
    SELECT a.prompt_tokens, a.completion_tokens, a.finish_reason
    FROM jobs j JOIN samples s ON s.job_id = j.id AND s.kind = 'item' JOIN steps t ON t.sample_id = s.id
    JOIN calls c ON c.id = t.call_id AND c.role = 'generate' JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE j.public_id = :job""")
ANSWER_FIELDS = ("context", "decisions", "answer", "extraction", "refusal")
"""Fields of a pipeline's answer besides the text."""


class ContextLengthExceeded(Invalid):
    """The conversation is longer than the model's context; the kind is OpenAI's code."""

    kind = "context_length_exceeded"


class PendingJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job whose answer a client waits for."""

    job: uuid.UUID
    model: NamedModel


async def submit_chat_job(
    deps: Deps, request: ChatCompletionRequest, model: NamedModel, submitted_by: str | None
) -> PendingJob:
    """Submit the job that answers the request.

    Raises:
        Invalid: the request cannot be used; the message names the field.
        TooMany: a limit of the operator is reached.
    """
    holding = await configurations.load_newest(deps.database)
    params = parse_params({}, holding.params)
    decoding = msgspec.structs.asdict(request.make_decoding(params.generate))
    params = msgspec.structs.replace(params, generate=msgspec.structs.replace(params.generate, **decoding))
    conversation = request.make_conversation(params.generate) if model.pipeline is None else None
    question = request.question() if conversation is None else question_for(conversation)
    dataset = await provide_unlisted(deps.database, "online", [question])
    submission = Submission(
        name="chat", dataset=dataset, corpus=model.corpus,
        pipeline=model.pipeline or CONVERSATION, params=params, configuration=holding.version,
        models={} if conversation is None else {"generate": model.id}, rank=RANK, online=True,
        submitted_by=submitted_by,
    )  # fmt: skip
    if conversation is None:
        job = await submit(deps.database, deps.settings, submission)
    else:
        async with deps.database.transaction() as connection:
            job = await submit_conversations(connection, deps.settings, submission, [conversation])
    deps.wake()
    return PendingJob(job=job, model=model)


async def read_answer(deps: Deps, pending: PendingJob) -> ChatCompletion:
    """Return the answer of a job that has ended.

    Raises:
        Invalid: the conversation is longer than the model's context.
        Unavailable: the job ended without an answer for a temporary reason.
        MathragError: it failed for another reason.
    """
    job = await jobs.get(deps.database, str(pending.job))
    if job.ended_at is None:
        raise Unavailable("the answer is not ready yet", hint=f"send it again, or follow /v1/jobs/{pending.job}")
    found = (
        await describe_outcome(deps, pending.job, pending.model.corpus)
        if job.state == "completed"
        else {"reason": job.reason}
    )
    if "text" not in found or (found["text"] is None and found["refusal"] is None):
        raise make_failure(str(found.get("reason") or f"the job is {job.state}"), pending.job)
    # The tokens that the generator read and wrote, over all its calls; 0 if its server does not count them.
    async with deps.database.statement() as connection:
        rows = (await connection.execute(USAGE, {"job": pending.job})).all()
    prompt_tokens, completion_tokens = (
        sum(row.prompt_tokens or 0 for row in rows),
        sum(row.completion_tokens or 0 for row in rows),
    )
    extension: dict[str, Any] = {"job": str(pending.job), "url": f"/v1/jobs/{pending.job}"}
    if pending.model.pipeline is not None:
        extension |= {name: found[name] for name in ANSWER_FIELDS}
    return ChatCompletion(
        id=f"chatcmpl-{pending.job.hex}",
        created=int(job.created_at.timestamp()),
        model=pending.model.id,
        text=found["text"] or "",
        finish_reason="length" if found["truncated"] else "stop",
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        extension=extension,
    )


def make_failure(reason: str, job: uuid.UUID, index: int = 0, field: str = "messages") -> MathragError:
    """Return the error for a failed sample; if the conversation is too long, the fault is the client's."""
    hint = f"GET /v1/jobs/{job}/samples/{index} has the provenance"
    if reason.startswith(FailureKind.CONTEXT_EXCEEDED.value):
        return ContextLengthExceeded(f"`{field}`: {reason}", hint=hint)
    if reason.startswith((FailureKind.UNAVAILABLE.value, FailureKind.CONNECTION.value, FailureKind.TIMEOUT.value)):
        return Unavailable(reason, hint=hint)
    return MathragError(reason, hint=hint)


# Serves `/openai/v1/chat/completions`.

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
    if not request.stream:
        await wait_for_job(deps.database, pending.job, LONGEST_WAIT_S)
        return json((await read_answer(deps, pending)).body())
    include_usage = request.stream_options is not None and request.stream_options.include_usage

    async def stream() -> AsyncIterator[bytes]:
        deadline = time.monotonic() + LONGEST_WAIT_S
        while not await has_ended(deps.database, pending.job) and time.monotonic() < deadline:
            yield COMMENT
            await wait_for_job(deps.database, pending.job, KEEP_ALIVE_S)
        try:
            answer = await read_answer(deps, pending)
            for chunk in answer.chunks(include_usage=include_usage):
                yield chunk
        except MathragError as error:
            field = make_problem(error, "").field
            yield b"data: " + encode_openai_error(error.status, error.kind, error.message, error.hint, field) + b"\n\n"

    return StreamingResponse(stream(), media_type="text/event-stream")


declare_scope(create, Scope.SUBMIT)

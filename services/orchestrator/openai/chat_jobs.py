"""Answers a chat completion by an online job, and waits for it."""

import uuid
from typing import Any

import msgspec

from services.orchestrator.api.chat import describe_outcome
from services.orchestrator.deps import Deps
from services.orchestrator.openai.chat_requests import ChatCompletionRequest
from services.orchestrator.openai.completions import ChatCompletion
from services.orchestrator.openai.names import NamedModel
from shared.errors import Invalid, MathragError, Unavailable
from shared.pipelines.conversation import CONVERSATION
from shared.replies import FailureKind
from shared.runtime import submit as submitting
from shared.runtime.parameters import parse_params
from shared.runtime.submit import Submission, question_for, submit, submit_conversations
from shared.storage import configurations, jobs
from shared.storage.database import sql

USAGE = sql("""
    SELECT a.prompt_tokens, a.completion_tokens, a.finish_reason
    FROM jobs j JOIN samples s ON s.job_id = j.id AND s.kind = 'item' JOIN steps t ON t.sample_id = s.id
    JOIN calls c ON c.id = t.call_id AND c.role = 'generate' JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE j.public_id = :job""")
ANSWER_FIELDS = ("context", "decisions", "answer", "extraction", "refusal")
"""Fields that a pipeline answers beside the text."""


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
    await submitting.provide_dataset(deps.database, question)
    submission = Submission(
        name="chat", dataset=submitting.dataset_name(question), corpus=model.corpus,
        pipeline=model.pipeline or CONVERSATION, params=params, configuration=holding.version,
        models={} if conversation is None else {"generate": model.id}, rank=submitting.RANK, online=True,
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
    prompt_tokens, completion_tokens = await _count_tokens(deps, pending.job)
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


async def _count_tokens(deps: Deps, job: uuid.UUID) -> tuple[int, int]:
    """Return the tokens that the generator read and wrote, over all its calls; 0 if its server does not count them."""
    async with deps.database.statement() as connection:
        rows = (await connection.execute(USAGE, {"job": job})).all()
    return sum(row.prompt_tokens or 0 for row in rows), sum(row.completion_tokens or 0 for row in rows)


def make_failure(reason: str, job: uuid.UUID, index: int = 0, field: str = "messages") -> MathragError:
    """Return the error for a failed sample; if the conversation is too long, the fault is the client's."""
    hint = f"GET /v1/jobs/{job}/samples/{index} has the provenance"
    if reason.startswith(FailureKind.CONTEXT_EXCEEDED.value):
        return ContextLengthExceeded(f"`{field}`: {reason}", hint=hint)
    if reason.startswith((FailureKind.UNAVAILABLE.value, FailureKind.CONNECTION.value, FailureKind.TIMEOUT.value)):
        return Unavailable(reason, hint=hint)
    return MathragError(reason, hint=hint)

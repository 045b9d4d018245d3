"""`POST /v1/chat`: one question, answered as every other one is: by a job, of one sample, that somebody waits for."""

import uuid
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.api.search import Name, Question
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.work import work
from shared.contracts.api_keys import Scope
from shared.contracts.samples import Decision, Item
from shared.lease import residencies
from shared.runtime import online
from shared.runtime.drafting import Submission
from shared.runtime.jobs import Jobs
from shared.runtime.parameters import check_read, params_of
from shared.runtime.price import Price, price
from shared.runtime.submit import submit
from shared.storage import configurations, documents, jobs, provenance
from shared.storage.configurations import Configuration
from shared.storage.sql import sql
from shared.storage.states import TERMINAL

router = APIRouter(prefix="/v1", tags=["chat"])
LONGEST_WAIT_S = 60.0
POLL_S = "1"
# Loads of models that answered this job's own calls, wanted since it was asked.
LOADS = sql("""
    SELECT count(*) FROM (
        SELECT DISTINCT a.epoch, c.model_id FROM samples s JOIN steps t ON t.sample_id = s.id AND t.created
        JOIN calls c ON c.id = t.call_id JOIN attempts a ON {ACCEPTED_FOR} c.id
        JOIN jobs j ON j.id = s.job_id JOIN residencies r ON r.epoch = a.epoch AND r.wanted_at >= j.created_at
        WHERE s.job_id = :job) loads""")

EXAMPLE: dict[str, Any] = {"question": "What is $2+3$?", "corpus": "math", "wait_s": 30}
PRICE: dict[str, Any] = {
    "loads": 1, "load_s": 0.42, "loads_back": 0, "calls": {"retrieve": 2, "generate": 1}, "calls_before": 0,
}  # fmt: skip
ANSWER: dict[str, Any] = {
    "job": "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11", "url": "/v1/jobs/6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11",
    "state": "completed", "reason": None, "pipeline": "hybrid", "price": PRICE,
    "cost": {"loads": 1, "calls_made": {"retrieve": 2, "generate": 1}, "calls_reused": {"retrieve": 0, "generate": 0}},
    "answer": "5", "extraction": "ok", "truncated": False, "text": "So it is $\\boxed{5}$.", "refusal": None,
    "decisions": [{"stage": "compress", "action": "compressed"}],
    "context": [{"id": "algebra/17", "hash": "9f2c…", "problem": "What is $2+2$?", "text": "Therefore \\boxed{4}.",
                 "truncated": False}],
}  # fmt: skip
LATER: dict[str, Any] = {
    **ANSWER, "state": "running", "cost": None, "answer": None, "extraction": None, "text": None, "context": [],
    "decisions": [],
}  # fmt: skip


class ChatRequest(BaseModel):
    """A question, and how it is to be answered."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": EXAMPLE})

    question: Question
    corpus: Name | None = None
    pipeline: str | None = None
    """`hybrid` where there is a corpus, else `closed-book`."""
    params: dict[str, Any] = {}
    """As a job's, `{"compress": {"tokens": 4000}}` for instance."""
    models: dict[str, str] = {}
    """Model names by role, as a job's."""
    wait_s: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)] = 30.0
    """Longest wait for the answer; after it the job goes on, and can be polled."""

    def submission(self, holding: Configuration) -> Submission:
        """The job that answers it; parameters that are not named are as `holding` has them.

        Raises:
            Invalid: a parameter cannot be used; the message names it.
        """
        pipeline = self.pipeline or ("hybrid" if self.corpus else "closed-book")
        params = params_of(self.params, holding.params)
        check_read(self.params, [pipeline])
        return Submission(
            name="chat",
            dataset=online.dataset_name(self.question),
            corpus=self.corpus,
            pipeline=pipeline,
            params=params,
            configuration=holding.version,
            models=self.models,
            rank=online.RANK,
            online=True,
        )


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What it really took."""

    loads: int
    """Models that were loaded since it was asked, and answered it."""
    calls_made: dict[str, int]
    calls_reused: dict[str, int]
    """By role: an earlier question or job had asked the same."""


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, or the job that will have it."""

    job: uuid.UUID
    url: str
    """Of the job; `/samples/0` below it is the whole provenance."""
    state: str
    """Of the job; what follows is there once it has ended."""
    reason: str | None
    """Why there is no answer."""
    pipeline: str
    price: Price
    """Stated before it ran."""
    cost: Cost | None = None
    answer: str | None = None
    """What the text gives as its result, in `\\boxed{}`."""
    extraction: str | None = None
    truncated: bool = False
    text: str | None = None
    """All that the generator wrote."""
    refusal: str | None = None
    """Why the question was not answered although nothing failed: no document was relevant enough."""
    context: list[documents.Shown] = []
    """The documents that it was shown, in order."""
    decisions: list[Decision] = []
    """What the pipeline decided on the way, in order; `fallback` says why a part was left out."""


@route(
    router, "POST", "/chat", Scope.SUBMIT, "Ask one question",
    {**answers(ChatAnswer, ANSWER), **answers(ChatAnswer, LATER, status=202)}, refuses=(404, 429),
)  # fmt: skip
async def chat(request: ChatRequest, deps: RequestDeps) -> Response:
    """200 with the answer and its price if it is there within `wait_s`, else 202 and the job's `Location`; the job goes
    on then (docs/api.md#search-and-chat).

    Its calls are claimed before those of batches. For a model that is not resident it waits until the resident one has
    no work, at most `device.online_patience_s`; then that is unloaded for it, and loaded again afterwards:
    `price.loads_back`. The same question again costs nothing.
    """
    resident = await _resident(deps)
    submission = request.submission(await configurations.holding(deps.database))
    await online.provide(deps.database, request.question)
    job = await submit(deps.database, deps.settings, submission)
    stated = await _price(deps, job, resident, request.question)
    deps.wake()
    await online.wait(deps.database, job, request.wait_s)
    answer = await _answer(deps, job, stated, request.corpus)
    if answer.state in TERMINAL:
        return json(answer)
    return json(answer, 202, {"Location": answer.url, "Retry-After": POLL_S})


async def _resident(deps: Deps) -> dict[str, tuple[int, ...]]:
    """What each device holds."""
    async with deps.database.transaction() as connection:
        newest = [await residencies.newest(connection, device.id) for device in deps.settings.all_devices()]
    return {each.device: each.models for each in newest if each is not None and each.state == "open"}


async def _price(deps: Deps, job: uuid.UUID, resident: Mapping[str, tuple[int, ...]], question: str) -> Price:
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, str(job))
        spec = (await Jobs().load(connection, {row}, set()))[row]
        return await price(connection, resident, spec, Item(ordinal=0, question=question))


async def _answer(deps: Deps, public_id: uuid.UUID, stated: Price, corpus: str | None) -> ChatAnswer:
    job = await jobs.get(deps.database, str(public_id))
    answer = await _answered(deps, public_id, corpus) if job.state == "completed" else {}
    return ChatAnswer(
        job=job.id,
        url=f"/v1/jobs/{job.id}",
        state=job.state,
        pipeline=job.pipeline,
        price=stated,
        cost=await _cost(deps, public_id) if job.ended else None,
        **{"reason": job.reason, **answer},
    )


async def _answered(deps: Deps, public_id: uuid.UUID, corpus: str | None) -> dict[str, Any]:
    """How the job's only sample ended."""
    sample = await provenance.provenance(deps.database, str(public_id), 0)
    if sample.outcome is None:
        return {"reason": f"{sample.failure}: {sample.detail}"}
    async with deps.database.transaction() as connection:
        shown = await documents.shown(connection, corpus, sample.outcome.context)
    return {
        "answer": sample.outcome.answer,
        "extraction": sample.outcome.extraction.value,
        "truncated": sample.outcome.truncated,
        "text": sample.text,
        "refusal": sample.outcome.refusal,
        "decisions": list(sample.outcome.trace.decisions),
        "context": [shown[document] for document in sample.outcome.context],
    }


async def _cost(deps: Deps, public_id: uuid.UUID) -> Cost:
    async with deps.database.snapshot() as connection:
        job = await jobs.resolve(connection, str(public_id))
        counted = await work(connection, job)
        loads = (await connection.execute(LOADS, {"job": job})).scalar_one()
    return Cost(loads=loads, calls_made=counted.calls_made, calls_reused=counted.calls_reused)

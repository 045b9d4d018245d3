"""Serves `POST /v1/chat`: answers one question by a job of one sample, and waits for it."""

import uuid
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field

from mathrag.errors import Invalid
from services.orchestrator.access.identity import RequestCaller
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.routes import answers, json, route
from services.orchestrator.api.search import Name, Question
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports.report import count_work
from services.orchestrator.reports.warnings import list_demonstration_warnings
from shared.lease import residencies
from shared.pipelines import registry
from shared.pipelines.switches import covers
from shared.runtime.advance import JobSpecs
from shared.runtime.parameters import check_read, list_known_paths, parse_params
from shared.runtime.price import Price, price_question
from shared.runtime.submit import RANK, Submission, submit, wait_for_job
from shared.samples import Decision, Item
from shared.shapes import Scope
from shared.storage import configurations, corpora, jobs, provenance
from shared.storage.configurations import Configuration
from shared.storage.database import TERMINAL, sql
from shared.storage.datasets import name_unlisted, provide_unlisted

router = APIRouter(prefix="/v1", tags=["chat"])
LONGEST_WAIT_S = 60.0
POLL_S = "1"
UNGRADED = ("grading.threshold", "grading.separators")
"""Parameters by which an answer is compared with the expected one."""
# Counts loads that were requested after the job was created, of models that answered the job's own calls.
LOADS = sql("""
    SELECT count(*) FROM (
        SELECT DISTINCT a.epoch, c.model_id FROM samples s JOIN steps t ON t.sample_id = s.id AND t.created
        JOIN calls c ON c.id = t.call_id JOIN attempts a ON {ACCEPTED_FOR} c.id
        JOIN jobs j ON j.id = s.job_id JOIN residencies r ON r.epoch = a.epoch AND r.wanted_at >= j.created_at
        WHERE s.job_id = :job) loads""")


class ChatRequest(BaseModel):
    """A question, and how to answer it."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": make_example("ChatRequest")},
    )

    question: Question
    """The question."""
    corpus: Name | None = None
    """Corpus to search; null answers without documents."""
    pipeline: str | None = None
    """Name of the pipeline; by default `hybrid` with a corpus and `closed-book` without one."""
    params: dict[str, Any] = {}
    """Parameters as in `POST /v1/jobs`, for instance `{"compress": {"tokens": 4000}}`."""
    models: dict[str, str] = {}
    """Model names by role, as in `POST /v1/jobs`."""
    wait_s: Annotated[float, Field(ge=0, le=LONGEST_WAIT_S)] = 30.0
    """Longest wait for the answer, in seconds. The job continues after it, and you can poll it."""

    def submission(self, holding: Configuration) -> Submission:
        """Return the job that answers the question; parameters that are not given are taken from `holding`.

        Raises:
            Invalid: a parameter cannot be used; the message names it.
        """
        pipeline = self.pipeline or ("hybrid" if self.corpus else "closed-book")
        params = parse_params(self.params, holding.params)
        check_read(self.params, [(pipeline, params)])
        given = frozenset(list_known_paths(self.params))
        own = (registry.get(pipeline).reads or ()) if pipeline in registry.names() else ()
        for path in sorted(given):
            if covers(path, UNGRADED) and not covers(path, own):
                problem = "a chat would not read it, because its question has no expected answer"
                raise Invalid(f"`params.{path}`: {problem}", hint="leave it out, or submit a job over a dataset")
        return Submission(
            name="chat",
            dataset=name_unlisted("online", [self.question]),
            corpus=self.corpus,
            pipeline=pipeline,
            params=params,
            given=given,
            configuration=holding.version,
            models=self.models,
            rank=RANK,
            online=True,
        )


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """Measured cost of answering the question."""

    loads: int
    """Number of model loads that were requested after the question arrived and that answered its calls."""
    calls_made: dict[str, int]
    """Calls made for this question, by role."""
    calls_reused: dict[str, int]
    """Calls by role whose replies an earlier question or job had already computed."""


class ChatAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, or the job that computes it."""

    job: uuid.UUID
    """Id of the job that answers the question."""
    url: str
    """Address of the job; append `/samples/0` for the complete provenance."""
    state: str
    """State of the job; the fields after `price` are set once the job has ended."""
    reason: str | None
    """Why there is no answer; null if there is one or the job still runs."""
    pipeline: str
    """Name of the pipeline."""
    price: Price
    """Estimate of the cost before the job ran."""
    cost: Cost | None = None
    """Measured cost; null until the job has ended."""
    answer: str | None = None
    """Result that the text states in `\\boxed{}`."""
    extraction: str | None = None
    """How the answer was found in the text, such as `ok` or `missing`; null without a text."""
    truncated: bool = False
    """Whether the text was cut off before its end."""
    text: str | None = None
    """Complete text that the generator wrote."""
    refusal: str | None = None
    """Why the pipeline refused to answer: no document was relevant enough. Null if it did not refuse."""
    context: list[corpora.Shown] = []
    """Documents in the generator's prompt, in order."""
    decisions: list[Decision] = []
    """Decisions of the pipeline, in order; `fallback` says why a step was skipped."""
    warnings: list[str] = []
    """Warnings, for instance that a demonstration model cannot answer this kind of question."""


STILL_RUNNING = make_example(
    ChatAnswer, state="running", cost=None, answer=None, extraction=None, text=None, context=[], decisions=[]
)


@route(
    router, "POST", "/chat", Scope.SUBMIT, "Ask one question",
    answers(ChatAnswer) | answers(ChatAnswer, STILL_RUNNING, status=202), refuses=(404, 429),
)  # fmt: skip
async def chat(request: ChatRequest, deps: RequestDeps, caller: RequestCaller) -> Response:
    """Answers 200 with the answer and its price if the job ends within `wait_s`. Otherwise it answers 202 with the
    job's address in `Location`, and the job continues (docs/how-to/api.md#search-and-chat).

    The calls of a chat are claimed before those of batches. If the chat needs a model that is not resident, it
    waits until the resident model has no work left, for at most `device.online_patience_s` seconds. Then the
    resident model is unloaded, and loaded again afterwards (`price.loads_back`). Asking the same question again
    costs nothing.
    """
    async with deps.database.transaction() as connection:
        newest = [await residencies.find_newest(connection, device.id) for device in deps.settings.all_devices()]
    resident = {each.device: each.models for each in newest if each is not None and each.state == "open"}
    submission = request.submission(await configurations.load_newest(deps.database))
    submission = msgspec.structs.replace(submission, submitted_by=caller.name)
    await provide_unlisted(deps.database, "online", [request.question])
    job = await submit(deps.database, deps.settings, submission)
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, str(job))
        spec = (await JobSpecs().load(connection, {row}, set()))[row]
        stated = await price_question(connection, resident, spec, Item(ordinal=0, question=request.question))
        warnings = await list_demonstration_warnings(connection, [row])
    deps.wake()
    await wait_for_job(deps.database, job, request.wait_s)
    found = await jobs.get(deps.database, str(job))
    outcome = await describe_outcome(deps, job, request.corpus) if found.state == "completed" else {}
    cost = None
    if found.ended:
        async with deps.database.snapshot() as connection:
            work = await count_work(connection, row)
            loads = (await connection.execute(LOADS, {"job": row})).scalar_one()
        cost = Cost(loads=loads, calls_made=work.calls_made, calls_reused=work.calls_reused)
    answer = ChatAnswer(
        job=job,
        url=f"/v1/jobs/{job}",
        state=found.state,
        pipeline=found.pipeline,
        price=stated,
        cost=cost,
        warnings=warnings,
        **{"reason": found.reason, **outcome},
    )
    if answer.state in TERMINAL:
        return json(answer)
    return json(answer, 202, {"Location": answer.url, "Retry-After": POLL_S})


async def describe_outcome(deps: Deps, public_id: uuid.UUID, corpus: str | None) -> dict[str, Any]:
    """Return how the job's only sample ended, as fields of `ChatAnswer`; only `reason` if it failed."""
    sample = await provenance.load_provenance(deps.database, str(public_id), 0)
    if sample.outcome is None:
        return {"reason": f"{sample.failure}: {sample.detail}"}
    async with deps.database.transaction() as connection:
        texts = await corpora.load_documents(connection, corpus, sample.outcome.context)
    return {
        "answer": sample.outcome.answer,
        "extraction": sample.outcome.extraction.value,
        "truncated": sample.outcome.truncated,
        "text": sample.text,
        "refusal": sample.outcome.refusal,
        "decisions": list(sample.outcome.trace.decisions),
        "context": [texts[document] for document in sample.outcome.context],
    }

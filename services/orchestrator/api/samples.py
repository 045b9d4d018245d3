"""Serves `/v1/jobs/{job}/samples` and `/results`: the outcome of each question."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Path, Query, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from services.orchestrator.api import formats
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import RequestDeps
from shared.params import WHOLE
from shared.rag.provenance import Ending
from shared.records import Provenance
from shared.samples import SampleRow, Strategy
from shared.shapes import Scope
from shared.storage import database, jobs, provenance, samples
from shared.storage.samples import SampleSelection

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

Word = Annotated[str, StringConstraints(min_length=1, max_length=200)]
RAN, ENDED = "2026-11-21T08:00:07Z", "2026-11-21T08:00:41.2Z"
DOCUMENT = "9f2c61a5c2b0d7f64b1f0e6a4a7d8e9bb7c6f5e4d3c2b1a0918273645546372a"
KEY = "41be07c3a2d9586f7e1b0c4d5a6978879605a4b3c2d1e0f9182736455463728f"

SAMPLE: dict[str, Any] = {
    "index": 0, "repeat": 0, "custom_id": "test/algebra/12", "question": "What is $2+3$?", "gold": "5",
    "subject": "Algebra", "level": "Level 1", "state": "completed", "answer": "5", "extraction": "ok",
    "truncated": False, "correct": True, "strict": True, "grading_failure": None, "failure": None, "detail": None,
    "context": [DOCUMENT], "duplicates": 0, "unscored": False, "ended_at": ENDED, "ending": "correct",
    "ending_reason": "math-verify", "score": None,
}  # fmt: skip
RESULT: dict[str, Any] = {
    **SAMPLE, "text": "So it is $\\boxed{5}$.", "prompt": None, "judged": [DOCUMENT], "ratings": [4],
    "prompt_tokens": 120, "completion_tokens": 31, "seconds": 1.7,
}  # fmt: skip
PROVENANCE: dict[str, Any] = {
    **{field: SAMPLE[field] for field in (
        "index", "repeat", "custom_id", "question", "gold", "subject", "level", "state", "failure", "detail",
        "ended_at", "ending", "ending_reason",
    )},
    "gold_documents": None, "record_hash": KEY, "item_hash": KEY, "gold_hash": KEY, "pipeline_hash": KEY,
    "decision_hash": None, "code": {"version": "0.1.0", "commit": "810c6c7"},
    "fusion": {"rrf_k": 60, "tie_break": "document hash"},
    "link": {"sequence": 0, "hash": KEY, "previous": DOCUMENT},
    "outcome": {"answer": "5", "extraction": "ok", "context": [DOCUMENT]}, "text": "So it is $\\boxed{5}$.",
    "equations": [{"text": "2+3=5", "holds": True}], "scored_by": None, "relevant": None,
    "steps": [{
        "position": 0, "slot": 0, "created": True, "source": None, "role": "generate", "key": KEY,
        "model": "world-generator", "model_hash": KEY, "backend": "llama.cpp", "digest": "c0ffee…", "version": "b6000",
        "options": {"context": 1024}, "request": {"role": "generate"},
        "sent": {"temperature": 0.0, "max_tokens": 512, "seed": 1092}, "queued_at": RAN, "queue_ms": 12.5,
        "attempt": {
            "outcome": "value", "reply": {"type": "generated", "text": "So it is $\\boxed{5}$."},
            "worker": "generator-1", "device": "cpu:0", "epoch": 12, "started_at": RAN, "ended_at": ENDED,
            "concurrency": 8, "prompt_hash": KEY, "prompt_tokens": 96, "completion_tokens": 12, "finish_reason": "stop",
            "prompt_ms": 8.1, "completion_ms": 14.9, "trace_id": None, "stored_at": ENDED, "reply_hash": KEY,
        },
        "other_attempts": [],
    }],
    "documents": {DOCUMENT: {"problem": "What is $2+2$?", "text": "Therefore \\boxed{4}."}},
    "residencies": [{"epoch": 12, "device": "cpu:0", "models": ["world-generator"], "cause": "drained",
                     "state": "open", "opened_at": RAN, "closed_at": None, "memory_mib": {"world-generator": 96.4}}],
}  # fmt: skip


class SampleFilters(BaseModel):
    """Which samples to list, and which page of them."""

    model_config = ConfigDict(extra="forbid")

    state: Literal["ready", "waiting", "completed", "failed", "cancelled"] | None = None
    correct: bool | None = None
    """Verdict of the job's grader; samples without a verdict match neither value."""
    ending: Ending | None = None
    """How the sample ended: correct, or what was wrong with it (docs/explanation/statistics.md)."""
    subject: Word | None = None
    level: Word | None = None
    scored_by: Strategy | None = None
    """What scored the sample's documents: the gate's choice, or the rules if the question was routed to them."""
    moved: bool | None = None
    """Whether reranking changed the documents of the prompt or their order."""
    text: Word | None = None
    """Text to find in the question or the answer, regardless of case."""
    differing: bool = False
    """Only samples on which the two graders disagree."""
    wrong: bool = False
    """Only samples with a wrong answer."""
    limit: Annotated[int, Field(ge=1, le=database.LARGEST), WHOLE] = database.DEFAULT
    """Upper bound of the rows on a page."""
    cursor: str | None = None

    def make_selection(self) -> SampleSelection:
        """Return the filters without the page."""
        return SampleSelection(**self.model_dump(exclude={"limit", "cursor"}))


@route(
    router, "GET", "/{job}/results", Scope.READ, "Stream results",
    formats.add_other_formats(answers(provenance.ResultRow, RESULT, media="application/x-ndjson")), refuses=(404, 409),
)  # fmt: skip
async def results(
    job: str,
    deps: RequestDeps,
    format: Annotated[  # noqa: A002 - the API's word
        formats.Name | None, Query(description="Format of the results; it takes precedence over `Accept`.")
    ] = None,
    prompts: Annotated[bool, Query(description="Include the generator's prompts.")] = False,  # noqa: FBT002 - a query parameter
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Streams every sample that has ended so far, in dataset order, as JSON lines, CSV or Parquet
    (docs/how-to/api.md#results).
    """
    async with deps.database.transaction() as connection:
        row = await jobs.resolve(connection, job)
    name = formats.choose_format(format, accept)
    media, write = formats.FORMATS[name]
    # `job` has resolved, so it is an id or a name and needs no quoting.
    headers = {"Content-Disposition": f'attachment; filename="{job}.{name}"', "Vary": "Accept"}
    return StreamingResponse(
        write(provenance.stream_results(deps.database, row, prompts=prompts)), media_type=media, headers=headers
    )


@route(
    router, "GET", "/{job}/samples", Scope.READ, "List samples",
    answers(database.Page[SampleRow], {"data": [SAMPLE], "next_cursor": None}), refuses=(404, 409),
)  # fmt: skip
async def sample_page(
    job: str,
    deps: RequestDeps,
    filters: Annotated[SampleFilters, Query()],
) -> Response:
    """Lists samples of every state in dataset order, page by page. A filtered page may hold fewer samples than `limit`,
    even none, while `next_cursor` leads on, because each page examines a bounded part of the job. A cursor is valid
    only with the filters of its page; otherwise it answers 400.
    """
    return json(await samples.list_samples(deps.database, job, filters.limit, filters.cursor, filters.make_selection()))


@route(
    router, "GET", "/{job}/samples/{index}", Scope.READ, "Get a sample's provenance",
    answers(Provenance, PROVENANCE), refuses=(404, 409),
)  # fmt: skip
async def sample(
    job: str,
    deps: RequestDeps,
    index: Annotated[int, Path(ge=0, lt=1 << 31)],
    repeat: Annotated[int, Query(ge=0, lt=1 << 15)] = 0,
    prompts: Annotated[bool, Query(description="Include the prompts of all models.")] = False,  # noqa: FBT002 - a query parameter
) -> Response:
    """Returns all calls that the sample waited for, with their attempts (who answered, when, in which epoch), and the
    texts of the context; with `prompts=true` also the prompts (docs/how-to/api.md#provenance).
    """
    return json(await provenance.load_provenance(deps.database, job, index, repeat, prompts=prompts))

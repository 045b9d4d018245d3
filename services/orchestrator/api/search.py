"""`POST /v1/search`: one question to a corpus's indexes. Nothing is stored."""

from typing import Annotated, Any, Literal

import httpx2
import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text

from services.orchestrator.api.numbers import WHOLE
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.resources import Held, Resources, json
from services.orchestrator.api.said import PROBLEM
from shared.contracts.calls import MAX_QUESTION, Retrieved
from shared.contracts.params import Params
from shared.contracts.samples import Candidate, Trace
from shared.errors import NotFound, Unavailable
from shared.rag.provenance import Found, fused_trace, single_trace
from shared.storage import documents

router = APIRouter(prefix="/v1", tags=["search"])
MOST = 100
PATIENCE_S = 30.0
INDEXES = text("""
    SELECT i.kind, i.id FROM corpora c
    LEFT JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index) AND i.state = 'ready' WHERE c.name = :corpus""")

Question = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION, pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]
_REPLIES = msgspec.json.Decoder(list[Retrieved])


class SearchRequest(BaseModel):
    """What is looked for, and where."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"example": {"question": "What is $2+3$?", "corpus": "math", "k": 3}},
    )

    question: Question
    corpus: Name
    mode: Literal["dense", "sparse", "hybrid"] = "hybrid"
    """`hybrid`: both lists, fused by reciprocal rank as the pipelines do."""
    k: Annotated[int, Field(ge=1, le=MOST), WHOLE] = 10


class SearchHit(documents.Shown, frozen=True, kw_only=True):
    """A document that was found."""

    rank: int
    score: float
    """Larger is better; comparable within one answer only. `hybrid`: the sum of 1 / (60 + rank) over both lists."""
    dense_rank: int | None
    dense_score: float | None
    sparse_rank: int | None
    sparse_score: float | None


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, best first."""

    corpus: str
    mode: str
    hits: list[SearchHit]
    duplicates: list[str]
    """Hashes of near-duplicates of the question that were left out, as they are for every job."""


EXAMPLE: dict[str, Any] = {
    "corpus": "math", "mode": "hybrid", "duplicates": [],
    "hits": [{"id": "algebra/17", "hash": "9f2c…", "problem": "What is $2+2$?", "text": "Therefore \\boxed{4}.",
              "truncated": False, "rank": 1, "score": 0.0325, "dense_rank": 2, "dense_score": 0.71, "sparse_rank": 1,
              "sparse_score": 8.4}],
}  # fmt: skip


@router.post("/search", summary="Search a corpus", responses=answers(SearchAnswer, EXAMPLE))
async def search(request: SearchRequest, held: Held) -> Response:
    """The `k` best documents for one question, as a pipeline with `candidates` = `k` would find them."""
    trace = await _trace(held, request)
    async with held.database.transaction() as connection:
        found = [candidate.document for candidate in trace.candidates]
        texts = await documents.shown(connection, request.corpus, found)
    hits = [_hit(candidate, texts[candidate.document]) for candidate in trace.candidates]
    return json(SearchAnswer(corpus=request.corpus, mode=request.mode, hits=hits, duplicates=list(trace.duplicates)))


async def _trace(held: Resources, request: SearchRequest) -> Trace:
    indexes = await _indexes(held, request.corpus)
    params = Params(candidates=request.k)
    if request.mode == "hybrid":
        dense, sparse = await _ask(held, request, [indexes["dense"], indexes["sparse"]])
        return fused_trace(Found(dense, sparse), params)
    (found,) = await _ask(held, request, [indexes[request.mode]])
    return single_trace(found, request.mode, params)


async def _indexes(held: Resources, corpus: str) -> dict[str, int]:
    """Ids of the corpus's index builds, by kind."""
    async with held.database.transaction() as connection:
        rows = (await connection.execute(INDEXES, {"corpus": corpus})).all()
    if not rows:
        raise NotFound(f"no corpus {corpus!r}", hint="mathrag corpus list")
    found = {row.kind: row.id for row in rows if row.id is not None}
    if len(found) < 2:
        raise Unavailable(f"the indexes of corpus {corpus!r} are not ready", hint="wait for its ingest to end")
    return found


async def _ask(held: Resources, request: SearchRequest, indexes: list[int]) -> list[Retrieved]:
    """One reply an index.

    Raises:
        Unavailable: the retriever does not answer, or not as it should.
    """
    searches = [{"index": index, "question": request.question, "k": request.k} for index in indexes]
    try:
        url = f"{held.settings.retriever_url}/search"
        reply = await held.http.post(url, json={"searches": searches}, timeout=PATIENCE_S)
        if reply.status_code == httpx2.codes.SERVICE_UNAVAILABLE:
            said = PROBLEM.decode(reply.content)
            raise Unavailable(said.detail, hint=said.hint)
        reply.raise_for_status()
        return _REPLIES.decode(reply.content)
    except (httpx2.HTTPError, msgspec.DecodeError) as error:
        hint = "see GET /readyz and the retriever's log"
        raise Unavailable(f"the retriever did not answer ({type(error).__name__})", hint=hint) from error


def _hit(candidate: Candidate, shown: documents.Shown) -> SearchHit:
    copied = ("rank", "score", "dense_rank", "dense_score", "sparse_rank", "sparse_score")
    return SearchHit(**msgspec.structs.asdict(shown), **{field: getattr(candidate, field) for field in copied})

"""`POST /v1/search`: one question to a corpus's indexes. Nothing is stored."""

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.searching.answering import Answering
from services.orchestrator.searching.contributions import SearchFusion, contributions, fusion
from services.orchestrator.searching.steps import Options, steps, verdict
from shared.contracts.api_keys import Scope
from shared.contracts.calls import MAX_QUESTION
from shared.contracts.documents import Document
from shared.contracts.fields import WHOLE
from shared.contracts.params import Params
from shared.contracts.samples import Candidate, Decision, Item, Trace
from shared.errors import Unavailable
from shared.rag.rule_rqp import document_score
from shared.runtime import thresholds
from shared.runtime.duplicates import without_duplicates
from shared.runtime.models import pin_reranker
from shared.runtime.parameters import check_read_by, params_of
from shared.runtime.replay import Replay
from shared.storage import configurations, documents
from shared.storage.configurations import Configuration
from shared.storage.unknown import not_found

router = APIRouter(prefix="/v1", tags=["search"])
MOST = 100
INDEXES = text("""
    SELECT i.kind, i.id FROM corpora c
    LEFT JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index) AND i.state = 'ready' WHERE c.name = :corpus""")
READS = frozenset({"candidates", "duplicates", "rrf_k", "fusion", "enhance", "rerank", "crag"})
"""Parameters that count for a search; a group's name stands for all of the group."""
COPIED = ("rank", "score", "dense_rank", "dense_score", "sparse_rank", "sparse_score", "fused", "relevance", "paths")
"""Of a candidate, into the hit that is shown."""

Question = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION, pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]
ASKED: dict[str, Any] = {
    "question": "What is $2+3$?", "corpus": "math", "k": 3, "rerank": True,
    "params": {"fusion": {"dense": 0.7, "sparse": 0.3}},
}  # fmt: skip


class SearchRequest(BaseModel):
    """What is looked for, where, and how."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"example": ASKED})

    question: Question
    corpus: Name
    mode: Literal["dense", "sparse", "hybrid"] = "hybrid"
    """`hybrid`: both lists, fused as `params` say."""
    k: Annotated[int, Field(ge=1, le=MOST), WHOLE] = 10
    """Documents that are shown; `params.candidates` are looked at, at most 100, or `k` where that is more."""
    enhance: bool = False
    """Whether the question is cleaned, put right and searched for in a second wording, with synonyms."""
    rerank: bool = False
    """Whether the configured reranker puts them in order."""
    crag: bool = False
    """Whether what was found is evaluated, by the reranker or by similarity."""
    quality: bool = False
    """Whether each document is scored for its reasoning, as the rules of `mathrag-gate` do; the order stays."""
    params: dict[str, Any] = {}
    """As a job's: `candidates`, `duplicates`, `rrf_k`, `fusion`, `enhance`, `rerank` and `crag`; others are refused."""


class SearchHit(documents.Shown, frozen=True, kw_only=True):
    """A document that was found."""

    rank: int
    score: float
    """What the order was made by: larger is better; comparable within one answer only."""
    dense_rank: int | None
    dense_score: float | None
    sparse_rank: int | None
    sparse_score: float | None
    fused: float | None
    """Score of the fused lists; null: one list was taken as it is."""
    contributions: dict[str, float] | None
    """What each list added to `fused`, by `rrf`; null: scores were added (`weighted`), or there was one list."""
    relevance: float | None
    """The reranker's probability that it helps with the question; null: it was not asked, or did not answer."""
    paths: dict[str, int] | None
    """Its rank in every list that held it, where the question was enhanced."""
    quality: float | None
    """Of its reasoning, by rules, in [0, 1]; null: not asked for."""
    features: dict[str, float] | None
    """What the quality was made of."""


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, best first."""

    corpus: str
    mode: str
    fusion: SearchFusion | None
    """How lists became one; null: one list was taken as it is."""
    hits: list[SearchHit]
    duplicates: list[str]
    """Hashes of near-duplicates of the question that were left out, as they are for every job."""
    action: str | None
    """CRAG's verdict on the list: `correct`, `ambiguous` or `incorrect`; null: it was not asked for."""
    decisions: list[Decision]
    """What was decided on the way, in order; `fallback` says why a part was left out."""


EXAMPLE: dict[str, Any] = {
    "corpus": "math", "mode": "hybrid", "duplicates": [],
    "fusion": {"method": "rrf", "rrf_k": 60, "normaliser": None, "weights": {"dense": 0.5, "sparse": 0.5}},
    "hits": [{"id": "algebra/17", "hash": "9f2c…", "problem": "What is $2+2$?", "text": "Therefore \\boxed{4}.",
              "truncated": False, "rank": 1, "score": 0.91, "dense_rank": 2, "dense_score": 0.71, "sparse_rank": 1,
              "sparse_score": 8.4, "fused": 0.0325, "contributions": {"dense": 0.0161, "sparse": 0.0164},
              "relevance": 0.91, "paths": None, "quality": None, "features": None}],
    "action": None,
    "decisions": [{"stage": "rerank", "action": "threshold",
                   "detail": {"documents": 10.0, "kept": 1.0, "best": 0.91, "threshold": 0.4}}],
}  # fmt: skip


@route(router, "POST", "/search", Scope.READ, "Search a corpus", answers(SearchAnswer, EXAMPLE), refuses=(404,))
async def search(request: SearchRequest, deps: RequestDeps) -> Response:
    """The `k` best documents for one question, as a pipeline with these `params` would find them; nothing is stored
    (docs/api.md#search-and-chat).

    What needs a model of the device, such as rewriting or a judge, is left out, and the decisions say so: that is what
    `POST /v1/chat` does.
    """
    return json(await found(request, deps))


async def found(request: SearchRequest, deps: Deps) -> SearchAnswer:
    """What `POST /v1/search` answers.

    Raises:
        NotFound: no such corpus.
        Invalid: a parameter cannot be used; the message names it.
        Unavailable, TooLarge: a part of it failed that cannot be left out.
    """
    async with deps.database.transaction() as connection:
        params = _params(request, await configurations.newest(connection))
        indexes = await _indexes(connection, request.corpus)
        if request.crag:
            crag = await thresholds.pinned(connection, params.crag, request.corpus)
            params = msgspec.structs.replace(params, crag=crag)
        reranker = (await pin_reranker(connection)).hash
    answering = Answering(deps, indexes, reranker)
    trace = await _trace(answering, request, params)
    candidates = trace.candidates[: request.k]
    async with deps.database.transaction() as connection:
        texts = await documents.shown(connection, request.corpus, [candidate.document for candidate in candidates])
    fused = fusion(params, trace.decisions, request.mode) if request.mode == "hybrid" or request.enhance else None
    library = answering.library if request.quality else {}
    return SearchAnswer(
        corpus=request.corpus,
        mode=request.mode,
        fusion=fused,
        hits=[_hit(each, texts[each.document], fused, library.get(each.document)) for each in candidates],
        duplicates=list(trace.duplicates),
        action=verdict(trace.decisions),
        decisions=list(trace.decisions),
    )


def _params(request: SearchRequest, holding: Configuration) -> Params:
    """A job's, but for the number of documents: somebody waits, and each may be one for the reranker."""
    params = params_of(request.params, holding.params)
    check_read_by("a search", request.params, READS)
    return msgspec.structs.replace(params, candidates=max(request.k, min(params.candidates, MOST)))


async def _trace(answering: Answering, request: SearchRequest, params: Params) -> Trace:
    """Run the search as the runtime runs a sample.

    Raises:
        Unavailable, TooLarge: a part of it failed that cannot be left out.
        RuntimeError: a defect of ours.
    """
    options = Options(mode=request.mode, enhance=request.enhance, rerank=request.rerank, crag=request.crag)
    searched = steps(request.question, options, params, answering.library)
    item = Item(ordinal=0, question=request.question)
    replay = Replay(without_duplicates(searched, params.duplicates, [item]))
    while replay.calls:
        replay.answer(await answering.replies(replay.calls))
    if replay.result is None:
        raise answering.refusal or RuntimeError(replay.failure)
    return replay.result


async def _indexes(connection: AsyncConnection, corpus: str) -> dict[str, int]:
    """Ids of the corpus's index builds, by kind.

    Raises:
        NotFound: no such corpus.
        Unavailable: they are not built.
    """
    rows = (await connection.execute(INDEXES, {"corpus": corpus})).all()
    if not rows:
        raise await not_found(connection, "corpus", corpus)
    found = {row.kind: row.id for row in rows if row.id is not None}
    if len(found) < 2:
        raise Unavailable(f"the indexes of corpus {corpus!r} are not ready", hint="wait for its ingest to end")
    return found


def _hit(
    candidate: Candidate, shown: documents.Shown, fused: SearchFusion | None, scored: Document | None
) -> SearchHit:
    """`scored`: the whole document, where its quality was asked for."""
    quality = document_score(scored) if scored else None
    return SearchHit(
        **msgspec.structs.asdict(shown),
        **{field: getattr(candidate, field) for field in COPIED},
        contributions=contributions(candidate, fused) if fused else None,
        quality=quality.score if quality else None,
        features=quality.features if quality else None,
    )

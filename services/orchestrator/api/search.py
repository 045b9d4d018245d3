"""Serves `POST /v1/search`: searches a corpus for one question and stores nothing."""

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Unavailable
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.routes import answers, json, route
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.searching import (
    CallAnswerer,
    SearchFusion,
    SearchOptions,
    contributions,
    fusion,
    run_steps,
    verdict,
)
from shared.calls import MAX_QUESTION
from shared.fields import WHOLE
from shared.params import Params
from shared.rag.gate import score_document
from shared.runtime import pins
from shared.runtime.advance import Replay, complete_searches
from shared.runtime.parameters import check_read_by, parse_params
from shared.runtime.pins import pin_reranker
from shared.samples import Decision, Item
from shared.shapes import Scope
from shared.storage import configurations, corpora
from shared.storage.configurations import Configuration
from shared.storage.database import make_not_found

router = APIRouter(prefix="/v1", tags=["search"])
MOST = 100
INDEXES = text("""
    SELECT i.kind, i.id FROM corpora c
    LEFT JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index) AND i.state = 'ready' WHERE c.name = :corpus""")
READS = frozenset({
    *("candidates", "dense", "duplicates", "rrf_k", "fusion"),
    *("enhance.synonyms", "enhance.correct", "enhance.terms"),
    *("rerank.threshold", "rerank.refuse", "crag.evaluator", "crag.upper", "crag.lower", "crag.thresholds"),
    *("crag.calibrated_by", "crag.judged_by", "crag.similarity"),
})  # fmt: skip
"""Parameters that searches read; a group's name stands for the whole group."""
BY_EVALUATOR = tuple(f"crag.{name}" for name in ("upper", "lower", "thresholds", "calibrated_by", "judged_by"))
CANDIDATE_FIELDS = (
    "rank", "score", "dense_rank", "dense_score", "sparse_rank", "sparse_score", "fused", "relevance", "paths",
)  # fmt: skip
"""Fields of a candidate that are copied into the hit."""

Question = Annotated[str, Field(min_length=1, max_length=MAX_QUESTION, pattern=r"^[^\x00]*$")]
Name = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[^\x00]*$")]


class SearchRequest(BaseModel):
    """The question, the corpus, and how to search."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": make_example("SearchRequest")},
    )

    question: Question
    """The question."""
    corpus: Name
    """Corpus to search."""
    mode: Literal["dense", "sparse", "hybrid"] = "hybrid"
    """Search by vectors, by words, or both; `hybrid` fuses the two lists as `params.fusion` says."""
    k: Annotated[int, Field(ge=1, le=MOST), WHOLE] = 10
    """Number of documents to return. The search considers `params.candidates` documents (at most 100), or `k` if it is
    larger."""
    enhance: bool = False
    """Whether to clean and correct the question, and also to search for a version with synonyms."""
    rerank: bool = False
    """Whether the configured reranker orders the documents."""
    crag: bool = False
    """Whether to evaluate the documents as CRAG does, by the reranker or by similarity."""
    quality: bool = False
    """Whether to score each document's reasoning by the rules of `mathrag-gate`; the order does not change."""
    params: dict[str, Any] = {}
    """Parameters as in a job: `candidates` and `duplicates`; for `hybrid` or `enhance` also `rrf_k` and `fusion`; for
    `enhance` its `synonyms`, `correct` and `terms`; for `rerank` its `threshold` and `refuse`; for `crag` its
    `evaluator`, its thresholds and their calibration. Parameters that this search does not read are refused."""


class SearchHit(corpora.Shown, frozen=True, kw_only=True):
    """A document that was found."""

    rank: int
    """Rank, from 1."""
    score: float
    """Score that determines the order; larger is better. Compare scores only within one response."""
    dense_rank: int | None
    """Rank in the dense list, from 1; null if the list does not have the document."""
    dense_score: float | None
    """Score in the dense list; null if the list does not have the document."""
    sparse_rank: int | None
    """Rank in the sparse list, from 1; null if the list does not have the document."""
    sparse_score: float | None
    """Score in the sparse list; null if the list does not have the document."""
    fused: float | None
    """Score after fusion; null if only one list was used."""
    contributions: dict[str, float] | None
    """Share of each list in `fused` with `rrf`; null if scores were added (`weighted`) or only one list was used."""
    relevance: float | None
    """The reranker's probability that the document helps with the question; null if the reranker was not used or
    failed."""
    paths: dict[str, int] | None
    """Rank of the document by list, if the question was enhanced; null otherwise."""
    quality: float | None
    """Score of the document's reasoning by rules, in [0, 1]; null if it was not requested."""
    features: dict[str, float] | None
    """Features from which `quality` was computed; null if it was not requested."""


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The documents found, best first."""

    corpus: str
    """Name of the searched corpus."""
    mode: str
    """How the corpus was searched."""
    fusion: SearchFusion | None
    """How the lists were fused; null if only one list was used."""
    hits: list[SearchHit]
    """The documents, best first."""
    duplicates: list[str]
    """Hashes of near-duplicates of the question that the search left out (`params.duplicates`)."""
    action: str | None
    """CRAG's verdict on the list: `correct`, `ambiguous` or `incorrect`; null if it was not requested."""
    decisions: list[Decision]
    """Decisions of the search, in order; `fallback` says why a step was skipped."""


@route(router, "POST", "/search", Scope.READ, "Search a corpus", answers(SearchAnswer), refuses=(404,))
async def search(request: SearchRequest, deps: RequestDeps) -> Response:
    """Returns the `k` best documents for a question, as a pipeline with these `params` finds them. Nothing is
    stored (docs/how-to/api.md#search-and-chat).

    Steps that need a model on the device, such as rewriting or a judge, are left out, and `decisions` names them;
    `POST /v1/chat` runs them.
    """
    return json(await run_search(request, deps))


async def run_search(request: SearchRequest, deps: Deps) -> SearchAnswer:
    """Return the answer of `POST /v1/search`.

    Raises:
        NotFound: the corpus does not exist.
        Invalid: a parameter cannot be used; the message names it.
        Unavailable, TooLarge: a part that cannot be left out failed.
    """
    async with deps.database.transaction() as connection:
        params = choose_params(request, await configurations.find_newest(connection))
        indexes = await _find_indexes(connection, request.corpus)
        if request.crag:
            crag = await pins.pin_thresholds(connection, params.crag, request.corpus)
            params = msgspec.structs.replace(params, crag=crag)
        reranker = (await pin_reranker(connection)).hash
    answering = CallAnswerer(deps, indexes, reranker)
    options = SearchOptions(mode=request.mode, enhance=request.enhance, rerank=request.rerank, crag=request.crag)
    searched = run_steps(request.question, options, params, answering.library)
    item = Item(ordinal=0, question=request.question)
    replay = Replay(complete_searches(searched, params, [item]))
    while replay.calls:
        replay.answer(await answering.replies(replay.calls))
    if replay.result is None:
        raise answering.refusal or RuntimeError(replay.failure)
    trace = replay.result
    candidates = trace.candidates[: request.k]
    async with deps.database.transaction() as connection:
        texts = await corpora.load_documents(
            connection, request.corpus, [candidate.document for candidate in candidates]
        )
    fused = fusion(params, trace.decisions, request.mode) if request.mode == "hybrid" or request.enhance else None
    hits = []
    for each in candidates:
        scored = answering.library.get(each.document) if request.quality else None
        quality = score_document(scored) if scored else None
        hits.append(
            SearchHit(
                **msgspec.structs.asdict(texts[each.document]),
                **{field: getattr(each, field) for field in CANDIDATE_FIELDS},
                contributions=contributions(each, fused) if fused else None,
                quality=quality.score if quality else None,
                features=quality.features if quality else None,
            )
        )
    return SearchAnswer(
        corpus=request.corpus,
        mode=request.mode,
        fusion=fused,
        hits=hits,
        duplicates=list(trace.duplicates),
        action=verdict(trace.decisions),
        decisions=list(trace.decisions),
    )


def choose_params(request: SearchRequest, holding: Configuration) -> Params:
    """Return the parameters of the search: a job's, with fewer candidates, because a client waits and each may be a
    call of the reranker.
    """
    params = parse_params(request.params, holding.params)
    # The parameters that belong to parts which the request does not ask for, each with what would do so.
    fuses, evaluator = request.mode == "hybrid", params.crag.evaluator
    unasked: dict[str, str] = {}
    if not request.crag:
        unasked["crag"] = "`crag` is true"
    elif evaluator == "judge":
        needed = "`crag.evaluator` is `reranker` or `similarity`, since a search asks no judge model"
        unasked |= dict.fromkeys(BY_EVALUATOR, needed)
    if not (request.rerank or (request.crag and evaluator == "reranker")):
        unasked["rerank"] = "`rerank` is true"
    if not request.enhance:
        unasked |= dict.fromkeys(("enhance", "fusion.by_intent"), "`enhance` is true")
    if not fuses:
        unasked |= dict.fromkeys(("fusion.dense", "fusion.sparse", "fusion.by_intent"), '`mode` is "hybrid"')
    if request.mode == "sparse":
        unasked["dense"] = '`mode` is "dense" or "hybrid"'
    if not (fuses or request.enhance):
        unasked |= dict.fromkeys(("fusion", "rrf_k"), '`mode` is "hybrid" or `enhance` is true')
    check_read_by("a search", request.params, READS, params, unasked)
    return msgspec.structs.replace(params, candidates=max(request.k, min(params.candidates, MOST)))


async def _find_indexes(connection: AsyncConnection, corpus: str) -> dict[str, int]:
    """Return the ids of the corpus's index builds, by kind.

    Raises:
        NotFound: the corpus does not exist.
        Unavailable: they are not built.
    """
    rows = (await connection.execute(INDEXES, {"corpus": corpus})).all()
    if not rows:
        raise await make_not_found(connection, "corpus", corpus)
    found = {row.kind: row.id for row in rows if row.id is not None}
    if len(found) < 2:
        raise Unavailable(f"the indexes of corpus {corpus!r} are not ready", hint="wait until it is indexed")
    return found

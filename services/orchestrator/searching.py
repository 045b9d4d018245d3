"""Searches for people: the parts of pipelines that need no model on the device, run at once and stored nowhere."""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import httpx2
import msgspec

from mathrag.errors import MathragError, TooLarge, Unavailable
from services.orchestrator.deps import Deps
from shared.calls import Call, Rerank, Retrieve, Yielded
from shared.models.retriever_client import NoReply, RetrieverClient
from shared.params import Params
from shared.rag import retrieval
from shared.rag.answering import ask_for_relevance, make_ranked_trace, rank_by_relevance
from shared.rag.crag import THRESHOLDS, CragEvaluation, Score, make_decision, make_evaluation, score_by_similarity
from shared.rag.fusion import measure_diversity
from shared.rag.provenance import FoundLists, make_fused_trace, make_search, make_searches, make_single_trace
from shared.rag.retrieval import gather, merge_paths
from shared.rag.rewriting import enhance
from shared.replies import Document, Failure, FailureKind, Reply, Retrieved, Scored, require
from shared.runtime.pins import NO_RERANKER, NOT_CONFIGURED
from shared.samples import Candidate, Decision, Library, Trace
from shared.storage.provenance import LibraryCache, list_mentioned_documents


class CallAnswerer:
    """Answers the calls of one search by the retriever; calls that need a model on the device fail.

    `indexes` are the index builds by kind. `reranker` is the hash that a job would be pinned to.
    """

    def __init__(self, deps: Deps, indexes: Mapping[str, int], reranker: str) -> None:
        self._database = deps.database
        self._retriever = RetrieverClient(deps.http, deps.settings)
        self._indexes = indexes
        self._reranker = reranker
        self.library: dict[str, Document] = {}
        """Every document that was found."""
        self.refusal: MathragError | None = None
        """Error of a failed search, for callers that cannot continue without it."""

    async def replies(self, calls: Sequence[Call]) -> list[Reply]:
        """Return one reply per call. The calls run side by side, and each fails alone."""
        replies = await asyncio.gather(*(self._reply(call) for call in calls))
        async with self._database.statement() as connection:
            self.library |= await LibraryCache().documents(connection, list_mentioned_documents(replies))
        return list(replies)

    async def _reply(self, call: Call) -> Reply:
        if isinstance(call, Rerank):
            return await self._rerank(call)
        if not isinstance(call, Retrieve):
            detail = f"a search cannot answer a call of type {type(call).__name__}"
            return Failure(kind=FailureKind.NOT_CONFIGURED, detail=detail)
        asked = {
            "index": self._indexes[call.index], "question": call.question, "k": call.k,
            "duplicates": call.duplicates, "item": call.item, "threshold": call.threshold,
        }  # fmt: skip
        try:
            return (await self._retriever.search([asked]))[0]
        except NoReply as error:
            self.refusal = to_refusal(error)
            return Failure(kind=error.kind, detail=self.refusal.message)

    async def _rerank(self, call: Rerank) -> Scored | Failure:
        if self._reranker == NO_RERANKER.hash.hex():
            return NOT_CONFIGURED
        if not call.documents:
            return Scored(scores=())
        texts = [self.library[document].whole for document in call.documents]
        try:
            return await self._retriever.rerank(self._reranker, call.question, texts)
        except NoReply as error:
            return Failure(kind=error.kind, detail=_describe_no_answer(error))


def to_refusal(error: NoReply) -> MathragError:
    """Turn the retriever's error into a refusal: about an index, about its requirements, or about a question that its
    embedder cannot hold.
    """
    problem = error.problem
    if error.status == httpx2.codes.CONTENT_TOO_LARGE and problem.detail:
        return TooLarge(problem.detail, hint=problem.hint)
    if error.status == httpx2.codes.SERVICE_UNAVAILABLE and problem.detail:
        return Unavailable(problem.detail, hint=problem.hint)
    return Unavailable(_describe_no_answer(error), hint="see GET /readyz and the retriever's log")


def _describe_no_answer(error: NoReply) -> str:
    return f"the retriever did not answer ({type(error.cause).__name__})"


class SearchFusion(msgspec.Struct, frozen=True, kw_only=True):
    """How the lists of a search were fused."""

    method: Literal["rrf", "weighted"]
    """`rrf`: reciprocal rank fusion; `weighted`: the weighted sum of normalised scores."""
    rrf_k: int | None
    """Constant of `rrf`: a list adds weight / (rrf_k + rank). Null with `weighted`."""
    normaliser: str | None
    """Normaliser of `weighted`, which makes the scores of the lists comparable. Null with `rrf`."""
    weights: dict[str, float]
    """Weights of the dense and the sparse list."""


def fusion(params: Params, decisions: Sequence[Decision], mode: str) -> SearchFusion:
    """Return how the search has fused; the weights of an enhanced question follow from its intent."""
    intent: Mapping[str, Any] = next((each.detail for each in decisions if each.stage == "intent"), {})
    weights = {name: float(intent.get(name, getattr(params.fusion, name))) for name in ("dense", "sparse")}
    if mode != "hybrid":
        weights = {name: float(name == mode) for name in weights}
    is_rrf = params.fusion.method == "rrf"
    return SearchFusion(
        method=params.fusion.method, rrf_k=params.rrf_k if is_rrf else None,
        normaliser=None if is_rrf else params.fusion.normaliser, weights=weights,
    )  # fmt: skip


def contributions(candidate: Candidate, fused: SearchFusion) -> dict[str, float] | None:
    """Return what each list added to `candidate.fused`, by the list's name. None if only one list was used, or if
    normalised scores were added, which depend on whole lists.

    The parts are in the ratio of weight / (rrf_k + rank), and their sum is the fused score (`shared.rag.fusion`).
    """
    if candidate.fused is None or fused.rrf_k is None:
        return None
    ranks: Mapping[str, int | None] = candidate.paths or {
        "dense": candidate.dense_rank,
        "sparse": candidate.sparse_rank,
    }
    parts = {
        name: fused.weights[name.rpartition(" ")[2]] / (fused.rrf_k + rank)
        for name, rank in ranks.items()
        if rank is not None
    }
    total = sum(parts.values())
    return {name: candidate.fused * part / total for name, part in parts.items()} if total else None


Mode = Literal["dense", "sparse", "hybrid"]
NO_MODEL = Failure(
    kind=FailureKind.NOT_CONFIGURED, detail="a search calls no model on the device; use POST /v1/chat or a job"
)


class SearchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which optional steps to run."""

    mode: Mode
    enhance: bool = False
    rerank: bool = False
    crag: bool = False


class RetrievedLists(NamedTuple):
    """The documents found, and the vector lists that they were fused from."""

    trace: Trace
    dense: tuple[Retrieved, ...]


Listing = Generator[Yielded, Any, RetrievedLists]
Tracing = Generator[Yielded, Any, Trace]


def run_steps(question: str, options: SearchOptions, params: Params, library: Library) -> Tracing:
    """Enhance the question, search, fuse, rerank and evaluate.

    The steps are the pipelines' own functions, so that a job finds the same documents.
    """
    if options.enhance:
        listed = yield from _search_widely(question, options.mode, params, library)
    else:
        listed = yield from _search_once(question, options.mode, params)
    trace = listed.trace
    if options.rerank or (options.crag and params.crag.evaluator == "reranker"):
        trace = yield from _rerank(question, trace, params)
    if options.crag:
        diversity = measure_diversity([library[each.document].text for each in trace.candidates])
        verdict = make_decision(_evaluate_without_model(trace, listed.dense, params), diversity, 0)
        return msgspec.structs.replace(trace, decisions=(*trace.decisions, verdict))
    return trace


def _search_once(question: str, mode: Mode, params: Params) -> Listing:
    """Search as the baselines do: a search that fails fails the whole."""
    if mode == "hybrid":
        dense, sparse = yield list(make_searches(question, params))
        return RetrievedLists(make_fused_trace(FoundLists(require(dense), require(sparse)), params), (dense,))
    found: Retrieved | Failure = yield make_search(question, mode, params)
    kept = require(found)
    return RetrievedLists(make_single_trace(kept, mode, params), (kept,) if mode == "dense" else ())


def _search_widely(question: str, mode: Mode, params: Params, library: Library) -> Listing:
    """Search with two wordings, as `enhanced` does before it calls a model; a search that fails is left out."""
    ready = enhance(question, params.enhance, params.fusion)
    if mode != "hybrid":
        ready = ready._replace(dense=float(mode == "dense"), sparse=float(mode == "sparse"))
    paths = retrieval.make_first_searches(question, ready, params)
    replies = yield [path.call for path in paths]
    gathered = gather(paths, replies)
    trace = merge_paths(question, gathered.lists, library, params)
    decisions = (*ready.decisions, *gathered.decisions, *trace.decisions)
    dense = tuple(found for path, found in gathered.lists.items() if path.call.index == "dense")
    return RetrievedLists(msgspec.structs.replace(trace, decisions=decisions), dense)


def _rerank(question: str, trace: Trace, params: Params) -> Tracing:
    documents = tuple(candidate.document for candidate in trace.candidates)
    scores = yield from ask_for_relevance(question, documents, "reranker")
    return make_ranked_trace(trace, rank_by_relevance(scores, params))


def _evaluate_without_model(trace: Trace, dense: tuple[Retrieved, ...], params: Params) -> CragEvaluation:
    """Return the evaluation by the configured evaluator; in place of the judge, by the best one available here."""
    documents = [candidate.document for candidate in trace.candidates]
    relevance: dict[str, Score] = {each.document: each.relevance for each in trace.candidates}
    scored = any(score is not None for score in relevance.values())
    if params.crag.evaluator == "similarity":
        return make_evaluation("similarity", score_by_similarity(documents, dense), dense, params.crag)
    if params.crag.evaluator == "reranker" and scored:
        return make_evaluation("reranker", relevance, dense, params.crag)
    if scored:
        return CragEvaluation("reranker", THRESHOLDS["reranker"], relevance, NO_MODEL.kind.value)
    return make_evaluation(params.crag.evaluator, dict.fromkeys(documents, NO_MODEL), dense, params.crag)


def verdict(decisions: tuple[Decision, ...]) -> str | None:
    """Return CRAG's action; None if CRAG was not requested."""
    return next((each.action for each in decisions if each.stage == "crag"), None)

"""The steps of one search. They are the pipelines' own functions, so that a job finds the same documents."""

from collections.abc import Generator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from shared.calls import Rerank, Yielded
from shared.params import Params
from shared.rag import retrieval
from shared.rag.answering import make_ranked_trace, rank_by_relevance
from shared.rag.crag import THRESHOLDS, CragEvaluation, Score, make_decision, make_evaluation, score_by_similarity
from shared.rag.fusion import measure_diversity
from shared.rag.provenance import FoundLists, make_fused_trace, make_search, make_searches, make_single_trace
from shared.rag.retrieval import RecallPath, gather, merge_paths
from shared.rag.rewriting import enhance
from shared.replies import Failure, FailureKind, Retrieved, Scored, require
from shared.samples import Decision, Library, Trace

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
    """Enhance the question, search, fuse, rerank and evaluate."""
    if options.enhance:
        listed = yield from _search_widely(question, options.mode, params, library)
    else:
        listed = yield from _search_once(question, options.mode, params)
    trace = listed.trace
    if options.rerank or (options.crag and params.crag.evaluator == "reranker"):
        trace = yield from _rerank(question, trace, params)
    return _evaluate(trace, listed.dense, params, library) if options.crag else trace


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
    return RetrievedLists(msgspec.structs.replace(trace, decisions=decisions), _select_dense(gathered.lists))


def _select_dense(lists: Mapping[RecallPath, Retrieved]) -> tuple[Retrieved, ...]:
    return tuple(found for path, found in lists.items() if path.call.index == "dense")


def _rerank(question: str, trace: Trace, params: Params) -> Tracing:
    documents = tuple(candidate.document for candidate in trace.candidates)
    reply: Scored | Failure = yield Rerank(question=question, documents=documents)
    return make_ranked_trace(trace, rank_by_relevance(documents, reply, params))


def _evaluate(trace: Trace, dense: tuple[Retrieved, ...], params: Params, library: Library) -> Trace:
    """Add CRAG's verdict on the documents, by the reranker or by similarity; the judge is not called here."""
    documents = [candidate.document for candidate in trace.candidates]
    verdict = make_decision(
        _evaluate_without_model(trace, dense, params), measure_diversity([library[each].text for each in documents]), 0
    )
    return msgspec.structs.replace(trace, decisions=(*trace.decisions, verdict))


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

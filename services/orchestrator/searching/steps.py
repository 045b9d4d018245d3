"""What one search does: the pipelines' own parts, as a pipeline yields them, so that a job would find the same."""

from collections.abc import Generator, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from shared.contracts.calls import Rerank, Yielded
from shared.contracts.params import Params
from shared.contracts.replies import Failure, FailureKind, Retrieved, Scored, require
from shared.contracts.samples import Decision, Library, Trace
from shared.rag import wordings
from shared.rag.crag import THRESHOLDS, Evaluation, Score, evaluated, judged, similarity
from shared.rag.diversity import diversity
from shared.rag.enhancement import enhanced
from shared.rag.paths import Path, gather, merged
from shared.rag.provenance import Found, fused_trace, search, searches, single_trace
from shared.rag.relevance import by_relevance, ranked_trace

Mode = Literal["dense", "sparse", "hybrid"]
NO_MODEL = Failure(
    kind=FailureKind.NOT_CONFIGURED, detail="a search asks no model of the device; POST /v1/chat and jobs do"
)


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts are wanted."""

    mode: Mode
    enhance: bool = False
    rerank: bool = False
    crag: bool = False


class Listed(NamedTuple):
    """What was found, and the lists by vectors that it was fused of."""

    trace: Trace
    dense: tuple[Retrieved, ...]


Listing = Generator[Yielded, Any, Listed]
Tracing = Generator[Yielded, Any, Trace]


def steps(question: str, options: Options, params: Params, library: Library) -> Tracing:
    """Enhance, search, fuse, rerank, evaluate."""
    if options.enhance:
        listed = yield from _widely(question, options.mode, params, library)
    else:
        listed = yield from _plainly(question, options.mode, params)
    trace = listed.trace
    if options.rerank or (options.crag and params.crag.evaluator == "reranker"):
        trace = yield from _reranked(question, trace, params)
    return _evaluated(trace, listed.dense, params, library) if options.crag else trace


def _plainly(question: str, mode: Mode, params: Params) -> Listing:
    """As the baselines search: a search that fails is the end of it."""
    if mode == "hybrid":
        dense, sparse = yield list(searches(question, params))
        return Listed(fused_trace(Found(require(dense), require(sparse)), params), (dense,))
    found: Retrieved | Failure = yield search(question, mode, params)
    kept = require(found)
    return Listed(single_trace(kept, mode, params), (kept,) if mode == "dense" else ())


def _widely(question: str, mode: Mode, params: Params, library: Library) -> Listing:
    """As `enhanced` searches before it asks a model: in two wordings; a path that fails is left out."""
    ready = enhanced(question, params.enhance, params.fusion)
    if mode != "hybrid":
        ready = ready._replace(dense=float(mode == "dense"), sparse=float(mode == "sparse"))
    paths = wordings.at_once(question, ready, params)
    replies = yield [path.call for path in paths]
    gathered = gather(paths, replies)
    trace = merged(question, gathered.lists, library, params)
    decisions = (*ready.decisions, *gathered.decisions, *trace.decisions)
    return Listed(msgspec.structs.replace(trace, decisions=decisions), _by_vectors(gathered.lists))


def _by_vectors(lists: Mapping[Path, Retrieved]) -> tuple[Retrieved, ...]:
    return tuple(found for path, found in lists.items() if path.call.index == "dense")


def _reranked(question: str, trace: Trace, params: Params) -> Tracing:
    documents = tuple(candidate.document for candidate in trace.candidates)
    reply: Scored | Failure = yield Rerank(question=question, documents=documents)
    return ranked_trace(trace, by_relevance(documents, reply, params))


def _evaluated(trace: Trace, dense: tuple[Retrieved, ...], params: Params, library: Library) -> Trace:
    """With CRAG's verdict on what was found, by the reranker or by similarity: the judge is not asked here."""
    documents = [candidate.document for candidate in trace.candidates]
    verdict = judged(_evaluation(trace, dense, params), diversity([library[each].text for each in documents]), 0)
    return msgspec.structs.replace(trace, decisions=(*trace.decisions, verdict))


def _evaluation(trace: Trace, dense: tuple[Retrieved, ...], params: Params) -> Evaluation:
    """By the evaluator of the parameters; where that is the judge, by the best one that is to be had here."""
    documents = [candidate.document for candidate in trace.candidates]
    relevance: dict[str, Score] = {each.document: each.relevance for each in trace.candidates}
    scored = any(score is not None for score in relevance.values())
    if params.crag.evaluator == "similarity":
        return evaluated("similarity", similarity(documents, dense), dense, params.crag)
    if params.crag.evaluator == "reranker" and scored:
        return evaluated("reranker", relevance, dense, params.crag)
    if scored:
        return Evaluation("reranker", THRESHOLDS["reranker"], relevance, NO_MODEL.kind.value)
    return evaluated(params.crag.evaluator, dict.fromkeys(documents, NO_MODEL), dense, params.crag)


def verdict(decisions: tuple[Decision, ...]) -> str | None:
    """CRAG's action, where it was asked for."""
    return next((each.action for each in decisions if each.stage == "crag"), None)

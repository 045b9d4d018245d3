"""What one search does: the pipelines' own parts, as a pipeline yields them, so that a job would find the same."""

from collections.abc import Generator
from typing import Any, Literal

import msgspec

from shared.contracts.calls import Failure, Rerank, Retrieved, Scored, Yielded, require
from shared.contracts.params import Params
from shared.contracts.samples import Trace
from shared.rag.provenance import Found, fused_trace, search, searches, single_trace
from shared.rag.relevance import by_relevance, ranked_trace

Mode = Literal["dense", "sparse", "hybrid"]
Tracing = Generator[Yielded, Any, Trace]


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Which parts are wanted."""

    mode: Mode
    rerank: bool = False


def steps(question: str, options: Options, params: Params) -> Tracing:
    """Search, fuse, rerank."""
    trace = yield from _found(question, options.mode, params)
    return (yield from _reranked(question, trace, params)) if options.rerank else trace


def _found(question: str, mode: Mode, params: Params) -> Tracing:
    if mode == "hybrid":
        dense, sparse = yield list(searches(question, params))
        return fused_trace(Found(require(dense), require(sparse)), params)
    found: Retrieved | Failure = yield search(question, mode, params)
    return single_trace(require(found), mode, params)


def _reranked(question: str, trace: Trace, params: Params) -> Tracing:
    documents = tuple(candidate.document for candidate in trace.candidates)
    reply: Scored | Failure = yield Rerank(question=question, documents=documents)
    return ranked_trace(trace, by_relevance(documents, reply, params))

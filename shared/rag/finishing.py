"""Finish after retrieval (seed document 001): rerank, drop irrelevant documents, compress, and generate."""

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from shared.calls import Rerank, Yielded
from shared.params import Params
from shared.rag.answering import answer, compress_context
from shared.rag.relevance import Ranking, make_ranked_trace, make_refusal_outcome, rank_by_relevance
from shared.replies import Scored
from shared.samples import Library, Steps, Trace


def finish(
    question: str, documents: Sequence[str], trace: Trace, params: Params, library: Library, *, vague: bool
) -> Steps:
    """Answer with the best of `documents`, which keep their order; for a vague question only with certain ones.

    Raises:
        CallFailed: the generator failed.
    """
    ranking = yield from _rank(question, documents, params)
    trace = make_ranked_trace(trace, ranking)
    if ranking.refusal is not None:
        return make_refusal_outcome(ranking.refusal, trace)
    kept = _keep_certain(ranking, params) if vague else ranking.kept
    show = partial(compress_context, question, library=library, params=params.compress)
    return (yield from answer(question, kept[: params.context_size], trace, show))


def _rank(question: str, documents: Sequence[str], params: Params) -> Generator[Yielded, Any, Ranking]:
    """Rank by the reranker's probabilities if the job wants it and there are documents."""
    if not params.rerank.enabled:
        return Ranking(tuple(documents), tuple(documents), {}, ())
    reply = Scored(scores=())
    if documents:
        reply = yield Rerank(question=question, documents=tuple(documents))
    return rank_by_relevance(documents, reply, params)


def _keep_certain(ranking: Ranking, params: Params) -> tuple[str, ...]:
    """Keep documents that reach the threshold: for a vague question the best may well be noise (003).

    Where nobody could score, there is nothing to tell noise by, and all stay.
    """
    if not ranking.relevance:
        return ranking.kept
    return tuple(document for document in ranking.kept if ranking.relevance[document] >= params.rerank.threshold)

"""After retrieval (seed document 001): rerank, leave out what is not relevant, compress, and generate."""

from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

from shared.contracts.calls import Rerank, Yielded
from shared.contracts.params import Params
from shared.contracts.replies import Scored
from shared.contracts.samples import Library, Steps, Trace
from shared.rag.answering import answer, compressed
from shared.rag.relevance import Ranking, by_relevance, ranked_trace, refused


def finish(
    question: str, documents: Sequence[str], trace: Trace, params: Params, library: Library, *, vague: bool
) -> Steps:
    """The outcome with the best of `documents`, which come in their order; of a vague question only with certain ones.

    Raises:
        CallFailed: the generator failed.
    """
    ranking = yield from _ranked(question, documents, params)
    trace = ranked_trace(trace, ranking)
    if ranking.refusal is not None:
        return refused(ranking.refusal, trace)
    kept = _certain(ranking, params) if vague else ranking.kept
    show = partial(compressed, question, library=library, params=params.compress)
    return (yield from answer(question, kept[: params.context_size], trace, show))


def _ranked(question: str, documents: Sequence[str], params: Params) -> Generator[Yielded, Any, Ranking]:
    """By the reranker's probabilities, if the job wants it; without documents there is nothing to ask."""
    if not params.rerank.enabled:
        return Ranking(tuple(documents), tuple(documents), {}, ())
    reply = Scored(scores=())
    if documents:
        reply = yield Rerank(question=question, documents=tuple(documents))
    return by_relevance(documents, reply, params)


def _certain(ranking: Ranking, params: Params) -> tuple[str, ...]:
    """What reaches the threshold: of a vague question the best document is noise as likely as not (003).

    Where nobody could score, there is nothing to tell noise by, and all stay.
    """
    if not ranking.relevance:
        return ranking.kept
    return tuple(document for document in ranking.kept if ranking.relevance[document] >= params.rerank.threshold)

"""Decide by the probability of relevance: a document's place, whether it stays, and whether to answer at all.

Seed documents 001 (a relevance threshold of 0.4 after reranking) and 003 (too uncertain: refuse). Both are about
*probabilities*: a reranker's score after its activation, or a judge's rating in [0, 1]. A score that only compares the
documents of one list (RRF, a batch-centred sigmoid, min-max) always has a best one, however bad; nothing here may be
called with such scores, and a question is never refused for them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from shared.params import Params
from shared.replies import Failure, Scored
from shared.samples import Candidate, Decision, Extraction, Outcome, Trace


class Ranking(NamedTuple):
    """Documents sorted by their relevance."""

    order: tuple[str, ...]
    """All documents, the most relevant first; as they came where nobody could score them."""
    kept: tuple[str, ...]
    """Those of them that may enter the prompt."""
    relevance: dict[str, float]
    """Probabilities by document; empty where nobody could score them."""
    decisions: tuple[Decision, ...]
    refusal: str | None = None
    """Why the question is not to be answered."""


class FloorResult(NamedTuple):
    """The documents above the relevance floor, which are rated next."""

    rated: tuple[str, ...]
    """Documents to be rated, in their order."""
    relevance: dict[str, float]
    """Probabilities by document; empty where nobody could score them, or was asked."""
    decisions: tuple[Decision, ...]


def rank_by_relevance(documents: Sequence[str], reply: Scored | Failure, params: Params) -> Ranking:
    """Order `documents` by the reranker's probabilities and keep those from `rerank.threshold` on.

    Equal documents keep their places. If none reaches the threshold, the question is refused where `rerank.refuse`
    says so, and otherwise the best `context_size` stay. A failed reranking leaves all documents as they came (seed
    document 001) and refuses nothing.

    Raises:
        ValueError: not one score a document.
    """
    if isinstance(reply, Failure):
        return keep_order(documents, reply)
    relevance = dict(zip(documents, reply.scores, strict=True))
    order = tuple(sorted(relevance, key=lambda document: -relevance[document]))
    kept = tuple(document for document in order if relevance[document] >= params.rerank.threshold)
    refusal = _refusal(order, relevance, params) if params.rerank.refuse and not kept else None
    action = "refuse" if refusal else "threshold" if kept else "best"
    stays = kept if kept or refusal else order[: params.context_size]
    decision = Decision(
        stage="rerank",
        action=action,
        detail={
            "documents": float(len(order)),
            "kept": float(len(stays)),
            "best": relevance[order[0]] if order else None,
            "threshold": params.rerank.threshold,
        },
    )
    return Ranking(order, stays, relevance, (decision,), refusal)


def keep_order(documents: Sequence[str], failure: Failure) -> Ranking:
    """Keep the documents as they came, because of `failure`."""
    order = tuple(dict.fromkeys(documents))
    decision = Decision(stage="rerank", action="original order", fallback=failure.kind.value)
    return Ranking(order, order, {}, (decision,))


def keep_above_floor(documents: Sequence[str], reply: Scored | Failure, floor: float) -> FloorResult:
    """Return the documents whose probability reaches `floor`; all of them if reranking failed.

    Raises:
        ValueError: not one score a document.
    """
    if isinstance(reply, Failure):
        decision = Decision(stage="floor", action="none", fallback=reply.kind.value)
        return FloorResult(tuple(documents), {}, (decision,))
    relevance = dict(zip(documents, reply.scores, strict=True))
    rated = tuple(document for document in relevance if relevance[document] >= floor)
    below = float(len(relevance) - len(rated))
    detail: dict[str, str | float | bool | list[str] | None] = {"floor": floor, "below": below}
    return FloorResult(rated, relevance, (Decision(stage="floor", action="floor", detail=detail),))


def make_ranked_trace(trace: Trace, ranking: Ranking) -> Trace:
    """Put the trace's candidates in the ranking's order, each with its probability; its decisions come last.

    Documents that do not enter the prompt stay in the trace, those that were not ranked behind the others.
    """
    by_document = {candidate.document: candidate for candidate in trace.candidates}
    order = dict.fromkeys([*ranking.order, *by_document])
    candidates = (
        _place(by_document[document], rank, ranking.relevance.get(document))
        for rank, document in enumerate(order, start=1)
    )
    return msgspec.structs.replace(trace, candidates=tuple(candidates), decisions=trace.decisions + ranking.decisions)


def make_floored_trace(trace: Trace, floored: FloorResult) -> Trace:
    """Add the probabilities to the trace and put those below the floor behind all others, in fused order.

    It is unscored only if something was to be rated.
    """
    rated = frozenset(floored.rated)
    behind = sorted(trace.candidates, key=lambda candidate: candidate.document not in rated)
    candidates = tuple(
        msgspec.structs.replace(candidate, rank=rank, relevance=floored.relevance.get(candidate.document))
        for rank, candidate in enumerate(behind, start=1)
    )
    return msgspec.structs.replace(
        trace,
        candidates=candidates,
        unscored=trace.unscored and bool(rated),
        decisions=trace.decisions + floored.decisions,
    )


def make_refusal_outcome(reason: str, trace: Trace) -> Outcome:
    """Make the outcome of a refused question. It is not a failure: it is graded, as not correct."""
    return Outcome(answer=None, extraction=Extraction.REFUSED, refusal=reason, trace=trace)


def _place(candidate: Candidate, rank: int, relevance: float | None) -> Candidate:
    if relevance is None:
        return msgspec.structs.replace(candidate, rank=rank)
    return msgspec.structs.replace(candidate, rank=rank, relevance=relevance, score=relevance)


def _refusal(order: Sequence[str], relevance: dict[str, float], params: Params) -> str:
    if not order:
        return "no document was found"
    best = relevance[order[0]]
    return f"the most relevant document has a probability of {best:.3f}, below {params.rerank.threshold}"

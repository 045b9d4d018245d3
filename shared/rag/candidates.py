"""Read from a trace's candidates how they were found, who scored them, and whether reranking changed the prompt."""

from collections.abc import Sequence

from shared.replies import FailureKind
from shared.samples import Candidate, Outcome, Strategy, Trace


def sort_as_found(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Sort by fused score, else by the best rank of any list; ties by the smaller hash."""
    return sorted(candidates, key=_sort_key)


def _sort_key(candidate: Candidate) -> tuple[bool, float, str]:
    fused = candidate.fused
    return fused is None, find_best_rank(candidate) if fused is None else -fused, candidate.document


def find_best_rank(candidate: Candidate) -> int:
    """Return the best rank in any list; if none is known, the final rank."""
    ranks = (candidate.dense_rank, candidate.sparse_rank, *(candidate.paths or {}).values())
    return min((rank for rank in ranks if rank is not None), default=candidate.rank)


def is_context_reranked(outcome: Outcome) -> bool:
    """Return whether reranking changed the documents in the prompt or their order."""
    found = sort_as_found(outcome.trace.candidates)[: len(outcome.context)]
    return bool(found) and tuple(each.document for each in found) != outcome.context


def find_scorer(trace: Trace) -> Strategy | None:
    """Return who scored the documents' quality, or None if nobody did."""
    scored = [each for each in trace.candidates if each.quality is not None or each.features is not None]
    if not scored and not trace.unscored:
        return None
    checked = any(each.failure == FailureKind.VERIFIER_TIMEOUT for each in trace.candidates)
    if checked or any("verified" in (each.features or {}) for each in scored):
        return Strategy.VERIFIER
    return Strategy.RULES if any(each.features is not None for each in scored) else Strategy.JUDGE

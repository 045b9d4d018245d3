"""What a trace's candidates tell: how they were found, who scored them, and whether reranking changed the prompt."""

from collections.abc import Sequence

from shared.contracts.replies import FailureKind
from shared.contracts.samples import Candidate, Outcome, Strategy, Trace


def found_order(candidates: Sequence[Candidate]) -> list[Candidate]:
    """As they were found: by fused score, else by the best rank of any list; ties: the smaller hash first."""
    return sorted(candidates, key=_place)


def _place(candidate: Candidate) -> tuple[bool, float, str]:
    fused = candidate.fused
    return fused is None, best_rank(candidate) if fused is None else -fused, candidate.document


def best_rank(candidate: Candidate) -> int:
    """Its best rank in any list; where none is known, the final one."""
    ranks = (candidate.dense_rank, candidate.sparse_rank, *(candidate.paths or {}).values())
    return min((rank for rank in ranks if rank is not None), default=candidate.rank)


def moved(outcome: Outcome) -> bool:
    """Whether the prompt holds other documents, or in another order, than it would as they were found."""
    found = found_order(outcome.trace.candidates)[: len(outcome.context)]
    return bool(found) and tuple(each.document for each in found) != outcome.context


def scored_by(trace: Trace) -> Strategy | None:
    """Who scored the documents' quality; None: nobody did."""
    scored = [each for each in trace.candidates if each.quality is not None or each.features is not None]
    if not scored and not trace.unscored:
        return None
    checked = any(each.failure == FailureKind.VERIFIER_TIMEOUT for each in trace.candidates)
    if checked or any("verified" in (each.features or {}) for each in scored):
        return Strategy.VERIFIER
    return Strategy.RULES if any(each.features is not None for each in scored) else Strategy.JUDGE

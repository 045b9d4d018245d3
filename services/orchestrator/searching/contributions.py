"""What each list added to a document's fused score."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from shared.contracts.params import Params
from shared.contracts.samples import Candidate, Decision


class SearchFusion(msgspec.Struct, frozen=True, kw_only=True):
    """How the lists of a search became one."""

    method: Literal["rrf", "weighted"]
    rrf_k: int | None
    """Of `rrf`: a list adds weight / (rrf_k + rank)."""
    normaliser: str | None
    """Of `weighted`: what made the scores of the lists comparable."""
    weights: dict[str, float]
    """Of the lists by vectors (`dense`) and by words (`sparse`)."""


def fusion(params: Params, decisions: Sequence[Decision], mode: str) -> SearchFusion:
    """As the search has fused; the weights of an enhanced question follow from its intent."""
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
    """What each list added to `candidate.fused`, by its name; None: one list was taken as it is, or normalised scores
    were added, which follow from whole lists.

    The parts have the ratio of weight / (rrf_k + rank), and together they are the fused score (`shared.rag.fusion`).
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

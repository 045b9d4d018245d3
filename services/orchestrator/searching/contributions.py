"""Computes what each list added to a document's fused score."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from shared.params import Params
from shared.samples import Candidate, Decision


class SearchFusion(msgspec.Struct, frozen=True, kw_only=True):
    """How the lists of a search were fused."""

    method: Literal["rrf", "weighted"]
    rrf_k: int | None
    """Constant of `rrf`: a list adds weight / (rrf_k + rank)."""
    normaliser: str | None
    """Normaliser of `weighted`, which makes the scores of the lists comparable."""
    weights: dict[str, float]
    """Weights of the lists by vectors (`dense`) and by words (`sparse`)."""


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

"""Rerank by reasoning quality and, with little weight, by retrieval rank (MathRAG-Gate paper, 5.3: 0.9 and 0.1)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from shared.rag.normalise import min_max


class RerankedCandidate(NamedTuple):
    """A candidate in its final place."""

    document: str
    rank: int
    """Its rank, from 1."""
    fused: float
    """RRF score as it came in."""
    quality: float | None
    score: float | None
    """rrf_weight * normalised RRF + quality_weight * quality; None without a quality."""


def rerank(
    fused: Sequence[tuple[str, float]],
    quality: Mapping[str, float | None],
    *,
    rrf_weight: float = 0.1,
    quality_weight: float = 0.9,
) -> list[RerankedCandidate]:
    """Order candidates by rrf_weight * normalised RRF + quality_weight * quality, highest first.

    RRF is min-max normalised over all the candidates given. Those without a quality (None, or absent from `quality`)
    come last, in RRF order: a missing rating is not a bad one, but nothing puts it before a known one either.
    Ties are broken by hash.
    """
    scored = []
    for (document, rrf), relevance in zip(fused, min_max([score for _, score in fused]).found, strict=True):
        known = quality.get(document)
        score = None if known is None else rrf_weight * relevance + quality_weight * known
        scored.append(RerankedCandidate(document=document, rank=0, fused=rrf, quality=known, score=score))
    scored.sort(key=_place)
    return [entry._replace(rank=rank) for rank, entry in enumerate(scored, start=1)]


def _place(entry: RerankedCandidate) -> tuple[bool, float, str]:
    by = entry.fused if entry.score is None else entry.score
    return (entry.score is None, -by, entry.document)

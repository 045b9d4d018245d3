"""Reciprocal rank fusion."""

import math
from collections import defaultdict
from collections.abc import Sequence


def rrf(lists: Sequence[Sequence[str]], k: int = 60) -> list[tuple[str, float]]:
    """Fuse ranked lists of document hashes: score = sum of 1 / (k + rank) over the lists that hold the document.

    Ranks count from 1 (Cormack et al. 2009, k = 60). A document that a list repeats counts once, at its best rank.
    Returns (hash, score) by falling score; ties are broken by hash, so the order never depends on the lists' order.

    Raises:
        ValueError: for a negative `k`, with which 1 / (k + rank) may not exist.
    """
    if k < 0:
        raise ValueError(f"`k` must not be negative, not {k}")
    parts: defaultdict[str, list[float]] = defaultdict(list)
    for ranked in lists:
        for document, rank in best_ranks(ranked).items():
            parts[document].append(1 / (k + rank))
    # fsum is exact, so that adding in another order cannot break a tie.
    fused = [(document, math.fsum(scores)) for document, scores in parts.items()]
    return sorted(fused, key=lambda entry: (-entry[1], entry[0]))


def best_ranks(ranked: Sequence[str]) -> dict[str, int]:
    """The best rank (from 1) of every document in a ranked list."""
    ranks: dict[str, int] = {}
    for rank, document in enumerate(ranked, start=1):
        ranks.setdefault(document, rank)
    return ranks

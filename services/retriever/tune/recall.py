"""R@10: how often an oracle document is among the first ten."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.retriever.tune.pairs import Query

FIRST = 10
BLOCK = 256
"""Queries whose scores are in memory at a time."""
Vectors = NDArray[np.float32]


def recall(vectors: Vectors, documents: Vectors, queries: Sequence[Query], first: int = FIRST) -> float:
    """The share of `queries` with an oracle document among the `first` nearest; documents of the same score come in
    their order. There are some queries.
    """
    hits = 0
    for start in range(0, len(queries), BLOCK):
        scores = vectors[start : start + BLOCK] @ documents.T
        for row, query in zip(scores, queries[start : start + BLOCK], strict=True):
            hits += _is_found(row, query, first)
    return hits / len(queries)


def _is_found(scores: Vectors, query: Query, first: int) -> bool:
    """Whether fewer than `first` documents stand before the best oracle document."""
    best = query.oracle[np.argmax(scores[query.oracle])]
    before = np.count_nonzero(scores > scores[best]) + np.count_nonzero(scores[:best] == scores[best])
    return bool(before < first)

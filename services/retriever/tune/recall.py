"""Measure R@10: how often an oracle document is among the first ten."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.retriever.tune.pairs import Numbers, TrainingQuery

FIRST = 10
BLOCK = 256
"""Queries whose scores are in memory at a time."""
Vectors = NDArray[np.float32]


class Recall(NamedTuple):
    """Shares of the queries, from 0 to 1."""

    question: float
    """Share with an oracle document of the question among the first ten."""
    rule: float
    """Share with a document of the query's own rule there."""


def measure_recall(
    vectors: Vectors, documents: Vectors, queries: Sequence[TrainingQuery], first: int = FIRST
) -> Recall:
    """Measure recall among the `first` nearest documents; ties keep their order. There must be a query."""
    question = rule = 0
    for start in range(0, len(queries), BLOCK):
        scores = vectors[start : start + BLOCK] @ documents.T
        for row, query in zip(scores, queries[start : start + BLOCK], strict=True):
            question += _is_found(row, query.oracle, first)
            rule += _is_found(row, query.positives, first)
    return Recall(question / len(queries), rule / len(queries))


def _is_found(scores: Vectors, wanted: Numbers, first: int) -> bool:
    """Tell whether fewer than `first` documents rank before the best wanted one."""
    best = wanted[np.argmax(scores[wanted])]
    before = np.count_nonzero(scores > scores[best]) + np.count_nonzero(scores[:best] == scores[best])
    return bool(before < first)

"""The query side of static embeddings: a table of token vectors of its own, which training changes."""

from collections.abc import Sequence

import numpy as np

from services.retriever.tune.adam import Adam, Floats
from services.retriever.tune.loss import contrastive
from services.retriever.tune.pairs import Numbers
from services.retriever.tune.sampling import Batch

Ids = Sequence[int]
"""Tokens of a text."""


class Tower:
    """Token vectors [tokens, d], of which a text's vector is the mean at length 1."""

    def __init__(self, table: Floats, rate: float) -> None:
        self.table = table.copy()
        self._adam = Adam(self.table, rate)

    def vectors(self, texts: Sequence[Ids]) -> Floats:
        """Of texts as token ids: [len(texts), d]; zero for a text without tokens."""
        rows, counts = _counted(texts)
        sums = counts @ self.table[rows]
        return sums / _lengths(sums)

    def step(self, texts: Sequence[Ids], documents: Floats, batch: Batch, temperature: float) -> float:
        """One step over the texts [n] of a batch and the vectors [m, d] of its documents, which are only read.

        Returns the mean loss before it.
        """
        rows, counts = _counted(texts)
        sums = counts @ self.table[rows]
        lengths = _lengths(sums)
        vectors = sums / lengths
        losses, slopes = contrastive(vectors, documents, batch.positives, batch.oracle, temperature)
        slopes /= len(texts)
        # What of the slope is along v = u / |u| changes nothing.
        along = (slopes * vectors).sum(axis=1, keepdims=True)
        self._adam.step(rows, (counts.T @ ((slopes - along * vectors) / lengths)).astype(np.float32))
        return float(losses.mean())


def _counted(texts: Sequence[Ids]) -> tuple[Numbers, Floats]:
    """The distinct tokens [m] of some texts, and how often each text has each [texts, m]."""
    tokens = np.array([each for ids in texts for each in ids], dtype=np.int64)
    rows, columns = np.unique(tokens, return_inverse=True)
    counts = np.zeros((len(texts), len(rows)), dtype=np.float32)
    np.add.at(counts, (np.repeat(np.arange(len(texts)), [len(ids) for ids in texts]), columns), 1)
    return rows, counts


def _lengths(sums: Floats) -> Floats:
    """Of each row, as a column; 1 for a zero row."""
    lengths = np.linalg.norm(sums, axis=1, keepdims=True).astype(np.float32)
    return np.where(lengths > 0, lengths, np.float32(1))

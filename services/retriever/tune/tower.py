"""The query side of static embeddings: its own table of token vectors, which training changes."""

from collections.abc import Sequence

import numpy as np

from services.retriever.tune.adam import Adam, Floats
from services.retriever.tune.loss import compute_contrastive_loss
from services.retriever.tune.pairs import Numbers
from services.retriever.tune.sampling import TrainingBatch

Ids = Sequence[int]
"""Token ids of a text."""


class Tower:
    """Token vectors [tokens, d]; the vector of a text is their mean at length 1."""

    def __init__(self, table: Floats, rate: float) -> None:
        self.table = table.copy()
        self._adam = Adam(self.table, rate)

    def vectors(self, texts: Sequence[Ids]) -> Floats:
        """Embed texts given as token ids: [len(texts), d]; zero for a text without tokens."""
        rows, counts = _count_tokens(texts)
        sums = counts @ self.table[rows]
        return sums / _measure_lengths(sums)

    def step(self, texts: Sequence[Ids], documents: Floats, batch: TrainingBatch, temperature: float) -> float:
        """Train one step on the texts [n] of a batch and the vectors [m, d] of its documents, which do not change.

        Returns the mean loss before the step.
        """
        rows, counts = _count_tokens(texts)
        sums = counts @ self.table[rows]
        lengths = _measure_lengths(sums)
        vectors = sums / lengths
        losses, slopes = compute_contrastive_loss(vectors, documents, batch.positives, batch.oracle, temperature)
        slopes /= len(texts)
        # What of the slope is along v = u / |u| changes nothing.
        along = (slopes * vectors).sum(axis=1, keepdims=True)
        self._adam.step(rows, (counts.T @ ((slopes - along * vectors) / lengths)).astype(np.float32))
        return float(losses.mean())


def _count_tokens(texts: Sequence[Ids]) -> tuple[Numbers, Floats]:
    """Return the distinct tokens [m] of some texts, and how often each text has each [texts, m]."""
    tokens = np.array([each for ids in texts for each in ids], dtype=np.int64)
    rows, columns = np.unique(tokens, return_inverse=True)
    counts = np.zeros((len(texts), len(rows)), dtype=np.float32)
    np.add.at(counts, (np.repeat(np.arange(len(texts)), [len(ids) for ids in texts]), columns), 1)
    return rows, counts


def _measure_lengths(sums: Floats) -> Floats:
    """Return the length of each row as a column; 1 for a zero row."""
    lengths = np.linalg.norm(sums, axis=1, keepdims=True).astype(np.float32)
    return np.where(lengths > 0, lengths, np.float32(1))

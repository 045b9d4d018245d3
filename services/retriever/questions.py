"""Vectors of questions: a batch's distinct ones are embedded together, those that were asked before not at all."""

from collections.abc import Sequence

import msgspec
import numpy as np
from anyio import CapacityLimiter, to_thread
from numpy.typing import NDArray

from shared.models.ports import Embedder
from shared.recent import Recent

Vector = NDArray[np.float32]
AT_ONCE = 8
"""Batches that are embedded together: where a server is slow, searches of words keep the other threads."""


class Hits(msgspec.Struct):
    """How often the cache has helped since the process started."""

    asked: int = 0
    """Questions to dense indexes, each as often as it was asked."""
    hits: int = 0
    """Those whose vector was there already, or was made for another question of the same batch."""


class Questions:
    """An LRU of `size` vectors by text. A vector never changes while the process lives."""

    def __init__(self, embedder: Embedder, size: int) -> None:
        self._embedder = embedder
        self._recent: Recent[Vector] = Recent(size)
        self._limiter = CapacityLimiter(AT_ONCE)
        self.counted = Hits()

    async def vectors(self, questions: Sequence[str]) -> list[Vector]:
        """One vector a question.

        Raises:
            TooLarge, Unavailable: see `Embedder.embed_queries`; then nothing is kept.
        """
        found = self._recent.find(dict.fromkeys(questions))
        if missing := [text for text in dict.fromkeys(questions) if text not in found]:
            made = await to_thread.run_sync(self._embedder.embed_queries, missing, limiter=self._limiter)
            found |= dict(zip(missing, made, strict=True))
        self.counted.asked += len(questions)
        self.counted.hits += len(questions) - len(missing)
        self._recent.keep(found)
        return [found[text] for text in questions]

    async def hypothetical(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Vectors by text, from the documents' side; nobody asks for them again, so they are not kept."""
        distinct = list(dict.fromkeys(texts))
        if not distinct:
            return {}
        made = await to_thread.run_sync(self._embedder.embed_documents, distinct, limiter=self._limiter)
        return dict(zip(distinct, made, strict=True))


def mean(vectors: Sequence[Vector]) -> Vector:
    """Their direction: the mean at length 1, or zeros (HyDE, Gao et al. 2023, section 3.2)."""
    total: NDArray[np.float64] = np.stack(vectors).sum(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(total))
    return (total / (length or 1)).astype(np.float32)

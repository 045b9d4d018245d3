"""Embed questions: distinct ones of a batch together, and cached ones not at all."""

from collections.abc import Sequence

import msgspec
import numpy as np
from anyio import CapacityLimiter, to_thread
from numpy.typing import NDArray

from shared.models.embedding import Embedder
from shared.recent import LruCache

Vector = NDArray[np.float32]
Vectors = NDArray[np.float32]
AT_ONCE = 8
"""Batches that are embedded at once, so that a slow server leaves threads for sparse searches."""


class CacheCounts(msgspec.Struct):
    """Uses of the cache since the process started."""

    asked: int = 0
    """Questions to dense indexes, with repetitions."""
    hits: int = 0
    """Questions whose vector was cached, or made for an equal question of the same batch."""


class QuestionVectors:
    """Embeds texts, with an LRU cache of `size` vectors of questions."""

    def __init__(self, embedder: Embedder, size: int) -> None:
        self._embedder = embedder
        self._recent: LruCache[Vector] = LruCache(size)
        self._limiter = CapacityLimiter(AT_ONCE)
        self.counted = CacheCounts()

    async def vectors(self, questions: Sequence[str]) -> list[Vector]:
        """Return one vector per question.

        Raises:
            TooLarge, Unavailable: see `Embedder.embed_queries`; then nothing is cached.
        """
        found = self._recent.find(dict.fromkeys(questions))
        if missing := [text for text in dict.fromkeys(questions) if text not in found]:
            made = await to_thread.run_sync(self._embedder.embed_queries, missing, limiter=self._limiter)
            found |= dict(zip(missing, made, strict=True))
        self.counted.asked += len(questions)
        self.counted.hits += len(questions) - len(missing)
        self._recent.keep(found)
        return [found[text] for text in questions]

    async def documents(self, texts: Sequence[str]) -> Vectors:
        """Embed texts as documents, without the cache, as vectors [len(texts), dimension].

        Raises:
            TooLarge, Unavailable: see `Embedder.embed_documents`.
        """
        return await to_thread.run_sync(self._embedder.embed_documents, texts, limiter=self._limiter)

    async def hypothetical(self, texts: Sequence[str]) -> dict[str, Vector]:
        """Embed hypothetical documents, by text; they are not cached, since they do not repeat."""
        distinct = list(dict.fromkeys(texts))
        if not distinct:
            return {}
        made = await to_thread.run_sync(self._embedder.embed_documents, distinct, limiter=self._limiter)
        return dict(zip(distinct, made, strict=True))


def compute_mean_direction(vectors: Sequence[Vector]) -> Vector:
    """Return the mean of vectors at length 1, or zeros (HyDE, Gao et al. 2023, section 3.2)."""
    total: NDArray[np.float64] = np.stack(vectors).sum(axis=0, dtype=np.float64)
    length = float(np.linalg.norm(total))
    return (total / (length or 1)).astype(np.float32)

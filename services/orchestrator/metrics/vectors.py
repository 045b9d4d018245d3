"""Counts questions to dense indexes from the retriever's counters: how many of their vectors were cached."""

import httpx2
import msgspec

from services.orchestrator.deps import Deps
from services.orchestrator.metrics.metric_values import MetricValues

PATIENCE_S = 0.5
"""Longest wait for the retriever in seconds: a scrape must not hang with it."""


class VectorHits(msgspec.Struct, frozen=True):
    """Holds the retriever's counters since its start: question vectors needed, and those found in the cache."""

    asked: int
    hits: int


class _Health(msgspec.Struct):
    embeddings: VectorHits


class Vectors:
    """Counts since this process began to watch."""

    def __init__(self, values: MetricValues) -> None:
        self._values = values
        self._seen: VectorHits | None = None

    async def update(self, deps: Deps) -> None:
        """Count the questions since the last call; if the retriever is unavailable, they are counted by the next
        one.
        """
        try:
            reply = await deps.http.get(f"{deps.settings.retriever_url}/healthz", timeout=PATIENCE_S)
            self._count(msgspec.json.decode(reply.content, type=_Health).embeddings)
        except (httpx2.HTTPError, msgspec.MsgspecError):
            return

    def _count(self, now: VectorHits) -> None:
        before = self._seen or now
        if now.asked < before.asked:  # it was started again
            before = VectorHits(0, 0)
        self._seen, hits = now, now.hits - before.hits
        self._values.count("mathrag_question_vectors_total", ["cache"], hits)
        self._values.count("mathrag_question_vectors_total", ["embedder"], now.asked - before.asked - hits)

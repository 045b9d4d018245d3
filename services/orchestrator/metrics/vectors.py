"""Questions to dense indexes, as the retriever counts them: how many of their vectors were there already."""

import httpx2
import msgspec

from services.orchestrator.deps import Deps
from services.orchestrator.metrics.reading import Reading

PATIENCE_S = 0.5
"""Longest wait: a scrape must not hang with the retriever."""


class Hits(msgspec.Struct, frozen=True):
    """Since the retriever started."""

    asked: int
    hits: int


class _Health(msgspec.Struct):
    embeddings: Hits


class Vectors:
    """Counts since the process began to watch."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._seen: Hits | None = None

    async def look(self, deps: Deps) -> None:
        """Count what was asked since the last look; a retriever that is away is asked the next time."""
        try:
            reply = await deps.http.get(f"{deps.settings.retriever_url}/healthz", timeout=PATIENCE_S)
            self._count(msgspec.json.decode(reply.content, type=_Health).embeddings)
        except (httpx2.HTTPError, msgspec.MsgspecError):
            return

    def _count(self, now: Hits) -> None:
        before = self._seen or now
        if now.asked < before.asked:  # it was started again
            before = Hits(0, 0)
        self._seen, hits = now, now.hits - before.hits
        self._reading.count("mathrag_question_vectors_total", ["cache"], hits)
        self._reading.count("mathrag_question_vectors_total", ["embedder"], now.asked - before.asked - hits)

"""Embedder and reranker: files are looked at, servers are asked for a letter."""

from shared.checks.check import NotReady
from shared.models import retrieval_models
from shared.models.ports import ModelFailed
from shared.retrieval_settings import Embeddings, Reranker, Retrieval

LOOK_S = 5.0
IN_PROCESS = ("static", "gguf", "sentence-transformers")
"""Kinds that the retriever loads itself: looked at, not loaded."""


def look(name: str, chosen: Retrieval) -> str:
    """The embedder ("embeddings") or the reranker that is chosen.

    Raises:
        NotReady, Unavailable: it cannot be used.
    """
    try:
        return _embeddings(chosen.embeddings) if name == "embeddings" else _reranker(chosen.reranker)
    except ModelFailed as failed:
        raise NotReady(failed.detail) from failed


def _embeddings(settings: Embeddings) -> str:
    """The files are there, or the server embeds a letter."""
    chosen = settings.model_copy(update={"timeout_s": LOOK_S})
    with retrieval_models.embedder(chosen) as made:
        if chosen.kind in IN_PROCESS:
            return f"{chosen.kind}: {chosen.model or chosen.path}"
        return f"{chosen.kind}: {chosen.model}, {made.dimension} numbers; signature {made.signature[:12]}"


def _reranker(settings: Reranker) -> str:
    """The files are there, or the server scores a letter."""
    chosen = settings.model_copy(update={"timeout_s": LOOK_S})
    with retrieval_models.reranker(chosen) as made:
        if made is not None and chosen.kind not in IN_PROCESS:
            made.score("a", ["a"])
        return f"{chosen.kind}: {chosen.model or chosen.path or chosen.url}"

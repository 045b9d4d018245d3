"""Embedder and reranker: files are looked at, servers are asked for a letter."""

from shared.models import retrieval_models
from shared.retrieval import Embeddings, Reranker

LOOK_S = 5.0
IN_PROCESS = ("static", "gguf", "sentence-transformers")
"""Kinds that the retriever loads itself: looked at, not loaded."""


def embeddings(settings: Embeddings) -> str:
    """The files are there, or the server embeds a letter.

    Raises:
        Unavailable: neither.
    """
    chosen = settings.model_copy(update={"timeout_s": LOOK_S})
    with retrieval_models.embedder(chosen) as made:
        if chosen.kind in IN_PROCESS:
            return f"{chosen.kind}: {chosen.model or chosen.path}"
        return f"{chosen.kind}: {chosen.model}, {made.dimension} numbers; signature {made.signature[:12]}"


def reranker(settings: Reranker) -> str:
    """The files are there, or the server scores a letter.

    Raises:
        Unavailable, ModelFailed: neither.
    """
    chosen = settings.model_copy(update={"timeout_s": LOOK_S})
    with retrieval_models.reranker(chosen) as made:
        if made is not None and chosen.kind not in IN_PROCESS:
            made.score("a", ["a"])
        return f"{chosen.kind}: {chosen.model or chosen.path or chosen.url}"

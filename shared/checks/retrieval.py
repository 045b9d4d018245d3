"""Check the embedder and the reranker: files must exist, servers must answer a request with one letter."""

from shared.checks.check import NotReady
from shared.models import retrieval_models
from shared.models.ports import ModelFailed
from shared.retrieval_settings import Embeddings, Reranker, Retrieval

TIMEOUT_S = 5.0
IN_PROCESS = ("static", "gguf", "sentence-transformers")
"""Kinds that the retriever loads itself; the check does not load them."""


def check_retrieval_model(name: str, chosen: Retrieval) -> str:
    """Check the chosen embedder (`name` is "embeddings") or reranker, and describe it.

    Raises:
        NotReady, Unavailable: it cannot be used.
    """
    try:
        return _check_embeddings(chosen.embeddings) if name == "embeddings" else _check_reranker(chosen.reranker)
    except ModelFailed as failed:
        raise NotReady(failed.detail) from failed


def _check_embeddings(settings: Embeddings) -> str:
    """Check that the embedder's files are there, or that its server answers, and describe it."""
    chosen = settings.model_copy(update={"timeout_s": TIMEOUT_S})
    with retrieval_models.open_embedder(chosen) as made:
        if chosen.kind in IN_PROCESS:
            return f"{chosen.kind}: {chosen.model or chosen.path}"
        return f"{chosen.kind}: {chosen.model}, {made.dimension} numbers; signature {made.signature[:12]}"


def _check_reranker(settings: Reranker) -> str:
    """Check that the reranker's files are there, or that its server scores a letter, and describe it."""
    chosen = settings.model_copy(update={"timeout_s": TIMEOUT_S})
    with retrieval_models.open_reranker(chosen) as made:
        if made is not None and chosen.kind not in IN_PROCESS:
            made.score("a", ["a"])
        return f"{chosen.kind}: {chosen.model or chosen.path or chosen.url}"

"""Which back ends hold the indexes, as the settings say."""

from services.retriever.dense import Faiss
from services.retriever.ports import Backend, Index
from services.retriever.sparse import Bm25
from shared.models.ports import Embedder
from shared.retrieval import Retrieval


def backends(retrieval: Retrieval, embedder: Embedder) -> list[Backend[Index]]:  # noqa: ARG001 - the others come with it
    """The dense and the sparse one."""
    return [Faiss(embedder), Bm25()]

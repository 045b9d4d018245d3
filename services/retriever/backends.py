"""Which back ends hold the indexes, as the settings say."""

from services.retriever import gpu
from services.retriever.dense import Faiss
from services.retriever.layouts import Hnsw, Ivf, Layout
from services.retriever.ports import Backend, Index
from services.retriever.sparse import Bm25
from services.retriever.words import Words
from shared.models.ports import Embedder
from shared.retrieval import Dense, Retrieval


def backends(retrieval: Retrieval, embedder: Embedder) -> list[Backend[Index]]:
    """The dense and the sparse one.

    Raises:
        Unavailable: what the settings ask for is not installed.
    """
    return [_dense(retrieval, embedder), _sparse(retrieval)]


def _dense(retrieval: Retrieval, embedder: Embedder) -> Backend[Index]:
    return Faiss(embedder, _layout(retrieval.dense))


def _sparse(retrieval: Retrieval) -> Backend[Index]:
    sparse = retrieval.sparse
    return Bm25(Words(sparse.chinese), k1=sparse.k1, b=sparse.b)


def _layout(dense: Dense) -> Layout:
    match dense.backend:
        case "hnsw":
            return Hnsw(dense.neighbours, dense.build, dense.search)
        case "ivf":
            return Ivf(dense.lists, dense.probes)
        case _:
            return gpu.flat(dense.gpu, dense.gpu_mib)

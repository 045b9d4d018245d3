"""Make the back ends that the settings choose for dense and sparse indexes."""

from services.retriever import gpu
from services.retriever.dense import Faiss
from services.retriever.layouts import Hnsw, Ivf, VectorLayout
from services.retriever.ports import Backend, SearchIndex
from services.retriever.sparse import Bm25
from services.retriever.words import TermCutter
from shared.models.embedding import Embedder
from shared.settings import Dense, Retrieval


def make_backends(retrieval: Retrieval, embedder: Embedder) -> list[Backend[SearchIndex]]:
    """Return the back end of each kind, "dense" and "sparse".

    Raises:
        Unavailable: what the settings ask for is not installed.
    """
    return [_make_dense(retrieval, embedder), _make_sparse(retrieval)]


def _make_dense(retrieval: Retrieval, embedder: Embedder) -> Backend[SearchIndex]:
    if retrieval.dense.backend == "elasticsearch":
        from services.retriever.elasticsearch.dense import ElasticsearchVectors
        from services.retriever.elasticsearch.server import ElasticsearchServer

        chosen = retrieval.elasticsearch
        return ElasticsearchVectors(ElasticsearchServer(chosen), embedder, retrieval.dense, chosen.vectors)
    return Faiss(embedder, _make_layout(retrieval.dense))


def _make_sparse(retrieval: Retrieval) -> Backend[SearchIndex]:
    sparse, words = retrieval.sparse, TermCutter(retrieval.sparse.chinese)
    if sparse.backend == "elasticsearch":
        from services.retriever.elasticsearch.server import ElasticsearchServer
        from services.retriever.elasticsearch.sparse import ElasticsearchTerms

        return ElasticsearchTerms(ElasticsearchServer(retrieval.elasticsearch), words, k1=sparse.k1, b=sparse.b)
    return Bm25(words, k1=sparse.k1, b=sparse.b)


def _make_layout(dense: Dense) -> VectorLayout:
    match dense.backend:
        case "hnsw":
            return Hnsw(dense.neighbours, dense.build, dense.search)
        case "ivf":
            return Ivf(dense.lists, dense.probes)
        case _:
            return gpu.make_flat(dense.gpu, dense.gpu_mib)

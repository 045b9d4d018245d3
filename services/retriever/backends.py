"""Make the back ends that the settings choose for dense and sparse indexes."""

from services.retriever import index
from services.retriever.index import Backend, Bm25, Faiss, Hnsw, Ivf, SearchIndex, TermCutter, VectorLayout
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
        from services.retriever.elasticsearch import ElasticsearchServer, ElasticsearchVectors

        chosen = retrieval.elasticsearch
        return ElasticsearchVectors(ElasticsearchServer(chosen), embedder, retrieval.dense, chosen.vectors)
    return Faiss(embedder, _make_layout(retrieval.dense))


def _make_sparse(retrieval: Retrieval) -> Backend[SearchIndex]:
    sparse, words = retrieval.sparse, TermCutter(retrieval.sparse.chinese)
    if sparse.backend == "elasticsearch":
        from services.retriever.elasticsearch import ElasticsearchServer, ElasticsearchTerms

        return ElasticsearchTerms(ElasticsearchServer(retrieval.elasticsearch), words, k1=sparse.k1, b=sparse.b)
    return Bm25(words, k1=sparse.k1, b=sparse.b)


def _make_layout(dense: Dense) -> VectorLayout:
    match dense.backend:
        case "hnsw":
            return Hnsw(dense.neighbours, dense.build, dense.search)
        case "ivf":
            return Ivf(dense.lists, dense.probes)
        case _:
            return index.make_flat(dense.gpu, dense.gpu_mib)

"""Which back ends hold the indexes, as the settings say."""

from services.retriever import gpu
from services.retriever.dense import Faiss
from services.retriever.layouts import Hnsw, Ivf, Layout
from services.retriever.ports import Backend, Index
from services.retriever.sparse import Bm25
from services.retriever.words import Words
from shared.models.ports import Embedder
from shared.retrieval_settings import Dense, Retrieval


def backends(retrieval: Retrieval, embedder: Embedder) -> list[Backend[Index]]:
    """The dense and the sparse one.

    Raises:
        Unavailable: what the settings ask for is not installed.
    """
    return [_dense(retrieval, embedder), _sparse(retrieval)]


def _dense(retrieval: Retrieval, embedder: Embedder) -> Backend[Index]:
    if retrieval.dense.backend == "elasticsearch":
        from services.retriever.elasticsearch.dense import ElasticsearchVectors
        from services.retriever.elasticsearch.server import Server

        return ElasticsearchVectors(Server(retrieval.elasticsearch), embedder, retrieval.dense)
    return Faiss(embedder, _layout(retrieval.dense))


def _sparse(retrieval: Retrieval) -> Backend[Index]:
    sparse, words = retrieval.sparse, Words(retrieval.sparse.chinese)
    if sparse.backend == "elasticsearch":
        from services.retriever.elasticsearch.server import Server
        from services.retriever.elasticsearch.sparse import ElasticsearchTerms

        return ElasticsearchTerms(Server(retrieval.elasticsearch), words, k1=sparse.k1, b=sparse.b)
    return Bm25(words, k1=sparse.k1, b=sparse.b)


def _layout(dense: Dense) -> Layout:
    match dense.backend:
        case "hnsw":
            return Hnsw(dense.neighbours, dense.build, dense.search)
        case "ivf":
            return Ivf(dense.lists, dense.probes)
        case _:
            return gpu.flat(dense.gpu, dense.gpu_mib)

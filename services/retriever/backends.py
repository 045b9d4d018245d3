"""Make the back ends that the settings choose for dense and sparse indexes."""

from services.retriever.index import Backend, Bm25, Faiss, Hnsw, Ivf, SearchIndex, TermCutter, VectorLayout, make_flat
from shared.models.embedding import Embedder
from shared.settings import Dense, Retrieval


def make_backends(retrieval: Retrieval, embedder: Embedder) -> list[Backend[SearchIndex]]:
    """Return the back end of each kind, "dense" and "sparse".

    Raises:
        Unavailable: a back end of the settings is not installed.
    """
    if "elasticsearch" in (retrieval.dense.backend, retrieval.sparse.backend):
        from services.retriever.elasticsearch import ElasticsearchServer, ElasticsearchTerms, ElasticsearchVectors

    chosen, sparse, found = retrieval.elasticsearch, retrieval.sparse, list[Backend[SearchIndex]]()
    if retrieval.dense.backend == "elasticsearch":
        found.append(ElasticsearchVectors(ElasticsearchServer(chosen), embedder, retrieval.dense, chosen.vectors))
    else:
        found.append(Faiss(embedder, _make_layout(retrieval.dense)))
    words = TermCutter(sparse.chinese)
    if sparse.backend == "elasticsearch":
        found.append(ElasticsearchTerms(ElasticsearchServer(chosen), words, k1=sparse.k1, b=sparse.b))
    else:
        found.append(Bm25(words, k1=sparse.k1, b=sparse.b))
    return found


def _make_layout(dense: Dense) -> VectorLayout:
    match dense.backend:
        case "hnsw":
            return Hnsw(dense.neighbours, dense.build, dense.search)
        case "ivf":
            return Ivf(dense.lists, dense.probes)
        case _:
            return make_flat(dense.gpu, dense.gpu_mib)

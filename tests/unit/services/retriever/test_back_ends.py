"""One suite for every back end, unchanged: the contracts of `tests.unit.retrieval`.

Those of a server run against the one that ELASTICSEARCH_URL names, else against a double, which proves the protocol
and nothing about scores. Which was which is printed at the end of the run.
"""

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

from services.retriever.dense import Faiss
from services.retriever.elasticsearch.dense import ElasticsearchVectors
from services.retriever.elasticsearch.server import ElasticsearchServer
from services.retriever.elasticsearch.sparse import ElasticsearchTerms
from services.retriever.layouts import Hnsw, Ivf
from services.retriever.sparse import Bm25
from services.retriever.words import PAIRS, TermCutter
from shared.retrieval_settings import Dense, Elasticsearch
from tests.doubles.search_server import search_server
from tests.unit.retrieval import DenseConformance, HashedWords, SparseConformance


class TestFlat(DenseConformance):
    """All vectors are compared."""

    backend = Faiss(HashedWords())


class TestHnsw(DenseConformance):
    """A graph; six documents are all reached."""

    backend = Faiss(HashedWords(), Hnsw(neighbours=16, build=64, search=64))


class TestIvf(DenseConformance):
    """Lists; six documents are one."""

    backend = Faiss(HashedWords(), Ivf(lists=0, probes=4))


class TestBm25s(SparseConformance):
    """With characters and pairs."""

    backend = Bm25()


class TestBm25sWithWords(SparseConformance):
    """With jieba's words and other parameters."""

    backend = Bm25(TermCutter("jieba"), k1=0.9, b=0.4)


@pytest.fixture(scope="class")
def engine(request: pytest.FixtureRequest) -> Iterator[ElasticsearchServer]:
    """The real one with a prefix of its own, or the double."""
    url = os.environ.get("ELASTICSEARCH_URL")
    if url is None:
        request.cls.behind = "a double: ELASTICSEARCH_URL names no server"
        request.cls.step = 20  # it compares every question with every document, in Python
        with search_server() as double:
            yield ElasticsearchServer(Elasticsearch(url=double.url))
        return
    real = ElasticsearchServer(Elasticsearch(prefix=f"mathrag-test-{uuid4().hex[:8]}"))
    yield real
    for index in real.indexes():
        real.delete(index)


class TestElasticsearchTerms(SparseConformance):
    """BM25 by the server."""

    @pytest.fixture(autouse=True)
    def _backend(self, engine: ElasticsearchServer) -> None:
        self.backend = ElasticsearchTerms(engine, PAIRS, k1=1.2, b=0.75)


class TestElasticsearchVectors(DenseConformance):
    """kNN by the server, which adds in single precision, in an order that depends on where a document lies."""

    precision = 1e-6

    @pytest.fixture(autouse=True)
    def _backend(self, engine: ElasticsearchServer) -> None:
        self.backend = ElasticsearchVectors(engine, HashedWords(), Dense())


class TestElasticsearchBytes(DenseConformance):
    """The same with a graph of bytes. One of bits cannot tell texts apart that differ by a number, at 64 dimensions."""

    precision = 1e-6

    @pytest.fixture(autouse=True)
    def _backend(self, engine: ElasticsearchServer) -> None:
        self.backend = ElasticsearchVectors(engine, HashedWords(), Dense(), "int8_hnsw")

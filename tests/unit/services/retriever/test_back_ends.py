"""One suite for every back end, unchanged: the contracts of `tests.unit.retrieval`.

Those of a server run against the one that ELASTICSEARCH_URL names, else against a double, which proves the protocol
and nothing about scores. Which was which is printed at the end of the run.
"""

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest

from services.retriever.elasticsearch import ElasticsearchServer, ElasticsearchTerms, ElasticsearchVectors
from services.retriever.index import PAIRS, Bm25, Faiss, Hnsw, Ivf, TermCutter
from shared.settings import Dense, Elasticsearch
from tests.doubles.search_server import search_server
from tests.unit.retrieval import DenseConformance, HashedWords, SparseConformance


class TestFlat(DenseConformance):
    backend = Faiss(HashedWords())


class TestHnsw(DenseConformance):
    backend = Faiss(HashedWords(), Hnsw(neighbours=16, build=64, search=64))


class TestIvf(DenseConformance):
    backend = Faiss(HashedWords(), Ivf(lists=0, probes=4))


class TestBm25s(SparseConformance):
    backend = Bm25()


class TestBm25sWithWords(SparseConformance):
    backend = Bm25(TermCutter("jieba"), k1=0.9, b=0.4)


@pytest.fixture(scope="class")
def engine(request: pytest.FixtureRequest) -> Iterator[ElasticsearchServer]:
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
    @pytest.fixture(autouse=True)
    def _backend(self, engine: ElasticsearchServer) -> None:
        self.backend = ElasticsearchTerms(engine, PAIRS, k1=1.2, b=0.75)


class TestElasticsearchVectors(DenseConformance):
    precision = 1e-6

    @pytest.fixture(autouse=True)
    def _backend(self, engine: ElasticsearchServer) -> None:
        self.backend = ElasticsearchVectors(engine, HashedWords(), Dense())


class TestElasticsearchBytes(DenseConformance):
    precision = 1e-6

    @pytest.fixture(autouse=True)
    def _backend(self, engine: ElasticsearchServer) -> None:
        self.backend = ElasticsearchVectors(engine, HashedWords(), Dense(), "int8_hnsw")

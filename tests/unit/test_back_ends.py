"""One suite for every back end: the contract of `tests.unit.retrieval.Conformance`, unchanged."""

from services.retriever.dense import Faiss
from services.retriever.layouts import Hnsw, Ivf
from services.retriever.sparse import Bm25
from services.retriever.words import Words
from tests.unit.retrieval import Conformance, HashedWords


class TestFlat(Conformance):
    """All vectors are compared."""

    backend = Faiss(HashedWords())


class TestHnsw(Conformance):
    """A graph; six documents are all reached."""

    backend = Faiss(HashedWords(), Hnsw(neighbours=16, build=64, search=64))


class TestIvf(Conformance):
    """Lists; six documents are one."""

    backend = Faiss(HashedWords(), Ivf(lists=0, probes=4))


class TestBm25(Conformance):
    """bm25s, with characters and pairs."""

    backend = Bm25()


class TestBm25WithWords(Conformance):
    """bm25s, with jieba's words and other parameters."""

    backend = Bm25(Words("jieba"), k1=0.9, b=0.4)

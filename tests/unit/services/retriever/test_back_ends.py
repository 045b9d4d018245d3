"""One suite for every back end, unchanged: the contracts of `tests.unit.retrieval`.

Those of a server run against the one that ELASTICSEARCH_URL names, else against a double, which proves the protocol
and nothing about scores. Which was which is printed at the end of the run."""

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pydantic import ValidationError

from mathrag.errors import Unavailable
from services.retriever.elasticsearch import ElasticsearchServer, ElasticsearchTerms, ElasticsearchVectors
from services.retriever.index import PAIRS, Bm25, Faiss, Hnsw, Ivf, TermCutter
from shared.settings import Dense, Elasticsearch
from tests.doubles.search_server import search_server
from tests.doubles.tls import Certified, certify, tls_proxy
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


# Elasticsearch behind TLS: which certificates are believed, and what is said of the others.


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return certify(tmp_path_factory.mktemp("tls") / "server")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    return certify(tmp_path_factory.mktemp("tls") / "stranger")


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    if url := os.environ.get("ELASTICSEARCH_URL"):
        yield url
        return
    with search_server() as double:
        yield double.url


@pytest.fixture
def url(plain: str, certified: Certified, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.delenv("ELASTICSEARCH_URL", raising=False)
    with tls_proxy(plain, certified) as url:
        yield url


def refusal(url: str, **settings: object) -> Unavailable:
    with pytest.raises(Unavailable) as caught:
        asked(url, **settings)
    return caught.value


def asked(url: str, **settings: object) -> list[str]:
    given = {"url": url, "prefix": "mathrag-tls", "retries": 0, **settings}
    return ElasticsearchServer(Elasticsearch.model_validate(given)).indexes()


def test_a_server_is_believed_by_the_authority_that_is_named(url: str, certified: Certified) -> None:
    assert asked(url, ca_certs=certified.authority) == []


def test_a_server_is_believed_by_a_fingerprint(url: str, certified: Certified) -> None:
    fingerprint = certified.fingerprint()
    colons = ":".join(fingerprint[at : at + 2] for at in range(0, 64, 2)).upper()
    assert asked(url, fingerprint=fingerprint) == asked(url, fingerprint=colons) == []


def test_a_certificate_of_an_unknown_authority_is_refused(url: str, stranger: Certified) -> None:
    for settings in ({}, {"ca_certs": stranger.authority}):
        said = refusal(url, **settings)
        assert "has a certificate that is not trusted" in said.message
        assert "`retrieval.elasticsearch.ca_certs`" in str(said.hint)


def test_another_fingerprint_is_refused(url: str, stranger: Certified) -> None:
    said = refusal(url, fingerprint=stranger.fingerprint())
    assert "has a certificate with another fingerprint" in said.message
    assert stranger.fingerprint() in said.message.replace(":", "").lower()


def test_a_certificate_for_another_name_is_refused(plain: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTICSEARCH_URL", raising=False)
    other = certify(tmp_path / "other", "DNS:search.example.org")
    with tls_proxy(plain, other) as url:
        said = refusal(url, ca_certs=other.authority)
    assert "has a certificate for another name" in said.message
    assert "`retrieval.elasticsearch.url`" in str(said.hint)


def test_http_to_a_server_that_speaks_tls_is_said_so(url: str) -> None:
    said = refusal(url.replace("https", "http"))
    assert "closed the connection" in said.message
    assert "if it speaks TLS, write https://" in str(said.hint)


def test_https_to_a_server_without_tls_is_said_so(plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ELASTICSEARCH_URL", raising=False)
    said = refusal(plain.replace("http", "https"))
    assert "refuses the TLS connection" in said.message
    assert "if it speaks no TLS, write http://" in str(said.hint)


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_a_file_without_a_certificate_is_said_so(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    if text is not None:
        file.write_text(text)
    said = refusal("https://127.0.0.1:9", ca_certs=file)
    assert (
        f"{file} cannot be used: {'No such file' if text is None else 'it does not contain a certificate'}"
        in said.message
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": "http://search:9200", "ca_certs": "ca.crt"}, "must begin with https://"),
        ({"url": "http://search:9200", "fingerprint": "ab" * 32}, "must begin with https://"),
        ({"url": "https://search:9200", "fingerprint": "ab" * 32, "ca_certs": "ca.crt"}, "`ca_certs` or `fingerprint`"),
        ({"url": "https://search:9200", "fingerprint": "ab" * 20}, "String should match pattern"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        Elasticsearch.model_validate(settings)

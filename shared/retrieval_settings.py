"""Settings of retrieval: which back end holds which index, what makes vectors, what reranks. Part of `Settings`."""

import os
import re
from math import ceil
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, model_validator

MODELS = Path(__file__).resolve().parent.parent / "models"
SERVER_URL = "http://127.0.0.1:9200 or https://user:password@host:9200"
_PRINTABLE = re.compile("[!-~]+")

Secret = Annotated[str, Field(repr=False), PlainSerializer(lambda value: "***" if value else "")]
"""A string that nothing prints: neither `repr` nor a dump of the settings shows it."""


def plain(url: str | None) -> str | None:
    """A URL that may stand in rows, spans and messages.

    Raises:
        ValueError: it is no HTTP URL, or holds a password.
    """
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or "@" in urlsplit(url).netloc):
        raise ValueError("must be http:// or https:// without a password; name a key by `api_key_env`")
    return url


Url = Annotated[str, AfterValidator(plain)]


class Embeddings(BaseModel):
    """What makes vectors of texts. Another one makes other indexes: the old ones are refused, not misread."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    kind: Literal["static", "openai", "ollama", "gguf", "sentence-transformers"] = "static"
    """`static`: the shipped table of token vectors; `openai`: any server with `/v1/embeddings`; `ollama`: an Ollama
    server; `gguf`: a file, served by llama.cpp inside the retriever; `sentence-transformers`: needs the extra
    `rerank`."""
    path: Path | None = MODELS / "static-embeddings"
    """`static`: folder; `gguf`: file; `sentence-transformers`: folder, unless `model` names one on the hub."""
    url: Url | None = None
    """`openai`, `ollama`: base URL of the server."""
    model: str = ""
    """Name of the model on the server."""
    revision: str = ""
    """What tells one version of a remote model from the next, where the server does not say it."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    query_prefix: str = ""
    """Instruction before every question, such as bge's; documents have their own."""
    document_prefix: str = ""
    """Instruction before every document."""
    max_chars: int = Field(default=0, ge=0)
    """Longer texts are cut to so many characters; 0: never. What the model cannot hold even so: `too_long`."""
    too_long: Literal["refuse", "cut"] = "refuse"
    """A text of more tokens than the model holds: refused, or cut to the longest beginning that the model takes
    (docs/retrieval.md#embedders)."""
    batch: int = Field(default=64, gt=0, le=4096)
    """Texts in one request."""
    cache: int = Field(default=10_000, ge=0)
    """Vectors of questions that are kept."""
    threads: int = Field(default=1, gt=0)
    """`gguf`: threads of llama.cpp; one is fastest for very small models."""
    timeout_s: float = Field(default=30.0, gt=0)
    """`openai`, `ollama`: longest wait for one request, with its repetitions."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind in ("openai", "ollama") and not (self.url and self.model):
            raise ValueError(f"`embeddings`: kind `{self.kind}` needs `url` and `model`")
        if self.kind in ("static", "gguf") and self.path is None:
            raise ValueError(f"`embeddings`: kind `{self.kind}` needs a `path`")
        if self.kind == "sentence-transformers" and not (self.model or self.path):
            raise ValueError("`embeddings`: kind `sentence-transformers` needs a `path` or a `model`")
        if self.kind == "static" and (
            self.query_prefix or self.document_prefix or self.max_chars or self.too_long == "cut"
        ):
            raise ValueError("`embeddings`: kind `static` has no prefixes, and a length of its own; take them away")
        return self


class Dense(BaseModel):
    """Where vectors are searched."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    backend: Literal["flat", "hnsw", "ivf", "elasticsearch"] = "flat"
    """`flat`: exact; `hnsw`, `ivf`: approximate, by FAISS; `elasticsearch`: kNN on `dense_vector`."""
    neighbours: int = Field(default=32, ge=2, le=256)
    """`hnsw`, `elasticsearch`: links of a node (M)."""
    build: int = Field(default=200, ge=8, le=4096)
    """`hnsw`, `elasticsearch`: candidates while building (efConstruction)."""
    search: int = Field(default=128, ge=1, le=10_000)
    """`hnsw`, `elasticsearch`: candidates while searching (efSearch, num_candidates)."""
    lists: int = Field(default=0, ge=0)
    """`ivf`: number of lists; 0: four times the square root of the number of documents, at most one list for 39 of
    them."""
    probes: int = Field(default=16, ge=1)
    """`ivf`: lists that are searched."""
    gpu: Literal["auto", "never"] = "never"
    """`auto`: `flat` is searched on the first GPU where FAISS sees one (extra `gpu`) and `gpu_mib` suffices
    (docs/retrieval.md#back-ends)."""
    gpu_mib: int = Field(default=512, gt=0)
    """CUDA's context, scratch memory and vectors; models have so much less of that device's budget, used or not."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.gpu == "auto" and self.backend != "flat":
            raise ValueError(f"`dense`: `gpu: auto` is for backend `flat`, not `{self.backend}`")
        return self


class Sparse(BaseModel):
    """Where words are searched."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    backend: Literal["bm25s", "elasticsearch"] = "bm25s"
    """`bm25s`: in the retriever; `elasticsearch`: on the server under `elasticsearch`."""
    k1: float = Field(default=1.2, ge=0, le=10)
    """Saturation of BM25."""
    b: float = Field(default=0.75, ge=0, le=1)
    """Length normalisation of BM25."""
    chinese: Literal["auto", "jieba", "bigrams"] = "auto"
    """How runs of Chinese are cut: by `jieba` (extra `zh`) or into `bigrams`; `auto`: by jieba where it is installed
    (docs/retrieval.md#chinese)."""


def check_server_url(url: str, source: str) -> None:
    """Return if `url` is that of a search server: http or https, host, port, perhaps user, password and path.

    Raises:
        ValueError: it is not. The message names `source` and does not repeat the URL, which may hold a password.
    """
    try:
        parts = urlsplit(url)
        complete = parts.scheme in ("http", "https") and parts.hostname and parts.port
    except ValueError as error:
        # Some of these errors repeat the value after a colon.
        raise ValueError(f"{source} is no URL ({str(error).partition(':')[0]}); write {SERVER_URL}") from None
    if not complete:
        raise ValueError(f"{source} needs http:// or https://, a host and a port: write {SERVER_URL}")
    if parts.query or parts.fragment or not _PRINTABLE.fullmatch(url):
        raise ValueError(f"{source} must have no `?`, `#`, blank or control character: write {SERVER_URL}")


def check_key(key: str) -> str:
    """`key` again, if a header can carry it.

    Raises:
        ValueError: it holds a blank, a line break or another character that is not printable ASCII.
    """
    if key and not _PRINTABLE.fullmatch(key):
        raise ValueError("must be one word of printable ASCII: remove blanks and line breaks, also at the end")
    return key


class Elasticsearch(BaseModel):
    """The server of the back ends of that name."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    url: Secret = Field(default="", examples=["https://search.example.org:9200"])
    """Base URL of the server; also read from ELASTICSEARCH_URL."""
    api_key: Annotated[Secret, AfterValidator(check_key)] = ""
    """API key of the server; a secret."""
    ca_certs: Path | None = None
    """PEM file of the certificate authority that signed the server's certificate, where the system does not know it
    (docs/retrieval.md#certificates-of-elasticsearch)."""
    fingerprint: str = Field(default="", pattern="^$|^[0-9a-fA-F]{2}(:?[0-9a-fA-F]{2}){31}$")
    """In place of `ca_certs`: SHA-256 of the certificate of the server or of its authority, in hexadecimal."""
    prefix: str = Field(default="mathrag", pattern="^[a-z][a-z0-9-]{0,40}$")
    """Prefix of every index and alias that is made there."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Longest wait for one request."""
    retries: int = Field(default=3, ge=0, le=10)
    """Repetitions of a request that the server refused for the moment."""

    @property
    def address(self) -> str:
        """The server's URL, from the setting or from ELASTICSEARCH_URL; empty where neither is set.

        Raises:
            ValueError: it is none, or is http:// where a certificate is named.
        """
        source, url = "`retrieval.elasticsearch.url`", self.url
        if not url:
            source, url = "ELASTICSEARCH_URL", os.environ.get("ELASTICSEARCH_URL", "")
        if not url:
            return ""
        check_server_url(url, source)
        if (self.ca_certs or self.fingerprint) and not url.startswith("https:"):
            raise ValueError(f"{source} must begin with https:// where `ca_certs` or `fingerprint` is set")
        return url

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.ca_certs and self.fingerprint:
            raise ValueError("`elasticsearch`: name `ca_certs` or `fingerprint`; a fingerprint needs no authority")
        if self.url:
            _ = self.address
        return self


class Reranker(BaseModel):
    """The cross-encoder that scores (question, document) pairs."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    kind: Literal["none", "endpoint", "gguf", "sentence-transformers"] = "none"
    """`endpoint`: a rerank server; `gguf`: a file, served by llama.cpp inside the retriever; `sentence-transformers`:
    needs the extra `rerank`."""
    protocol: Literal["jina", "tei"] = "jina"
    """`jina`: `/v1/rerank` of llama.cpp and vLLM; `tei`: `/rerank` of text-embeddings-inference."""
    url: Url | None = None
    """`endpoint`: base URL of the server."""
    model: str = ""
    """Name of the model on the server."""
    path: Path | None = None
    """`gguf`: file; `sentence-transformers`: folder, unless `model` names one on the hub."""
    revision: str = ""
    """What tells one version of a remote model from the next, where the server does not say it."""
    api_key_env: str | None = None
    """Name of the environment variable that holds the key."""
    activation: Literal["sigmoid", "none"] = "sigmoid"
    """What makes a probability of the score as it comes: `none` where the server has done it already."""
    max_chars: int = Field(default=0, ge=0)
    """Longer documents are cut to so many characters; 0: never, and a pair that the model cannot hold is refused."""
    batch: int = Field(default=32, gt=0, le=1024)
    """Pairs in one request."""
    threads: int = Field(default=1, gt=0)
    """`gguf`: threads of llama.cpp; one is fastest for very small models."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Longest wait for one request, with its repetitions; jobs and searches wait as long for each request that their
    documents take, and once more."""

    def patience_s(self, documents: int) -> float:
        """Seconds that whoever asks the retriever to score so many documents waits: for each of its requests, and one
        more for what the retriever does itself.
        """
        return self.timeout_s * (1 + ceil(documents / self.batch))

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.kind == "endpoint" and not self.url:
            raise ValueError("`reranker`: kind `endpoint` needs a `url`")
        if self.kind == "gguf" and self.path is None:
            raise ValueError("`reranker`: kind `gguf` needs a `path`")
        if self.kind == "sentence-transformers" and not (self.model or self.path):
            raise ValueError("`reranker`: kind `sentence-transformers` needs a `path` or a `model`")
        return self


EXAMPLE_EMBEDDINGS = {
    "kind": "openai", "url": "http://127.0.0.1:8082", "model": "bge-small-en-v1.5", "revision": "1", "too_long": "cut",
}  # fmt: skip
EXAMPLE_RERANKER = {
    "kind": "endpoint", "url": "http://127.0.0.1:8081", "model": "bge-reranker-v2-m3", "revision": "1",
    "max_chars": 1500,
}  # fmt: skip


class Retrieval(BaseModel):
    """How documents are found (docs/retrieval.md)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    embeddings: Embeddings = Field(default=Embeddings(), examples=[EXAMPLE_EMBEDDINGS])
    dense: Dense = Dense()
    sparse: Sparse = Sparse()
    reranker: Reranker = Field(default=Reranker(), examples=[EXAMPLE_RERANKER])
    elasticsearch: Elasticsearch = Elasticsearch()
    timeout_s: float = Field(default=30.0, gt=0)
    """Longest wait for one search, after which it is tried again, and at last the stage's fallback is taken."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if "elasticsearch" in (self.dense.backend, self.sparse.backend):
            _ = self.elasticsearch.address
        return self

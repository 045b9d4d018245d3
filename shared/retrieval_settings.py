"""Settings of retrieval, part of `Settings`: back ends of the indexes, embedder and reranker."""

import os
import re
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, model_validator

MODELS = Path(__file__).resolve().parent.parent / "models"
SERVER_URL = "http://127.0.0.1:9200 or https://user:password@host:9200"
_PRINTABLE = re.compile("[!-~]+")

Hidden = Annotated[str, PlainSerializer(lambda value: "***" if value else "")]
"""A string that a dump of the settings does not show."""
Secret = Annotated[Hidden, Field(repr=False)]
"""A string that is never printed: neither `repr` nor a dump of the settings shows it."""


def check_url(url: str | None) -> str | None:
    """Return `url` if it may be stored and shown.

    Raises:
        ValueError: it is no HTTP URL, or holds a password.
    """
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or "@" in urlsplit(url).netloc):
        raise ValueError("must be http:// or https:// without a password; set `api_key_env` for a key")
    return url


Url = Annotated[str, AfterValidator(check_url)]


class Embeddings(BaseModel):
    """The embedder. Indexes of another embedder are refused, and must be built again."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    kind: Literal["static", "openai", "ollama", "gguf", "sentence-transformers", "plugin"] = "static"
    """`static`: the shipped table of token vectors; `openai`: a server with `/v1/embeddings`; `ollama`: an Ollama
    server; `gguf`: a file, served by llama.cpp in the retriever; `sentence-transformers`: needs the extra `rerank`;
    `plugin`: a plug-in (docs/how-to/plugins.md#kinds)."""
    plugin: str = ""
    """`plugin`: name of the embedder."""
    options: dict[str, Any] = {}
    """`plugin`: options of the embedder; they are part of its identity."""
    path: Path | None = MODELS / "static-embeddings"
    """`static`: folder; `gguf`: file; `sentence-transformers`: folder, unless `model` names one on the hub."""
    url: Url | None = None
    """`openai`, `ollama`: base URL of the server."""
    model: str = ""
    """Name of the model on the server."""
    revision: str = ""
    """Version of a remote model, if its server does not report it."""
    api_key_env: str | None = None
    """Name of the environment variable with the API key."""
    query_prefix: str = ""
    """Instruction before every question, such as bge's; documents have their own."""
    document_prefix: str = ""
    """Instruction before every document."""
    max_chars: int = Field(default=0, ge=0)
    """Length to which texts are cut, in characters; 0: never. `too_long` applies to what is still too long for the
    model."""
    too_long: Literal["refuse", "cut"] = "refuse"
    """What happens to a text with more tokens than the model's context: it is refused, or truncated to the longest
    beginning that fits (docs/how-to/retrieval.md#embedders)."""
    batch: int = Field(default=64, gt=0, le=4096)
    """Number of texts in one request."""
    cache: int = Field(default=10_000, ge=0)
    """Number of question vectors in the cache."""
    threads: int = Field(default=1, gt=0)
    """`gguf`: number of threads of llama.cpp; 1 is fastest for very small models."""
    timeout_s: float = Field(default=30.0, gt=0)
    """`openai`, `ollama`: maximum time of one request with its retries, in seconds."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if (self.kind == "plugin") != bool(self.plugin):
            raise ValueError("`embeddings`: `plugin` and kind `plugin` belong together: set both or neither")
        if self.kind in ("openai", "ollama") and not (self.url and self.model):
            raise ValueError(f"`embeddings`: kind `{self.kind}` needs `url` and `model`")
        if self.kind in ("static", "gguf") and self.path is None:
            raise ValueError(f"`embeddings`: kind `{self.kind}` needs a `path`")
        if self.kind == "sentence-transformers" and not (self.model or self.path):
            raise ValueError("`embeddings`: kind `sentence-transformers` needs a `path` or a `model`")
        if self.kind == "static" and (
            self.query_prefix or self.document_prefix or self.max_chars or self.too_long == "cut"
        ):
            raise ValueError("`embeddings`: kind `static` takes no prefixes and no length: remove them")
        return self


class Dense(BaseModel):
    """The back end of dense indexes."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    backend: Literal["flat", "hnsw", "ivf", "elasticsearch"] = "flat"
    """`flat`: exact; `hnsw`, `ivf`: approximate, with FAISS; `elasticsearch`: kNN on a `dense_vector` field."""
    neighbours: int = Field(default=32, ge=2, le=256)
    """`hnsw`, `elasticsearch`: links of each node (M)."""
    build: int = Field(default=200, ge=8, le=4096)
    """`hnsw`, `elasticsearch`: candidates during the build (efConstruction)."""
    search: int = Field(default=128, ge=1, le=10_000)
    """`hnsw`, `elasticsearch`: candidates during a search (efSearch, num_candidates)."""
    lists: int = Field(default=0, ge=0)
    """`ivf`: number of lists; 0: four times the square root of the number of documents, at most one list for 39
    documents."""
    probes: int = Field(default=16, ge=1)
    """`ivf`: number of lists that a search reads."""
    gpu: Literal["auto", "never"] = "never"
    """`auto`: search `flat` on the first GPU, if FAISS sees one (extra `gpu`) and `gpu_mib` is enough
    (docs/how-to/retrieval.md#back-ends); `never`: on the CPU."""
    gpu_mib: int = Field(default=512, gt=0)
    """Memory for CUDA's context, scratch memory and vectors, in MiB. Models have that much less of the device's budget,
    whether it is used or not."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.gpu == "auto" and self.backend != "flat":
            raise ValueError(f"`dense`: `gpu: auto` needs backend `flat`, not `{self.backend}`")
        return self


class Sparse(BaseModel):
    """The back end of sparse indexes."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    backend: Literal["bm25s", "elasticsearch"] = "bm25s"
    """`bm25s`: in the retriever; `elasticsearch`: on the server of `elasticsearch`."""
    k1: float = Field(default=1.2, ge=0, le=10)
    """Term saturation of BM25."""
    b: float = Field(default=0.75, ge=0, le=1)
    """Length normalisation of BM25."""
    chinese: Literal["auto", "jieba", "bigrams"] = "auto"
    """How runs of Chinese are cut into terms: by `jieba` (extra `zh`) or into `bigrams`; `auto`: by jieba if it is
    installed (docs/how-to/retrieval.md#chinese)."""


def check_server_url(url: str, source: str) -> None:
    """Check that `url` is that of a search server: http or https, host, port, and optionally user, password and path.

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
        raise ValueError(f"{source} must not hold `?`, `#`, a blank or a control character: write {SERVER_URL}")


def check_key(key: str) -> str:
    """Return `key` if an HTTP header can hold it.

    Raises:
        ValueError: it holds a blank, a line break or another character that is not printable ASCII.
    """
    if key and not _PRINTABLE.fullmatch(key):
        raise ValueError("must be one word of printable ASCII: remove blanks and line breaks, also at the end")
    return key


VectorGraph = Literal["hnsw", "int8_hnsw", "bbq_hnsw"]


class Elasticsearch(BaseModel):
    """The server of the back ends `elasticsearch`."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, hide_input_in_errors=True)

    url: Secret = Field(default="", examples=["https://search.example.org:9200"])
    """Base URL of the server; by default ELASTICSEARCH_URL."""
    urls: tuple[Hidden, ...] = Field(default=(), repr=False)
    """In place of `url`: base URLs of several nodes of a cluster, such as `[https://es1:9200, https://es2:9200]`.
    Requests go to each in turn, and to the others while one is away."""
    api_key: Annotated[Secret, AfterValidator(check_key)] = ""
    """API key of the server (a secret)."""
    ca_certs: Path | None = None
    """PEM file of the certificate authority that signed the server's certificate, if the system does not know it
    (docs/how-to/retrieval.md#certificates-of-elasticsearch)."""
    fingerprint: str = Field(default="", pattern="^$|^[0-9a-fA-F]{2}(:?[0-9a-fA-F]{2}){31}$")
    """Instead of `ca_certs`: SHA-256 of the certificate of the server or of its authority, in hex."""
    prefix: str = Field(default="mathrag", pattern="^[a-z][a-z0-9-]{0,40}$")
    """Prefix of all indexes and aliases on the server."""
    replicas: int = Field(default=0, ge=0, le=100)
    """Copies of each new index on further nodes, so that searches survive the loss of a node."""
    vectors: VectorGraph = "hnsw"
    """How the graph of a new index holds its vectors: as floats, as bytes (a quarter of the memory), or as bits (a
    thirty-second). The best hits of the latter two are scored again with the floats, which stay on disk
    (docs/how-to/retrieval.md#clusters-of-elasticsearch)."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Maximum time of one request, in seconds."""
    retries: int = Field(default=3, ge=0, le=10)
    """Number of retries of a request that the server refused for the moment."""

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return the URLs of the nodes, from the settings or from ELASTICSEARCH_URL; none if none is set.

        Raises:
            ValueError: one is not a URL, or is http:// where a certificate is named.
        """
        source, urls = "`retrieval.elasticsearch.urls`", self.urls
        if self.url:
            source, urls = "`retrieval.elasticsearch.url`", (self.url,)
        elif not urls:
            url = os.environ.get("ELASTICSEARCH_URL", "")
            source, urls = "ELASTICSEARCH_URL", (url,) if url else ()
        for url in urls:
            check_server_url(url, source)
            if (self.ca_certs or self.fingerprint) and not url.startswith("https:"):
                raise ValueError(f"{source} must begin with https:// where `ca_certs` or `fingerprint` is set")
        return urls

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.ca_certs and self.fingerprint:
            raise ValueError("`elasticsearch`: set `ca_certs` or `fingerprint`, not both")
        if self.url and self.urls:
            raise ValueError("`elasticsearch`: set `url` or `urls`, not both")
        if self.url or self.urls:
            _ = self.addresses
        return self


class Reranker(BaseModel):
    """The cross-encoder that scores (question, document) pairs."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    kind: Literal["none", "endpoint", "gguf", "sentence-transformers", "plugin"] = "none"
    """`none`: no reranker; `endpoint`: a rerank server; `gguf`: a file, served by llama.cpp in the retriever;
    `sentence-transformers`: needs the extra `rerank`; `plugin`: a plug-in (docs/how-to/plugins.md#kinds)."""
    plugin: str = ""
    """`plugin`: name of the reranker."""
    options: dict[str, Any] = {}
    """`plugin`: options of the reranker; they are part of its identity."""
    protocol: Literal["jina", "tei"] = "jina"
    """`jina`: `/v1/rerank` of llama.cpp and vLLM; `tei`: `/rerank` of text-embeddings-inference."""
    url: Url | None = None
    """`endpoint`: base URL of the server."""
    model: str = ""
    """Name of the model on the server."""
    path: Path | None = None
    """`gguf`: file; `sentence-transformers`: folder, unless `model` names one on the hub."""
    revision: str = ""
    """Version of a remote model, if its server does not report it."""
    api_key_env: str | None = None
    """Name of the environment variable with the API key."""
    activation: Literal["sigmoid", "none"] = "sigmoid"
    """Function that turns scores into probabilities; `none` if the server returns probabilities."""
    max_chars: int = Field(default=0, ge=0)
    """Length to which documents are cut, in characters; 0: never, and a pair that does not fit the model is refused."""
    batch: int = Field(default=32, gt=0, le=1024)
    """Number of pairs in one request."""
    threads: int = Field(default=1, gt=0)
    """`gguf`: number of threads of llama.cpp; 1 is fastest for very small models."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Maximum time of one request with its retries, in seconds. Jobs and searches wait this long for each request that
    their documents take, and once more."""

    def patience_s(self, documents: int) -> float:
        """Return how long a client of the retriever waits for the scores of this many documents, in seconds: the time
        of each request, and once more for the retriever's own work."""
        return self.timeout_s * (1 + ceil(documents / self.batch))

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if (self.kind == "plugin") != bool(self.plugin):
            raise ValueError("`reranker`: `plugin` and kind `plugin` belong together: set both or neither")
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
    """How documents are found (docs/how-to/retrieval.md)."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    embeddings: Embeddings = Field(default=Embeddings(), examples=[EXAMPLE_EMBEDDINGS])
    dense: Dense = Dense()
    sparse: Sparse = Sparse()
    reranker: Reranker = Field(default=Reranker(), examples=[EXAMPLE_RERANKER])
    elasticsearch: Elasticsearch = Elasticsearch()
    timeout_s: float = Field(default=30.0, gt=0)
    """Maximum time of one search, in seconds; then it is retried, and finally the fallback of the stage is used."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if "elasticsearch" in (self.dense.backend, self.sparse.backend):
            _ = self.elasticsearch.addresses
        return self

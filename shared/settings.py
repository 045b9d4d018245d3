"""Settings of all services: devices, models, retrieval, limits and folders."""

import os
import re
from functools import cache
from importlib.metadata import version
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, PrivateAttr, model_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SecretsSettingsSource,
    SettingsConfigDict,
    YamlConfigSettingsSource,
)

from mathrag.errors import Unavailable
from mathrag.installation import SERVER, checkout
from mathrag.places import DATA_DIR, config_file

REPOSITORY = Path(__file__).resolve().parent.parent
MODELS = REPOSITORY / "models"
EMBEDDINGS = MODELS / "static-embeddings"
"""The shipped embeddings, to which the difficulty's weights were fitted. Indexes may use others."""
SERVER_URL = "http://127.0.0.1:9200 or https://user:password@host:9200"
_PRINTABLE = re.compile("[!-~]+")
Hidden = Annotated[str, PlainSerializer(lambda value: "***" if value else "")]
"""A string that a dump of the settings does not show."""
Secret = Annotated[Hidden, Field(repr=False)]
"""A string that is never printed: neither `repr` nor a dump of the settings shows it."""


def check_url(url: str | None) -> str | None:
    """Return `url` if it may be stored and shown.

    Raises:
        ValueError: it is not an HTTP URL, or contains a password.
    """
    if url is not None and (urlsplit(url).scheme not in ("http", "https") or "@" in urlsplit(url).netloc):
        raise ValueError("must be http:// or https:// without a password; set `api_key_env` for a key")
    return url


Url = Annotated[str, AfterValidator(check_url)]


class SettingsGroup(BaseModel):
    """A group of settings. Unknown settings are rejected."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Embeddings(SettingsGroup):
    """The embedder. An index that another embedder built is rejected and must be built again."""

    kind: Literal["static", "openai", "ollama", "gguf", "sentence-transformers", "plugin"] = "static"
    """Where vectors come from. `static`: the shipped table of token vectors; `openai`: a server with `/v1/embeddings`;
    `ollama`: an Ollama server; `gguf`: a file that llama.cpp serves in the retriever; `sentence-transformers`: the
    library of that name (extra `rerank`); `plugin`: a plug-in (docs/how-to/plugins.md#kinds). The default needs no
    server and no GPU."""
    plugin: str = ""
    """`plugin`: name of the embedder."""
    options: dict[str, Any] = {}
    """`plugin`: options of the embedder; they are part of its identity."""
    path: Path | None = EMBEDDINGS
    """`static`: the folder of the model; `gguf`: the file; `sentence-transformers`: the folder, unless `model` names a
    model on the hub."""
    url: Url | None = None
    """`openai`, `ollama`: base URL of the server."""
    model: str = ""
    """Name of the model on the server."""
    revision: str = ""
    """Version of a remote model, if its server does not report it."""
    api_key_env: str | None = None
    """Name of the environment variable with the API key."""
    query_prefix: str = ""
    """Instruction that is put before every question; bge models need one. Documents have their own prefix."""
    document_prefix: str = ""
    """Instruction that is put before every document."""
    max_chars: int = Field(default=0, ge=0)
    """Length to which texts are cut, in characters; 0: texts are not cut. `too_long` applies to texts that are still
    too long for the model."""
    too_long: Literal["refuse", "cut"] = "refuse"
    """What happens to a text with more tokens than the model's context. `refuse`: the text is rejected; `cut`: it is
    truncated to the longest beginning that fits (docs/how-to/retrieval.md#embedders). `static` and
    `sentence-transformers` always truncate."""
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


class Dense(SettingsGroup):
    """The back end of dense indexes."""

    backend: Literal["flat", "hnsw", "ivf", "elasticsearch"] = "flat"
    """`flat`: exact search; `hnsw`, `ivf`: approximate search with FAISS; `elasticsearch`: kNN on a `dense_vector`
    field."""
    neighbours: int = Field(default=32, ge=2, le=256)
    """`hnsw`, `elasticsearch`: number of links of each node (M)."""
    build: int = Field(default=200, ge=8, le=4096)
    """`hnsw`, `elasticsearch`: number of candidates during the build (efConstruction). More candidates make the build
    slower and the search more exact."""
    search: int = Field(default=128, ge=1, le=10_000)
    """`hnsw`, `elasticsearch`: number of candidates during a search (efSearch, num_candidates). More candidates make
    the search slower and more exact."""
    lists: int = Field(default=0, ge=0)
    """`ivf`: number of lists. 0: four times the square root of the number of documents, and at most one list for every
    39 documents."""
    probes: int = Field(default=16, ge=1)
    """`ivf`: number of lists that a search reads."""
    gpu: Literal["auto", "never"] = "never"
    """`auto`: backend `flat` searches on the first GPU if FAISS finds one (extra `gpu`) and `gpu_mib` is large enough
    (docs/how-to/retrieval.md#back-ends); `never`: it searches on the CPU."""
    gpu_mib: int = Field(default=512, gt=0)
    """GPU memory for CUDA's context, scratch memory and vectors, in MiB. It is subtracted from the device's budget for
    models, even while it is unused."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.gpu == "auto" and self.backend != "flat":
            raise ValueError(f"`dense`: `gpu: auto` needs backend `flat`, not `{self.backend}`")
        return self


class Sparse(SettingsGroup):
    """The back end of sparse indexes."""

    backend: Literal["bm25s", "elasticsearch"] = "bm25s"
    """`bm25s`: the index is in the retriever; `elasticsearch`: it is on the server that `elasticsearch` configures."""
    k1: float = Field(default=1.2, ge=0, le=10)
    """Term saturation of BM25: the higher it is, the more a repeated term counts."""
    b: float = Field(default=0.75, ge=0, le=1)
    """Length normalisation of BM25, from 0 (none) to 1 (full)."""
    chinese: Literal["auto", "jieba", "bigrams"] = "auto"
    """How Chinese text is split into terms: by `jieba` (extra `zh`) or into `bigrams`; `auto`: by jieba if it is
    installed, otherwise into bigrams (docs/how-to/retrieval.md#chinese)."""


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
        raise ValueError(f"{source} is not a URL ({str(error).partition(':')[0]}); write {SERVER_URL}") from None
    if not complete:
        raise ValueError(f"{source} needs http:// or https://, a host and a port: write {SERVER_URL}")
    if parts.query or parts.fragment or not _PRINTABLE.fullmatch(url):
        raise ValueError(f"{source} must not contain `?`, `#`, a space or a control character: write {SERVER_URL}")


def check_key(key: str) -> str:
    """Return `key` if an HTTP header can hold it.

    Raises:
        ValueError: it holds a blank, a line break or another character that is not printable ASCII.
    """
    if key and not _PRINTABLE.fullmatch(key):
        raise ValueError("must be one word of printable ASCII: remove spaces and line breaks, also at the end")
    return key


VectorGraph = Literal["hnsw", "int8_hnsw", "bbq_hnsw"]


class Elasticsearch(SettingsGroup):
    """The Elasticsearch server for the back ends `elasticsearch`."""

    model_config = ConfigDict(hide_input_in_errors=True)

    url: Secret = Field(default="", examples=["https://search.example.org:9200"])
    """Base URL of the server; by default the environment variable ELASTICSEARCH_URL."""
    urls: tuple[Hidden, ...] = Field(default=(), repr=False)
    """Base URLs of several nodes of a cluster, such as `[https://es1:9200, https://es2:9200]`, instead of `url`.
    Requests go to the nodes in turn, and skip a node that is down."""
    api_key: Annotated[Secret, AfterValidator(check_key)] = ""
    """API key of the server (a secret)."""
    ca_certs: Path | None = None
    """PEM file of the certificate authority that signed the server's certificate, if the system does not know it
    (docs/how-to/retrieval.md#certificates-of-elasticsearch)."""
    fingerprint: str = Field(default="", pattern="^$|^[0-9a-fA-F]{2}(:?[0-9a-fA-F]{2}){31}$")
    """SHA-256 of the certificate of the server or of its authority, in hex, instead of `ca_certs`."""
    prefix: str = Field(default="mathrag", pattern="^[a-z][a-z0-9-]{0,40}$")
    """Prefix of all indexes and aliases on the server."""
    replicas: int = Field(default=0, ge=0, le=100)
    """Number of copies of each new index on other nodes, so that searches survive the loss of a node."""
    vectors: VectorGraph = "hnsw"
    """How the graph of a new index stores its vectors: `hnsw` as floats, `int8_hnsw` as bytes (a quarter of the
    memory), `bbq_hnsw` as bits (a thirty-second). With bytes and bits, the best hits are scored again with the floats,
    which stay on disk (docs/how-to/retrieval.md#clusters-of-elasticsearch)."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Maximum time of one request, in seconds."""
    retries: int = Field(default=3, ge=0, le=10)
    """Number of times that a request is retried after a temporary error of the server."""

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


class Reranker(SettingsGroup):
    """The reranker: a cross-encoder that scores pairs of question and document."""

    kind: Literal["none", "endpoint", "gguf", "sentence-transformers", "plugin"] = "none"
    """`none`: there is no reranker; `endpoint`: a rerank server; `gguf`: a file that llama.cpp serves in the retriever;
    `sentence-transformers`: the library of that name (extra `rerank`); `plugin`: a plug-in
    (docs/how-to/plugins.md#kinds)."""
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
    """`gguf`: the file; `sentence-transformers`: the folder, unless `model` names a model on the hub."""
    revision: str = ""
    """Version of a remote model, if its server does not report it."""
    api_key_env: str | None = None
    """Name of the environment variable with the API key."""
    activation: Literal["sigmoid", "none"] = "sigmoid"
    """Function that turns scores into probabilities; set `none` if the server already returns probabilities."""
    max_chars: int = Field(default=0, ge=0)
    """Length to which documents are cut, in characters. 0: documents are not cut, and a pair that does not fit the
    model is rejected."""
    batch: int = Field(default=32, gt=0, le=1024)
    """Number of pairs in one request."""
    threads: int = Field(default=1, gt=0)
    """`gguf`: number of threads of llama.cpp; 1 is fastest for very small models."""
    timeout_s: float = Field(default=30.0, gt=0)
    """Maximum time of one request with its retries, in seconds. Jobs and searches wait this long for each request that
    their documents need, plus once more for the retriever itself."""

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


class Retrieval(SettingsGroup):
    """Embedder, indexes and reranker (docs/how-to/retrieval.md)."""

    embeddings: Embeddings = Field(default=Embeddings(), examples=[EXAMPLE_EMBEDDINGS])
    dense: Dense = Dense()
    sparse: Sparse = Sparse()
    reranker: Reranker = Field(default=Reranker(), examples=[EXAMPLE_RERANKER])
    elasticsearch: Elasticsearch = Elasticsearch()
    timeout_s: float = Field(default=30.0, gt=0)
    """Maximum time of one search, in seconds. A search that takes longer is retried; if every try fails, its stage uses
    its fallback, or the sample fails (docs/reference/fallbacks.md)."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if "elasticsearch" in (self.dense.backend, self.sparse.backend):
            _ = self.elasticsearch.addresses
        return self


class TokenPrice(SettingsGroup):
    """Price of a model at a provider, in US dollars per million tokens."""

    prompt: float = Field(ge=0, allow_inf_nan=False)
    """Price of a million prompt tokens."""
    completion: float = Field(ge=0, allow_inf_nan=False)
    """Price of a million generated tokens."""

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of this many tokens, in US dollars."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1_000_000


VLLM_LOAD_S = 600.0


class Model(SettingsGroup):
    """A model that jobs may name."""

    driver: Literal["process", "vllm-sleep", "ollama", "remote", "plugin", "scripted"]
    """How the model is served. `process`: by a program on this host, by default llama.cpp
    (docs/how-to/model-servers.md); `vllm-sleep`: by a vLLM that sleeps between residencies
    (docs/how-to/model-servers.md#sleep-mode); `ollama`: by an Ollama server (docs/how-to/ollama.md); `remote`: by an
    OpenAI-compatible or TGI server; `plugin`: by a plug-in (docs/how-to/plugins.md#kinds); `scripted`: by a script, for
    tests and benchmarks."""
    plugin: str = ""
    """`plugin`: name of the driver."""
    options: dict[str, Any] = {}
    """`plugin`: further options of the driver."""
    server: Literal["embedded", "llama.cpp", "tgi", "vllm"] = "embedded"
    """`process`: the program that serves the model. `embedded` is the llama.cpp in this package."""
    command: tuple[str, ...] = ()
    """`process`, `vllm-sleep`: the program and additional arguments (docs/how-to/model-servers.md); by default the
    program's usual name without arguments."""
    path: Path | None = None
    """`process`, `vllm-sleep`: path of the GGUF file, or for TGI and vLLM of a folder with the configuration and
    safetensors."""
    hub: str | None = None
    """TGI and vLLM: name of the model on the Hugging Face hub, instead of `path`."""
    revision: str | None = Field(default=None, pattern="^[0-9a-f]{40}$")
    """Commit of the repository on the hub. Without it the model is not pinned, and replies are reused only within a
    job."""
    url: Url | None = None
    """`remote`: base URL of the OpenAI-compatible or TGI server; `ollama`: base URL of the Ollama server, by default
    `http://127.0.0.1:11434`."""
    tag: str | None = None
    """`ollama`: tag of the model; by default the name under `models`."""
    api_key_env: str | None = None
    """`remote`: name of the environment variable with the API key; the key itself is never stored."""
    context: int = Field(default=1024, gt=0)
    """Context of each slot, in tokens."""
    parallel: int = Field(default=8, gt=0)
    """Number of calls that the server processes at the same time; always 1 with `deterministic` on llama.cpp."""
    threads: int = Field(default=1, gt=0)
    """`process`: number of threads of the server; 1 is fastest for very small models."""
    footprint_mib: int = Field(default=0, ge=0)
    """Part of the device's `budget_mib` that the model takes, in MiB. 0: it is estimated from the model's metadata, if
    there are any (docs/how-to/planning.md)."""
    asleep_mib: int = Field(default=0, ge=0)
    """`vllm-sleep`: host memory that the weights take while the server sleeps, in MiB. If less is free, the server is
    stopped instead of put to sleep."""
    call_timeout_s: float = Field(default=120.0, gt=0)
    """Maximum time of one answer, in seconds. A call that takes longer is aborted and retried."""
    deterministic: bool = False
    """Whether equal prompts must get equal replies, independent of other calls and of restarts
    (docs/how-to/operations.md#the-same-answer). llama.cpp then uses one slot and no prompt cache, and vLLM uses
    batch-invariant kernels. Other servers cannot guarantee it and are rejected."""
    constrain_labels: bool = False
    """Whether the server restricts replies to the allowed labels when a prompt asks for a label
    (docs/how-to/metrics.md#constrained-labels). Plug-ins, vLLM before 0.11 and remote servers of an unknown kind cannot
    do that and are rejected."""
    device: str | None = None
    """Id of the device that loads the model. By default, judge and generator get different devices if there are several
    (docs/how-to/scaling.md#two-gpus)."""
    price: TokenPrice | None = None
    """Price in US dollars per million tokens, from which reports compute the cost (docs/how-to/api.md#reports). It does
    not affect replies or hashes. Without it, the cost of the model's calls is unknown."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if (self.driver == "plugin") != bool(self.plugin):
            raise ValueError("`plugin` and `driver: plugin` belong together: set both or neither")
        if self.server != "embedded" and self.driver != "process":
            raise ValueError(f"`server` belongs to driver `process`, not `{self.driver}`: remove it")
        if self.command and self.driver != "vllm-sleep" and self.server == "embedded":
            raise ValueError("`command` needs the `server` that it starts: set llama.cpp, tgi or vllm")
        if self.hub is not None and self.driver != "vllm-sleep" and self.server not in ("tgi", "vllm"):
            raise ValueError("`hub` is only for TGI and vLLM: set `path` to the file")
        if self.hub is not None and self.path is not None:
            raise ValueError("`hub` and `path` both name a model: remove one of them")
        if self.revision is not None and self.hub is None:
            raise ValueError("`revision` is a commit of `hub`, which is not set: set `hub`, or remove `revision`")
        if self.constrain_labels and self.driver == "plugin":
            raise ValueError("`constrain_labels` is unknown to drivers of plug-ins: remove it")
        return self

    @model_validator(mode="after")
    def _check_determinism(self) -> Self:
        if not self.deterministic:
            return self
        kind = self.server if self.driver == "process" else self.driver
        if kind in ("tgi", "ollama", "remote"):
            problem = (
                f"`deterministic` cannot be guaranteed by {kind}: its replies depend on other calls at the same time"
            )
            raise ValueError(f"{problem}; remove it, or serve the model with llama.cpp or vLLM")
        if kind in ("embedded", "llama.cpp"):
            if "parallel" in self.model_fields_set and self.parallel > 1:
                raise ValueError(f"`deterministic` needs one slot on llama.cpp: remove `parallel: {self.parallel}`")
            self.parallel = 1
        return self


EXAMPLE_MODELS: dict[str, Any] = {
    "qwen": {
        "driver": "process", "path": "/srv/models/qwen2.5-7b-q4_k_m.gguf", "context": 4096, "parallel": 4,
        "deterministic": False, "threads": 8, "footprint_mib": 6000, "device": "GPU-51d0",
        "price": {"prompt": 0.15, "completion": 0.60},
    },
    "big-qwen": {
        "driver": "process", "server": "vllm", "command": ["vllm", "serve", "--gpu-memory-utilization", "0.75"],
        "hub": "Qwen/Qwen2.5-7B-Instruct", "revision": "a09a35458c702b33eeacc393d103063234e8bc28", "context": 4096,
        "footprint_mib": 9000, "call_timeout_s": 300,
    },
    "small-qwen": {"driver": "ollama", "tag": "qwen2.5:7b-instruct-q4_K_M", "parallel": 4, "footprint_mib": 6500},
    "big": {"driver": "remote", "url": "https://models.example.org/v1", "api_key_env": "BIG_KEY", "parallel": 16},
}  # fmt: skip
"""An example of each way to serve a model, for the example file."""


class Device(SettingsGroup):
    """A device that one guard owns."""

    id: str = "cpu:0"
    """Name of the device. For a GPU, use the UUID that `nvidia-smi -L` prints."""
    residency: Literal["staged", "together", "auto"] = "staged"
    """How many models are loaded at once. `staged`: one; `together`: as many as fit; `auto`: the number that the
    planner estimates to be cheapest."""
    budget_mib: int = 160
    """Memory that all loaded models may take together, in MiB. The default is less than the two shipped models need
    together."""
    memory: Literal["measured", "declared"] | None = None
    """`measured`: NVML measures the memory, and models are loaded only if it answers; `declared`: only the declared
    footprints count. By default, a GPU that is named by its UUID is measured, and any other device is declared."""
    reserve_mib: int = Field(default=256, ge=0)
    """Memory that must stay free on a measured device after models are loaded, in MiB."""
    free_timeout_s: float = Field(default=30.0, gt=0)
    """Maximum wait for the memory of an unloaded model to become free, in seconds. After that the guard kills the
    processes that it started, and waits once more."""
    load_timeout_s: float = Field(default=120.0, examples=[120])
    """Maximum time for a model server to start, in seconds. If this is not set, vLLM gets 600 s, because it took up to
    215 s on a CPU."""
    drain_timeout_s: float = 30.0
    """How long a flip waits for running calls before it aborts them, in seconds."""
    max_wait_s: float = Field(default=900.0, ge=0)
    """How long a job that needs another model waits for the resident models to finish their work, in seconds. After
    that the device loads its model (docs/explanation/decisions/10-flips-are-planned-and-bounded.md). 0: it waits until
    they have finished."""
    max_residency_s: float = Field(default=1800.0, ge=0)
    """Age of a residency, in seconds, from which a job that needs another model does not wait at all; 0: it always
    waits."""
    online_patience_s: float = Field(default=10.0, ge=0)
    """How long a question to `/v1/chat` waits for a model that is not resident, in seconds, before the device loads the
    model for it."""
    guard_url: str = ""
    """Address of the guard of an additional device; empty: `mathrag up` starts a guard. For the first device, set the
    top-level `guard_url` instead."""
    _vectors_mib: int = PrivateAttr(default=0)

    @property
    def models_mib(self) -> int:
        """Return the budget of models in MiB: that of the device without the share of vectors
        (`retrieval.dense.gpu_mib`)."""
        return self.budget_mib - self._vectors_mib

    def load_timeout_of(self, model: Model) -> float:
        """Return the maximum time for the model's server to start, in seconds."""
        slow = model.driver == "vllm-sleep" or model.server == "vllm"
        return VLLM_LOAD_S if slow and "load_timeout_s" not in self.model_fields_set else self.load_timeout_s

    def with_reserved(self, vectors_mib: int) -> "Device":
        """Return a copy of the device with this part of its budget reserved for vectors."""
        copy = self.model_copy()
        copy._vectors_mib = vectors_mib
        return copy

    @property
    def measured(self) -> bool:
        """Tell whether the device's memory is measured."""
        return self.memory == "measured" or (self.memory is None and self.id.startswith(("GPU-", "MIG-")))


class Limits(SettingsGroup):
    """Limits on requests. A request that is too large is answered 413, and one too many is answered 429."""

    body_bytes: int = Field(default=1 << 20, gt=0)
    """Maximum size of the body of a request that is not an upload, in bytes."""
    upload_bytes: int = Field(default=256 << 20, gt=0)
    """Maximum size of an upload, in bytes."""
    upload_rows: int = Field(default=1_000_000, gt=0)
    """Maximum number of documents, items or facts in an upload."""
    line_bytes: int = Field(default=1 << 20, gt=0)
    """Maximum length of a line of an upload, or of the text of a table's row, in bytes."""
    decompressed_bytes: int = Field(default=1 << 30, gt=0)
    """Maximum size, after decompression, of a Parquet file's columns, a compressed graph or the samples of an archived
    log, in bytes. The compressed file may be much smaller."""
    uploads: int = Field(default=4, gt=0)
    """Maximum number of simultaneous uploads. Each Parquet file, and each log of inspect_ai or FlashRAG, is read in its
    own process, which takes at most 512 MiB."""
    training_exports: int = Field(default=2, gt=0)
    """Maximum number of simultaneous exports of training data; each holds its graph in memory."""
    live_jobs: int = Field(default=200, gt=0)
    """Maximum number of jobs that have not ended yet."""
    samples: int = Field(default=1_000_000, gt=0)
    """Maximum number of samples of a job. A job has a sample for each item and repeat."""
    samples_per_key: int = Field(default=0, ge=0)
    """Maximum number of samples in all jobs of one API key that have not ended. 0: no limit."""
    gpu_s_per_key: float = Field(default=0.0, ge=0)
    """Maximum GPU time of one API key in 24 hours, in seconds: the time in which models worked on at least one of the
    calls that its jobs made. Above it, new jobs of the key are rejected; accepted jobs continue. 0: no limit."""
    storage_mib_per_key: int = Field(default=0, ge=0)
    """Maximum size of what one API key has uploaded, in MiB: the texts of its corpora, datasets, graphs and OpenAI
    files that are still stored. An upload that would exceed it is refused. 0: no limit."""
    cells: int = Field(default=1000, gt=0)
    """Maximum number of cells in an experiment's grid (docs/how-to/experiments.md)."""
    event_streams: int = Field(default=100, gt=0)
    """Maximum number of open streams of job events."""
    page_streams: int = Field(default=200, gt=0)
    """Maximum number of pages that update live. Another page gets 503 for its updates and keeps its first content."""
    connections: int = Field(default=512, gt=0)
    """Maximum number of open connections of the API, and of each guard and retriever. When another client connects, the
    connection that has been idle longest is closed; if all are in use, the new one is answered 503 and closed. Keep
    this below half of the process's limit of open files (`ulimit -n`)."""
    header_bytes: int = Field(default=64 << 10, ge=1024)
    """Maximum size of a request's header with its first line, in bytes; a larger header is answered 431. The same limit
    applies to trailers, and to the bytes between the chunks of a body."""
    header_fields: int = Field(default=100, gt=0)
    """Maximum number of fields in a request's header; more are answered 431."""
    header_s: float = Field(default=10.0, gt=0)
    """Maximum time for a request's header to arrive, in seconds; a slower request is answered 408."""
    idle_s: float = Field(default=30.0, gt=0)
    """Maximum time in which no byte of a body arrives, in seconds; after that the request is answered 408. If a client
    does not read its answer for this time, the connection is closed."""
    body_bytes_s: int = Field(default=64 << 10, ge=0)
    """Minimum speed of a body, in bytes per second, averaged over each period of twice `idle_s`. A slower request is
    answered 408, so that it does not block one of the `uploads`. 0: no minimum."""


class Workers(SettingsGroup):
    """How workers claim, compute and commit calls."""

    chunk: int = Field(default=64, gt=0, le=256)
    """Maximum number of calls that a worker claims at once. It claims as many as the model answers in half a second,
    and at least enough for all its slots."""
    streams: int = Field(default=2, gt=0)
    """Number of chunks that each worker has in flight. With two, the back end does not wait while a chunk is
    committed."""
    window_ms: int = Field(default=25, ge=0)
    """Time in milliseconds during which replies are collected and then committed together (group commit)."""
    claim_ttl_s: float = Field(default=15.0, gt=0, le=600)
    """How long a claim is valid without renewal, in seconds. A worker renews its claims three times in that period."""
    outage_s: float = Field(default=3600.0, gt=0)
    """How long a call waits for a server that is down (a search engine, a model server, a device that cannot be
    loaded), in seconds. After that it fails as `unavailable` (docs/how-to/operations.md#server-outages)."""
    tick_s: float = Field(default=60.0, gt=0)
    """Maximum time that a worker works on one tick, in seconds. Without Redis it continues until its lease expires."""
    graders: int = Field(default=1, gt=0)
    """Number of processes that grade answers."""
    grade_deadline_s: float = Field(default=5.0, gt=0)
    """Maximum CPU time to grade one answer, in seconds. The real time may be ten times as long."""
    verifiers: int = Field(default=1, gt=0)
    """Number of processes that check equations in documents. They start when the first document is checked."""
    verify_deadline_s: float = Field(default=20.0, gt=0)
    """Maximum CPU time to check one document, in seconds. The real time may be ten times as long."""
    programs: int = Field(default=1, ge=0)
    """Number of processes that run the programs of the pipeline `program-aided`. They start with the first program. 0:
    programs are not run."""
    program_deadline_s: float = Field(default=10.0, gt=0)
    """Maximum CPU time of one program, in seconds. The real time may be ten times as long."""
    miners: int = Field(default=2, gt=0, le=64)
    """Number of processes of each judge worker that mine rules. Each mines one relation at a time; they start with the
    first relation."""
    mining_mib: int = Field(default=4096, ge=256)
    """Memory of all mining processes of a judge worker together, in MiB; each may use an equal part. Mining that could
    need more is rejected (docs/how-to/knowledge-graphs.md#memory)."""
    mine_deadline_s: float = Field(default=3600.0, gt=0)
    """Maximum CPU time to mine one relation, in seconds. The real time may be ten times as long."""
    judges: int = Field(default=1, ge=0)
    """Number of judge workers that `mathrag up` starts; set 0 if they run elsewhere."""
    generators: int = Field(default=1, ge=0)
    """Number of generate workers that `mathrag up` starts; set 0 if they run elsewhere."""


class Telemetry(SettingsGroup):
    """Traces, metrics and logs (docs/how-to/telemetry.md)."""

    otlp_endpoint: str = Field(default="", examples=["http://collector:4318"])
    """Base URL of an OTLP/HTTP collector; by default the environment variable OTEL_EXPORTER_OTLP_ENDPOINT. If neither
    is set, traces are not recorded."""
    content: bool = False
    """Whether spans may contain questions, prompts and answers. The default keeps users' texts out of traces."""
    metrics: bool = True
    """Whether the orchestrator answers `GET /metrics`."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """Format of log lines. `auto`: `json` in a container, and `text` elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of logged messages."""
    log_mib: int = Field(default=16, gt=0)
    """Size at which a log file of `mathrag up` is rotated, in MiB (docs/how-to/operations.md#disk-usage). One older
    file is kept."""


class Retention(SettingsGroup):
    """Automatic deletion (docs/how-to/operations.md#purge-and-retention)."""

    chat_hours: float = Field(default=24.0, ge=0)
    """How long questions to `/v1/chat` are kept after they were answered, with their jobs and answers, in hours; 0:
    for ever."""

    @property
    def pause_s(self) -> float:
        """Seconds between two purges: a quarter of the time for which a chat is kept."""
        return (self.chat_hours or 24.0) * 3600 / 4


class Access(SettingsGroup):
    """Who may call the API (docs/how-to/security.md)."""

    keys: Literal["auto", "required", "off"] = "auto"
    """Whether requests need an API key. `auto`: they do if `host` is not a loopback address."""
    hosts: tuple[str, ...] = ()
    """Additional host names under which browsers reach the API and may change data: `rag.example.org`, or
    `rag.example.org:8443` for a port other than 80 and 443. `host` and the loopback names always count. If API keys are
    off, requests for any other host name are rejected."""


class Plugins(SettingsGroup):
    """Plug-ins (docs/how-to/plugins.md)."""

    import_s: float = Field(default=30.0, gt=0, le=600)
    """Maximum time to import a plug-in, in seconds. The import is tried in a separate process; a plug-in that takes
    longer is not loaded."""
    templates: Path | None = None
    """Folder of prompts. Each is a file NAME.toml (docs/how-to/plugins.md#prompts-and-rubrics)."""
    rubrics: Path | None = None
    """Folder of rubrics. Each is a text file NAME.txt, which a job selects with `grading.rubric=@NAME`."""


def make_shipped_models() -> dict[str, Model]:
    """Return the models of the demonstration."""
    return {
        "world-judge": Model(driver="process", path=MODELS / "world-judge-f16.gguf", footprint_mib=96),
        "world-generator": Model(driver="process", path=MODELS / "world-generator-f16.gguf", footprint_mib=96),
        "label-judge": Model(driver="process", path=MODELS / "label-judge-f16.gguf", context=2048, footprint_mib=96),
    }


class Settings(BaseSettings):
    """All settings of the operator."""

    model_config = SettingsConfigDict(
        env_prefix="MATHRAG_",
        env_nested_delimiter="__",
        extra="forbid",
        use_attribute_docstrings=True,  # for the schema, the example and docs/reference/settings.md
        # A wrong value may be a secret in the wrong place.
        hide_input_in_errors=True,
    )

    data_dir: Path = DATA_DIR
    """Folder in which the stack keeps all its data."""
    database_url: Secret = Field(default="", examples=["postgresql+asyncpg://mathrag_app@db.example.org/mathrag"])
    """URL of the database, with the application's role; empty: `mathrag up` starts the embedded PostgreSQL. Passwords
    are safer in files (MATHRAG_SECRETS_DIR)."""
    owner_url: Secret = Field(default="", examples=["postgresql+asyncpg://mathrag_owner@db.example.org/mathrag"])
    """URL of the same database with its owner's role, for migrations and `mathrag purge`; services do not read it."""
    redis_url: Secret = Field(default="", examples=["redis://redis.example.org:6379/0"])
    """URL of your own Redis; empty: `mathrag up` starts the embedded one."""
    retriever_url: str = ""
    """Address of the retriever. `mathrag up` sets it; set it yourself only if you start the services separately."""
    guard_url: str = ""
    """Address of the first device's guard. `mathrag up` sets it, like `retriever_url`."""
    service_key: Secret = ""
    """Secret that all services share. Guard and retriever require it in requests, and do not start without it if they
    listen on an address other than loopback (docs/how-to/security.md)."""
    host: str = "127.0.0.1"
    """Address on which the API listens. On any address other than loopback it requires API keys (`mathrag key create`;
    docs/how-to/security.md)."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port of the API."""
    models: dict[str, Model] = Field(default_factory=make_shipped_models, examples=[EXAMPLE_MODELS])
    """Models by name (docs/how-to/operations.md#add-a-model). They replace the shipped models, so repeat those that
    you want to keep."""
    roles: dict[Literal["judge", "generate"], str] = {"judge": "world-judge", "generate": "world-generator"}
    """Model of each role, for jobs that do not name one for it."""
    retrieval: Retrieval = Retrieval()
    device: Device = Device()
    """The device, or the first of several."""
    devices: tuple[Device, ...] = Field(default=(), examples=[({"id": "GPU-51d0", "budget_mib": 24000},)])
    """Additional devices, with the same keys as `device`. Each has its own guard (docs/how-to/scaling.md#two-gpus)."""
    workers: Workers = Workers()
    access: Access = Access()
    retention: Retention = Retention()
    limits: Limits = Limits()
    plugins: Plugins = Plugins()
    telemetry: Telemetry = Telemetry()
    commit: str = ""
    """Git commit of the code, which is stored with every job. By default it is that of the Git clone with the code."""
    image_digest: str = ""
    """Digest of the container image, which is stored with every job."""
    require_idempotency_key: bool = False
    """Whether job submissions without the header `Idempotency-Key` are rejected (docs/how-to/api.md#idempotency)."""
    sweep_s: float = Field(default=5.0, gt=0)
    """Time between two sweeps, in seconds. A sweep repairs the state that a crash left behind."""
    patience_s: float = Field(default=30.0, gt=0)
    """How long calls that need no device, such as searches, may delay a flip without making progress, in seconds."""

    @model_validator(mode="after")
    def _reserve_vector_memory(self) -> Self:
        """Reserve the vectors' memory on the first GPU, which is the one that FAISS uses, before models get theirs."""
        if self.retrieval.dense.gpu == "never":
            return self
        devices = [self.device, *self.devices]
        first = next((at for at, device in enumerate(devices) if not device.id.startswith("cpu")), None)
        if first is not None:
            devices[first] = devices[first].with_reserved(self.retrieval.dense.gpu_mib)
            if devices[first].models_mib <= 0:
                raise ValueError("`retrieval.dense.gpu_mib` leaves no memory for models in the device's `budget_mib`")
        self.device, self.devices = devices[0], tuple(devices[1:])
        return self

    @model_validator(mode="after")
    def _check_devices(self) -> Self:
        ids = [device.id for device in self.all_devices()]
        if twice := sorted({each for each in ids if ids.count(each) > 1}):
            raise ValueError(f"`devices`: two devices have the id {twice[0]!r}; rename one")
        for name, model in self.models.items():
            if model.device is not None and model.device not in ids:
                raise ValueError(
                    f"`models.{name}.device`: unknown device {model.device!r}; choose one of {', '.join(ids)}"
                )
        return self

    def all_devices(self) -> tuple[Device, ...]:
        """Return `device` and the further ones, each with the address of its guard if that is known."""
        first = self.device.model_copy(update={"guard_url": self.guard_url or self.device.guard_url})
        return first, *self.devices

    def guards(self) -> dict[str, Device]:
        """Return the devices by the names of their guards in logs, readiness and metrics."""
        names = ("guard" if number == 1 else f"guard-{number}" for number in range(1, len(self.devices) + 2))
        return dict(zip(names, self.all_devices(), strict=True))

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the signature is pydantic's
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources by precedence: arguments, environment, secret files, YAML."""
        given = os.environ.get("MATHRAG_SECRETS_DIR")
        if given and not Path(given).is_dir():
            raise Unavailable(f"MATHRAG_SECRETS_DIR: `{given}` is not a folder", hint="mount it, or unset the variable")
        secrets = SecretsSettingsSource(settings_cls, secrets_dir=Path(given) if given else None)
        file = config_file()
        if file.is_dir():
            raise yaml.YAMLError(f"`{file}` is a folder; MATHRAG_CONFIG must name a file")
        try:
            content = yaml.safe_load(file.read_text("utf-8")) if file.exists() else None
        except UnicodeDecodeError as error:
            raise yaml.YAMLError(f"`{file}` is not UTF-8; save it as UTF-8") from error
        if content is not None and not isinstance(content, dict):
            raise yaml.YAMLError(f"`{file}` must be a mapping of keys to values")
        return init_settings, env_settings, secrets, YamlConfigSettingsSource(settings_cls, file)


def load() -> Settings:
    """Load the settings of this process, from its environment and its file."""
    return Settings()


@cache
def release() -> tuple[str, str | None]:
    """Return version and commit of the running program, as `collect_acceptance` stores them."""
    return version(SERVER), load().commit or checkout()[0]

"""Settings of all services: devices, models, retrieval, limits and places."""

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


class SettingsGroup(BaseModel):
    """Settings that belong together; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class Embeddings(SettingsGroup):
    """The embedder. Indexes of another embedder are refused, and must be built again."""

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


class Dense(SettingsGroup):
    """The back end of dense indexes."""

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


class Sparse(SettingsGroup):
    """The back end of sparse indexes."""

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
    """The server of the back ends `elasticsearch`."""

    model_config = ConfigDict(hide_input_in_errors=True)

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


class Reranker(SettingsGroup):
    """The cross-encoder that scores (question, document) pairs."""

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


class Retrieval(SettingsGroup):
    """How documents are found (docs/how-to/retrieval.md)."""

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


class TokenPrice(SettingsGroup):
    """Price of a model at a provider, in US dollars per million tokens."""

    prompt: float = Field(ge=0, allow_inf_nan=False)
    """Price of the tokens that the model reads."""
    completion: float = Field(ge=0, allow_inf_nan=False)
    """Price of the tokens that the model generates."""

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
    """`process`: the program that serves the model; `embedded`: the llama.cpp in this package."""
    command: tuple[str, ...] = ()
    """`process`, `vllm-sleep`: the program and further arguments (docs/how-to/model-servers.md); by default the
    program's usual name."""
    path: Path | None = None
    """`process`, `vllm-sleep`: path of the GGUF file; for TGI and vLLM, of a folder with config and safetensors."""
    hub: str | None = None
    """TGI and vLLM: name on the Hugging Face hub, instead of `path`."""
    revision: str | None = Field(default=None, pattern="^[0-9a-f]{40}$")
    """Commit of the hub's repository; without it the model is not pinned, and replies are only reused within a job."""
    url: Url | None = None
    """`remote`: base URL of an OpenAI-compatible or TGI server; `ollama`: of the server, by default
    `http://127.0.0.1:11434`."""
    tag: str | None = None
    """`ollama`: tag of the model; by default the name under `models`."""
    api_key_env: str | None = None
    """`remote`: name of the environment variable with the API key; the key itself is never stored."""
    context: int = Field(default=1024, gt=0)
    """Context of each slot, in tokens."""
    parallel: int = Field(default=8, gt=0)
    """Number of calls that the server processes at once; 1 with `deterministic` on llama.cpp."""
    threads: int = Field(default=1, gt=0)
    """`process`: number of threads of the server; 1 is fastest for very small models."""
    footprint_mib: int = Field(default=0, ge=0)
    """Memory that the model takes of the device's `budget_mib`, in MiB; 0: estimated from the model's metadata, if it
    has any (docs/how-to/planning.md)."""
    asleep_mib: int = Field(default=0, ge=0)
    """`vllm-sleep`: host memory of the weights while the server sleeps, in MiB; if that is not free, the server is
    stopped instead."""
    call_timeout_s: float = Field(default=120.0, gt=0)
    """Maximum time of one answer, in seconds; a longer one is aborted and tried again."""
    deterministic: bool = False
    """Whether equal prompts must get equal replies, whatever runs at the same time, and also after a kill
    (docs/how-to/operations.md#the-same-answer). llama.cpp then has one slot and no prompt cache, and vLLM uses
    batch-invariant kernels; other servers cannot guarantee it, and are refused."""
    constrain_labels: bool = False
    """Whether the server allows only labels as replies where a prompt asks for a label
    (docs/how-to/metrics.md#constrained-labels). Plug-ins, vLLM before 0.11 and remote servers of an unknown kind cannot
    do that, and are refused."""
    device: str | None = None
    """Id of the device for the model; by default, judge and generator get different devices if there are several
    (docs/how-to/scaling.md#two-gpus)."""
    price: TokenPrice | None = None
    """US dollars per million tokens, for the cost in reports (docs/how-to/api.md#reports); it changes no reply and no
    hash. Without it, the cost of the model's calls is unknown."""

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
    """Name of the device in rows, locks and leases; for a GPU, the UUID that `nvidia-smi -L` prints."""
    residency: Literal["staged", "together", "auto"] = "staged"
    """`staged`: one model at a time; `together`: as many as fit; `auto`: what the planner estimates to be cheapest."""
    budget_mib: int = 160
    """Memory of the device that loaded models may take together, in MiB. 160 is less than the two shipped models
    need."""
    memory: Literal["measured", "declared"] | None = None
    """`measured`: NVML measures the memory, and no model is loaded without it; `declared`: only declared footprints
    count. By default, a GPU that is named by its UUID is measured, and any other device is declared."""
    reserve_mib: int = Field(default=256, ge=0)
    """Memory that must stay free beside the loaded models, in MiB, on a measured device."""
    free_timeout_s: float = Field(default=30.0, gt=0)
    """Maximum wait for unloaded memory to become free, in seconds. After it the guard kills what it may, and waits once
    more."""
    load_timeout_s: float = Field(default=120.0, examples=[120])
    """Maximum time for a model server to start, in seconds. Unless it is set, vLLM has 600 s: it took up to 215 s on a
    CPU."""
    drain_timeout_s: float = 30.0
    """Maximum wait for running calls before a flip aborts them, in seconds."""
    max_wait_s: float = Field(default=900.0, ge=0)
    """How long a job that needs another model waits for the resident models to finish their work, in seconds; then the
    device flips for it (docs/explanation/decisions/10-flips-are-planned-and-bounded.md). 0: until they have
    finished."""
    max_residency_s: float = Field(default=1800.0, ge=0)
    """Age of a residency, in seconds, from which it makes way at once for such a job; 0: never."""
    online_patience_s: float = Field(default=10.0, ge=0)
    """How long a question to `/v1/chat` waits for a model that is not resident, in seconds; then the device loads the
    model for it."""
    guard_url: str = ""
    """Address of the guard of a further device; empty: `mathrag up` starts one. For the first device, set `guard_url`
    instead."""
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
    """Limits on requests. Beyond them, a request is answered 413, or 429 if too many run at once."""

    body_bytes: int = Field(default=1 << 20, gt=0)
    """Maximum body of a request that is not an upload, in bytes."""
    upload_bytes: int = Field(default=256 << 20, gt=0)
    """Maximum upload, in bytes."""
    upload_rows: int = Field(default=1_000_000, gt=0)
    """Maximum number of documents, items or facts of an upload."""
    line_bytes: int = Field(default=1 << 20, gt=0)
    """Maximum length of a line of an upload, or of the text of a table's row, in bytes."""
    decompressed_bytes: int = Field(default=1 << 30, gt=0)
    """Maximum size, after decompression, of a Parquet file's columns, a compressed graph or the samples of an archived
    log, in bytes; the file may be much smaller."""
    uploads: int = Field(default=4, gt=0)
    """Maximum number of simultaneous uploads. Each Parquet file, and each log of inspect_ai or FlashRAG, is read in its
    own process, which takes at most 512 MiB."""
    training_exports: int = Field(default=2, gt=0)
    """Maximum number of simultaneous exports of training data; each holds its graph in memory."""
    live_jobs: int = Field(default=200, gt=0)
    """Maximum number of jobs that have not ended."""
    samples: int = Field(default=1_000_000, gt=0)
    """Maximum number of samples of a job: items times repeats."""
    samples_per_key: int = Field(default=0, ge=0)
    """Maximum number of samples of one API key's jobs that have not ended. 0: no limit."""
    gpu_s_per_key: float = Field(default=0.0, ge=0)
    """Maximum GPU time of one API key in 24 hours, in seconds: the time in which models worked on at least one of the
    calls that its jobs made. Beyond it, new jobs of the key are refused; accepted ones go on. 0: no limit."""
    cells: int = Field(default=1000, gt=0)
    """Maximum number of cells in an experiment's grid (docs/how-to/experiments.md)."""
    event_streams: int = Field(default=100, gt=0)
    """Maximum number of open streams of job events."""
    page_streams: int = Field(default=200, gt=0)
    """Maximum number of pages that update live. One more gets 503 for its updates, and keeps showing what it showed
    first."""
    connections: int = Field(default=512, gt=0)
    """Maximum number of open connections, for the API and for each guard and retriever. For one more, the one that has
    waited longest for a request is closed; if all are in use, it is answered 503 and closed. Keep it below half of the
    process's limit of open files (`ulimit -n`)."""
    header_bytes: int = Field(default=64 << 10, ge=1024)
    """Maximum size of a request's header with its first line, in bytes; a longer one is answered 431. Trailers, and the
    bytes between the chunks of a body, have the same limit."""
    header_fields: int = Field(default=100, gt=0)
    """Maximum number of fields in a request's header; more are answered 431."""
    header_s: float = Field(default=10.0, gt=0)
    """Maximum time for a request's header to arrive, in seconds; then the request is answered 408."""
    idle_s: float = Field(default=30.0, gt=0)
    """Maximum time without a byte of the body, in seconds; then the request is answered 408. If the client reads
    nothing of an answer for this time, the connection is closed."""
    body_bytes_s: int = Field(default=64 << 10, ge=0)
    """Minimum speed of a body, in bytes per second, on average over each period of twice `idle_s`; a slower one is
    answered 408, so that it gives its place back (`uploads`). 0: no minimum."""


class Workers(SettingsGroup):
    """How the workers of both lanes claim, compute and commit calls."""

    chunk: int = Field(default=16, gt=0, le=256)
    """Number of calls that are claimed together; twice the slots of a small model server is enough. The retriever
    answers at most 256 at once."""
    streams: int = Field(default=2, gt=0)
    """Number of chunks in flight per worker, so that the back end never waits for a commit."""
    window_ms: int = Field(default=25, ge=0)
    """Time in milliseconds within which arriving replies are committed together."""
    claim_ttl_s: float = Field(default=15.0, gt=0, le=600)
    """Lifetime of a claim without renewal, in seconds; a worker renews it three times in that time."""
    outage_s: float = Field(default=3600.0, gt=0)
    """How long a call waits for a server that is away (a search engine, a model server, a device that cannot be
    loaded), in seconds; then it fails as `unavailable` (docs/how-to/operations.md#a-server-is-away)."""
    tick_s: float = Field(default=60.0, gt=0)
    """Maximum time that a worker works on one tick, in seconds; without Redis it continues until its lease expires."""
    graders: int = Field(default=1, gt=0)
    """Number of processes that grade answers."""
    grade_deadline_s: float = Field(default=5.0, gt=0)
    """Maximum CPU time to grade one answer, in seconds; at most ten times that in real time."""
    verifiers: int = Field(default=1, gt=0)
    """Number of processes that check equations of documents; they start with the first document."""
    verify_deadline_s: float = Field(default=20.0, gt=0)
    """Maximum CPU time to check one document, in seconds; at most ten times that in real time."""
    programs: int = Field(default=1, ge=0)
    """Number of processes that run the programs of `program-aided`, which start with the first program; 0: none is
    run."""
    program_deadline_s: float = Field(default=10.0, gt=0)
    """Maximum CPU time of one program, in seconds; at most ten times that in real time."""
    miners: int = Field(default=2, gt=0, le=64)
    """Number of processes of each judge worker that mine rules, one relation each; they start with the first
    relation."""
    mining_mib: int = Field(default=4096, ge=256)
    """Memory of all these processes together, in MiB; each may use an equal part. Mining that could need more is
    refused (docs/how-to/rules.md#memory)."""
    mine_deadline_s: float = Field(default=3600.0, gt=0)
    """Maximum CPU time to mine one relation, in seconds; at most ten times that in real time."""
    judges: int = Field(default=1, ge=0)
    """Number of judge workers that `mathrag up` starts; 0 if they run elsewhere."""
    generators: int = Field(default=1, ge=0)
    """Number of generate workers that `mathrag up` starts; 0 if they run elsewhere."""


class Telemetry(SettingsGroup):
    """Traces, metrics and logs (docs/how-to/telemetry.md)."""

    otlp_endpoint: str = Field(default="", examples=["http://collector:4318"])
    """Base URL of an OTLP/HTTP collector; empty: OTEL_EXPORTER_OTLP_ENDPOINT. If neither is set, nothing is traced."""
    content: bool = False
    """Whether spans may hold questions, prompts and answers, which are users' texts."""
    metrics: bool = True
    """Whether the orchestrator answers `GET /metrics`."""
    log_format: Literal["auto", "text", "json"] = "auto"
    """`auto`: `json` in a container, and `text` elsewhere."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Minimum level of logged messages."""
    log_mib: int = Field(default=16, gt=0)
    """Size from which a log file of `mathrag up` is rotated, in MiB (docs/how-to/operations.md#what-grows); one older
    file is kept."""


class Retention(SettingsGroup):
    """Automatic deletion (docs/how-to/operations.md#purge-and-retention)."""

    chat_hours: float = Field(default=24.0, ge=0)
    """How long questions to `/v1/chat` are kept after their end, with their jobs and answers, in hours; 0: for ever."""


class Access(SettingsGroup):
    """Who may call the API (docs/how-to/security.md)."""

    keys: Literal["auto", "required", "off"] = "auto"
    """Whether requests need an API key; `auto`: if `host` is not a loopback address."""
    hosts: tuple[str, ...] = ()
    """Further host names of the API, besides `host` and the loopback names, whose pages may also write:
    `rag.example.org`, or `rag.example.org:8443` for a port other than 80 and 443. Without keys, any other name is
    refused."""


class Plugins(SettingsGroup):
    """Plug-ins (docs/how-to/plugins.md)."""

    import_s: float = Field(default=30.0, gt=0, le=600)
    """Maximum time to import a plug-in, in seconds. It is tried in its own process, and left out if it takes longer."""
    templates: Path | None = None
    """Folder of prompts, each in a file NAME.toml (docs/how-to/plugins.md#prompts-and-rubrics)."""
    rubrics: Path | None = None
    """Folder of rubrics, each in a text file NAME.txt, which a job names with `grading.rubric=@NAME`."""


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
        use_attribute_docstrings=True,  # they stand in the schema, the example and docs/reference/settings.md
        # What is wrong may be a secret in the wrong place.
        hide_input_in_errors=True,
    )

    data_dir: Path = DATA_DIR
    """Folder of all data."""
    database_url: Secret = Field(default="", examples=["postgresql+asyncpg://mathrag_app@db.example.org/mathrag"])
    """URL of the database, with the application's role; empty: `mathrag up` starts the embedded PostgreSQL. Passwords
    are safer in files (MATHRAG_SECRETS_DIR)."""
    owner_url: Secret = Field(default="", examples=["postgresql+asyncpg://mathrag_owner@db.example.org/mathrag"])
    """URL of the same database with its owner's role, for migrations and `mathrag purge`; services do not read it."""
    redis_url: Secret = Field(default="", examples=["redis://redis.example.org:6379/0"])
    """URL of your own Redis; empty: `mathrag up` starts the embedded one."""
    retriever_url: str = ""
    """Address of the retriever; `mathrag up` sets it, so set it only if you start the services yourself."""
    guard_url: str = ""
    """Address of the first device's guard; `mathrag up` sets it, as it sets `retriever_url`."""
    service_key: Secret = ""
    """Secret that all services share. Guard and retriever require it, and do not start without it beyond loopback
    (docs/how-to/security.md)."""
    host: str = "127.0.0.1"
    """Address on which the API listens; beyond loopback it requires API keys (docs/how-to/security.md; `mathrag key
    create`)."""
    port: int = Field(default=8080, ge=0, le=65535)
    """Port of the API."""
    models: dict[str, Model] = Field(default_factory=make_shipped_models, examples=[EXAMPLE_MODELS])
    """Models by name (docs/how-to/operations.md#add-a-model). They replace the shipped ones, so repeat those that you
    want to keep."""
    roles: dict[Literal["judge", "generate"], str] = {"judge": "world-judge", "generate": "world-generator"}
    """Model of each role, for jobs that do not name one."""
    retrieval: Retrieval = Retrieval()
    device: Device = Device()
    """The device, or the first of several."""
    devices: tuple[Device, ...] = Field(default=(), examples=[({"id": "GPU-51d0", "budget_mib": 24000},)])
    """Further devices, each with the same keys as `device` and a guard of its own (docs/how-to/scaling.md#two-gpus)."""
    workers: Workers = Workers()
    access: Access = Access()
    retention: Retention = Retention()
    limits: Limits = Limits()
    plugins: Plugins = Plugins()
    telemetry: Telemetry = Telemetry()
    commit: str = ""
    """Git commit of the code, stored with every job; a clone finds it itself."""
    image_digest: str = ""
    """Digest of the container image, stored with every job."""
    require_idempotency_key: bool = False
    """Whether jobs without the header `Idempotency-Key` are refused (docs/how-to/api.md#idempotency)."""
    sweep_s: float = Field(default=5.0, gt=0)
    """Time between two sweeps, which repair what a crash has left, in seconds."""
    patience_s: float = Field(default=30.0, gt=0)
    """How long CPU calls without progress may delay a flip, in seconds."""

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

"""Servers of embedding and reranking models, as the settings choose them."""

import math
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec
import numpy as np

from mathrag.errors import Unavailable
from shared import canonical
from shared.headers import authorization, trace_headers
from shared.models import files, metadata
from shared.models.chat import AWAY_STATUSES
from shared.models.embedding import (
    CrossEncoder,
    Embedder,
    Encoder,
    ModelEmbedder,
    ModelFailed,
    RerankingModel,
    SentenceCrossEncoder,
    SentenceEncoder,
    StaticEmbedder,
)
from shared.models.metadata import MetadataError
from shared.models.ollama import Tags, advise_fetching, make_full_tag
from shared.plugins.catalogue import Plugin
from shared.plugins.loading import open_plugin
from shared.rag.fusion import logistic
from shared.replies import FailureKind
from shared.settings import Embeddings
from shared.settings import Reranker as RerankerSettings
from shared.shapes import Kind

MAX_ATTEMPTS = 4
PAUSE_S = 0.2
"""Pause before the second attempt, doubled before each further one."""
TRANSIENT = (500, *AWAY_STATUSES)
"""Statuses after which another attempt may succeed."""
SIGNS_OF_LENGTH = (
    "too large to process", "exceed_context_size", "must have less than", "maximum context length",
    "exceeds the context length", "exceeds maximum context",
)  # fmt: skip
"""Parts of the messages of llama.cpp (two, the first as a 500), text-embeddings-inference, vLLM and Ollama that a text
is too long."""
T = TypeVar("T")


class Endpoint:
    """A client of one server for worker threads; all attempts of a request share `timeout_s`."""

    def __init__(
        self,
        url: str,
        *,
        key: str = "",
        timeout_s: float = 30.0,
        pause: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._key = key
        self._timeout_s = timeout_s
        self._pause = pause
        self._now = now
        # trust_env off: a proxy of the environment must not see texts.
        self._client = httpx2.Client(trust_env=False, headers=authorization(key))

    def post(self, path: str, body: Any, kind: type[T]) -> T:
        """Post a body and return the answer.

        Raises:
            ModelFailed: the answer is missing, or cannot be read as `kind`.
        """
        return self._request("POST", path, kind, body)

    def get(self, path: str, kind: type[T]) -> T:
        return self._request("GET", path, kind, None)

    def close(self) -> None:
        self._client.close()

    def _request(self, method: str, path: str, kind: type[T], body: Any) -> T:
        deadline, pause_s = self._now() + self._timeout_s, PAUSE_S
        for left in reversed(range(MAX_ATTEMPTS)):
            response = self._try_request(method, path, body, deadline - self._now())
            if isinstance(response, httpx2.Response) and response.status_code == httpx2.codes.OK:
                try:
                    return msgspec.json.decode(response.content, type=kind)
                except (msgspec.MsgspecError, UnicodeDecodeError) as error:
                    problem = f"{self.url}{path} sent an answer that cannot be read: {error}"
                    raise ModelFailed(FailureKind.BACKEND_ERROR, problem) from error
            # Another attempt may succeed, but not for a text that is too long, nor after a timeout.
            if isinstance(response, httpx2.Response):
                failed = self._translate_refusal(path, response)
                may_pass = response.status_code in TRANSIENT and failed.kind is not FailureKind.CONTEXT_EXCEEDED
            else:
                failed = response
                may_pass = failed.kind is FailureKind.UNAVAILABLE
            if not (left and may_pass) or self._now() + pause_s >= deadline:
                break
            self._pause(pause_s)
            pause_s *= 2
        raise failed

    def _try_request(self, method: str, path: str, body: Any, timeout_s: float) -> httpx2.Response | ModelFailed:
        try:
            return self._client.request(method, self.url + path, json=body, timeout=timeout_s, headers=trace_headers())
        except httpx2.ConnectTimeout as error:
            return self._make_away(path, repr(error))
        except httpx2.TimeoutException as error:
            problem = f"{self.url}{path} did not answer within {self._timeout_s:g} s ({type(error).__name__})"
            return ModelFailed(FailureKind.TIMEOUT, problem)
        except httpx2.HTTPError as error:
            return self._make_away(path, self._hide_key(repr(error)))

    def _translate_refusal(self, path: str, response: httpx2.Response) -> ModelFailed:
        body = self._hide_key(response.text[:500])
        problem = f"HTTP {response.status_code}: {body}"
        if any(sign in body for sign in SIGNS_OF_LENGTH):
            return ModelFailed(FailureKind.CONTEXT_EXCEEDED, f"{self.url}{path}: {problem}")
        if response.status_code in AWAY_STATUSES:
            return self._make_away(path, problem)
        return ModelFailed(FailureKind.BACKEND_ERROR, f"{self.url}{path}: {problem}")

    def _make_away(self, path: str, problem: str) -> ModelFailed:
        """Return the failure of a server that refuses all requests now, with its host."""
        host = urlsplit(self.url).netloc.rpartition("@")[2]
        return ModelFailed(FailureKind.UNAVAILABLE, f"{self.url}{path}: {problem}", f"the server at {host}")

    def _hide_key(self, text: str) -> str:
        """Hide the key, which a server may echo, from logs and the database."""
        return text.replace(self._key, "***") if self._key else text


def read_key(variable: str | None) -> str:
    """Read a key from an environment variable; empty if none is named.

    Raises:
        Unavailable: the variable is not set.
    """
    if variable is None:
        return ""
    if not os.environ.get(variable):
        raise Unavailable(f"{variable} is not set", hint=f"export {variable}=..., or remove `api_key_env`")
    return os.environ[variable]


class _Vector(msgspec.Struct, frozen=True):
    index: int
    embedding: list[float]


class _Vectors(msgspec.Struct, frozen=True):
    data: list[_Vector]


class _OllamaVectors(msgspec.Struct, frozen=True):
    embeddings: list[list[float]]


class RemoteModel:
    """A model on a server."""

    def __init__(self, endpoint: Endpoint, model: str) -> None:
        self._endpoint = endpoint
        self._model = model

    def close(self) -> None:
        self._endpoint.close()


class OpenAIEncoder(RemoteModel):
    """A model on a server with OpenAI's protocol, such as llama.cpp's, vLLM or text-embeddings-inference.

    The protocol tells only a model's name, so the operator declares its `revision`.
    """

    def __init__(self, endpoint: Endpoint, model: str, revision: str) -> None:
        super().__init__(endpoint, model)
        self._revision = revision

    def identity(self) -> dict[str, str]:
        """Return the declared name and revision."""
        return {"kind": "openai", "name": self._model, "revision": self._revision}

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Encoder`; the vectors may come in any order and are sorted by their index."""
        body = {"model": self._model, "input": list(texts), "encoding_format": "float"}
        found = self._endpoint.post("/v1/embeddings", body, _Vectors).data
        numbered = {vector.index: vector.embedding for vector in found}
        if sorted(numbered) != list(range(len(texts))) or len(found) != len(texts):
            problem = f"{self._endpoint.url} sent {len(found)} vectors with wrong numbers for {len(texts)} texts"
            raise ModelFailed(FailureKind.BACKEND_ERROR, problem)
        return [numbered[at] for at in range(len(texts))]


class OllamaEncoder(RemoteModel):
    """A pulled model of Ollama, which is another one after a new pull.

    It uses `/api/embed` with `truncate: false`, since `/v1` and the default silently truncate texts.
    """

    def identity(self) -> dict[str, str]:
        """Return the full tag and the digest of its manifest."""
        tag = make_full_tag(self._model)
        pulled = {each.name: each.digest for each in self._endpoint.get("/api/tags", Tags).models}
        if tag not in pulled:
            problem = f"{self._endpoint.url} has no model {tag!r}: {advise_fetching(self._model)}"
            raise ModelFailed(FailureKind.BACKEND_ERROR, problem)
        return {"kind": "ollama", "name": tag, "digest": pulled[tag]}

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        body = {"model": self._model, "input": list(texts), "truncate": False}
        return self._endpoint.post("/api/embed", body, _OllamaVectors).embeddings


class _Relevance(msgspec.Struct, frozen=True):
    index: int
    relevance_score: float


class _Results(msgspec.Struct, frozen=True):
    results: list[_Relevance]


class _Rank(msgspec.Struct, frozen=True):
    index: int
    score: float


class JinaServer(RemoteModel):
    """A server with `/v1/rerank`: llama.cpp's answers logits, vLLM's and Jina's own service answer probabilities."""

    def scores(self, question: str, documents: Sequence[str]) -> list[float]:
        """See `CrossEncoder`; the results come best first and are ordered by their index."""
        body = {"model": self._model, "query": question, "documents": list(documents)}
        results = self._endpoint.post("/v1/rerank", body, _Results).results
        return order_scores([(each.index, each.relevance_score) for each in results], len(documents))


class TeiServer(RemoteModel):
    """`/rerank` of text-embeddings-inference, which applies a sigmoid unless `raw` scores are requested."""

    def __init__(self, endpoint: Endpoint, *, raw: bool) -> None:
        super().__init__(endpoint, "")
        self._raw = raw

    def scores(self, question: str, documents: Sequence[str]) -> list[float]:
        body = {"query": question, "texts": list(documents), "raw_scores": self._raw, "truncate": False}
        ranks = self._endpoint.post("/rerank", body, list[_Rank])
        return order_scores([(each.index, each.score) for each in ranks], len(documents))


def order_scores(found: Iterable[tuple[int, float]], count: int) -> list[float]:
    """Return one score per document from (index, score) pairs.

    Raises:
        ModelFailed: a document has no score or two.
    """
    pairs = list(found)
    scores = dict(pairs)
    if len(pairs) != count or sorted(scores) != list(range(count)):
        raise ModelFailed(
            FailureKind.BACKEND_ERROR, f"the reranker gave {len(pairs)} scores for {count} documents, or wrong indexes"
        )
    return [scores[at] for at in range(count)]


class ModelReranker:
    """A `RerankingModel` over a `CrossEncoder`."""

    def __init__(self, model: CrossEncoder, settings: RerankerSettings) -> None:
        self._model = model
        self._settings = settings

    def score(self, question: str, documents: Sequence[str]) -> list[float]:
        size = self._settings.batch
        batches = (documents[start : start + size] for start in range(0, len(documents), size))
        return [score for batch in batches for score in self._scores(question, batch)]

    def _scores(self, question: str, batch: Sequence[str]) -> list[float]:
        found = self._model.scores(question, [text[: self._settings.max_chars or None] for text in batch])
        if len(found) != len(batch):
            raise _make_useless_error(f"{len(found)} scores for {len(batch)} documents")
        if not all(map(math.isfinite, found)):
            raise _make_useless_error("a score that is NaN or infinite")
        if self._settings.activation == "sigmoid":
            return list(map(logistic, found))
        if wrong := [score for score in found if not 0 <= score <= 1]:
            raise _make_useless_error(f"{wrong[0]:g}, not a probability: set `retrieval.reranker.activation: sigmoid`")
        return list(found)


def _make_useless_error(what: str) -> ModelFailed:
    return ModelFailed(FailureKind.BACKEND_ERROR, f"the reranker gave {what}")


# GGUF encoders and cross-encoders that llama.cpp runs inside this process, on the CPU.
#
# A model is loaded at its first use. A text that does not fit is refused, never cut.

SLOTS = 8
"""Texts that are read at once, if they fit into one context together."""
MAX_CONTEXT = 8192
"""Longest context in tokens, to save memory for models that were trained on longer texts."""
MEAN, RANK = 1, 4
"""llama.cpp's numbers of ways of pooling: the mean of all tokens, which is the default, and a score."""
HEADS = frozenset({"cls.weight", "cls.output.weight"})
"""Tensors that compute the score of a pair; a reranker has at least one of them."""
SOFTMAXED = ("qwen3", "qwen3vl")
"""Architectures whose two labels llama.cpp turns into the probability of the first (node-llama-cpp#617)."""
FIX = "correct the `path` under `retrieval` in mathrag.yaml"


class LlamaModel:
    """One model, loaded at its first use."""

    def __init__(self, path: Path, pooling: int, threads: int) -> None:
        """Read the file's header without loading the model.

        Raises:
            Unavailable: it is not a GGUF file.
        """
        self._path = path
        self._pooling = pooling
        self._threads = threads
        self._loading = Lock()
        self._server: Any = None
        self._context = min(_read_header(metadata.read_gguf_architecture, path).trained_context, MAX_CONTEXT)

    def ask(self, handler: str, body: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the model and return its answer.

        Raises:
            ModelFailed: the model refuses, or cannot be loaded.
        """
        with self._loading:
            server = self._server = self._server or self._load()
        reply: dict[str, Any] = getattr(server, handler)(body)
        if error := reply.get("error"):
            message = str(error.get("message", error))[:500]
            too_long = any(sign in message for sign in SIGNS_OF_LENGTH)
            kind = FailureKind.CONTEXT_EXCEEDED if too_long else FailureKind.BACKEND_ERROR
            raise ModelFailed(kind, f"{self._path.name}: {message}")
        return reply

    def close(self) -> None:
        """Free the model: its server stops when it is garbage."""
        self._server = None

    def _load(self) -> Any:
        import xllamacpp  # 100 MB, which the other kinds of models do not need

        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type(self._pooling)
        params.n_parallel, params.n_ctx = SLOTS, SLOTS * self._context
        params.n_batch = params.n_ubatch = self._context
        params.n_gpu_layers = 0  # only the guard may use a GPU's memory
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.hostnames, params.port = ["127.0.0.1"], 0
        params.api_keys = [secrets.token_hex(16)]  # it listens on a port, which is not used
        params.warmup, params.verbosity, params.cache_ram_mib = False, -1, 0
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            problem = f"llama.cpp cannot load {self._path.name}: {error}"
            raise ModelFailed(FailureKind.BACKEND_ERROR, problem) from error


class LlamaEncoder(LlamaModel):
    """An `Encoder` with the pooling that the file names."""

    def __init__(self, path: Path, threads: int) -> None:
        super().__init__(path, _read_header(metadata.read_pooling, path) or MEAN, threads)

    def identity(self) -> dict[str, str]:
        """Return the file's hash and the library's version."""
        return {"kind": "gguf", "digest": files.digest(self._path), "version": version("xllamacpp")}

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        found = self.ask("handle_embeddings", {"input": list(texts)})["data"]
        return [each["embedding"] for each in sorted(found, key=lambda each: int(each["index"]))]


class LlamaCrossEncoder(LlamaModel):
    """A `CrossEncoder` whose scores are logits, unless llama.cpp turns them into probabilities."""

    def __init__(self, path: Path, threads: int, *, raw: bool = True) -> None:
        """See `LlamaModel`; `raw` demands logits.

        Raises:
            Unavailable: the file is not GGUF, or has no head, so that llama.cpp would score by a vector's first number;
                or `raw` is set and llama.cpp gives probabilities.
        """
        if raw and _read_header(metadata.read_gguf_architecture, path).name in SOFTMAXED:
            problem = f"llama.cpp already turns the scores of {path} into probabilities"
            raise Unavailable(problem, hint="set `retrieval.reranker.activation: none`")
        if not HEADS & _read_header(metadata.read_tensor_names, path):
            raise Unavailable(f"{path} is not a reranker: it lacks {' and '.join(sorted(HEADS))}", hint=FIX)
        super().__init__(path, RANK, threads)

    def scores(self, question: str, documents: Sequence[str]) -> list[float]:
        found = self.ask("handle_rerank", {"query": question, "documents": list(documents)})["results"]
        return order_scores([(each["index"], each["relevance_score"]) for each in found], len(documents))


def _read_header(read: Callable[[Path], T], path: Path) -> T:
    """Read a file's header with `read`.

    Raises:
        Unavailable: the header cannot be read.
    """
    try:
        return read(path)
    except MetadataError as error:
        raise Unavailable(str(error), hint=FIX) from error


# Embedders and rerankers of plug-ins, in the retriever's process: their exceptions and results are checked here.

Options = Mapping[str, Any]


class PluginModel:
    """A model that a plug-in makes of its options, and that may have `close`."""

    def __init__(self, kind: Kind, name: str, options: Options) -> None:
        """Make it.

        Raises:
            Unavailable: the plug-in cannot be used, or makes none.
        """
        self._plugin, make = open_plugin(kind, name)
        self._options = dict(options)
        try:
            self._model = make(dict(options))
        except Exception as error:
            raise Unavailable(f"{self._plugin.pin} cannot be started: {type(error).__name__}: {error}") from error

    def _call(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except ModelFailed:
            raise
        except Exception as error:
            message = f"{self._plugin.pin} raised {type(error).__name__}: {error}"
            raise ModelFailed(FailureKind.BACKEND_ERROR, message) from error

    def close(self) -> None:
        getattr(self._model, "close", lambda: None)()


class PluginEncoder(PluginModel):
    """The `Encoder` that a plug-in makes of `retrieval.embeddings.options`."""

    def identity(self) -> dict[str, str]:
        """Return the distribution, version and code; vectors of another identity are in another index."""
        return identity_of(self._plugin, self._options)

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        found = self._call(lambda: np.asarray(self._model.encode(texts), dtype=np.float64))
        if found.ndim != 2:
            raise ModelFailed(FailureKind.BACKEND_ERROR, f"{self._plugin.pin} did not return a list of vectors")
        vectors: Sequence[Sequence[float]] = found.tolist()
        return vectors


class PluginCrossEncoder(PluginModel):
    """The `CrossEncoder` that a plug-in makes of `retrieval.reranker.options`."""

    def scores(self, question: str, documents: Sequence[str]) -> Sequence[float]:
        found: list[float] = self._call(lambda: [float(each) for each in self._model.scores(question, documents)])
        return found


def identity_of(plugin: Plugin, options: Options) -> dict[str, str]:
    """Return everything about a plug-in's model that changes its replies."""
    pin = plugin.pin
    return {
        "kind": "plugin", "name": pin.name, "distribution": pin.distribution, "version": pin.version,
        "hash": pin.hash, "options": canonical.encode(dict(options)).decode(),
    }  # fmt: skip


@contextmanager
def open_embedder(settings: Embeddings) -> Iterator[Embedder]:
    """Open the embedder of the settings for the length of the block.

    Raises:
        Unavailable: a file, a library or a key is missing. A server is not reached until its first use.
    """
    if settings.kind == "static":
        yield StaticEmbedder(_require_path(settings.path))
        return
    with closing(_make_encoder(settings)) as encoder:
        queries = encoder.queries if isinstance(encoder, SentenceEncoder) else encoder
        yield ModelEmbedder(encoder, settings, queries)


@contextmanager
def open_reranker(settings: RerankerSettings) -> Iterator[RerankingModel | None]:
    """Open the reranker of the settings for the length of the block; None if none is configured.

    Raises:
        Unavailable: as `open_embedder`.
    """
    if settings.kind == "none":
        yield None
        return
    with closing(_make_cross_encoder(settings)) as model:
        yield ModelReranker(model, settings)


def _make_encoder(settings: Embeddings) -> Encoder:
    match settings.kind:
        case "openai":
            return OpenAIEncoder(_make_endpoint(settings), settings.model, settings.revision)
        case "ollama":
            return OllamaEncoder(_make_endpoint(settings), settings.model)
        case "gguf":
            return LlamaEncoder(_require_path(settings.path), settings.threads)
        case "plugin":
            return PluginEncoder(Kind.EMBEDDER, settings.plugin, settings.options)
    return SentenceEncoder(settings.path, settings.model, settings.revision)


def _make_cross_encoder(settings: RerankerSettings) -> CrossEncoder:
    match settings.kind:
        case "endpoint" if settings.protocol == "tei":
            return TeiServer(_make_endpoint(settings), raw=settings.activation == "sigmoid")
        case "endpoint":
            return JinaServer(_make_endpoint(settings), settings.model)
        case "gguf":
            return LlamaCrossEncoder(
                _require_path(settings.path), settings.threads, raw=settings.activation == "sigmoid"
            )
        case "plugin":
            return PluginCrossEncoder(Kind.RERANKER, settings.plugin, settings.options)
    return SentenceCrossEncoder(settings.path, settings.model, settings.revision)


def _make_endpoint(settings: Embeddings | RerankerSettings) -> Endpoint:
    return Endpoint(settings.url or "", key=read_key(settings.api_key_env), timeout_s=settings.timeout_s)


def _require_path(path: Path | None) -> Path:
    """Return the path, which the settings have checked for every kind that needs one."""
    if path is None:
        raise Unavailable("a `path` is missing", hint="set it under `retrieval` in mathrag.yaml")
    return path

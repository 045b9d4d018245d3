"""GGUF encoders and cross-encoders that llama.cpp runs inside this process, on the CPU.

A model is loaded at its first use. A text that does not fit is refused, never cut.
"""

import secrets
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from shared.contracts.replies import FailureKind
from shared.errors import Unavailable
from shared.models import weights
from shared.models.endpoint import SIGNS_OF_LENGTH
from shared.models.metadata import MetadataError, gguf
from shared.models.ports import ModelFailed
from shared.models.rerank_servers import order_scores

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

T = TypeVar("T")


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
        self._context = min(_read_header(gguf.read_architecture, path).trained_context, MAX_CONTEXT)

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


class LlamaEncoder:
    """An `Encoder` with the pooling that the file names."""

    def __init__(self, path: Path, threads: int) -> None:
        self._path = path
        self._model = LlamaModel(path, _read_header(gguf.read_pooling, path) or MEAN, threads)

    def identity(self) -> dict[str, str]:
        """Return the file's hash and the library's version."""
        return {"kind": "gguf", "digest": weights.digest(self._path), "version": version("xllamacpp")}

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Encoder`."""
        found = self._model.ask("handle_embeddings", {"input": list(texts)})["data"]
        return [each["embedding"] for each in sorted(found, key=lambda each: int(each["index"]))]

    def close(self) -> None:
        """Free the model."""
        self._model.close()


class LlamaCrossEncoder:
    """A `CrossEncoder` whose scores are logits, unless llama.cpp turns them into probabilities."""

    def __init__(self, path: Path, threads: int, *, raw: bool = True) -> None:
        """See `LlamaModel`; `raw` demands logits.

        Raises:
            Unavailable: the file is not GGUF, or has no head, so that llama.cpp would score by a vector's first number;
                or `raw` is set and llama.cpp gives probabilities.
        """
        if raw and _read_header(gguf.read_architecture, path).name in SOFTMAXED:
            problem = f"llama.cpp already turns the scores of {path} into probabilities"
            raise Unavailable(problem, hint="set `retrieval.reranker.activation: none`")
        if not HEADS & _read_header(gguf.read_tensor_names, path):
            raise Unavailable(f"{path} is not a reranker: it lacks {' and '.join(sorted(HEADS))}", hint=FIX)
        self._model = LlamaModel(path, RANK, threads)

    def scores(self, question: str, documents: Sequence[str]) -> list[float]:
        """See `CrossEncoder`."""
        found = self._model.ask("handle_rerank", {"query": question, "documents": list(documents)})["results"]
        return order_scores([(each["index"], each["relevance_score"]) for each in found], len(documents))

    def close(self) -> None:
        """Free the model."""
        self._model.close()


def _read_header(read: Callable[[Path], T], path: Path) -> T:
    """Read a file's header with `read`.

    Raises:
        Unavailable: the header cannot be read.
    """
    try:
        return read(path)
    except MetadataError as error:
        raise Unavailable(str(error), hint=FIX) from error

"""GGUF models that llama.cpp runs inside this process, on the processor: encoders and cross-encoders.

It is loaded when it is first asked. A text that does not fit is refused, never cut.
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
from shared.models.rerank_servers import in_order

SLOTS = 8
"""Texts that are read at once, where they fit into one context together."""
LONGEST = 8192
"""Tokens: models that were trained on longer texts are not given the memory for them."""
MEAN, RANK = 1, 4
"""llama.cpp's numbers: the mean of all tokens' vectors, where the file names no way; and a score for a vector."""
HEADS = frozenset({"cls.weight", "cls.output.weight"})
"""Tensors that make a score of a pair; a reranker has one of them or both."""
SOFTMAXED = ("qwen3", "qwen3vl")
"""Architectures whose two labels llama.cpp turns into the probability of the first (node-llama-cpp#617)."""
FIX = "correct the `path` under `retrieval` in mathrag.yaml"

T = TypeVar("T")


class LlamaModel:
    """One loaded model."""

    def __init__(self, path: Path, pooling: int, threads: int) -> None:
        """Look at the file; nothing is loaded yet.

        Raises:
            Unavailable: it is no GGUF file.
        """
        self._path = path
        self._pooling = pooling
        self._threads = threads
        self._loading = Lock()
        self._server: Any = None
        self._context = min(_said(gguf.architecture, path).trained_context, LONGEST)

    def ask(self, handler: str, body: dict[str, Any]) -> dict[str, Any]:
        """What the server answers to a request.

        Raises:
            ModelFailed: it refuses, or cannot be loaded.
        """
        with self._loading:
            server = self._server = self._server or self._load()
        reply: dict[str, Any] = getattr(server, handler)(body)
        if error := reply.get("error"):
            said = str(error.get("message", error))[:500]
            too_long = any(sign in said for sign in SIGNS_OF_LENGTH)
            kind = FailureKind.CONTEXT_EXCEEDED if too_long else FailureKind.BACKEND_ERROR
            raise ModelFailed(kind, f"{self._path.name}: {said}")
        return reply

    def close(self) -> None:
        """Free it; its server has no other way to stop."""
        self._server = None

    def _load(self) -> Any:
        import xllamacpp  # 100 MB that the other kinds do not need

        params = xllamacpp.CommonParams()
        params.model.path = str(self._path)
        params.embedding = True
        params.pooling_type = xllamacpp.llama_pooling_type(self._pooling)
        params.n_parallel, params.n_ctx = SLOTS, SLOTS * self._context
        params.n_batch = params.n_ubatch = self._context
        params.n_gpu_layers = 0  # a GPU's memory is the guard's
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = self._threads
        params.hostnames, params.port = ["127.0.0.1"], 0
        params.api_keys = [secrets.token_hex(16)]  # it listens, though nobody is to come
        params.warmup, params.verbosity, params.cache_ram_mib = False, -1, 0
        try:
            return xllamacpp.Server(params)
        except RuntimeError as error:
            said = f"llama.cpp cannot load {self._path.name}: {error}"
            raise ModelFailed(FailureKind.BACKEND_ERROR, said) from error


class LlamaEncoder:
    """An `Encoder`; its vectors are pooled as the file says."""

    def __init__(self, path: Path, threads: int) -> None:
        self._path = path
        self._model = LlamaModel(path, _said(gguf.pooling, path) or MEAN, threads)

    def identity(self) -> dict[str, str]:
        """The file's hash and the library's version."""
        return {"kind": "gguf", "digest": weights.digest(self._path), "version": version("xllamacpp")}

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Encoder`."""
        found = self._model.ask("handle_embeddings", {"input": list(texts)})["data"]
        return [each["embedding"] for each in sorted(found, key=lambda each: int(each["index"]))]

    def close(self) -> None:
        """Free the model."""
        self._model.close()


class LlamaCrossEncoder:
    """A `CrossEncoder`; its scores are logits, unless llama.cpp makes probabilities of them."""

    def __init__(self, path: Path, threads: int, *, raw: bool = True) -> None:
        """See `LlamaModel`; `raw`: logits are wanted.

        Raises:
            Unavailable: it is no GGUF file, or has no head: llama.cpp would score by the first number of a vector. Or
                its scores come as probabilities, and a further activation would spoil them.
        """
        if raw and _said(gguf.architecture, path).name in SOFTMAXED:
            said = f"llama.cpp makes probabilities of the scores of {path} by itself"
            raise Unavailable(said, hint="set `retrieval.reranker.activation: none`")
        if not HEADS & _said(gguf.tensors, path):
            raise Unavailable(f"{path} is no reranker: it lacks {' and '.join(sorted(HEADS))}", hint=FIX)
        self._model = LlamaModel(path, RANK, threads)

    def scores(self, question: str, documents: Sequence[str]) -> list[float]:
        """See `CrossEncoder`."""
        found = self._model.ask("handle_rerank", {"query": question, "documents": list(documents)})["results"]
        return in_order([(each["index"], each["relevance_score"]) for each in found], len(documents))

    def close(self) -> None:
        """Free the model."""
        self._model.close()


def _said(read: Callable[[Path], T], path: Path) -> T:
    """What a file's header says."""
    try:
        return read(path)
    except MetadataError as error:
        raise Unavailable(str(error), hint=FIX) from error

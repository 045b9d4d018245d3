"""Models of sentence-transformers in this process, on the CPU; they need the extra `rerank`, which installs torch.

A model is loaded at its first use, and truncates texts at its own length, as the library does.
"""

from collections.abc import Sequence
from copy import copy
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, Self

from shared.contracts.replies import FailureKind
from shared.errors import Unavailable
from shared.extras import not_installed
from shared.models import weights
from shared.models.ports import ModelFailed

LIBRARY = "sentence-transformers"
MODULE = "sentence_transformers"
DEVICE = "cpu"
"""The CPU, since only the guard may use a GPU's memory."""


class SentenceModel:
    """A model from a folder or the hub, for one thread at a time, since its tokenizer is not thread-safe."""

    def __init__(self, kind: str, path: Path | None, model: str, revision: str) -> None:
        """Check for the library and the folder without loading the model.

        Raises:
            NotInstalled: the library is missing.
            Unavailable: the folder is not there.
        """
        if find_spec(MODULE) is None:
            raise not_installed(LIBRARY, "rerank")
        if not model and not (path and path.is_dir()):
            raise Unavailable(f"no model folder at {path}", hint="correct the `path` under `retrieval` in mathrag.yaml")
        self._kind = kind
        self._path = None if model else path
        self._name = model
        self._revision = revision
        self._lock = Lock()
        self._model: Any = None

    def identity(self) -> dict[str, str]:
        """Return the folder's hash, or name and revision on the hub, with the library's version."""
        which = (
            {"digest": weights.digest(self._path)} if self._path else {"name": self._name, "revision": self._revision}
        )
        return {"kind": LIBRARY, "version": version(LIBRARY), **which}

    def ask(self, method: str, *given: object, **options: object) -> Any:
        """Call a method of the model and return its result.

        Raises:
            ModelFailed: the model cannot be loaded, or the method raised.
        """
        with self._lock:
            try:
                self._model = self._model or self._load()
                return getattr(self._model, method)(*given, show_progress_bar=False, **options)
            except Exception as error:  # torch, the hub and the model's files raise all kinds of exceptions
                raise ModelFailed(FailureKind.BACKEND_ERROR, f"{LIBRARY}: {error!r}"[:500]) from error

    def close(self) -> None:
        self._model = None

    def _load(self) -> Any:
        made = getattr(import_module(MODULE), self._kind)
        where = self._name or str(self._path)
        return made(where, device=DEVICE, revision=self._revision or None, local_files_only=self._path is not None)


class SentenceEncoder:
    """An `Encoder` of documents; `queries` encodes questions, which differs for a model with a `Router`."""

    def __init__(self, path: Path | None, model: str, revision: str) -> None:
        self._model = SentenceModel("SentenceTransformer", path, model, revision)
        self._method = "encode_document"

    @property
    def queries(self) -> Self:
        """Return an encoder of questions that shares this one's model."""
        other = copy(self)
        other._method = "encode_query"
        return other

    def identity(self) -> dict[str, str]:
        """See `SentenceModel.identity`."""
        return self._model.identity()

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Encoder`; a prompt in the model's folder is not used, since prefixes are settings."""
        found: list[list[float]] = self._model.ask(self._method, list(texts), prompt="").tolist()
        return found

    def close(self) -> None:
        """Free the model."""
        self._model.close()


class SentenceCrossEncoder:
    """A `CrossEncoder` whose scores are logits, regardless of the activation that the model's folder names."""

    def __init__(self, path: Path | None, model: str, revision: str) -> None:
        self._model = SentenceModel("CrossEncoder", path, model, revision)

    def identity(self) -> dict[str, str]:
        """See `SentenceModel.identity`."""
        return self._model.identity()

    def scores(self, question: str, documents: Sequence[str]) -> list[float]:
        """See `CrossEncoder`."""
        pairs = [(question, document) for document in documents]
        identity = import_module("torch").nn.Identity()
        found = self._model.ask("predict", pairs, activation_fn=identity)
        if found.shape != (len(pairs),):
            problem = f"the cross-encoder gives {found.shape[-1]} scores per pair; use one that gives a single score"
            raise ModelFailed(FailureKind.BACKEND_ERROR, problem)
        scores: list[float] = found.tolist()
        return scores

    def close(self) -> None:
        """Free the model."""
        self._model.close()

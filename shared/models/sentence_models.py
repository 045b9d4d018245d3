"""Models of sentence-transformers in this process, on the processor; needs the extra `rerank`, which brings torch.

Both are loaded when they are first asked, and cut texts at their own length, as that library does.
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
from shared.models import weights
from shared.models.ports import ModelFailed

LIBRARY = "sentence-transformers"
MODULE = "sentence_transformers"
DEVICE = "cpu"
"""A GPU's memory is the guard's."""


class SentenceModel:
    """One loaded model: of a folder, or of the hub. One thread at a time: its tokenizer allows no more."""

    def __init__(self, kind: str, path: Path | None, model: str, revision: str) -> None:
        """Look whether it can be loaded; nothing is yet.

        Raises:
            Unavailable: the library or the folder is not there.
        """
        if find_spec(MODULE) is None:
            raise Unavailable(f"{LIBRARY} is not installed", hint="pip install 'mathrag-gate[rerank]'")
        if not model and not (path and path.is_dir()):
            raise Unavailable(f"no model folder at {path}", hint="correct the `path` under `retrieval` in mathrag.yaml")
        self._kind = kind
        self._path = None if model else path
        self._name = model
        self._revision = revision
        self._lock = Lock()
        self._model: Any = None

    def identity(self) -> dict[str, str]:
        """Hash of the folder, or name and revision on the hub; and the library's version."""
        which = (
            {"digest": weights.digest(self._path)} if self._path else {"name": self._name, "revision": self._revision}
        )
        return {"kind": LIBRARY, "version": version(LIBRARY), **which}

    def ask(self, method: str, *given: object, **options: object) -> Any:
        """What a method of the model returns.

        Raises:
            ModelFailed: it cannot be loaded, or raises.
        """
        with self._lock:
            try:
                self._model = self._model or self._load()
                return getattr(self._model, method)(*given, show_progress_bar=False, **options)
            except Exception as error:  # whatever torch, the hub and the model's files come up with
                raise ModelFailed(FailureKind.BACKEND_ERROR, f"{LIBRARY}: {error!r}"[:500]) from error

    def close(self) -> None:
        """Free it."""
        self._model = None

    def _load(self) -> Any:
        made = getattr(import_module(MODULE), self._kind)
        where = self._name or str(self._path)
        return made(where, device=DEVICE, revision=self._revision or None, local_files_only=self._path is not None)


class SentenceEncoder:
    """An `Encoder` of documents; `queries` is that of questions, which differs for a model with a `Router`."""

    def __init__(self, path: Path | None, model: str, revision: str) -> None:
        self._model = SentenceModel("SentenceTransformer", path, model, revision)
        self._method = "encode_document"

    @property
    def queries(self) -> Self:
        """The same model, asked for the vectors of questions."""
        other = copy(self)
        other._method = "encode_query"
        return other

    def identity(self) -> dict[str, str]:
        """See `SentenceModel.identity`."""
        return self._model.identity()

    def encode(self, texts: Sequence[str]) -> list[list[float]]:
        """See `Encoder`; without the prompt that a model's folder may bring: prefixes are settings."""
        found: list[list[float]] = self._model.ask(self._method, list(texts), prompt="").tolist()
        return found

    def close(self) -> None:
        """Free the model."""
        self._model.close()


class SentenceCrossEncoder:
    """A `CrossEncoder`; its scores are logits, whatever activation the model's folder names."""

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
            said = f"a cross-encoder with one score a pair is needed; this one gives {found.shape[-1]}"
            raise ModelFailed(FailureKind.BACKEND_ERROR, said)
        scores: list[float] = found.tolist()
        return scores

    def close(self) -> None:
        """Free the model."""
        self._model.close()

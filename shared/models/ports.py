"""What the rest of the project asks of a model; adapters live beside this module."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.contracts.replies import FailureKind
from shared.redaction import redacted


class ModelFailed(Exception):
    """An embedder or reranker gave nothing that can be used; what it says holds no secret."""

    def __init__(self, kind: FailureKind, detail: str, what: str = "") -> None:
        self.kind = kind
        self.detail = redacted(detail)
        self.what = redacted(what)
        """Which server answers nobody now, where `kind` is `unavailable`."""
        super().__init__(f"{kind.value}: {self.detail}")


class Embedder(Protocol):
    """Texts to vectors."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def signature(self) -> str:
        """Hex digest of everything that determines a vector: an index built with another one is another index."""

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Vectors [len(texts), dimension] of length 1; the zero vector for a text without a known token.

        Raises:
            TooLarge: a text is longer than the model can hold.
            Unavailable: the server behind it gives none, or gives what cannot be used.
        """

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The same for the other side: some models set a question apart from what answers it.

        Raises:
            TooLarge, Unavailable: as above.
        """


class Encoder(Protocol):
    """A model behind an `Embedder`: vectors as they come, of any length, unchecked."""

    def identity(self) -> dict[str, str]:
        """Everything about the model that determines a vector; may ask its server.

        Raises:
            ModelFailed: the server does not say.
        """

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """One vector a text, in one request. Safe to call from several threads.

        Raises:
            ModelFailed: there are none; `context_exceeded` where a text is too long.
        """

    def close(self) -> None:
        """End what was started."""


class CrossEncoder(Protocol):
    """A model that reads question and document together: scores as they come, unchecked."""

    def scores(self, question: str, documents: Sequence[str]) -> Sequence[float]:
        """One score a document, in order, in one request. Safe to call from several threads.

        Raises:
            ModelFailed: there are none; `context_exceeded` where a pair is too long.
        """

    def close(self) -> None:
        """End what was started."""


class Reranker(Protocol):
    """How probable it is that a document helps with a question."""

    def score(self, question: str, documents: Sequence[str]) -> list[float]:
        """One score a document, in order; in [0, 1].

        Raises:
            ModelFailed: there are none, or they cannot be used.
        """

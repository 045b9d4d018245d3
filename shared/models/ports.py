"""Interfaces of embedders and rerankers, whose adapters are in the modules beside this one."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from shared.contracts.replies import FailureKind
from shared.redaction import redact


class ModelFailed(Exception):
    """An embedder or reranker gave no usable answer; the message holds no secret."""

    def __init__(self, kind: FailureKind, detail: str, what: str = "") -> None:
        self.kind = kind
        self.detail = redact(detail)
        self.what = redact(what)
        """The server that is away, if `kind` is `unavailable`."""
        super().__init__(f"{kind.value}: {self.detail}")


class Embedder(Protocol):
    """Embeds texts as vectors."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    @property
    def signature(self) -> str:
        """Hex digest of everything that determines a vector, and so part of what identifies an index."""

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed questions as vectors [len(texts), dimension] of length 1; zero for a text without a known token.

        Raises:
            TooLarge: a text is longer than the model can hold.
            Unavailable: the server behind it gives no vectors, or unusable ones.
        """

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed documents, which some models treat differently from questions; see `embed_queries`.

        Raises:
            TooLarge, Unavailable: as `embed_queries`.
        """


class Encoder(Protocol):
    """A model behind an `Embedder`, with unchecked vectors of any length."""

    def identity(self) -> dict[str, str]:
        """Return everything about the model that determines a vector, if need be from its server.

        Raises:
            ModelFailed: the server does not tell.
        """

    def encode(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector per text, in one request. Safe to call from several threads.

        Raises:
            ModelFailed: there are no vectors; `context_exceeded` if a text is too long.
        """

    def close(self) -> None:
        """Free the model or close the connections."""


class CrossEncoder(Protocol):
    """A model that reads question and document together, with unchecked scores."""

    def scores(self, question: str, documents: Sequence[str]) -> Sequence[float]:
        """Return one score per document, in order, in one request. Safe to call from several threads.

        Raises:
            ModelFailed: there are no scores; `context_exceeded` if a pair is too long.
        """

    def close(self) -> None:
        """Free the model or close the connections."""


class Reranker(Protocol):
    """Estimates how probable it is that a document helps with a question."""

    def score(self, question: str, documents: Sequence[str]) -> list[float]:
        """Return one score in [0, 1] per document, in order.

        Raises:
            ModelFailed: there are no scores, or unusable ones.
        """

"""What the rest of the project asks of a model; adapters live beside this module."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray


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
            Unavailable: the server behind it gives none, or gives what cannot be used.
        """

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The same for the other side: some models set a question apart from what answers it."""

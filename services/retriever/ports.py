"""Interfaces of search indexes and of the back ends that build and load them."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class IndexMatch(NamedTuple):
    """A document that an index has found."""

    document: str
    """Its hash, in hex."""
    score: float
    """Larger is better; comparable within one index only."""


Batch = Sequence[tuple[str, str]]
"""Documents to index: (hash in hex, text). A hash occurs once per index."""


class SearchIndex(Protocol):
    """An immutable set of documents that can be searched. Safe to search from several threads."""

    @property
    def documents(self) -> Sequence[str]:
        """Hashes of all documents in ascending order."""

    def search(self, questions: Sequence[str], k: int) -> list[list[IndexMatch]]:
        """Return at most `k` matches per question, by descending score, then ascending hash.

        The matches of a question do not depend on the other questions.
        """

    def save(self, folder: Path) -> None:
        """Write all that `load` needs into the empty `folder`."""


@runtime_checkable
class DenseIndex(SearchIndex, Protocol):
    """Finds the nearest vectors; documents with a zero vector are never found."""

    @property
    def dimension(self) -> int:
        """Return the length of a vector."""

    def search_vectors(self, vectors: NDArray[np.float32], k: int) -> list[list[IndexMatch]]:
        """Search for vectors [n, dimension] of length 1; a zero vector finds nothing. See `search`."""


class SparseIndex(SearchIndex, Protocol):
    """Finds documents that share terms with the question."""

    @property
    def terms(self) -> int:
        """Number of distinct terms."""


UNSIGNED = "0" * 64
"""Signature of an index without a row in the database."""

I_co = TypeVar("I_co", bound=SearchIndex, covariant=True)


class Backend(Protocol[I_co]):
    """Makes and loads the indexes of one kind."""

    @property
    def kind(self) -> str:
        """Return "dense" or "sparse"."""

    def recipe(self) -> dict[str, Any]:
        """Return everything but the documents that determines scores, as JSON values; hashed into the signature."""

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> I_co:
        """Index all documents of `batches`, which are read once, in order.

        Args:
            batches: the documents.
            signature: digest of the recipe in hex, which is part of the index's name on a server.

        Raises:
            Invalid: there is no document.
        """

    def load(self, folder: Path) -> I_co:
        """Load the index that `save` wrote into `folder`."""

    def check(self, folder: Path) -> None:
        """Check what the index needs outside of `folder`.

        Raises:
            UnsoundIndex: it is missing or damaged.
            Unavailable: the server does not answer.
        """

    def point(self, folder: Path, corpus: int) -> None:
        """Record that the corpus with this id now uses the index in `folder`."""


class FolderBackend:
    """Base of a `Backend` whose indexes are completely in their folders."""

    def check(self, folder: Path) -> None:
        """Do nothing: the index is completely in its folder."""

    def point(self, folder: Path, corpus: int) -> None:
        """Do nothing: the row of the corpus tells which index it uses."""

"""What a search index must do, so that Elasticsearch or a GPU can take the place of the shipped ones."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray


class Match(NamedTuple):
    """One document found."""

    document: str
    """Its hash, in hex."""
    score: float
    """Larger is better; comparable within one index only."""


Batch = Sequence[tuple[str, str]]
"""Documents to index: (hash in hex, text). A hash occurs once per index."""


class Index(Protocol):
    """An immutable set of documents that can be searched. Safe to search from several threads."""

    @property
    def documents(self) -> Sequence[str]:
        """Hashes of all documents, ascending."""

    def search(self, questions: Sequence[str], k: int) -> list[list[Match]]:
        """Per question at most `k` matches, by descending score, then ascending hash.

        The matches of a question do not depend on the other questions.
        """

    def save(self, folder: Path) -> None:
        """Write everything that `load` needs into the empty folder `folder`."""


@runtime_checkable
class DenseIndex(Index, Protocol):
    """Nearest vectors; every document has a score but those whose vector is zero, which are never found."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def search_vectors(self, vectors: NDArray[np.float32], k: int) -> list[list[Match]]:
        """`search` for vectors [n, dimension] of length 1 instead of questions; a zero vector finds nothing."""


class SparseIndex(Index, Protocol):
    """Shared terms; a document that shares none is never found."""

    @property
    def terms(self) -> int:
        """Number of distinct terms."""


UNSIGNED = "0" * 64
"""Signature of an index that no row names."""

I_co = TypeVar("I_co", bound=Index, covariant=True)


class Backend(Protocol[I_co]):
    """Makes and loads the indexes of one kind."""

    @property
    def kind(self) -> str:
        """ "dense" or "sparse"."""

    def recipe(self) -> dict[str, Any]:
        """Everything but the documents that determines scores; JSON values only. Hashed into the signature."""

    def build(self, batches: Iterable[Batch], signature: str = UNSIGNED) -> I_co:
        """Index all documents of `batches`, which are read once, in order.

        Args:
            batches: the documents.
            signature: digest of the recipe, in hex; what a server calls the index by.

        Raises:
            Invalid: there is no document.
        """

    def load(self, folder: Path) -> I_co:
        """The index that `save` wrote into `folder`."""

    def check(self, folder: Path) -> None:
        """Whether what the index needs outside of `folder` is there too.

        Raises:
            Unsound: it is not.
            Unavailable: nobody can tell.
        """

    def point(self, folder: Path, corpus: int) -> None:
        """The corpus with this id now uses the index in `folder`."""


class Embedded:
    """Half of a `Backend` whose indexes lie in their folders, and nowhere else."""

    def check(self, folder: Path) -> None:
        """The files are all there is."""

    def point(self, folder: Path, corpus: int) -> None:
        """The row of the corpus says it."""

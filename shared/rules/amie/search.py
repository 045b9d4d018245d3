"""What a search for the rules of one head needs: the graph, the head, the limits."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.contracts.mining import Amie
from shared.contracts.rules import Term
from shared.rules.amie.bodies import Bodies
from shared.rules.amie.index import Index, Ints, Longs

Edge = tuple[int, Term, Term]
"""Label, source and target of a body's atom; of an inverse label the target is the atom's subject."""


class Found(NamedTuple):
    """A rule that the search keeps."""

    body: tuple[Edge, ...]
    support: int
    body_size: int
    pca_body_size: int

    @property
    def pca_confidence(self) -> float:
        """Share of facts among the predictions about what has a fact of the head on its functional side."""
        return self.support / self.pca_body_size


class Head(NamedTuple):
    """The relation that rules predict."""

    label: int
    subjects: Ints
    objects: Ints
    functional: int
    """0 where the relation is at least as functional as its inverse, else 1."""
    known: NDArray[np.bool_]
    """By entity: whether it has a fact of the relation on the functional side."""


def find_head(index: Index, label: int) -> Head:
    """Functionality is distinct subjects over facts, and distinct objects over facts of the inverse."""
    subjects, objects = index.edges(label)
    functional = int(len(np.unique(subjects)) < len(np.unique(objects)))
    known = np.zeros(index.entities, dtype=bool)
    known[(subjects, objects)[functional]] = True
    return Head(label, subjects, objects, functional, known)


@dataclass(frozen=True)
class Search:
    """A head, and the limits that its rules must keep."""

    bodies: Bodies
    head: Head
    mining: Amie

    @property
    def index(self) -> Index:
        """The edges of the graph."""
        return self.bodies.index

    def are_supported(self, counts: Longs) -> NDArray[np.bool_]:
        """Whether bodies with these supports explain enough of the head; what extends others never explains more."""
        covered = counts / len(self.head.subjects) >= self.mining.min_head_coverage
        return np.asarray(covered & (counts >= self.mining.min_support))

    def is_certain(self, support: int, pca_body_size: int) -> bool:
        """Whether the PCA confidence reaches its minimum."""
        return support / pca_body_size >= self.mining.min_pca_confidence

    def largest_body(self, support: int) -> int | None:
        """A PCA body size above which no rule of this support is certain; None if there is none."""
        least = self.mining.min_pca_confidence
        return int(support / least) + 1 if least else None

"""A knowledge graph as arrays."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Graph(NamedTuple):
    """Distinct facts in the order of their file; entities and relations are numbered by first appearance."""

    triples: NDArray[np.int32]
    """(facts, 3): subject, relation, object."""
    times: NDArray[np.int64] | None
    """(facts,): the step of each fact, and None for a static graph. Steps are days or the numbers of the file."""
    entities: Sequence[str]
    """By number."""
    relations: Sequence[str]
    """By number."""


def steps(graph: Graph) -> NDArray[np.int64]:
    """The step of each fact.

    Raises:
        ValueError: the graph is static.
    """
    if graph.times is None:
        raise ValueError("the graph has no times: temporal rules need a graph whose facts have a fourth column, a time")
    return graph.times

"""Maps a graph's names to its numbers."""

from collections.abc import Mapping
from typing import NamedTuple

from shared.rules.graph import Graph


class GraphNumbers(NamedTuple):
    """The number of each entity and relation by name."""

    entities: Mapping[str, int]
    relations: Mapping[str, int]


def names_of(graph: Graph) -> GraphNumbers:
    return GraphNumbers(
        *({name: number for number, name in enumerate(each)} for each in (graph.entities, graph.relations))
    )

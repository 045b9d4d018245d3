"""The numbers of a graph's names."""

from collections.abc import Mapping
from typing import NamedTuple

from shared.rules.graph import Graph


class Names(NamedTuple):
    """What is called how."""

    entities: Mapping[str, int]
    relations: Mapping[str, int]


def names_of(graph: Graph) -> Names:
    """Of all entities and relations."""
    return Names(*({name: number for number, name in enumerate(each)} for each in (graph.entities, graph.relations)))

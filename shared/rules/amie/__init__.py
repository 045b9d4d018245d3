"""AMIE3-style mining (Lajus et al. 2020): all rules that pass the limits, with exact figures."""

from collections.abc import Iterator, Sequence

from shared.contracts.mining import Amie
from shared.contracts.rules import Atom, Rule
from shared.rules.amie.bodies import Bodies
from shared.rules.amie.closed import count_single_edges, find_edges, find_parallels, find_paths
from shared.rules.amie.constants import find_anchored
from shared.rules.amie.index import build_index
from shared.rules.amie.memory import memory_bytes
from shared.rules.amie.search import Edge, Found, Search, find_head
from shared.rules.graph import Graph

__all__ = ["memory_bytes", "mine"]

_latest: list[tuple[Graph, Bodies]] = []
"""The graph that was mined last, since its relations follow one another."""


def mine(graph: Graph, relation: str, mining: Amie) -> tuple[Rule, ...]:
    """The rules whose head is of `relation`.

    Raises:
        ValueError: the graph has no such relation.
    """
    if relation not in graph.relations:
        raise ValueError(f"the graph has no relation {relation!r}: choose one of its {len(graph.relations)} relations")
    bodies = _bodies(graph)
    head = find_head(bodies.index, list(graph.relations).index(relation))
    if len(head.subjects) < mining.min_head_facts:
        return ()
    search = Search(bodies, head, mining)
    return tuple(_make_rule(graph, search, rule) for rule in _find_rules(search, graph.entities))


def _bodies(graph: Graph) -> Bodies:
    """Of the same arrays as before, the same; else of an index that is built now."""
    if not _latest or _latest[0][0].triples is not graph.triples:
        _latest[:] = [(graph, Bodies(build_index(graph)))]
    return _latest[0][1]


def _find_rules(search: Search, entities: Sequence[str]) -> Iterator[Found]:
    counts = count_single_edges(search)
    edges = list(find_edges(search, counts))
    yield from edges
    if search.mining.max_atoms == 2:
        return
    parents = {rule.body[0][0]: rule.pca_confidence for rule in edges}
    yield from find_parallels(search, counts, parents)
    yield from find_paths(search)
    if search.mining.constants:
        yield from find_anchored(search, counts, parents, entities)


def _make_rule(graph: Graph, search: Search, found: Found) -> Rule:
    return Rule(
        head=Atom(graph.relations[search.head.label], 0, 1),
        body=tuple(_make_atom(graph, edge) for edge in found.body),
        support=found.support,
        body_size=found.body_size,
        confidence=found.support / found.body_size,
        head_coverage=found.support / len(search.head.subjects),
        pca_confidence=found.pca_confidence,
        pca_body_size=found.pca_body_size,
        functional=search.head.functional,
    )


def _make_atom(graph: Graph, edge: Edge) -> Atom:
    label, source, target = edge
    if label < len(graph.relations):
        return Atom(graph.relations[label], source, target)
    return Atom(graph.relations[label - len(graph.relations)], target, source)

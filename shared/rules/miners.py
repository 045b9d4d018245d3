"""Choose the miner that the limits are for."""

from shared.calls import Amie, Mining
from shared.replies import Rule
from shared.rules import amie, tlogic
from shared.rules.graph import Graph


def mine(graph: Graph, relation: str, mining: Mining) -> tuple[Rule, ...]:
    """Return the rules whose head is of `relation`, the surest first; only graph and limits determine them and their
    order.

    Raises:
        ValueError: the graph has no such relation, or no times and the miner needs them.
    """
    found = amie.mine(graph, relation, mining) if isinstance(mining, Amie) else tlogic.mine(graph, relation, mining)
    return tuple(sorted(found, key=lambda rule: (-rule.certainty, -rule.support)))


def memory_bytes(triples: int, entities: int, relations: int, mining: Mining) -> int:
    """Return the maximum memory of a process that mines this graph, measured by `python -m tools.bench mining`, rounded
    up."""
    if isinstance(mining, Amie):
        return amie.memory_bytes(triples, entities, relations, mining)
    return tlogic.memory_bytes(triples, entities, relations, mining)

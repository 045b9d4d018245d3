"""The miners by name."""

from shared.contracts.mining import Amie, Mining, TemporalSimple, TLogic
from shared.contracts.rules import Rule
from shared.rules import amie, simple, tlogic
from shared.rules.graph import Graph


def mine(graph: Graph, relation: str, mining: Mining) -> tuple[Rule, ...]:
    """The rules whose head is of `relation`, the surest first; graph and limits alone determine them and their order.

    Raises:
        ValueError: the graph has no such relation, or no times and the miner needs them.
    """
    return tuple(sorted(_find(graph, relation, mining), key=lambda rule: (-rule.certainty, -rule.support)))


def _find(graph: Graph, relation: str, mining: Mining) -> tuple[Rule, ...]:
    match mining:
        case Amie():
            return amie.mine(graph, relation, mining)
        case TLogic():
            return tlogic.mine(graph, relation, mining)
        case TemporalSimple():
            return simple.mine(graph, relation, mining)


def memory_bytes(triples: int, entities: int, relations: int, mining: Mining) -> int:
    """What a process that mines such a graph takes at most, measured at `bench/mining.py` and rounded up."""
    match mining:
        case Amie():
            return amie.memory_bytes(triples, entities, relations, mining)
        case TLogic():
            return tlogic.memory_bytes(triples, entities, relations, mining)
        case TemporalSimple():
            return simple.memory_bytes(triples, entities, relations)

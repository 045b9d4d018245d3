"""TLogic-style mining (Liu et al. 2022): cyclic rules of a temporal graph, from random walks back in time."""

import hashlib
from collections.abc import Iterator

import numpy as np

from shared.contracts.mining import TLogic
from shared.contracts.rules import Rule
from shared.rules.graph import Graph
from shared.rules.tlogic.bodies import Counts, Heads, Shapes, count, equalities, sample
from shared.rules.tlogic.edges import Edges, Integers, edges_of
from shared.rules.tlogic.memory import memory_bytes
from shared.rules.tlogic.paths import Step, number_variables, rule_of
from shared.rules.tlogic.walks import draw_recent, draw_uniformly, walk

__all__ = ["memory_bytes", "mine"]

DRAWS = {"exponential": draw_recent, "uniform": draw_uniformly}


def mine(graph: Graph, relation: str, mining: TLogic) -> tuple[Rule, ...]:
    """The rules whose head is of `relation`, then those of its inverse, short ones first.

    The random numbers follow from the seed, the relation's name, the direction and the length alone.

    Raises:
        ValueError: the graph has no such relation, no times, or no facts.
    """
    if relation not in graph.relations:
        raise ValueError(f"the graph has no relation {relation!r}")
    edges = edges_of(graph)
    facts = np.flatnonzero(graph.triples[:, 1] == graph.relations.index(relation))
    if len(facts) < mining.min_head_facts:
        return ()
    rules: dict[tuple[object, object], Rule] = {}
    for forward in (True, False):
        heads = facts if forward else edges.turned(facts)
        for length in range(1, mining.max_length + 1):
            for rule in _mine(graph, edges, heads, (relation, forward), length, mining):
                rules.setdefault((rule.head, rule.body), rule)  # loops read alike in both directions
    return tuple(rule for rule in rules.values() if rule.confidence > 0 and rule.confidence >= mining.min_confidence)


def _mine(graph: Graph, edges: Edges, heads: Integers, head: Step, length: int, mining: TLogic) -> Iterator[Rule]:
    """The rules of one head and length that the walks find and whose body holds at all."""
    rng = np.random.default_rng(_seed(mining.seed, head, length))
    walks = walk(edges, heads, length, mining.walks, DRAWS[mining.transition], rng)
    bodies = edges.turned(walks[:, :0:-1])
    if not len(bodies):
        return
    rows = np.column_stack((edges.relation[bodies], equalities(edges, bodies)))
    shapes, examples = np.unique(rows, axis=0, return_index=True)
    counts = _counts(edges, Shapes(shapes[:, :-1], shapes[:, -1]), Heads(edges, heads), mining, rng)
    for example, size, support in zip(bodies[examples], counts.size.tolist(), counts.support.tolist(), strict=True):
        if size:
            entities = [edges.subject[example[0]], *edges.object[example]]
            body = [_step(graph, number) for number in edges.relation[example].tolist()]
            yield rule_of(head, body, number_variables(entities), support, size)


def _counts(edges: Edges, shapes: Shapes, heads: Heads, mining: TLogic, rng: np.random.Generator) -> Counts:
    if mining.exact:
        return count(edges, shapes, heads)
    return sample(edges, shapes, heads, mining.samples, rng)


def _step(graph: Graph, number: int) -> Step:
    relations = len(graph.relations)
    return graph.relations[number % relations], number < relations


def _seed(seed: int, head: Step, length: int) -> int:
    """Of one head and length: which process mines it, and what it mined before, makes no difference."""
    return int.from_bytes(hashlib.sha256(f"{seed}\0{head[0]}\0{head[1]}\0{length}".encode()).digest()[:16])

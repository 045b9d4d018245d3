"""The four simple types of rules counted by their definitions, one example after the other."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from shared.contracts.rules import Atom, Term
from shared.rules.graph import Graph

Fact = tuple[str, str, str, int]
Link = tuple[str, bool]
"""A relation, and whether it is read from its object."""
Line = tuple[str, Atom, Atom, int, int]
"""Kind, head, body, support and body size."""


def graph_of(facts: Sequence[Fact]) -> Graph:
    """The facts as arrays, numbered by first appearance."""
    entities = list(dict.fromkeys(name for s, _, o, _ in facts for name in (s, o)))
    relations = list(dict.fromkeys(r for _, r, _, _ in facts))
    triples = [(entities.index(s), relations.index(r), entities.index(o)) for s, r, o, _ in facts]
    times = np.array([t for *_, t in facts], np.int64)
    return Graph(np.array(triples, np.int32).reshape(-1, 3), times, entities, relations)


def lines(facts: Sequence[Fact], relation: str, window: int, min_entities: int) -> Iterator[Line]:
    """All rules of a relation that at least one example follows."""
    for link in ((relation, False), (relation, True)):
        for counted in (pairs, entities, partners):
            yield from counted(facts, link, window)
        yield from constants(facts, link, window, min_entities)


def pairs(facts: Sequence[Fact], head: Link, window: int) -> Iterator[Line]:
    """Rules that lead from one link between two entities to another."""
    held: Counter[Link] = Counter()
    followed: Counter[Link] = Counter()
    true = set(read(facts, head))
    for body in links(facts):
        for x, t in {(x, t) for x, _, t in true}:
            for y in {y for z, y, u in read(facts, body) if z == x and t - window <= u < t}:
                held[body] += 1
                followed[body] += (x, y, t) in true
    for body, support in followed.items():
        if support:
            yield "pair", atom(head, 0, 1), atom(body, 0, 1), support, held[body]


def constants(facts: Sequence[Fact], head: Link, window: int, min_entities: int) -> Iterator[Line]:
    """Rules that lead from a link to one entity to a link to another."""
    true = set(read(facts, head))
    for c in {y for _, y, _ in true}:
        for body, d in {(link, end) for link in links(facts) for _, end, _ in read(facts, link)}:
            seen = defaultdict(set)
            for x, y, u in read(facts, body):
                if y == d:
                    seen[x].add(u)
            asked = {(x, t) for x, _, t in true}, {(x, t) for x in seen for _, y, t in true if y == c}
            right = {(x, t) for x, y, t in true if y == c and any(t - window <= u < t for u in seen[x])}
            if len({x for x, _ in right}) >= min_entities:
                for variable, questions in enumerate(asked):
                    held = sum(any(t - window <= u < t for u in seen[x]) for x, t in questions)
                    yield "constants", atom(head, variable, c), atom(body, variable, d), len(right), held


def entities(facts: Sequence[Fact], head: Link, window: int) -> Iterator[Line]:
    """What entity a link leads to at all."""
    found = Counter(y for _, y, _ in read(facts, head))
    for entity, support in found.items():
        yield "frequent entity", atom(head, 0, entity), Atom(head[0], 2, 3), support, found.total()


def partners(facts: Sequence[Fact], head: Link, window: int) -> Iterator[Line]:
    """What entity a link leads to from another."""
    found = Counter((x, y) for x, y, _ in read(facts, head))
    for (x, y), support in found.items():
        size = sum(count for (source, _), count in found.items() if source == x)
        yield "frequent partner", atom(head, x, y), atom(head, x, 2), support, size


def links(facts: Sequence[Fact]) -> set[Link]:
    """Every relation in both directions."""
    return {(relation, back) for _, relation, _, _ in facts for back in (False, True)}


def read(facts: Sequence[Fact], link: Link) -> Iterator[tuple[str, str, int]]:
    """Where a link leads from and to, and when."""
    for s, r, o, t in facts:
        if r == link[0]:
            yield (o, s, t) if link[1] else (s, o, t)


def atom(link: Link, source: Term, target: Term) -> Atom:
    """That a link leads from one term to the other."""
    return Atom(link[0], target, source) if link[1] else Atom(link[0], source, target)

"""TLogic-style mining (Liu et al. 2022): cyclic rules of a temporal graph, from random walks back in time.

Walks return to where they began (section 4.1 of the paper). A body leads from variable 0 over one atom after the other
to variable 1; how often it holds, and how often its head follows, is counted over all bodies or over a sample.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.calls import TLogic
from shared.replies import Atom, Rule
from shared.rules.graph import Graph, concatenate_ranges, keep_latest, slice_by_weight

Integers = NDArray[np.int64]
UNDERFLOW = 1000.0
"""exp(-1000) is 0: no gap between two times needs to be longer than this many steps."""


class Spans(NamedTuple):
    """Runs of places in `Sorted.edges`, each from `start` (included) to `stop` (excluded)."""

    start: Integers
    stop: Integers

    def places(self) -> tuple[Integers, Integers]:
        """Return all places, span after span: the number of the span, and the place."""
        lengths = self.stop - self.start
        return np.repeat(np.arange(len(lengths)), lengths), concatenate_ranges(self.start, lengths)


class Sorted:
    """Edges in the order of their group, and within a group of their time."""

    def __init__(self, groups: Integers, ranks: Integers, clock: NDArray[np.float64]) -> None:
        """`groups` and `ranks` are those of all edges by number; `clock` is the time of each rank."""
        self.edges = np.lexsort((ranks, groups))
        self.places = np.empty_like(self.edges)
        """Position of each edge in `edges`."""
        self.places[self.edges] = np.arange(len(self.edges))
        self._names, first, number = np.unique(groups[self.edges], return_index=True, return_inverse=True)
        self._starts = np.append(first, len(groups))
        self._times = int(ranks.max(initial=0)) + 1
        self._keys = number * self._times + ranks[self.edges]
        self._clock = clock

    @cached_property
    def log_weights(self) -> NDArray[np.float64]:
        """Return for each place the logarithm of the sum of exp(time) over the group's edges up to there."""
        sums: NDArray[np.float64] = self._clock[self._keys % self._times]
        before = np.arange(len(sums)) - self._starts[self._keys // self._times]
        reach = 1  # a sum over `reach` edges is made of two over half as many
        while len(ends := np.flatnonzero(before >= reach)):
            sums[ends] = np.logaddexp(sums[ends], sums[ends - reach])
            reach *= 2
        return sums

    def between(self, groups: Integers, first: Integers | int, before: Integers | int) -> Spans:
        """Return for each group the edges whose rank is `first` or later, and earlier than `before`."""
        number = np.searchsorted(self._names, groups)
        is_known = self._names[np.minimum(number, len(self._names) - 1)] == groups
        start = np.searchsorted(self._keys, number * self._times + first)
        stop = np.searchsorted(self._keys, number * self._times + before)
        return Spans(start, np.where(is_known, np.maximum(start, stop), start))

    def from_group(self, first: Integers, last: Integers) -> Spans:
        """Return the edges of all groups from `first` (included) to `last` (excluded)."""
        return Spans(
            self._starts[np.searchsorted(self._names, first)], self._starts[np.searchsorted(self._names, last)]
        )


class Edges:
    """Fact f is edge f, from subject to object, and edge f + facts, back, of the relation's inverse.

    Relation r has the number r, and its inverse r + relations. Times are ranks: their places among the distinct ones.
    """

    def __init__(self, graph: Graph) -> None:
        """Raises ValueError where the graph is static or empty."""
        if graph.times is None:
            advice = "mine a graph whose facts have a fourth column, a time, or use the miner `amie`"
            raise ValueError(f"the graph has no times: {advice}")
        self.times, ranks = np.unique(graph.times, return_inverse=True)
        if not len(self.times):
            raise ValueError("the graph has no facts: there is nothing to mine")
        subject, relation, object_ = graph.triples.T.astype(np.int64)
        self.facts, self.entities, self.relations = len(ranks), len(graph.entities), len(graph.relations)
        self.subject, self.object = np.append(subject, object_), np.append(object_, subject)
        self.relation = np.append(relation, relation + self.relations)
        self.rank = np.append(ranks, ranks).astype(np.int64)
        unsigned = self.times.astype(np.uint64)  # differences of any two 64-bit steps fit
        self.clock = np.append(0.0, np.cumsum(np.minimum(np.diff(unsigned).astype(np.float64), UNDERFLOW)))
        """By rank: the steps since the first time, long gaps shortened."""

    def reverse(self, edges: Integers) -> Integers:
        """Return the same facts in the other direction."""
        return (edges + self.facts) % (2 * self.facts)

    def pairs(self, subjects: Integers, objects: Integers) -> Integers:
        """Return one number for two entities: the groups of `by_pair`."""
        return subjects * self.entities + objects

    @cached_property
    def by_subject(self) -> Sorted:
        """Grouped by subject."""
        return Sorted(self.subject, self.rank, self.clock)

    @cached_property
    def by_pair(self) -> Sorted:
        """Grouped by subject and object."""
        return Sorted(self.pairs(self.subject, self.object), self.rank, self.clock)

    @cached_property
    def by_relation(self) -> Sorted:
        """Grouped by relation and subject."""
        return Sorted(self.relation * self.entities + self.subject, self.rank, self.clock)

    def of_relations(self, relations: Integers) -> Spans:
        """Return all edges of each relation, in `by_relation`."""
        return self.by_relation.from_group(relations * self.entities, (relations + 1) * self.entities)

    def following(self, edges: Integers, relations: Integers) -> Spans:
        """Return the edges of each relation that begin where an edge ends, no earlier than it, in `by_relation`."""
        groups = relations * self.entities + self.object[edges]
        return self.by_relation.between(groups, self.rank[edges], len(self.times))


edges_of = keep_latest(Edges)


Step = tuple[str, bool]
"""A relation, and whether it is followed from subject to object."""


def rule_of(head: Step, body: Sequence[Step], variables: Sequence[int], support: int, size: int) -> Rule:
    """Return the rule of a body along `variables`, one more than there are steps."""
    return Rule(
        head=_atom(head, variables[0], variables[-1]),
        body=tuple(_atom(step, *ends) for step, ends in zip(body, pairwise(variables), strict=True)),
        support=support,
        body_size=size,
        confidence=round(support / size, 6),
    )


def _atom(step: Step, start: int, end: int) -> Atom:
    relation, forward = step
    return Atom(relation, start, end) if forward else Atom(relation, end, start)


def number_variables(entities: Sequence[int]) -> list[int]:
    """One variable for each distinct entity of a path: 0 where it starts, 1 where it ends, others from 2 on."""
    numbers = {entities[0]: 0}
    numbers.setdefault(entities[-1], 1)
    others = itertools.count(2)
    for entity in entities:
        if entity not in numbers:
            numbers[entity] = next(others)
    return [numbers[entity] for entity in entities]


Draw = Callable[[Sorted, Spans, np.random.Generator], Integers]
"""A place in each span; none of them is empty."""


def walk(edges: Edges, starts: Integers, length: int, walks: int, draw: Draw, rng: np.random.Generator) -> Integers:
    """(walks that returned, 1 + length): the edges of each, the first drawn from `starts`.

    The second edge is strictly earlier than the first, further ones are not later than the one before; none is the
    exact inverse of the one before it.
    """
    path = rng.choice(starts, walks)[:, None]
    for step in range(1, length + 1):
        at, ranks = edges.object[path[:, -1]], edges.rank[path[:, -1]]
        if step == length:
            choices, groups = edges.by_pair, edges.pairs(at, edges.subject[path[:, 0]])
        else:
            choices, groups = edges.by_subject, at
        spans = choices.between(groups, 0, ranks if step == 1 else ranks + 1)
        backs = choices.places[edges.reverse(path[:, -1])]
        # Find the spans that have a place other than the excluded one, and the place drawn in each of them.
        # An excluded place is of its span's last time, as the span's last place is: with equal weights, one stands
        # for the other.
        lies_inside = (spans.start <= backs) & (backs < spans.stop)
        stop = spans.stop - lies_inside
        kept = np.flatnonzero(spans.start < stop)
        drawn = draw(choices, Spans(spans.start[kept], stop[kept]), rng)
        drawn = np.where(lies_inside[kept] & (drawn == backs[kept]), stop[kept], drawn)
        path = np.column_stack((path[kept], choices.edges[drawn]))
    return path


def draw_uniformly(_choices: Sorted, spans: Spans, rng: np.random.Generator) -> Integers:
    """Return all places with equal probability."""
    return rng.integers(spans.start, spans.stop)


def draw_recent(choices: Sorted, spans: Spans, rng: np.random.Generator) -> Integers:
    """Return each place with a weight of exp(its time); spans begin where their group does."""
    weights = choices.log_weights
    wanted = weights[spans.stop - 1] + np.log1p(-rng.random(len(spans.stop)))
    low, high = spans.start, spans.stop - 1
    while (low < high).any():  # bisection in all spans at once
        middle = (low + high) // 2
        is_below = weights[middle] < wanted
        low, high = np.where(is_below, np.minimum(middle + 1, high), low), np.where(is_below, high, middle)
    return low


AT_ONCE = 1 << 18
"""Bodies that are held together."""


class Shapes(NamedTuple):
    """Bodies of one length: relations from entity 0 to entity 1 of the head, and which entities are equal."""

    relations: Integers
    """(bodies, length)"""
    equalities: Integers
    """(bodies,): see `equalities`."""


class WalkCounts(NamedTuple):
    """By body."""

    size: Integers
    """How many distinct ones there are."""
    support: Integers
    """How many of them a fact of the head follows, strictly later than the last of their facts."""


class Heads:
    """When a fact of the head is last true of two entities."""

    def __init__(self, edges: Edges, heads: Integers) -> None:
        """`heads` are the edges of the head's relation."""
        pairs = edges.pairs(edges.subject[heads], edges.object[heads])
        order = np.lexsort((-edges.rank[heads], pairs))
        self._pairs, first = np.unique(pairs[order], return_index=True)
        self._last = edges.rank[heads][order][first]

    def follow(self, pairs: Integers, ranks: Integers) -> NDArray[np.bool_]:
        """Return whether a fact of the head is later than `ranks`."""
        number = np.minimum(np.searchsorted(self._pairs, pairs), len(self._pairs) - 1)
        last = np.where(self._pairs[number] == pairs, self._last[number], -1)
        later: NDArray[np.bool_] = last > ranks
        return later


def equalities(edges: Edges, paths: Integers) -> Integers:
    """Return which entities of each path are equal: a bit for each two of its places, 0 where all differ."""
    entities = np.column_stack((edges.subject[paths[:, :1]], edges.object[paths]))
    first, second = np.triu_indices(entities.shape[1], 1)
    bits: Integers = (entities[:, first] == entities[:, second]) @ (1 << np.arange(len(first)))
    return bits


def sample(edges: Edges, shapes: Shapes, heads: Heads, samples: int, rng: np.random.Generator) -> WalkCounts:
    """Draw `samples` walks of each body along its relations, no step earlier than the one before; duplicates count
    once.

    As in TLogic, walks that end before the body does are lost, and a step is drawn from those that are possible, so
    that bodies with few continuations are found more often than others.
    """
    step = max(1, AT_ONCE // samples)
    parts = [
        _sample(edges, Shapes(*(column[start : start + step] for column in shapes)), heads, samples, rng)
        for start in range(0, len(shapes.equalities), step)
    ]
    return WalkCounts(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _sample(edges: Edges, shapes: Shapes, heads: Heads, samples: int, rng: np.random.Generator) -> WalkCounts:
    body = np.repeat(np.arange(len(shapes.equalities)), samples)
    spans = edges.of_relations(shapes.relations[body, 0])
    paths = edges.by_relation.edges[rng.integers(spans.start, spans.stop)][:, None]
    for place in range(1, shapes.relations.shape[1]):
        spans = edges.following(paths[:, -1], shapes.relations[body, place])
        kept = np.flatnonzero(spans.start < spans.stop)
        drawn = edges.by_relation.edges[rng.integers(spans.start[kept], spans.stop[kept])]
        body, paths = body[kept], np.column_stack((paths[kept], drawn))
    distinct = np.unique(np.column_stack((body, paths)), axis=0)
    return _count(edges, shapes, heads, distinct[:, 0], distinct[:, 1:])


def count(edges: Edges, shapes: Shapes, heads: Heads) -> WalkCounts:
    """Return all bodies, `AT_ONCE` at a time."""
    size, support = np.zeros_like(shapes.equalities), np.zeros_like(shapes.equalities)
    for body, relations in enumerate(shapes.relations):
        one = Shapes(relations[None, :], shapes.equalities[body : body + 1])
        (start,), (stop,) = edges.of_relations(relations[:1])
        for paths in _extend(edges, edges.by_relation.edges[start:stop, None], relations[1:]):
            found = _count(edges, one, heads, np.zeros(len(paths), np.int64), paths)
            size[body] += found.size[0]
            support[body] += found.support[0]
    return WalkCounts(size, support)


def _extend(edges: Edges, paths: Integers, relations: Integers) -> Iterator[Integers]:
    """Return all continuations of the paths along the relations."""
    if not len(relations):
        yield paths
        return
    spans = edges.following(paths[:, -1], np.broadcast_to(relations[0], len(paths)))
    for part in slice_by_weight(spans.stop - spans.start, AT_ONCE):
        row, place = Spans(spans.start[part], spans.stop[part]).places()
        following = edges.by_relation.edges[place]
        yield from _extend(edges, np.column_stack((paths[part][row], following)), relations[1:])


def _count(edges: Edges, shapes: Shapes, heads: Heads, body: Integers, paths: Integers) -> WalkCounts:
    """Return the distinct paths that have the shape of their body.

    As in TLogic, a body that names no entity twice is one of paths that do as well; any other asks for exactly its
    equalities.
    """
    wanted = shapes.equalities[body]
    kept = np.flatnonzero((wanted == 0) | (wanted == equalities(edges, paths)))
    body, paths = body[kept], paths[kept]
    follows = heads.follow(
        edges.pairs(edges.subject[paths[:, 0]], edges.object[paths[:, -1]]), edges.rank[paths[:, -1]]
    )
    bodies = len(shapes.equalities)
    return WalkCounts(np.bincount(body, minlength=bodies), np.bincount(body[follows], minlength=bodies))


DRAWS = {"exponential": draw_recent, "uniform": draw_uniformly}


def mine(graph: Graph, relation: str, mining: TLogic) -> tuple[Rule, ...]:
    """Return the rules whose head is of `relation`, then those of its inverse, short ones first.

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
        heads = facts if forward else edges.reverse(facts)
        for length in range(1, mining.max_length + 1):
            for rule in _mine(graph, edges, heads, (relation, forward), length, mining):
                rules.setdefault((rule.head, rule.body), rule)  # loops are equal in both directions
    return tuple(rule for rule in rules.values() if rule.confidence > 0 and rule.confidence >= mining.min_confidence)


def _mine(graph: Graph, edges: Edges, heads: Integers, head: Step, length: int, mining: TLogic) -> Iterator[Rule]:
    """Return the rules of one head and length that the walks find and whose body holds at all."""
    # Seeded by head and length, so that the result does not depend on the process or its earlier work.
    seed = hashlib.sha256(f"{mining.seed}\0{head[0]}\0{head[1]}\0{length}".encode()).digest()[:16]
    rng = np.random.default_rng(int.from_bytes(seed))
    walks = walk(edges, heads, length, mining.walks, DRAWS[mining.transition], rng)
    bodies = edges.reverse(walks[:, :0:-1])
    if not len(bodies):
        return
    rows = np.column_stack((edges.relation[bodies], equalities(edges, bodies)))
    shapes, examples = np.unique(rows, axis=0, return_index=True)
    found, last = Shapes(shapes[:, :-1], shapes[:, -1]), Heads(edges, heads)
    counts = count(edges, found, last) if mining.exact else sample(edges, found, last, mining.samples, rng)
    for example, size, support in zip(bodies[examples], counts.size.tolist(), counts.support.tolist(), strict=True):
        if size:
            entities = [edges.subject[example[0]], *edges.object[example]]
            numbers, relations = edges.relation[example].tolist(), len(graph.relations)
            body = [(graph.relations[number % relations], number < relations) for number in numbers]
            yield rule_of(head, body, number_variables(entities), support, size)


PROCESS = 80 << 20
"""The interpreter with numpy: 44 MiB measured, with a graph of 1,000 facts."""
FACT = 450
"""Bytes of the sorted edges, the graph's own included: 361 to 423 measured at 1,000,000 and 100,000 facts."""
NAME = 100
"""Bytes of an entity's or a relation's."""
ROW = 300
"""Bytes of a body or walk while it is drawn and counted: 235 measured."""


def memory_bytes(triples: int, entities: int, relations: int, mining: TLogic) -> int:
    """Return the maximum memory of a process in bytes."""
    rows = max(2 * AT_ONCE, mining.samples, mining.walks)
    if mining.exact:
        rows += 2 * triples  # a single body may continue by every edge of a relation
    return PROCESS + triples * FACT + (entities + relations) * NAME + rows * ROW

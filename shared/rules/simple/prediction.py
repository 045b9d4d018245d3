"""Applying rules: who may answer a question, and how sure."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from shared.contracts.rules import Rule
from shared.rules.evaluation import Query
from shared.rules.graph import Graph
from shared.rules.simple.book import ANYONE, Book
from shared.rules.simple.curve import Floats, take, value
from shared.rules.simple.history import Numbers, read, spread

TOP = 10
"""Rules that count for an entity (the source's `NUM_TOP_RULES`)."""
FADING = 0.8
"""What each further one counts, of the one before (the source's `AGGREGATION_DECAY`)."""


class Predictor:
    """Rules at work on the facts of a graph, which may go on after those that were mined."""

    def __init__(self, rules: Iterable[Rule], graph: Graph) -> None:
        """Files rules and facts.

        Raises:
            ValueError: a rule is of another miner, or the graph has no times.
        """
        self.history = read(graph)
        self.book = Book(rules, graph, self.history)
        self.by_anchor = np.argsort(self.history.anchor, kind="stable")
        self.anchors = self.history.anchor[self.by_anchor]

    def predict(self, query: Query) -> Mapping[int, float]:
        """The confidence of each entity that a rule speaks for, from facts before the query's time.

        Bodies count however long ago they held (the source's `APPLY_WINDOW_SIZE`); the window bounds how often.
        """
        link = 2 * query.relation + (not query.forward)
        claims = [self._by_trails(link, query), *self._by_frequency(link, query.entity)]
        return combine(np.concatenate([entities for entities, _ in claims]), np.concatenate([how for _, how in claims]))

    def _by_trails(self, link: int, query: Query) -> tuple[Numbers, Floats]:
        ways = (self._pairs, self._forward, self._backward)
        found = [claims for way in ways for claims in way(link, query.entity)]
        entity, trail, rule = np.concatenate([np.empty((3, 0), np.int64), *found], axis=1)
        curves = take(self.book.curves, rule)
        distance, often = self.history.seen(trail, query.time, curves.window.astype(np.int64))
        held = distance > 0
        return entity[held], value(take(curves, held), distance[held], often[held])

    def _trails(self, entity: int) -> Numbers:
        first, end = np.searchsorted(self.history.entity, [entity, entity + 1])
        return np.arange(first, end)

    def _pairs(self, link: int, entity: int) -> Iterator[Numbers]:
        """Entities, trails and rules, where the body is a trail of the entity asked about."""
        rules = self.book.find(("pair", link, ANYONE))
        if rules is not None:
            trails = self._trails(entity)
            owner, place = matches(self.history.link[self.history.anchor[trails]], rules[0])
            yield np.stack([self.history.target[self.history.anchor[trails[owner]]], trails[owner], rules[1, place]])

    def _forward(self, link: int, entity: int) -> Iterator[Numbers]:
        """Alike, for rules that predict a constant."""
        rules = self.book.find(("forward", link, ANYONE))
        if rules is not None:
            trails = self._trails(entity)
            owner, place = matches(self.history.anchor[trails], rules[0])
            yield np.stack([rules[1, place], trails[owner], rules[2, place]])

    def _backward(self, link: int, entity: int) -> Iterator[Numbers]:
        """Alike, for rules whose constant is asked about: the bodies are trails of the entities predicted."""
        rules = self.book.find(("backward", link, entity))
        if rules is not None:
            owner, place = matches(rules[0], self.anchors)
            trails = self.by_anchor[place]
            yield np.stack([self.history.entity[trails], trails, rules[1, owner]])

    def _by_frequency(self, link: int, entity: int) -> Iterator[tuple[Numbers, Floats]]:
        for asked in (ANYONE, entity):
            rules = self.book.find(("frequent", link, asked))
            if rules is not None:
                yield rules[0], self.book.curves.alpha[rules[1]]


def matches(values: Numbers, ascending: Numbers) -> tuple[Numbers, Numbers]:
    """Every pair of places of equal numbers."""
    return spread(np.searchsorted(ascending, values), np.searchsorted(ascending, values, side="right"))


def combine(entities: Numbers, confidences: Floats) -> Mapping[int, float]:
    """Noisy-or of each entity's `TOP` highest confidences, each counting `FADING` of the one before."""
    order = np.lexsort((-confidences, entities))
    order = order[confidences[order] > 0]
    entities, confidences = entities[order], confidences[order]
    named, first, rules = np.unique(entities, return_index=True, return_counts=True)
    rank = np.arange(len(entities)) - np.repeat(first, rules)
    doubts = np.where(rank < TOP, 1 - confidences * FADING**rank, 1)
    together = 1 - np.multiply.reduceat(doubts, first) if len(first) else first
    return dict(zip(named.tolist(), together.tolist(), strict=True))

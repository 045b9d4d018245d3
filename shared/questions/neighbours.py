"""Facts of the same entity or relation as a question: documents that look like oracle documents, and are none."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from shared.contracts.graphs import FactQuery
from shared.questions.facts import ALWAYS
from shared.questions.names import names_of
from shared.rules.graph import Graph

MOST = 10
"""Negatives of a question."""
Numbers = NDArray[np.int64]


class Neighbours:
    """A graph's facts by entity and by relation."""

    def __init__(self, graph: Graph) -> None:
        self._names = names_of(graph)
        self._times = graph.times
        self._columns = tuple(_Column(column) for column in graph.triples.T)

    def draw(self, query: FactQuery, before: int, oracle: Collection[str], rng: np.random.Generator) -> list[str]:
        """Up to `MOST` ids of facts before a time that are not among `oracle`: half of them of the query's entity,
        where it has so many, and the others of its relation.
        """
        subjects, relations, objects = self._columns
        entity, relation = self._names.entities.get(query.entity), self._names.relations.get(query.relation)
        of_entity = self._usable(np.concatenate((subjects.of(entity), objects.of(entity))), before, oracle, rng)
        of_relation = self._usable(relations.of(relation), before, oracle, rng)
        others = [each for each in of_relation if each not in set(of_entity)]
        own = of_entity[: max(MOST // 2, MOST - len(others))]
        return [str(each) for each in (*own, *others[: MOST - len(own)])]

    def _usable(self, facts: Numbers, before: int, oracle: Collection[str], rng: np.random.Generator) -> list[int]:
        """As many as may be needed, in random order."""
        known = np.unique(facts)
        if self._times is not None and before != ALWAYS:
            known = known[self._times[known] < before]
        drawn = rng.permutation(known)[: 2 * MOST + len(oracle)].tolist()
        return [each for each in drawn if str(each) not in oracle]


class _Column:
    """Rows by their value."""

    def __init__(self, values: NDArray[np.int32]) -> None:
        self._order = np.argsort(values, kind="stable")
        self._values = values[self._order]

    def of(self, value: int | None) -> Numbers:
        """The rows with this value; None: there are none."""
        if value is None:
            return self._order[:0]
        first, end = np.searchsorted(self._values, [value, value + 1])
        return self._order[first:end]

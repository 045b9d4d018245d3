"""Express facts held out from a graph in the graph's numbers."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.questions.names import GraphNumbers
from shared.rules.graph import Graph

Numbers = NDArray[np.int64]


class HeldOut(NamedTuple):
    """Held-out facts that can be asked about, and counts of those that cannot."""

    facts: Numbers
    """(facts, 4): subject, relation, object and time; the time is 0 if there is none."""
    strangers: list[str]
    """Entities that the graph lacks; their numbers follow the graph's."""
    known: int
    """Facts that the graph has (at the same time, if there are times); left out of `facts`."""
    unknown_relation: int
    """Facts of a relation that the graph lacks; left out, too."""


def number(held_out: Graph, graph: Graph, names: GraphNumbers) -> HeldOut:
    """Keep the facts that the graph lacks and whose relation it has."""
    strangers: dict[str, int] = {}
    entity = np.array([_number(name, names, strangers) for name in held_out.entities], np.int64)
    relation = np.array([names.relations.get(name, -1) for name in held_out.relations], np.int64)
    subject, label, object_, time = rows_of(held_out).T
    rows = np.column_stack((entity[subject], relation[label], entity[object_], time))
    is_unknown, is_known = rows[:, 1] < 0, _are_among(rows, rows_of(graph))
    kept = rows[~is_unknown & ~is_known]
    return HeldOut(kept, list(strangers), int(is_known.sum()), int(is_unknown.sum()))


def rows_of(graph: Graph) -> Numbers:
    """Return an array (facts, 4) of subject, relation, object and time; the time is 0 if there is none."""
    times = np.zeros(len(graph.triples), np.int64) if graph.times is None else graph.times
    return np.column_stack((graph.triples, times))


def _number(name: str, names: GraphNumbers, strangers: dict[str, int]) -> int:
    known = names.entities.get(name)
    return len(names.entities) + strangers.setdefault(name, len(strangers)) if known is None else known


def _are_among(rows: Numbers, others: Numbers) -> NDArray[np.bool_]:
    _, number = np.unique(np.concatenate((others, rows)), axis=0, return_inverse=True)
    number = number.reshape(-1)
    return np.isin(number[len(others) :], number[: len(others)])

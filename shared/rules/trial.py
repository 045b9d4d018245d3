"""Facts held out from a graph, as they are predicted from it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.graph import Graph, steps


class Trial(NamedTuple):
    """Both graphs have one numbering: first the names of the training facts, then those of held-out ones alone."""

    tested: Graph
    """The held-out facts that are predicted."""
    known: Graph
    """The training facts and all held-out ones: what a query sees of earlier times, and what may be true beside it."""
    unknown_entities: range
    """Those that the training facts do not name."""
    unknown_relations: range


def make_trial(train: Graph, held_out: Graph, limit: int | None = None) -> Trial:
    """The trial of the first `limit` of the held-out facts, or of all.

    Raises:
        ValueError: a graph has no times.
    """
    entities, entity = _joined(train.entities, held_out.entities)
    relations, relation = _joined(train.relations, held_out.relations)
    subject, label, object_ = held_out.triples.T
    triples = np.column_stack((entity[subject], relation[label], entity[object_]))
    rows = [np.column_stack((each, steps(graph))) for each, graph in ((train.triples, train), (triples, held_out))]
    facts = np.unique(np.concatenate(rows), axis=0)
    known = Graph(facts[:, :3].astype(np.int32), facts[:, 3], entities, relations)
    return Trial(
        known._replace(triples=triples[:limit], times=steps(held_out)[:limit]),
        known,
        range(len(train.entities), len(entities)),
        range(len(train.relations), len(relations)),
    )


def _joined(first: Sequence[str], second: Sequence[str]) -> tuple[Sequence[str], NDArray[np.int32]]:
    """All names, each once, and the place of each of `second`."""
    places = {name: place for place, name in enumerate(dict.fromkeys((*first, *second)))}
    return list(places), np.array([places[name] for name in second], np.int32)

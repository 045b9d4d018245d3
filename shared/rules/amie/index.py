"""A graph's edges, sorted the two ways in which the miner reads them.

An edge leads from a source to a target and has a label: relation `r` leads from subject to object with label `r`, and
from object to subject with label `r + relations`. So a path is a sequence of labels, whichever way its atoms point.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.rules.graph import Graph

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


class Index(NamedTuple):
    """Distinct edges by label, and by pair of entities; numbers are those of the graph."""

    entities: int
    relations: int
    label_starts: Longs
    """(labels + 1,): the edges of label `l` are `label_starts[l]:label_starts[l + 1]`."""
    sources: Ints
    """By label, source, target."""
    targets: Ints
    """By label, source, target."""
    pair_keys: Longs
    """Of each pair that an edge joins, ascending: source times `entities`, plus target."""
    pair_targets: Ints
    pair_reverses: Longs
    """Where each pair stands the other way round: an edge has an inverse."""
    pair_starts: Longs
    """(entities + 1,): the pairs of source `e` are `pair_starts[e]:pair_starts[e + 1]`."""
    pair_label_starts: Longs
    pair_labels: Ints
    """The labels of pair `p`, ascending, are `pair_labels[pair_label_starts[p]:pair_label_starts[p + 1]]`."""

    @property
    def labels(self) -> int:
        """Relations and their inverses."""
        return 2 * self.relations

    def inverse(self, label: int) -> int:
        """The label of the edges the other way round."""
        return (label + self.relations) % self.labels

    def edges(self, label: int) -> tuple[Ints, Ints]:
        """Sources and targets of a label, sorted."""
        chosen = slice(self.label_starts[label], self.label_starts[label + 1])
        return self.sources[chosen], self.targets[chosen]

    def keys(self, label: int) -> Longs:
        """The pairs of a label, as `pair_keys` has them."""
        sources, targets = self.edges(label)
        return pair_key(sources, targets, self.entities)


def pair_key(sources: Ints, targets: Ints, entities: int) -> Longs:
    """One number for each pair of entities, in the order of the pairs."""
    return sources.astype(np.int64) * entities + targets


def build_index(graph: Graph) -> Index:
    """Sort the facts and their inverses; times are left out, and facts that differ only in time are one."""
    entities, relations = len(graph.entities), len(graph.relations)
    labels, sources, targets = _distinct_edges(graph.triples, relations)
    label_starts = np.searchsorted(labels, np.arange(2 * relations + 1))
    by_pair = np.lexsort((labels, targets, sources))
    keys = pair_key(sources[by_pair], targets[by_pair], entities)
    pair_keys, pair_label_starts = np.unique(keys, return_index=True)
    pair_sources, pair_targets = np.divmod(pair_keys, max(1, entities))
    return Index(
        entities,
        relations,
        label_starts,
        sources,
        targets,
        pair_keys,
        pair_targets.astype(np.int32),
        # Pairs occur both ways round, so the n-th by target and source is the reverse of the n-th by source and target.
        np.lexsort((pair_sources, pair_targets)),
        np.searchsorted(pair_sources, np.arange(entities + 1)),
        np.append(pair_label_starts, len(keys)),
        labels[by_pair],
    )


def _distinct_edges(triples: Ints, relations: int) -> tuple[Ints, Ints, Ints]:
    """Label, source and target of each edge, sorted in this order."""
    subjects, names, objects = triples.astype(np.int32, copy=False).T
    labels = np.concatenate([names, names + np.int32(relations)])
    sources, targets = np.concatenate([subjects, objects]), np.concatenate([objects, subjects])
    order = np.lexsort((targets, sources, labels))
    labels, sources, targets = labels[order], sources[order], targets[order]
    first = np.ones(len(labels), dtype=bool)
    first[1:] = (np.diff(labels) != 0) | (np.diff(sources) != 0) | (np.diff(targets) != 0)
    return labels[first], sources[first], targets[first]

"""Rules whose bodies name entities.

An anchor is an edge from variable 0 or 1 to an entity. A body is an edge between 0 and 1 with an anchor of either, or
an anchor of each. As in AMIE, no anchor only puts an entity for a variable of the head or of the body's other atom.
Of a variable's anchors, the `MOST_ANCHORS` with most support are tried. The head names no entity.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from shared.rules.amie.index import Longs
from shared.rules.amie.search import Found, Search
from shared.rules.amie.slices import slices

MOST_ANCHORS = 200
"""Anchors of a variable: a head has at most 40,000 bodies of two."""
MOST_CELLS = 1 << 20
"""Cells of a dense matrix, facts by anchors: 8 MiB."""


class Anchors(NamedTuple):
    """The anchors of a variable."""

    variable: int
    labels: list[int]
    entities: list[str]
    holders: Any
    """(entities, anchors): who has the edge, as a sparse matrix of 0 and 1."""

    def among(self, weights: Longs) -> Longs:
        """By anchor: the sum of the weights of the entities that have it."""
        return np.asarray(self.holders.T @ weights)


def find_anchored(search: Search, counts: Longs, parents: dict[int, float], entities: Sequence[str]) -> Iterator[Found]:
    """Rules that name entities; `counts` and `parents` are the supports and PCA confidences of single edges."""
    anchors = [_find_anchors(search, variable, entities) for variable in (0, 1)]
    for label in np.flatnonzero(search.are_supported(counts)).tolist():
        for of_variable in anchors:
            yield from _find_with_edge(search, label, of_variable, parents.get(label, 0))
    yield from _find_pairs(search, *anchors)


def _find_anchors(search: Search, variable: int, entities: Sequence[str]) -> Anchors:
    """Anchors that alone explain enough of the head, in ascending order."""
    index, head = search.index, search.head
    labels = np.repeat(np.arange(index.labels), np.diff(index.label_starts))
    anchors, numbers = np.unique(labels * index.entities + index.targets, return_inverse=True)
    facts = _count_by_entity(search, (head.subjects, head.objects)[variable])
    supports = np.bincount(numbers, facts[index.sources], len(anchors)).astype(np.int64)
    supports[anchors // index.entities == _towards(search, variable, head.label)] = 0
    supported = np.flatnonzero(search.are_supported(supports))
    chosen = np.sort(supported[np.argsort(-supports[supported], kind="stable")[:MOST_ANCHORS]])
    columns = np.full(len(anchors), -1)
    columns[chosen] = np.arange(len(chosen))
    held = columns[numbers] >= 0
    places = index.sources[held], columns[numbers[held]]
    holders = sp.csr_array((np.ones(len(places[0]), np.int64), places), shape=(index.entities, len(chosen)))
    names, targets = np.divmod(anchors[chosen], index.entities)
    return Anchors(variable, names.tolist(), [entities[target] for target in targets], holders)


def _find_with_edge(search: Search, label: int, anchors: Anchors, surpassed: float) -> Iterator[Found]:
    """An edge between 0 and 1 with an anchor, more surely than the edge alone (skyline)."""
    head, variable = search.head, anchors.variable
    explained = np.isin(search.index.keys(head.label), search.index.keys(label))
    known = head.known[search.index.edges(label)[head.functional]]
    ends = search.index.edges(label)[variable]
    supports, sizes, pca_sizes = (
        anchors.among(_count_by_entity(search, some))
        for some in ((head.subjects, head.objects)[variable][explained], ends, ends[known])
    )
    for number in np.flatnonzero(search.are_supported(supports)).tolist():
        anchor = anchors.labels[number], variable, anchors.entities[number]
        found = Found(((label, 0, 1), anchor), *(int(counts[number]) for counts in (supports, sizes, pca_sizes)))
        redundant = anchor[0] == _towards(search, variable, label)
        if not redundant and search.is_certain(found.support, found.pca_body_size) and found.pca_confidence > surpassed:
            yield found


def _find_pairs(search: Search, first: Anchors, second: Anchors) -> Iterator[Found]:
    """An anchor of each variable. Either alone is not closed: no skyline."""
    supports = _count_pairs(search, first, second)
    everything = np.ones(search.index.entities, dtype=np.int64)
    weights = [everything, everything]
    sizes = np.outer(first.among(everything), second.among(everything))
    weights[search.head.functional] = search.head.known.astype(np.int64)
    pca_sizes = np.outer(first.among(weights[0]), second.among(weights[1]))
    for one, other in np.argwhere(search.are_supported(supports)).tolist():
        support, size, pca_size = (int(counts[one, other]) for counts in (supports, sizes, pca_sizes))
        if search.is_certain(support, pca_size):
            body = (first.labels[one], 0, first.entities[one]), (second.labels[other], 1, second.entities[other])
            yield Found(body, support, size, pca_size)


def _count_pairs(search: Search, first: Anchors, second: Anchors) -> Longs:
    """By anchor of 0 and anchor of 1: the facts of the head whose subject and object have them."""
    counts = np.zeros((first.holders.shape[1], second.holders.shape[1]))
    for part in slices(np.full(len(search.head.subjects), MOST_ANCHORS), MOST_CELLS):
        subjects, objects = search.head.subjects[part], search.head.objects[part]
        counts += first.holders[subjects].toarray().T.astype(float) @ second.holders[objects].toarray().astype(float)
    return counts.astype(np.int64)


def _count_by_entity(search: Search, numbers: Any) -> Longs:
    return np.bincount(numbers, minlength=search.index.entities)


def _towards(search: Search, variable: int, label: int) -> int:
    """The label of an edge between 0 and 1, as it leads away from the variable."""
    return search.index.inverse(label) if variable else label

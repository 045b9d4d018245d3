"""Rules without entities: bodies of one edge, of two parallel edges, and of a path through a third variable.

Every closed connected rule of at most three atoms has one of these bodies, as each variable occurs twice and no atom
repeats one. Their labels, the lower one first for parallel edges, name a body once: there are no duplicates to remove.
"""

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

import numpy as np

from shared.rules.amie.index import Longs
from shared.rules.amie.search import Found, Search
from shared.rules.amie.supports import count_edges, count_parallels, count_paths


def count_single_edges(search: Search) -> Longs:
    """By label: facts of the head that an edge explains. The head does not explain itself."""
    counts = count_edges(search.index, search.head.subjects, search.head.objects)
    counts[search.head.label] = 0
    return counts


def find_edges(search: Search, counts: Longs) -> Iterator[Found]:
    """`a(0, 1)` or `a(1, 0)` leads to the head."""
    for label in np.flatnonzero(search.are_supported(counts)).tolist():
        known = search.head.known[search.index.edges(label)[search.head.functional]]
        found = Found(((label, 0, 1),), int(counts[label]), len(known), int(np.count_nonzero(known)))
        if search.is_certain(found.support, found.pca_body_size):
            yield found


def find_parallels(search: Search, counts: Longs, parents: dict[int, float]) -> Iterator[Found]:
    """Two edges between 0 and 1 lead to the head, more surely than either alone (skyline).

    `parents` has the PCA confidence of each label that is a rule by itself.
    """
    head = search.head
    supports = count_parallels(search.index, head.subjects, head.objects, search.are_supported(counts))
    for first, second, support in supports.among(search.are_supported(supports.counts)).rows():
        known = head.known[search.bodies.parallel_edges(first, second)[head.functional]]
        found = Found(((first, 0, 1), (second, 0, 1)), support, len(known), int(np.count_nonzero(known)))
        surpassed = max(parents.get(first, 0), parents.get(second, 0))
        if search.is_certain(support, found.pca_body_size) and found.pca_confidence > surpassed:
            yield found


def find_paths(search: Search) -> Iterator[Found]:
    """Edges from 0 to 2 and from 2 to 1 lead to the head; without one of them the rule is not closed: no skyline.

    The PCA body is counted from the functional side, as long as it is not too large for the least confidence.
    """
    for start, paths in groupby(_supported_paths(search), key=itemgetter(0)):
        rows = search.bodies.rows(start, search.head.known)
        for _, step, first, second, support in paths:
            size = search.bodies.count_ends(rows, step, search.largest_body(support))
            if search.is_certain(support, size):
                yield Found(((first, 0, 2), (second, 2, 1)), support, search.bodies.path_size(first, second), size)


def _supported_paths(search: Search) -> list[tuple[int, int, int, int, int]]:
    """The labels of the path as it leads away from the functional side, then its labels from 0 to 1 and its support."""
    index, head = search.index, search.head
    supports = count_paths(index, head.subjects, head.objects)
    paths = supports.among(search.are_supported(supports.counts)).rows()
    if head.functional == 0:
        return [(first, second, first, second, support) for first, second, support in paths]
    inverse = index.inverse
    return sorted((inverse(second), inverse(first), first, second, support) for first, second, support in paths)

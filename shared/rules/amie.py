"""AMIE3-style mining (Lajus et al. 2020): all rules that pass the limits, with exact figures.

An edge leads from a source to a target and has a label: relation `r` leads from subject to object with label `r`, and
from object to subject with label `r + relations`. So a path is a sequence of labels, whichever way its atoms point.

Every closed connected rule of at most three atoms without entities has a body of one edge, of two parallel edges, or of
a path through a third variable, as each variable occurs twice and no atom repeats one. Their labels, the lower one
first for parallel edges, name a body once, so duplicates do not occur.

Bodies that name entities have anchors: edges from variable 0 or 1 to an entity. Such a body is an edge between 0 and 1
with an anchor of either, or an anchor of each. As in AMIE, no anchor only puts an entity for a variable of the head or
of the body's other atom. Of a variable's anchors, the `MOST_ANCHORS` with most support are tried. The head names no
entity.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from shared.calls import Amie
from shared.replies import Atom, Rule, Term
from shared.rules.graph import Graph, concatenate_ranges, keep_latest, slice_by_weight

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


class EdgeIndex(NamedTuple):
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
    """Position of the inverse of each pair."""
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
        """Return the label of the edges the other way round."""
        return (label + self.relations) % self.labels

    def edges(self, label: int) -> tuple[Ints, Ints]:
        """Sources and targets of a label, sorted."""
        chosen = slice(self.label_starts[label], self.label_starts[label + 1])
        return self.sources[chosen], self.targets[chosen]

    def keys(self, label: int) -> Longs:
        """Return the pairs of a label, as `pair_keys` has them."""
        sources, targets = self.edges(label)
        return pair_key(sources, targets, self.entities)


def pair_key(sources: Ints, targets: Ints, entities: int) -> Longs:
    """Return one number for each pair of entities, in the order of the pairs."""
    return sources.astype(np.int64) * entities + targets


def build_index(graph: Graph) -> EdgeIndex:
    """Sort the facts and their inverses; times are left out, and facts that differ only in time are one."""
    entities, relations = len(graph.entities), len(graph.relations)
    labels, sources, targets = _distinct_edges(graph.triples, relations)
    label_starts = np.searchsorted(labels, np.arange(2 * relations + 1))
    by_pair = np.lexsort((labels, targets, sources))
    keys = pair_key(sources[by_pair], targets[by_pair], entities)
    pair_keys, pair_label_starts = np.unique(keys, return_index=True)
    pair_sources, pair_targets = np.divmod(pair_keys, max(1, entities))
    return EdgeIndex(
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


MOST_JOINED = 1 << 20
"""Rows of an intermediate join, unless a single pair of entities has more."""


class Supports(NamedTuple):
    """Bodies of two atoms by the labels of their edges, each once, in ascending order; and their supports."""

    first: Longs
    second: Longs
    counts: Longs

    def among(self, kept: NDArray[np.bool_]) -> "Supports":
        """Those of them that are kept."""
        return Supports(self.first[kept], self.second[kept], self.counts[kept])

    def rows(self) -> list[tuple[int, int, int]]:
        """First label, second label and support of each."""
        return list(zip(self.first.tolist(), self.second.tolist(), self.counts.tolist(), strict=True))


def count_edges(index: EdgeIndex, subjects: Ints, objects: Ints) -> Longs:
    """Count the pairs that have an edge, by its label."""
    pairs = _pair_numbers(index, subjects, objects)
    lengths = np.diff(index.pair_label_starts)[pairs]
    labels = index.pair_labels[concatenate_ranges(index.pair_label_starts[pairs], lengths)]
    return np.bincount(labels, minlength=index.labels)


def count_parallels(index: EdgeIndex, subjects: Ints, objects: Ints, allowed: NDArray[np.bool_]) -> Supports:
    """Count how many of the pairs have edges of two labels, the lower one first; both must be `allowed`."""
    return _add_up(_parallel_parts(index, _pair_numbers(index, subjects, objects), allowed), index.labels)


def _parallel_parts(index: EdgeIndex, pairs: Longs, allowed: NDArray[np.bool_]) -> Iterator[Longs]:
    for part in slice_by_weight(np.diff(index.pair_label_starts)[pairs] ** 2, MOST_JOINED):
        _, first, second = _join_labels(index, pairs[part], pairs[part])
        kept = (first < second) & allowed[first] & allowed[second]
        yield first[kept].astype(np.int64) * index.labels + second[kept]


def count_paths(index: EdgeIndex, subjects: Ints, objects: Ints) -> Supports:
    """Count how many of the pairs a path of two edges joins, by their labels, from subject to object."""
    return _add_up(_path_parts(index, subjects, objects), index.labels)


def _path_parts(index: EdgeIndex, subjects: Ints, objects: Ints) -> Iterator[Longs]:
    degrees, lengths = np.diff(index.pair_starts), np.diff(index.pair_label_starts)
    for part in slice_by_weight(np.minimum(degrees[subjects], degrees[objects]), MOST_JOINED):
        numbers, left, right = _join_neighbours(index, subjects[part], objects[part])
        sizes = np.bincount(numbers, lengths[left] * lengths[right], minlength=part.stop - part.start)
        for some in slice_by_weight(sizes.astype(np.int64), MOST_JOINED):
            hits = slice(*np.searchsorted(numbers, (some.start, some.stop)))
            places, first, second = _join_labels(index, left[hits], right[hits])
            keys = (numbers[hits][places] * index.labels + first) * index.labels + second
            yield (np.unique(keys) % index.labels**2)


def _join_neighbours(index: EdgeIndex, subjects: Ints, objects: Ints) -> tuple[Longs, Longs, Longs]:
    """Return, for each shared neighbour of subject and object, the number of the two, and the pairs with them.

    The neighbours of the one with fewer are looked up among those of the other.
    """
    degrees = np.diff(index.pair_starts)
    forward = degrees[subjects] <= degrees[objects]
    near, far = np.where(forward, subjects, objects), np.where(forward, objects, subjects)
    numbers = np.repeat(np.arange(len(near)), degrees[near])
    near_pairs = concatenate_ranges(index.pair_starts[near], degrees[near])
    keys = pair_key(far[numbers], index.pair_targets[near_pairs], index.entities)
    far_pairs = np.searchsorted(index.pair_keys, keys)
    found = index.pair_keys[np.minimum(far_pairs, len(index.pair_keys) - 1)] == keys
    numbers, near_pairs, far_pairs = numbers[found], near_pairs[found], far_pairs[found]
    left = np.where(forward[numbers], near_pairs, far_pairs)
    return numbers, left, index.pair_reverses[np.where(forward[numbers], far_pairs, near_pairs)]


def _join_labels(index: EdgeIndex, left: Longs, right: Longs) -> tuple[Longs, Ints, Ints]:
    """Return each label of a left pair with each of the right pair at the same place."""
    starts, lengths = index.pair_label_starts, np.diff(index.pair_label_starts)
    outer = np.repeat(np.arange(len(left)), lengths[left])
    first = index.pair_labels[concatenate_ranges(starts[left], lengths[left])]
    many = lengths[right[outer]]
    second = index.pair_labels[concatenate_ranges(starts[right[outer]], many)]
    return np.repeat(outer, many), np.repeat(first, many), second


def _pair_numbers(index: EdgeIndex, subjects: Ints, objects: Ints) -> Longs:
    return np.searchsorted(index.pair_keys, pair_key(subjects, objects, index.entities))


def _add_up(parts: Iterator[Longs], labels: int) -> Supports:
    """Count the bodies of all parts; a body's number is that of its first label times `labels`, plus its second."""
    bodies, counts = np.empty(0, np.int64), np.empty(0, np.int64)
    for part in parts:
        some, numbers = np.unique(part, return_counts=True)
        bodies, places = np.unique(np.concatenate([bodies, some]), return_inverse=True)
        counts = np.bincount(places, np.concatenate([counts, numbers]), len(bodies)).astype(np.int64)
    return Supports(*np.divmod(bodies, labels), counts)


MOST_PATHS = 1 << 22
"""Paths that one product of matrices follows, unless a single row has more: 20 MiB."""
KEPT_POINTERS = 1 << 23
"""Row pointers of matrices that are kept for the next product: 32 MiB."""
KEPT_SIZES = 1 << 17
"""Sizes of paths that are kept for the next head: some 30 MiB."""


class Bodies:
    """Counts bodies of a graph."""

    def __init__(self, index: EdgeIndex) -> None:
        self.index = index
        self._matrix = lru_cache(max(2, KEPT_POINTERS // (index.entities + 1)))(self._make_matrix)
        self._path_size = lru_cache(KEPT_SIZES)(self._count_path)

    def parallel_edges(self, first: int, second: int) -> tuple[Ints, Ints]:
        """Sources and targets that edges of both labels join."""
        fewer, more = sorted((first, second), key=lambda label: len(self.index.edges(label)[0]))
        keys, others = self.index.keys(fewer), self.index.keys(more)
        met = others[np.minimum(np.searchsorted(others, keys), len(others) - 1)] == keys
        sources, targets = self.index.edges(fewer)
        return sources[met], targets[met]

    def rows(self, label: int, known: NDArray[np.bool_]) -> Any:
        """Return the edges from known sources: a sparse matrix of entities, with a row for each source that has an
        edge."""
        sources, targets = self.index.edges(label)
        kept = known[sources]
        starts = np.flatnonzero(np.diff(sources[kept], prepend=-1))
        pointers = np.append(starts, np.count_nonzero(kept))
        return _sparse(pointers, targets[kept], (len(starts), self.index.entities))

    def count_ends(self, rows: Any, label: int, most: int | None) -> int:
        """Pairs of a row and a target that an edge of `label` leads to from one of the row's entities.

        Stops at more than `most`: the number is too low then, but above `most`.
        """
        step = self._matrix(label)
        fans = np.diff(step.indptr)[rows.indices]
        if most is not None and np.maximum.reduceat(fans, rows.indptr[:-1]).sum() > most:
            return most + 1
        total = 0
        for part in slice_by_weight(np.add.reduceat(fans, rows.indptr[:-1], dtype=np.int64), MOST_PATHS):
            total += (rows[part] @ step).nnz
            if most is not None and total > most:
                break
        return total

    def path_size(self, first: int, second: int) -> int:
        """Pairs that a path of these labels joins: as many as the inverse path joins."""
        return self._path_size(*min((first, second), (self.index.inverse(second), self.index.inverse(first))))

    def _count_path(self, first: int, second: int) -> int:
        everything = np.ones(self.index.entities, dtype=bool)
        return self.count_ends(self.rows(first, everything), second, None)

    def _make_matrix(self, label: int) -> Any:
        """Return all edges of a label, sources by targets."""
        sources, targets = self.index.edges(label)
        pointers = np.searchsorted(sources, np.arange(self.index.entities + 1, dtype=np.int32))
        return _sparse(pointers, targets, (self.index.entities, self.index.entities))


def _sparse(pointers: NDArray[np.int64], targets: Ints, shape: tuple[int, int]) -> Any:
    return sp.csr_array((np.ones(len(targets), dtype=bool), targets, pointers.astype(np.int32)), shape=shape)


Edge = tuple[int, Term, Term]
"""Label, source and target of a body's atom; of an inverse label the target is the atom's subject."""


class Found(NamedTuple):
    """A rule that the search keeps."""

    body: tuple[Edge, ...]
    support: int
    body_size: int
    pca_body_size: int

    @property
    def pca_confidence(self) -> float:
        """Share of facts among the predictions whose functional side has a fact of the head."""
        return self.support / self.pca_body_size


class Head(NamedTuple):
    """The relation that rules predict."""

    label: int
    subjects: Ints
    objects: Ints
    functional: int
    """0 where the relation is at least as functional as its inverse, else 1."""
    known: NDArray[np.bool_]
    """By entity: whether it has a fact of the relation on the functional side."""


def find_head(index: EdgeIndex, label: int) -> Head:
    """Functionality is distinct subjects over facts, and distinct objects over facts of the inverse."""
    subjects, objects = index.edges(label)
    functional = int(len(np.unique(subjects)) < len(np.unique(objects)))
    known = np.zeros(index.entities, dtype=bool)
    known[(subjects, objects)[functional]] = True
    return Head(label, subjects, objects, functional, known)


@dataclass(frozen=True)
class Search:
    """A head, and the limits that its rules must keep."""

    bodies: Bodies
    head: Head
    mining: Amie

    @property
    def index(self) -> EdgeIndex:
        """The edges of the graph."""
        return self.bodies.index

    def are_supported(self, counts: Longs) -> NDArray[np.bool_]:
        """Return whether bodies with these supports explain enough of the head; what extends others never explains
        more."""
        covered = counts / len(self.head.subjects) >= self.mining.min_head_coverage
        return np.asarray(covered & (counts >= self.mining.min_support))

    def is_certain(self, support: int, pca_body_size: int) -> bool:
        """Return whether the PCA confidence reaches its minimum."""
        return support / pca_body_size >= self.mining.min_pca_confidence

    def largest_body(self, support: int) -> int | None:
        """Return a PCA body size above which no rule of this support is certain; None if no size is."""
        least = self.mining.min_pca_confidence
        return int(support / least) + 1 if least else None


def count_single_edges(search: Search) -> Longs:
    """Return the facts of the head that an edge explains, by label. The head does not explain itself."""
    counts = count_edges(search.index, search.head.subjects, search.head.objects)
    counts[search.head.label] = 0
    return counts


def find_edges(search: Search, counts: Longs) -> Iterator[Found]:
    """Find rules in which `a(0, 1)` or `a(1, 0)` leads to the head."""
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
    """Return the labels of the path as it leads away from the functional side, then its labels from 0 to 1 and its
    support."""
    index, head = search.index, search.head
    supports = count_paths(index, head.subjects, head.objects)
    paths = supports.among(search.are_supported(supports.counts)).rows()
    if head.functional == 0:
        return [(first, second, first, second, support) for first, second, support in paths]
    inverse = index.inverse
    return sorted((inverse(second), inverse(first), first, second, support) for first, second, support in paths)


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
        """Return the sum of the weights of the entities that have an anchor, by anchor."""
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
    """Find rules of an edge between 0 and 1 with an anchor that is surer than the edge alone (skyline)."""
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
    """Find rules with an anchor of each variable. Either alone is not closed, so the skyline does not apply."""
    counts = np.zeros((first.holders.shape[1], second.holders.shape[1]))
    for part in slice_by_weight(np.full(len(search.head.subjects), MOST_ANCHORS), MOST_CELLS):
        subjects, objects = search.head.subjects[part], search.head.objects[part]
        counts += first.holders[subjects].toarray().T.astype(float) @ second.holders[objects].toarray().astype(float)
    supports = counts.astype(np.int64)
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


def _count_by_entity(search: Search, numbers: Any) -> Longs:
    return np.bincount(numbers, minlength=search.index.entities)


def _towards(search: Search, variable: int, label: int) -> int:
    """Return the label of an edge between 0 and 1, as it leads away from the variable."""
    return search.index.inverse(label) if variable else label


_bodies_of = keep_latest(lambda graph: Bodies(build_index(graph)))


def mine(graph: Graph, relation: str, mining: Amie) -> tuple[Rule, ...]:
    """Return the rules whose head is of `relation`.

    Raises:
        ValueError: the graph has no such relation.
    """
    if relation not in graph.relations:
        raise ValueError(f"the graph has no relation {relation!r}: choose one of its {len(graph.relations)} relations")
    bodies = _bodies_of(graph)
    head = find_head(bodies.index, graph.relations.index(relation))
    if len(head.subjects) < mining.min_head_facts:
        return ()
    search = Search(bodies, head, mining)
    return tuple(_make_rule(graph.relations, search, rule) for rule in _find_rules(search, graph.entities))


def _find_rules(search: Search, entities: Sequence[str]) -> Iterator[Found]:
    counts = count_single_edges(search)
    edges = list(find_edges(search, counts))
    yield from edges
    if search.mining.max_atoms == 2:
        return
    parents = {rule.body[0][0]: rule.pca_confidence for rule in edges}
    yield from find_parallels(search, counts, parents)
    yield from find_paths(search)
    if search.mining.constants:
        yield from find_anchored(search, counts, parents, entities)


def _make_rule(relations: Sequence[str], search: Search, found: Found) -> Rule:
    atoms = (
        Atom(relations[label], source, target) if label < len(relations)
        else Atom(relations[label - len(relations)], target, source)
        for label, source, target in found.body
    )  # fmt: skip
    return Rule(
        head=Atom(relations[search.head.label], 0, 1),
        body=tuple(atoms),
        support=found.support,
        body_size=found.body_size,
        confidence=found.support / found.body_size,
        head_coverage=found.support / len(search.head.subjects),
        pca_confidence=found.pca_confidence,
        pca_body_size=found.pca_body_size,
        functional=search.head.functional,
    )


PROCESS = 80 << 20
"""The interpreter with numpy and scipy: 59 MiB measured."""
JOINS = 200 << 20
"""Intermediate joins, matrices that are kept, and sizes that are remembered, each within bounds of its own."""
TRIPLE = 200
"""Bytes while the index is sorted: 176 measured at 272,000 to 4,000,000 triples, the graph's own included."""
ANCHORED_TRIPLE = 280
"""The same with constants: 246 measured."""
ENTITY = 150
"""Bytes of a name, and of a search's notes per entity."""
BODY = 64
"""Bytes of a pair of labels whose support is counted."""


def memory_bytes(triples: int, entities: int, relations: int, mining: Amie) -> int:
    """Return the maximum memory of a process in bytes, unless a single pair of entities has millions of paths between
    them."""
    bodies = min((2 * relations) ** 2, 8 * triples)
    each = ANCHORED_TRIPLE if mining.constants else TRIPLE
    return PROCESS + JOINS + triples * each + entities * ENTITY + bodies * BODY

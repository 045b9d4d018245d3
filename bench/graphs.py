"""Make random knowledge graphs like real ones: kinds of entities, hubs, few large and many small relations."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shared.rules.graph import Graph

FB15K_237 = (272_115, 14_541, 237)
"""Triples, entities and relations of FB15K-237's training part (Toutanova and Chen 2015)."""
SMALLEST, LARGEST = 37, 16_000
"""Facts of its smallest and largest relations."""
KINDS = 3
DERIVED = 0.7
"""Share of the relations that derive half of their facts from others: same pairs, inverses, or chains of two."""

Pairs = NDArray[np.int64]
"""(facts, 2): subjects and objects."""


def make_graph(triples: int, entities: int, relations: int, seed: int = 0) -> Graph:
    """Make a graph of nearly this number of distinct triples, the same for the same seed."""
    random = np.random.default_rng(seed)
    kinds = np.split(random.permutation(entities), (np.cumsum(_shares(KINDS, 1.5))[:-1] * entities).astype(int))
    made: list[Pairs] = []
    for facts in random.permutation(_sizes(triples, relations)):
        drawn = _draw(random, kinds, 2 * facts)
        if made and random.random() < DERIVED:
            drawn = np.concatenate([random.permutation(_derive(random, made))[: facts // 2], drawn])
        _, first = np.unique(drawn @ (entities, 1), return_index=True)
        made.append(drawn[np.sort(first)[:facts]])
    parts = [np.insert(pairs, 1, number, axis=1) for number, pairs in enumerate(made)]
    names = tuple(f"e{n}" for n in range(entities)), tuple(f"r{n}" for n in range(relations))
    return Graph(np.concatenate(parts).astype(np.int32), None, *names)


def _shares(count: int, power: float) -> NDArray[np.float64]:
    """Return shares by rank that follow a power law and sum to 1."""
    weights = np.arange(1, count + 1) ** -power
    return np.asarray(weights / weights.sum())


def _sizes(triples: int, relations: int) -> NDArray[np.int64]:
    """Return facts by relation, a power law within the bounds, scaled so that the sum is nearest to `triples`."""
    scales = np.geomspace(0.05, 20, 500) * triples
    sizes = np.clip(np.outer(scales, _shares(relations, 1.1)), SMALLEST, LARGEST).astype(np.int64)
    return np.asarray(sizes[np.argmin(np.abs(sizes.sum(axis=1) - triples))])


def _draw(random: Generator, kinds: list[Pairs], facts: int) -> Pairs:
    """Draw facts between two kinds; a few entities of each have most of them."""
    ends = []
    for kind in random.choice(len(kinds), 2, p=_shares(len(kinds), 0.5)):
        entities, power = kinds[kind], random.uniform(0.2, 1.2)
        ends.append(random.choice(entities, facts, p=_shares(len(entities), power)))
    return np.stack(ends, axis=1)


def _derive(random: Generator, made: list[Pairs]) -> Pairs:
    """Derive pairs from earlier relations."""
    one, other = (made[number] for number in random.integers(len(made), size=2))
    match random.integers(3):
        case 0:
            return one
        case 1:
            return one[:, ::-1]
        case _:
            return _compose(one, other)


def _compose(one: Pairs, other: Pairs) -> Pairs:
    """Join pairs by a fact of each; if several second facts fit, the first is used."""
    other = other[np.argsort(other[:, 0], kind="stable")]
    places = np.minimum(np.searchsorted(other[:, 0], one[:, 1]), len(other) - 1)
    met = other[places, 0] == one[:, 1]
    return np.stack([one[met, 0], other[places[met], 1]], axis=1)

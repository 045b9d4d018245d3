"""Batches of positives: their documents are each other's negatives."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.retriever.tune.options import Options
from services.retriever.tune.pairs import Numbers, Query


class Batch(NamedTuple):
    """What the loss is taken over."""

    queries: list[int]
    """Places [n]; a query is there once for each of its positives in the batch."""
    documents: Numbers
    """Distinct numbers [m]."""
    positives: Numbers
    """Of each query, the row in `documents` [n]."""
    oracle: NDArray[np.bool_]
    """Which documents are the query's oracle documents [n, m]."""


def batches(queries: Sequence[Query], options: Options, rng: np.random.Generator) -> Iterator[Batch]:
    """Every oracle document of every query once as its positive, in random order."""
    examples = [(at, positive) for at, query in enumerate(queries) for positive in query.positives.tolist()]
    order = rng.permutation(len(examples)).tolist()
    for start in range(0, len(order), options.batch):
        chosen = [examples[at] for at in order[start : start + options.batch]]
        yield _batch(queries, chosen, options.negatives)


def _batch(queries: Sequence[Query], examples: Sequence[tuple[int, int]], negatives: int) -> Batch:
    places, positives = map(list, zip(*examples, strict=True))
    further = [queries[at].negatives[:negatives] for at in places]
    documents = np.unique(np.concatenate([np.array(positives, dtype=np.int64), *further]))
    oracle = np.stack([np.isin(documents, queries[at].oracle) for at in places])
    return Batch(places, documents, np.searchsorted(documents, positives), oracle)

"""Draw draw_batches of positives, whose documents are each other's negatives."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.retriever.tune.options import TuningOptions
from services.retriever.tune.pairs import Numbers, TrainingQuery


class TrainingBatch(NamedTuple):
    """The input of one step's loss."""

    queries: list[int]
    """Positions of the queries [n]; a query occurs once for each of its positives in the batch."""
    documents: Numbers
    """Distinct document numbers [m]."""
    positives: Numbers
    """Row in `documents` of each query's positive [n]."""
    oracle: NDArray[np.bool_]
    """Whether a document is one of the query's oracle documents [n, m]."""


def draw_batches(
    queries: Sequence[TrainingQuery], options: TuningOptions, rng: np.random.Generator
) -> Iterator[TrainingBatch]:
    """Yield every oracle document of every query once as its positive, in random order."""
    examples = [(at, positive) for at, query in enumerate(queries) for positive in query.positives.tolist()]
    order = rng.permutation(len(examples)).tolist()
    for start in range(0, len(order), options.batch):
        chosen = [examples[at] for at in order[start : start + options.batch]]
        places, positives = map(list, zip(*chosen, strict=True))
        further = [queries[at].negatives[: options.negatives] for at in places]
        documents = np.unique(np.concatenate([np.array(positives, dtype=np.int64), *further]))
        oracle = np.stack([np.isin(documents, queries[at].oracle) for at in places])
        yield TrainingBatch(places, documents, np.searchsorted(documents, positives), oracle)

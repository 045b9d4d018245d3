"""Tune the query side of static embeddings with numpy, on the CPU."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from services.retriever.distil import quantise
from services.retriever.tune.options import TuningOptions
from services.retriever.tune.pairs import TrainingQuery
from services.retriever.tune.recall import Recall, measure_recall
from services.retriever.tune.report import Epoch
from services.retriever.tune.sampling import draw_batches
from services.retriever.tune.tower import Ids, Tower
from shared.models.embedding import FILES, QUERY_FILE, StaticEmbedder

BLOCK = 256
"""Queries that are embedded together."""


class StaticTuning:
    """Trains the query table of the embeddings in `folder`; documents' vectors do not change."""

    def __init__(self, folder: Path, texts: Sequence[str], options: TuningOptions) -> None:
        """Load the embeddings and embed `texts`, the documents by number.

        Raises:
            Unavailable: the folder holds no static embeddings.
        """
        self._folder = folder
        self._embedder = StaticEmbedder(folder)
        self._documents = self._embedder.embed_documents(texts)
        self._tower = Tower(self._embedder.query_table, options.rate)
        self._options = options

    def epochs(self, train: Sequence[TrainingQuery], dev: Sequence[TrainingQuery]) -> Iterator[Epoch]:
        ids, asked = self._ids(train), self._ids(dev)
        rng = np.random.default_rng(self._options.seed)
        yield Epoch(0, None, self._recall(dev, asked))
        for number in range(1, self._options.epochs + 1):
            losses = [
                self._tower.step(
                    [ids[at] for at in batch.queries],
                    self._documents[batch.documents],
                    batch,
                    self._options.temperature,
                )
                for batch in draw_batches(train, self._options, rng)
            ]
            yield Epoch(number, float(np.mean(losses)), self._recall(dev, asked))

    def save(self, out: Path) -> None:
        """Write the files of the embeddings as they are, and the query table as it is now."""
        out.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(self._folder / name, out / name)
        rows, scales = quantise(self._tower.table)
        (out / QUERY_FILE).write_bytes(save({"embeddings": rows, "weights": scales}))

    def measure(self, queries: Sequence[TrainingQuery], folder: Path | None = None) -> Recall:
        if folder is None:
            return self._recall(queries, self._ids(queries))
        vectors = StaticEmbedder(folder).embed_queries([query.text for query in queries])
        return measure_recall(vectors, self._documents, queries)

    def _ids(self, queries: Sequence[TrainingQuery]) -> list[Ids]:
        texts = [query.text for query in queries]
        blocks = (texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK))
        return [ids for block in blocks for ids in self._embedder.token_ids(block)]

    def _recall(self, queries: Sequence[TrainingQuery], ids: Sequence[Ids]) -> Recall:
        vectors = np.concatenate([self._tower.vectors(ids[at : at + BLOCK]) for at in range(0, len(ids), BLOCK)])
        return measure_recall(vectors, self._documents, queries)

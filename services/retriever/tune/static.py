"""Tune the query side of static embeddings: numpy alone, on the processor."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from services.retriever.distil import quantised
from services.retriever.tune.adam import Floats
from services.retriever.tune.options import Options
from services.retriever.tune.pairs import Query
from services.retriever.tune.recall import recall
from services.retriever.tune.report import Epoch
from services.retriever.tune.sampling import batches
from services.retriever.tune.tower import Ids, Tower
from shared.models.static_embeddings import FILES, QUERY_FILE, StaticEmbedder

BLOCK = 256
"""Queries that are embedded together."""


class StaticTuning:
    """Training of the query table of the embeddings in `folder`; documents' vectors stay as they are."""

    def __init__(self, folder: Path, texts: Sequence[str], options: Options) -> None:
        """`texts` are the documents by number.

        Raises:
            Unavailable: the folder holds no static embeddings.
        """
        self._folder = folder
        self._embedder = StaticEmbedder(folder)
        self._documents = self._embedder.embed_documents(texts)
        self._tower = Tower(self._embedder.query_table, options.rate)
        self._options = options

    def epochs(self, train: Sequence[Query], dev: Sequence[Query]) -> Iterator[Epoch]:
        """See `Tuning`."""
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
                for batch in batches(train, self._options, rng)
            ]
            yield Epoch(number, float(np.mean(losses)), self._recall(dev, asked))

    def save(self, out: Path) -> None:
        """The files of the embeddings as they are, and the query table as it is now."""
        out.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(self._folder / name, out / name)
        rows, scales = quantised(self._tower.table)
        (out / QUERY_FILE).write_bytes(save({"embeddings": rows, "weights": scales}))

    def measure(self, queries: Sequence[Query], folder: Path | None = None) -> float:
        """See `Tuning`."""
        if folder is None:
            return self._recall(queries, self._ids(queries))
        vectors = StaticEmbedder(folder).embed_queries([query.text for query in queries])
        return recall(vectors, self._documents, queries)

    def _ids(self, queries: Sequence[Query]) -> list[Ids]:
        texts = [query.text for query in queries]
        blocks = (texts[start : start + BLOCK] for start in range(0, len(texts), BLOCK))
        return [ids for block in blocks for ids in self._embedder.token_ids(block)]

    def _recall(self, queries: Sequence[Query], ids: Sequence[Ids]) -> float:
        return recall(self._vectors(ids), self._documents, queries)

    def _vectors(self, ids: Sequence[Ids]) -> Floats:
        return np.concatenate([self._tower.vectors(ids[at : at + BLOCK]) for at in range(0, len(ids), BLOCK)])

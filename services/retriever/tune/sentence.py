"""Tune the query side of a model of sentence-transformers; needs the extra `train`.

The result is a model with a `Router`: `encode_query` reads by the tuned copy, `encode_document` by the model as it was.
"""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

from services.retriever.tune.options import Options
from services.retriever.tune.pairs import Query
from services.retriever.tune.recall import recall
from services.retriever.tune.report import Epoch
from services.retriever.tune.sampling import Batch, batches

DEVICE = "cpu"


class SentenceTuning:
    """Training of a copy of the model in `folder`, which reads queries; the model itself reads documents, frozen."""

    def __init__(self, folder: Path, texts: Sequence[str], options: Options) -> None:
        """`texts` are the documents by number."""
        torch.manual_seed(options.seed)
        frozen = SentenceTransformer(str(folder), device=DEVICE, local_files_only=True)
        self._tower = copy.deepcopy(frozen)
        self._two = SentenceTransformer(
            modules=[Router.for_query_document(list(self._tower.children()), list(frozen.children()))], device=DEVICE
        )
        self._vectors = _directions(frozen.encode(list(texts), prompt="", show_progress_bar=False))
        self._optimiser = torch.optim.Adam(self._tower.parameters(), lr=options.rate)
        self._options = options

    def epochs(self, train: Sequence[Query], dev: Sequence[Query]) -> Iterator[Epoch]:
        """See `Tuning`."""
        rng = np.random.default_rng(self._options.seed)
        yield Epoch(0, None, self._recall(self._two, dev))
        for number in range(1, self._options.epochs + 1):
            self._tower.train()
            losses = [self._step(train, batch) for batch in batches(train, self._options, rng)]
            self._tower.eval()
            yield Epoch(number, float(np.mean(losses)), self._recall(self._two, dev))

    def save(self, out: Path) -> None:
        """Both sides in one folder."""
        self._two.save(str(out), create_model_card=False)

    def measure(self, queries: Sequence[Query], folder: Path | None = None) -> float:
        """See `Tuning`."""
        model = self._two if folder is None else SentenceTransformer(str(folder), device=DEVICE, local_files_only=True)
        return self._recall(model, queries)

    def _step(self, train: Sequence[Query], batch: Batch) -> float:
        features = self._tower.preprocess([train[at].text for at in batch.queries])
        vectors = self._tower(features)["sentence_embedding"]
        documents = torch.from_numpy(self._vectors[batch.documents])
        loss = contrastive(vectors, documents, batch, self._options.temperature)
        self._optimiser.zero_grad()
        loss.backward()
        self._optimiser.step()
        return float(loss.detach())

    def _recall(self, model: SentenceTransformer, queries: Sequence[Query]) -> float:
        found = model.encode_query([query.text for query in queries], prompt="", show_progress_bar=False)
        return recall(_directions(found), self._vectors, queries)


def contrastive(vectors: torch.Tensor, documents: torch.Tensor, batch: Batch, temperature: float) -> torch.Tensor:
    """The mean of `loss.contrastive` over a batch, as a tensor; `vectors` have any length."""
    positives = torch.from_numpy(batch.positives)
    left_out = torch.from_numpy(batch.oracle).clone()
    left_out[torch.arange(len(positives)), positives] = False
    scores = torch.nn.functional.normalize(vectors, dim=1) @ documents.T / temperature
    return torch.nn.functional.cross_entropy(scores.masked_fill(left_out, -torch.inf), positives)


def _directions(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """At length 1; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)

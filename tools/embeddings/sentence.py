"""Tune the query side of a model of sentence-transformers; needs the extra `train`.

The result is a model with a `Router`: `encode_query` uses the tuned copy, `encode_document` the original model."""

import copy
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Router

from tools.embeddings.tuning import (
    Epoch,
    Recall,
    TrainingBatch,
    TrainingQuery,
    TuningOptions,
    draw_batches,
    measure_recall,
)

DEVICE = "cpu"


class SentenceTuning:
    """Trains a copy of the model in `folder` for queries; the model itself embeds documents and is frozen."""

    def __init__(self, folder: Path, texts: Sequence[str], options: TuningOptions) -> None:
        """Load the model and embed `texts`, the documents by number."""
        torch.manual_seed(options.seed)
        frozen = SentenceTransformer(str(folder), device=DEVICE, local_files_only=True)
        self._tower = copy.deepcopy(frozen)
        self._two = SentenceTransformer(
            modules=[Router.for_query_document(list(self._tower.children()), list(frozen.children()))], device=DEVICE
        )
        self._vectors = _normalise(frozen.encode(list(texts), prompt="", show_progress_bar=False))
        self._optimiser = torch.optim.Adam(self._tower.parameters(), lr=options.rate)
        self._options = options

    def epochs(self, train: Sequence[TrainingQuery], dev: Sequence[TrainingQuery]) -> Iterator[Epoch]:
        rng = np.random.default_rng(self._options.seed)
        yield Epoch(0, None, self._recall(self._two, dev))
        for number in range(1, self._options.epochs + 1):
            self._tower.train()
            losses = []
            for batch in draw_batches(train, self._options, rng):
                features = self._tower.preprocess([train[at].text for at in batch.queries])
                vectors = self._tower(features)["sentence_embedding"]
                documents = torch.from_numpy(self._vectors[batch.documents])
                loss = compute_contrastive_loss(vectors, documents, batch, self._options.temperature)
                self._optimiser.zero_grad()
                loss.backward()
                self._optimiser.step()
                losses.append(float(loss.detach()))
            self._tower.eval()
            yield Epoch(number, float(np.mean(losses)), self._recall(self._two, dev))

    def save(self, out: Path) -> None:
        """Write both sides into one folder."""
        self._two.save(str(out), create_model_card=False)

    def measure(self, queries: Sequence[TrainingQuery], folder: Path | None = None) -> Recall:
        model = self._two if folder is None else SentenceTransformer(str(folder), device=DEVICE, local_files_only=True)
        return self._recall(model, queries)

    def _recall(self, model: SentenceTransformer, queries: Sequence[TrainingQuery]) -> Recall:
        found = model.encode_query([query.text for query in queries], prompt="", show_progress_bar=False)
        return measure_recall(_normalise(found), self._vectors, queries)


def compute_contrastive_loss(
    vectors: torch.Tensor, documents: torch.Tensor, batch: TrainingBatch, temperature: float
) -> torch.Tensor:
    """Compute the mean of `tuning.compute_contrastive_loss` over a batch, as a tensor; `vectors` have any length."""
    positives = torch.from_numpy(batch.positives)
    left_out = torch.from_numpy(batch.oracle).clone()
    left_out[torch.arange(len(positives)), positives] = False
    scores = torch.nn.functional.normalize(vectors, dim=1) @ documents.T / temperature
    return torch.nn.functional.cross_entropy(scores.masked_fill(left_out, -torch.inf), positives)


def _normalise(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors to length 1; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)

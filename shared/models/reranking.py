"""Rerank with a cross-encoder: send batches, check the scores and turn them into probabilities exactly once."""

import math
from collections.abc import Sequence

from shared.contracts.replies import FailureKind
from shared.models.ports import CrossEncoder, ModelFailed
from shared.retrieval_settings import Reranker as Settings


class ModelReranker:
    """A `Reranker` over a `CrossEncoder`."""

    def __init__(self, model: CrossEncoder, settings: Settings) -> None:
        self._model = model
        self._settings = settings

    def score(self, question: str, documents: Sequence[str]) -> list[float]:
        """See `Reranker`."""
        size = self._settings.batch
        batches = (documents[start : start + size] for start in range(0, len(documents), size))
        return [score for batch in batches for score in self._scores(question, batch)]

    def _scores(self, question: str, batch: Sequence[str]) -> list[float]:
        found = self._model.scores(question, [text[: self._settings.max_chars or None] for text in batch])
        if len(found) != len(batch):
            raise _make_useless_error(f"{len(found)} scores for {len(batch)} documents")
        if not all(map(math.isfinite, found)):
            raise _make_useless_error("a score that is NaN or infinite")
        if self._settings.activation == "sigmoid":
            return [sigmoid(score) for score in found]
        if wrong := [score for score in found if not 0 <= score <= 1]:
            raise _make_useless_error(f"{wrong[0]:g}, not a probability: set `retrieval.reranker.activation: sigmoid`")
        return list(found)


def sigmoid(logit: float) -> float:
    """Compute 1 / (1 + exp(-logit)) without overflow."""
    small = math.exp(-abs(logit))
    return (1 if logit >= 0 else small) / (1 + small)


def _make_useless_error(what: str) -> ModelFailed:
    return ModelFailed(FailureKind.BACKEND_ERROR, f"the reranker gave {what}")

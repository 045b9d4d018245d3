"""Estimate a problem's difficulty by a logistic regression on its text's embedding, read from `models/difficulty`."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from mathrag.errors import Unavailable
from shared.models.embedding import Embedder
from shared.rag.prompts import detect_language

DECIMALS = 6
"""Decimals of a probability, so that replies do not depend on last bits, in which processors differ."""


class Regression(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fitted weights. probability = 1 / (1 + exp(-(bias + weights · vector)))."""

    embedder: str
    """Signature of the embedder to whose vectors they were fitted."""
    bias: float
    weights: tuple[float, ...]


class DifficultyClassifier:
    """Estimates how probable it is that questions are hard, in batches, without a model server or GPU."""

    def __init__(self, regression: Regression, embedder: Embedder) -> None:
        """Take weights and the embedder to which they were fitted.

        Raises:
            Unavailable: the weights were fitted to the vectors of another embedder.
        """
        if regression.embedder != embedder.signature:
            raise Unavailable(
                f"The difficulty classifier was fitted to embedder {regression.embedder[:12]}…, "
                f"not to {embedder.signature[:12]}…",
                hint="Fit it again: `python -m tools.difficulty`",
            )
        self._embedder = embedder
        self._bias = regression.bias
        self._weights = np.array(regression.weights)

    def probabilities(self, questions: Sequence[str]) -> list[float | None]:
        """Return the probability of each question that it is hard, independent of the other questions.

        None if nothing is known: the question is Chinese (the classifier was fitted to English) or has no word that the
        embedder knows.
        """
        vectors = self._embedder.embed_queries(questions)
        # Row by row, not as a product of matrices, whose rounding depends on how many rows there are.
        logits = (vectors * self._weights).sum(axis=1) + self._bias
        probabilities = np.round(1 / (1 + np.exp(-logits)), DECIMALS)
        known = vectors.any(axis=1) & np.array([detect_language(text) == "en" for text in questions], dtype=bool)
        return [float(p) if here else None for p, here in zip(probabilities, known, strict=True)]


def read_regression(path: Path) -> Regression:
    """Read weights from a file.

    Raises:
        Unavailable: the file is missing, or holds something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Regression)
    except (OSError, msgspec.MsgspecError) as error:
        raise Unavailable(
            f"the weights of the difficulty classifier cannot be read from {str(path)!r}: {error}",
            hint="Fit them: `python -m tools.difficulty`",
        ) from error

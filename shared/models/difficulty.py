"""How hard a problem looks: a logistic regression over the embedding of its text, read from `models/difficulty`."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from shared.errors import Unavailable
from shared.models.ports import Embedder
from shared.rag.language import language
from shared.retrieval_settings import MODELS

EMBEDDINGS = MODELS / "static-embeddings"
"""What the shipped weights were fitted to, whatever makes the vectors of the indexes."""
DECIMALS = 6
"""Of a probability: what processors may disagree about in the last bits is no part of a reply."""


class Regression(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fitted weights. probability = 1 / (1 + exp(-(bias + weights · vector)))."""

    embedder: str
    """Signature of the embedder whose vectors they were fitted to."""
    bias: float
    weights: tuple[float, ...]


class DifficultyClassifier:
    """Questions to probabilities of being hard. No model server, no GPU; batches."""

    def __init__(self, regression: Regression, embedder: Embedder) -> None:
        """Bring weights and embedder together.

        Raises:
            Unavailable: the weights were fitted to the vectors of another embedder.
        """
        if regression.embedder != embedder.signature:
            raise Unavailable(
                f"The difficulty classifier was fitted to embedder {regression.embedder[:12]}…, "
                f"not to {embedder.signature[:12]}…",
                hint="Fit it again: `python -m services.judge.difficulty`",
            )
        self._embedder = embedder
        self._bias = regression.bias
        self._weights = np.array(regression.weights)

    def probabilities(self, questions: Sequence[str]) -> list[float | None]:
        """The probability of each question that it is hard; it does not depend on its neighbours.

        None: nothing is known about it, for the question is Chinese (the classifier learned from English alone) or has
        no word that the embedder knows.
        """
        vectors = self._embedder.embed_queries(questions)
        # Row by row, not as a product of matrices, whose rounding depends on how many rows there are.
        logits = (vectors * self._weights).sum(axis=1) + self._bias
        probabilities = np.round(1 / (1 + np.exp(-logits)), DECIMALS)
        known = vectors.any(axis=1) & np.array([language(text) == "en" for text in questions], dtype=bool)
        return [float(p) if here else None for p, here in zip(probabilities, known, strict=True)]


def read(path: Path) -> Regression:
    """The weights in a file.

    Raises:
        Unavailable: there is none, or it holds something else.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=Regression)
    except (OSError, msgspec.MsgspecError) as error:
        raise Unavailable(
            f"There are no weights of the difficulty classifier in {str(path)!r}: {error}",
            hint="Fit them: `python -m services.judge.difficulty`",
        ) from error

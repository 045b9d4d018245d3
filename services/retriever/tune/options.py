"""The options of a tuning."""

from typing import Literal, NamedTuple

from services.retriever.tune.loss import TEMPERATURE

Kind = Literal["static", "sentence-transformers"]
RATES: dict[Kind, float] = {"static": 2e-3, "sentence-transformers": 1e-5}
"""Adam's learning rates: the second is RuleRAG-FT's; a table of token vectors needs larger steps
(docs/how-to/tuning.md)."""


class TuningOptions(NamedTuple):
    """The options of a tuning; batch and temperature are RuleRAG-FT's (Hu et al. 2024)."""

    rate: float = RATES["static"]
    batch: int = 32
    """Positives in one step; their documents are each other's negatives."""
    epochs: int = 10
    dev: float = 0.1
    """Share of the questions that choose the epoch and are not trained on."""
    negatives: int = 0
    """Negatives of each line that join the documents of the batch."""
    temperature: float = TEMPERATURE
    seed: int = 0

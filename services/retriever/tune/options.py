"""How an embedder is tuned."""

from typing import Literal, NamedTuple

from services.retriever.tune.loss import TEMPERATURE

Kind = Literal["static", "sentence-transformers"]
RATES: dict[Kind, float] = {"static": 2e-3, "sentence-transformers": 1e-5}
"""Of Adam: the second is RuleRAG-FT's; a table of token vectors needs larger steps (docs/tuning.md)."""


class Options(NamedTuple):
    """Batch and temperature are RuleRAG-FT's (Hu et al. 2024)."""

    rate: float = RATES["static"]
    batch: int = 32
    """Positives that are looked at together; their documents are each other's negatives."""
    epochs: int = 10
    dev: float = 0.1
    """Share of the questions that choose the epoch and are not trained on."""
    negatives: int = 0
    """Of each line's negatives, how many join the documents of the batch."""
    temperature: float = TEMPERATURE
    seed: int = 0

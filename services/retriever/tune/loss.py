"""Compute the contrastive loss of RuleRAG-FT (Hu et al. 2024; seed document 002)."""

import numpy as np
from numpy.typing import NDArray

TEMPERATURE = 0.01
"""The authors' temperature, by which scores are divided."""
Floats = NDArray[np.floating]


def compute_contrastive_loss(
    queries: Floats,
    documents: Floats,
    positives: NDArray[np.integer],
    oracle: NDArray[np.bool_],
    temperature: float = TEMPERATURE,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Compute each query's loss, and its gradient with respect to the query's vector; documents are constants.

    L = -log e^{s(d+, q∘r)/t} / (e^{s(d+, q∘r)/t} + the sum of e^{s(d-, q∘r)/t} over all d- of the batch that are no
    oracle documents of the query); s is the inner product, t the temperature.

    L = -log e^{s(d+, q∘r)/t} / (e^{s(d+, q∘r)/t} + the sum of e^{s(d-, q∘r)/t} over all d- of the batch that are no
    oracle documents of the query); s is the inner product, t the temperature.

    Args:
        queries: vectors [n, d] of the queries with their rules.
        documents: vectors [m, d] of the batch's distinct documents.
        positives: of each query, the row of its positive document [n].
        oracle: whether a document is one of the query's oracle documents [n, m]; all but the positive are left out.
        temperature: t, above 0.

    Returns:
        Losses [n] and gradients [n, d].
    """
    own = np.arange(len(queries))
    left_out = oracle.copy()
    left_out[own, positives] = False
    scores = queries.astype(np.float64) @ documents.T.astype(np.float64) / temperature
    scores[left_out] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    totals = np.log(np.exp(scores).sum(axis=1, keepdims=True))
    losses = totals[:, 0] - scores[own, positives]
    shares = np.exp(scores - totals)
    shares[own, positives] -= 1
    return losses, shares @ documents.astype(np.float64) / temperature

"""The contrastive loss, against numbers that were worked out by hand."""

import numpy as np
import pytest

from tools.embeddings.tuning import compute_contrastive_loss

SCORES = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0], [1.0, 0.0, 1.0]])
"""Of three queries with three documents: with unit vectors as queries, the columns are the documents."""
QUERIES = np.eye(3)
DOCUMENTS = SCORES.T
POSITIVES = np.array([0, 1, 2])
OWN = np.eye(3, dtype=bool)


def test_the_loss_of_three_queries_is_the_one_worked_out_by_hand() -> None:
    losses, _ = compute_contrastive_loss(QUERIES, DOCUMENTS, POSITIVES, OWN, temperature=1.0)
    np.testing.assert_allclose(losses, [0.407606, 2.169846, 0.861995], atol=1e-6)


def test_another_oracle_document_of_the_query_is_no_negative() -> None:
    oracle = OWN.copy()
    oracle[1, 2] = True
    losses, gradients = compute_contrastive_loss(QUERIES, DOCUMENTS, POSITIVES, oracle, temperature=1.0)
    np.testing.assert_allclose(losses, [0.407606, 0.313262, 0.861995], atol=1e-6)
    np.testing.assert_allclose(gradients[1], 0.268941 * (DOCUMENTS[0] - DOCUMENTS[1]), atol=1e-6)


def test_each_oracle_document_is_a_positive_of_its_own() -> None:
    queries, oracle = np.tile(QUERIES[0], (2, 1)), np.array([[True, True, False]] * 2)
    losses, _ = compute_contrastive_loss(queries, DOCUMENTS, np.array([0, 1]), oracle, temperature=1.0)
    np.testing.assert_allclose(losses, np.log1p(np.exp([-2.0, -1.0])), atol=1e-12)


def test_scores_are_divided_by_the_temperature() -> None:
    losses, _ = compute_contrastive_loss(QUERIES, DOCUMENTS, POSITIVES, OWN, temperature=0.5)
    assert losses[0] == pytest.approx(np.log(1 + np.exp(-2) + np.exp(-4)))
    losses, gradients = compute_contrastive_loss(QUERIES, DOCUMENTS, POSITIVES, OWN)
    np.testing.assert_allclose(losses, [0, 200, np.log(2)], atol=1e-6)
    assert np.isfinite(gradients).all()


def test_the_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    queries, documents = rng.standard_normal((4, 5)), rng.standard_normal((6, 5))
    positives, oracle = np.array([0, 3, 3, 5]), rng.random((4, 6)) < 0.3
    oracle[np.arange(4), positives] = True
    _, gradients = compute_contrastive_loss(queries, documents, positives, oracle, 0.5)
    for place in np.ndindex(queries.shape):
        step = np.zeros_like(queries)
        step[place] = 1e-6
        above, below = (
            compute_contrastive_loss(queries + s, documents, positives, oracle, 0.5)[0].sum() for s in (step, -step)
        )
        assert gradients[place] == pytest.approx((above - below) / 2e-6, abs=1e-6)

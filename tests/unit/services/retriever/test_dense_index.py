"""Nearest vectors, exactly."""

import numpy as np
import pytest

from services.retriever.index import MARGIN, DenseIndex, Faiss
from tests.unit.retrieval import DOCUMENTS, QUESTIONS, TEXTS, HashedWords


def test_scores_are_the_inner_products() -> None:
    embedder = HashedWords()
    expected = (
        embedder.embed_queries(QUESTIONS).astype(np.float64) @ embedder.embed_documents(TEXTS).astype(np.float64).T
    )
    position = {document: at for at, (document, _) in enumerate(DOCUMENTS)}
    for row, matches in zip(expected, Faiss(embedder).build([DOCUMENTS]).search(QUESTIONS, 6), strict=True):
        assert len(matches) == 6
        for match in matches:
            assert match.score == pytest.approx(row[position[match.document]], abs=1e-12)


def test_the_same_text_has_cosine_one() -> None:
    [[match]] = Faiss(HashedWords()).build([DOCUMENTS]).search([TEXTS[0]], 1)
    assert match.document == DOCUMENTS[0][0]
    assert match.score == pytest.approx(1, abs=1e-6)


def test_equal_vectors_beyond_the_margin_come_by_hash() -> None:
    twins = [(f"{at:064x}", "one and the same") for at in range(MARGIN + 1)][::-1]
    [matches] = Faiss(HashedWords()).build([twins]).search(["the same"], 1)
    assert int(matches[0].document, 16) == 0


def test_knows_its_dimension_and_embedder() -> None:
    backend = Faiss(HashedWords())
    index: DenseIndex = backend.build([DOCUMENTS])
    assert index.dimension == backend.recipe()["dimension"] == 64
    assert backend.recipe()["embedder"] == "hashed-words"


def test_large_and_small_batches_agree_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    words = [f"w{at}" for at in range(50)]
    texts = [" ".join(rng.choice(words, 8)) for _ in range(300)]
    index = Faiss(HashedWords()).build([[(f"{at:064x}", text) for at, text in enumerate(texts)]])
    assert index.search(texts[:64], 10) == [index.search([text], 10)[0] for text in texts[:64]]

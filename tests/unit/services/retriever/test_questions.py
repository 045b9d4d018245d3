"""Vectors of questions: embedded once, kept for the next asker, counted."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from services.retriever.searches import EmbeddingCache, compute_mean_direction
from shared.errors import Unavailable
from tests.unit.retrieval import HashedWords

pytestmark = pytest.mark.anyio


class Counting(HashedWords):
    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.is_away = False

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.asked.append(list(texts))
        if self.is_away:
            raise Unavailable("away")
        return super().embed_queries(texts)


def counts(questions: EmbeddingCache) -> tuple[int, int]:
    return questions.counted.asked, questions.counted.hits


async def test_a_batch_is_embedded_at_once_and_each_question_once() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 10)
    found = await questions.vectors(["circle", "prime", "circle"])
    assert embedder.asked == [["circle", "prime"]]
    np.testing.assert_array_equal(found, HashedWords().embed_documents(["circle", "prime", "circle"]))
    assert counts(questions) == (3, 1)


async def test_what_was_asked_before_is_not_embedded_again() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 10)
    await questions.vectors(["circle"])
    found = await questions.vectors(["prime", "circle"])
    assert embedder.asked == [["circle"], ["prime"]]
    np.testing.assert_array_equal(found, HashedWords().embed_documents(["prime", "circle"]))
    await questions.vectors(["circle", "prime"])
    assert embedder.asked == [["circle"], ["prime"]]
    assert counts(questions) == (5, 3)


async def test_what_was_asked_longest_ago_goes_first() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 2)
    for text in ("circle", "prime", "circle", "area", "circle", "prime"):
        await questions.vectors([text])
    assert embedder.asked == [["circle"], ["prime"], ["area"], ["prime"]]


async def test_a_batch_larger_than_the_cache_is_answered_whole() -> None:
    for size in (0, 1):
        embedder = Counting()
        questions = EmbeddingCache(embedder, size)
        assert len(await questions.vectors(["circle", "prime", "area"])) == 3
        await questions.vectors(["circle"])
        assert embedder.asked == [["circle", "prime", "area"], ["circle"]]


async def test_an_embedder_that_is_away_leaves_nothing_behind() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 10)
    await questions.vectors(["circle"])
    embedder.is_away = True
    with pytest.raises(Unavailable):
        await questions.vectors(["circle", "prime"])
    assert counts(questions) == (1, 0)
    assert len(await questions.vectors(["circle"])) == 1
    embedder.is_away = False
    assert len(await questions.vectors(["prime"])) == 1


async def test_no_question_no_request() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 10)
    assert await questions.vectors([]) == []
    assert await questions.hypothetical([]) == {}
    assert embedder.asked == []


async def test_hypothetical_documents_are_embedded_as_documents() -> None:
    embedder = Counting()
    questions = EmbeddingCache(embedder, 10)
    found = await questions.hypothetical(["a circle", "a prime", "a circle"])
    assert list(found) == ["a circle", "a prime"]
    assert embedder.asked == []
    assert counts(questions) == (0, 0)


def test_the_mean_is_a_direction() -> None:
    vectors = HashedWords().embed_documents(["circle", "prime", "area"])
    found = compute_mean_direction(list(vectors))
    assert np.linalg.norm(found) == pytest.approx(1, abs=1e-6)
    expected = vectors.mean(axis=0)
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-6)


def test_vectors_that_cancel_out_have_no_direction() -> None:
    one = HashedWords().embed_documents(["circle"])[0]
    assert not compute_mean_direction([one, -one]).any()

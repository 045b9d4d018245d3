"""What every index must do, whichever library is behind it; and a small embedder to try it with."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.retriever.ports import Backend, DenseIndex, Index, Match
from services.retriever.tokens import tokenise

TEXTS = [
    "the area of a circle is pi times the radius squared",
    "the circumference of a circle is two pi times the radius",
    "a prime has two divisors",
    "a prime has two divisors",
    "the derivative of x^2 is 2x",
    "三角形的面积是底乘高的一半",
]
DOCUMENTS = [(hashlib.sha256(f"{at} {text}".encode()).hexdigest(), text) for at, text in enumerate(TEXTS)]
QUESTIONS = ["area of a circle", "which numbers are prime?", "derivative of x^3", "三角形面积", "circle circle pi"]


class HashedWords:
    """An `Embedder` for tests: every word has a fixed pseudo-random direction."""

    dimension = 64
    signature = "hashed-words"

    def embed_queries(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Both sides are alike."""
        return self.embed_documents(texts)

    def embed_documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The normalised sum of the words' directions."""
        return np.stack([self._vector(text) for text in texts]) if texts else np.zeros((0, 64), np.float32)

    def _vector(self, text: str) -> NDArray[np.float32]:
        total = sum((self._direction(token) for token in tokenise(text)), np.zeros(self.dimension))
        length = float(np.linalg.norm(total)) or 1.0
        return (np.asarray(total) / length).astype(np.float32)

    def _direction(self, token: str) -> NDArray[np.float64]:
        seed = int.from_bytes(hashlib.sha256(token.encode()).digest()[:8])
        return np.random.default_rng(seed).standard_normal(self.dimension)


class Conformance:
    """The contract of a `Backend` and its `Index`; a subclass says which."""

    backend: Backend[Index]

    def built(self, documents: Sequence[tuple[str, str]] = DOCUMENTS, size: int = 4) -> Index:
        """An index of `documents`, in batches of `size`."""
        return self.backend.build(documents[at : at + size] for at in range(0, len(documents), size))

    def test_documents_are_in_ascending_order(self) -> None:
        """Each once, whatever the order of the batches."""
        assert list(self.built().documents) == sorted(document for document, _ in DOCUMENTS)

    def test_the_best_comes_first_and_equals_by_hash(self) -> None:
        """Descending score, then ascending hash: documents 2 and 3 have the same text."""
        for matches in self.built().search(QUESTIONS, 6):
            assert matches == sorted(matches, key=lambda match: (-match.score, match.document))
        twins = sorted(DOCUMENTS[at][0] for at in (2, 3))
        found = self.built().search(["two divisors of a prime"], 6)[0][:2]
        assert [match.document for match in found] == twins
        assert found[0].score == found[1].score

    def test_a_cut_through_equals_keeps_the_smaller_hash(self) -> None:
        """Depth must not change which of two equals is found."""
        [[match]] = self.built().search(["two divisors of a prime"], 1)
        assert match.document == min(DOCUMENTS[at][0] for at in (2, 3))

    def test_fewer_matches_are_a_prefix_of_more(self) -> None:
        """So one search of the greatest depth serves all."""
        deep = self.built().search(QUESTIONS, 6)
        for k in range(1, 6):
            assert self.built().search(QUESTIONS, k) == [matches[:k] for matches in deep]

    def test_a_question_is_answered_alike_alone_and_among_others(self) -> None:
        """Replies are kept by content."""
        index = self.built()
        together = index.search(QUESTIONS * 20, 4)
        assert together == [index.search([question], 4)[0] for question in QUESTIONS] * 20

    def test_batches_and_order_of_documents_change_nothing(self) -> None:
        """An index is a set."""
        expected = self.built().search(QUESTIONS, 6)
        assert self.built(size=1).search(QUESTIONS, 6) == expected
        assert self.built(DOCUMENTS[::-1], size=6).search(QUESTIONS, 6) == expected

    def test_survives_saving(self, tmp_path: Path) -> None:
        """Bit for bit, and a second save writes the same bytes."""
        index = self.built()
        index.save(tmp_path)
        loaded = self.backend.load(tmp_path)
        assert list(loaded.documents) == list(index.documents)
        assert loaded.search(QUESTIONS, 6) == index.search(QUESTIONS, 6)
        (tmp_path / "again").mkdir()
        self.built().save(tmp_path / "again")
        for file in (tmp_path / "again").iterdir():
            assert file.read_bytes() == (tmp_path / file.name).read_bytes()

    def test_more_matches_than_documents(self) -> None:
        """k is a limit, not a promise."""
        assert all(len(matches) <= len(DOCUMENTS) for matches in self.built().search(QUESTIONS, 1000))

    def test_vectors_find_what_their_questions_find(self) -> None:
        """The service embeds once and searches by vector."""
        index = self.built()
        if isinstance(index, DenseIndex):
            assert index.search_vectors(HashedWords().embed_queries(QUESTIONS), 4) == index.search(QUESTIONS, 4)

    def test_one_document(self) -> None:
        """The smallest index."""
        [matches] = self.built(DOCUMENTS[:1]).search(["circle"], 3)
        assert [match.document for match in matches] == [DOCUMENTS[0][0]]
        assert isinstance(matches[0], Match)

    def test_empty_corpus_is_refused(self) -> None:
        """In words."""
        with np.testing.assert_raises_regex(Exception, "no documents"):
            self.backend.build(iter([]))

    def test_recipe_holds_plain_values(self) -> None:
        """It is hashed and shown."""
        assert all(isinstance(value, str | int | float) for value in self.backend.recipe().values())

    def test_no_question_no_reply(self) -> None:
        """Empty in, empty out."""
        assert self.built().search([], 3) == []

    def test_several_threads_may_search(self) -> None:
        """The service searches from a pool of them."""
        index = self.built()
        expected = index.search(QUESTIONS, 4)
        with ThreadPoolExecutor(4) as threads:
            found = [threads.submit(index.search, QUESTIONS, 4) for _ in range(32)]
            assert all(each.result() == expected for each in found)

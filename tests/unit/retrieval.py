"""What every index must do, whichever library is behind it; and a small embedder to try it with."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from mathrag.errors import Invalid, Unavailable
from services.retriever import index as index_module
from services.retriever.index import UNSIGNED, Backend, DenseIndex, IndexMatch, SearchIndex, tokenise
from tests.unit.back_ends import BEHIND

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
        total = sum((direction(token) for token in tokenise(text)), np.zeros(self.dimension))
        length = float(np.linalg.norm(total)) or 1.0
        return (np.asarray(total) / length).astype(np.float32)


@cache
def direction(token: str) -> NDArray[np.float64]:
    """Of a word."""
    seed = int.from_bytes(hashlib.sha256(token.encode()).digest()[:8])
    return np.random.default_rng(seed).standard_normal(HashedWords.dimension)


MIXED = [r"$\frac{a}{b}$", "the number 40,000", "x^2 + 1", "x^{10}", "三角形的面积", "一个圆的周长", "Café", "한글"]


class Conformance:
    """The contract of a `Backend` and its `Index`; a subclass says which."""

    backend: Backend[SearchIndex]
    behind = "real"
    precision = 0.0
    """By how much a score may differ with the place where a document lies."""
    step = 1
    """Of 400 pairs every how manyth is asked for."""

    @pytest.fixture(autouse=True)
    def _said(self) -> None:
        BEHIND[type(self).__name__.removeprefix("Test")] = self.behind

    def built(
        self, documents: Sequence[tuple[str, str]] = DOCUMENTS, size: int = 4, signature: str = UNSIGNED
    ) -> SearchIndex:
        """An index of `documents`, in batches of `size`."""
        batches = (documents[at : at + size] for at in range(0, len(documents), size))
        return self.backend.build(batches, signature)

    @pytest.mark.parametrize(
        ("question", "expected"),
        [
            (r"\frac", 0),
            ("40000", 1),
            ("x^2", 2),
            ("x^10", 3),
            ("三角形面积", 4),
            ("圆的周长", 5),
            ("café", 6),
            ("한글", 7),
        ],
    )
    def test_finds_commands_numbers_powers_and_words_of_any_language(self, question: str, expected: int) -> None:
        documents = [(f"{at:064x}", text) for at, text in enumerate(MIXED)]
        [matches] = self.built(documents).search([question], 1)
        assert [int(match.document, 16) for match in matches] == [expected]

    def test_a_build_leaves_the_others_alone(self) -> None:
        first = self.built(signature="a" * 64)
        before = first.search(QUESTIONS, 6)
        self.built([(document, "other words") for document, _ in DOCUMENTS], signature="b" * 64)
        assert first.search(QUESTIONS, 6) == before

    def test_damage_is_refused(self, tmp_path: Path) -> None:
        recipe = {"kind": self.backend.kind}
        folder, registered = index_module.write_index(tmp_path, recipe, self.built())
        for file in folder.iterdir():
            sound = file.read_bytes()
            file.write_bytes(bytes([sound[0] ^ 1]) + sound[1:])
            with pytest.raises(Unavailable, match=file.name):
                index_module.verify(folder, recipe, registered)
            file.write_bytes(sound)
        index_module.verify(folder, recipe, registered)
        self.backend.check(folder)
        self.backend.point(folder, 1)

    def test_documents_are_in_ascending_order(self) -> None:
        assert list(self.built().documents) == sorted(document for document, _ in DOCUMENTS)

    def test_the_best_comes_first_and_equals_by_hash(self) -> None:
        for matches in self.built().search(QUESTIONS, 6):
            assert matches == sorted(matches, key=lambda match: (-match.score, match.document))
        twins = sorted(DOCUMENTS[at][0] for at in (2, 3))
        found = self.built().search(["two divisors of a prime"], 6)[0][:2]
        assert [match.document for match in found] == twins
        assert found[0].score == found[1].score

    def test_equal_texts_come_by_hash_wherever_they_lie(self) -> None:
        many = [f"{TEXTS[at % 5]} {at}" for at in range(410)]
        texts = [text for at, text in enumerate(many) for _ in range(2 if at < 400 else 20)]
        documents = [(hashlib.sha256(f"{at} {text}".encode()).hexdigest(), text) for at, text in enumerate(texts)]
        documents.sort(key=lambda document: document[0][::-1])
        asked = many[: 400 : self.step] + many[400:]
        found = dict(zip(asked, self.built(documents, size=250).search(asked, 12), strict=True))
        for text, matches in found.items():
            expected = sorted(document for document, other in documents if other == text)[:12]
            assert [match.document for match in matches[: len(expected)]] == expected
            assert len({match.score for match in matches[: len(expected)]}) == 1

    def test_a_cut_through_equals_keeps_the_smaller_hash(self) -> None:
        [[match]] = self.built().search(["two divisors of a prime"], 1)
        assert match.document == min(DOCUMENTS[at][0] for at in (2, 3))

    def test_fewer_matches_are_a_prefix_of_more(self) -> None:
        deep = self.built().search(QUESTIONS, 6)
        for k in range(1, 6):
            assert self.built().search(QUESTIONS, k) == [matches[:k] for matches in deep]

    def test_a_question_is_answered_alike_alone_and_among_others(self) -> None:
        index = self.built()
        together = index.search(QUESTIONS * 20, 4)
        assert together == [index.search([question], 4)[0] for question in QUESTIONS] * 20

    def test_batches_and_order_of_documents_change_nothing(self) -> None:
        expected = self.built().search(QUESTIONS, 6)
        for other in (self.built(size=1), self.built(DOCUMENTS[::-1], size=6)):
            for left, right in zip(other.search(QUESTIONS, 6), expected, strict=True):
                assert [match.document for match in left] == [match.document for match in right]
                scores = [match.score for match in right]
                assert [match.score for match in left] == pytest.approx(scores, rel=0, abs=self.precision)

    def test_survives_saving(self, tmp_path: Path) -> None:
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
        assert all(len(matches) <= len(DOCUMENTS) for matches in self.built().search(QUESTIONS, 1000))

    def test_vectors_find_what_their_questions_find(self) -> None:
        index = self.built()
        if isinstance(index, DenseIndex):
            assert index.search_vectors(HashedWords().embed_queries(QUESTIONS), 4) == index.search(QUESTIONS, 4)

    def test_one_document(self) -> None:
        [matches] = self.built(DOCUMENTS[:1]).search(["circle"], 3)
        assert [match.document for match in matches] == [DOCUMENTS[0][0]]
        assert isinstance(matches[0], IndexMatch)

    def test_empty_corpus_is_refused(self) -> None:
        with pytest.raises(Invalid, match="no documents"):
            self.backend.build(iter([]))

    def test_recipe_holds_plain_values(self) -> None:
        assert all(isinstance(value, str | int | float) for value in self.backend.recipe().values())

    def test_no_question_no_reply(self) -> None:
        assert self.built().search([], 3) == []

    def test_several_threads_may_search(self) -> None:
        index = self.built()
        expected = index.search(QUESTIONS, 4)
        with ThreadPoolExecutor(4) as threads:
            found = [threads.submit(index.search, QUESTIONS, 4) for _ in range(32)]
            assert all(each.result() == expected for each in found)


class SparseConformance(Conformance):
    """What indexes of terms do besides."""

    @pytest.mark.parametrize("question", ["zymurgy", "", "+ = $", "　"])
    def test_a_question_without_a_known_term_finds_nothing(self, question: str) -> None:
        assert self.built().search([question], 3) == [[]]

    def test_nothing_is_found_with_a_score_of_zero(self) -> None:
        for matches in self.built().search([*QUESTIONS, "circumference"], 6):
            assert all(match.score > 0 for match in matches)
        [matches] = self.built().search(["circumference"], 6)
        assert [match.document for match in matches] == [DOCUMENTS[1][0]]

    def test_a_repeated_term_counts_again(self) -> None:
        [[once], [twice]] = self.built().search(["derivative", "derivative derivative"], 1)
        assert twice.score == pytest.approx(2 * once.score, rel=1e-6)


class DenseConformance(Conformance):
    """What indexes of vectors do besides."""

    def test_the_same_text_has_cosine_one(self) -> None:
        [[match]] = self.built().search([TEXTS[0]], 1)
        assert match.document == DOCUMENTS[0][0]
        assert match.score == pytest.approx(1, abs=1e-6)

    def test_scores_are_cosines(self) -> None:
        embedder = HashedWords()
        expected = embedder.embed_queries(QUESTIONS).astype(np.float64) @ embedder.embed_documents(TEXTS).T
        position = {document: at for at, (document, _) in enumerate(DOCUMENTS)}
        for row, matches in zip(expected, self.built().search(QUESTIONS, 6), strict=True):
            assert len(matches) == 6
            assert all(match.score == pytest.approx(row[position[match.document]], abs=1e-6) for match in matches)

    def test_a_text_without_words_finds_nothing(self) -> None:
        nothing, something = self.built().search(["+", TEXTS[0]], 6)
        assert nothing == []
        assert len(something) == 6

    def test_a_document_without_words_is_never_found(self) -> None:
        wordless = [(f"{at:064x}", "+") for at in range(40)]
        index = self.built([*wordless, ("f" * 64, "circle")])
        assert [[match.document for match in found] for found in index.search(["circle", "square"], 2)] == [
            ["f" * 64]
        ] * 2  # fmt: skip
        assert len(index.documents) == 41

    def test_an_index_of_nothing_but_wordless_documents_finds_nothing(self) -> None:
        assert self.built([(f"{at:064x}", "+") for at in range(3)]).search(["circle"], 2) == [[]]

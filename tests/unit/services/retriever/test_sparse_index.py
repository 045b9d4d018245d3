"""BM25: the formula by a second hand."""

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from services.retriever.index import Bm25, SparseIndex, find_best, tokenise
from tests.unit.retrieval import DOCUMENTS, QUESTIONS, TEXTS

WORDS = st.sampled_from(["circle", "area", "x^2", r"\frac", "12", "三角", "prime", "the"])
PLAIN = Bm25()
SENTENCES = st.lists(WORDS, max_size=12).map(" ".join)


def lucene(texts: Sequence[str], question: str, k1: float = 1.2, b: float = 0.75) -> NDArray[np.float64]:
    bags = [Counter(tokenise(text)) for text in texts]
    lengths = [bag.total() for bag in bags]
    average = sum(lengths) / len(texts)
    scores = np.zeros(len(texts))
    for term in tokenise(question):
        n = sum(term in bag for bag in bags)
        idf = math.log(1 + (len(texts) - n + 0.5) / (n + 0.5))
        for at, bag in enumerate(bags):
            if bag[term]:
                scores[at] += idf * bag[term] / (bag[term] + k1 * (1 - b + b * lengths[at] / average))
    return scores


def scores_by_text(texts: Sequence[str], question: str, backend: Bm25 = PLAIN) -> NDArray[np.float64]:
    documents = [(f"{at:064x}", text) for at, text in enumerate(texts)]
    scores = np.zeros(len(texts))
    for match in backend.build([documents]).search([question], len(texts))[0]:
        scores[int(match.document, 16)] = match.score
    return scores


@pytest.mark.parametrize("question", [*QUESTIONS, "the the the of a a", "unheard-of", ""])
def test_scores_are_those_of_the_formula(question: str) -> None:
    np.testing.assert_allclose(scores_by_text(TEXTS, question), lucene(TEXTS, question), atol=5e-6)


@pytest.mark.parametrize(("k1", "b"), [(0.0, 0.75), (0.9, 0.4), (2.0, 0.0), (1.2, 1.0)])
def test_parameters_are_those_of_the_formula(k1: float, b: float) -> None:
    backend = Bm25(k1=k1, b=b)
    for question in QUESTIONS:
        expected = lucene(TEXTS, question, k1, b)
        np.testing.assert_allclose(scores_by_text(TEXTS, question, backend), expected, atol=5e-6)
    assert (backend.recipe()["k1"], backend.recipe()["b"]) == (k1, b)


@given(st.lists(SENTENCES, min_size=1, max_size=8), SENTENCES)
def test_scores_are_those_of_the_formula_for_any_texts(texts: list[str], question: str) -> None:
    if any(tokenise(text) for text in texts):
        np.testing.assert_allclose(scores_by_text(texts, question), lucene(texts, question), atol=5e-6)


def test_a_document_without_a_shared_term_is_never_found() -> None:
    [matches] = Bm25().build([DOCUMENTS]).search(["circumference"], 6)
    assert [match.document for match in matches] == [DOCUMENTS[1][0]]


@pytest.mark.parametrize("question", ["zymurgy", "", "+ = $", "　"])
def test_a_question_without_a_known_term_finds_nothing(question: str) -> None:
    assert Bm25().build([DOCUMENTS]).search([question], 3) == [[]]


def test_a_term_in_every_document_still_counts() -> None:
    assert (scores_by_text(["the a", "the b"], "the") > 0).all()


def test_a_corpus_without_words_is_an_index_that_finds_nothing() -> None:
    index = Bm25().build([[("0" * 64, "+"), ("1" * 64, "=")]])
    assert index.search(["x"], 2) == [[]]
    assert index.terms == 0


def test_counts_its_terms() -> None:
    index: SparseIndex = Bm25().build([[("0" * 64, "one two two")]])
    assert index.terms == 2


def test_finds_by_command_power_and_chinese_pair() -> None:
    documents = [(f"{at:064x}", text) for at, text in enumerate([r"\frac{a}{b}", "x^2", "x^3", "三角形", "角三"])]
    index = Bm25().build([documents])
    for question, expected in ((r"\frac", 0), ("x^3", 2), ("三角", 3)):
        assert int(index.search([question], 1)[0][0].document, 16) == expected


@pytest.mark.parametrize(
    ("scores", "k", "expected"),
    [
        ([0.0, 2, 1], 2, [1, 2]),
        ([1.0, 1, 1], 2, [0, 1]),
        ([1.0, 2, 1, 2], 3, [1, 3, 0]),
        ([0.0, 0], 1, []),
        ([], 3, []),
    ],
)
def test_best(scores: Iterable[float], k: int, expected: list[int]) -> None:
    assert find_best(np.array(list(scores), dtype=np.float32), k).tolist() == expected


def test_jax_is_not_started_by_an_import_and_stays_usable(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text("print('JAX was started')")
    (tmp_path / "jax" / "lax.py").write_text("def top_k(*_): ...")
    command = [sys.executable, "-c", "import services.retriever.index; print('imported'); import jax"]
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["imported", "JAX was started"]

"""Texts as weighted terms."""

import math

import pytest

from shared.rag.text import TermWeights, cosine, extract_terms


def test_terms_are_words_numbers_and_commands() -> None:
    assert extract_terms(r"The \frac{1}{2} of 40,000 = Émile's x_1!") == [
        "the", r"\frac", "1", "2", "of", "40,000", "émile", "s", "x", "1",
    ]  # fmt: skip


def test_chinese_becomes_pairs() -> None:
    assert extract_terms("鸭子每天下 16 颗蛋 好") == ["鸭子", "子每", "每天", "天下", "16", "颗蛋", "好"]


def test_idf_follows_its_formula() -> None:
    weights = TermWeights([["a", "b"], ["a", "a"], ["a"]])
    assert weights.idf("a") == 1.0
    assert weights.idf("b") == pytest.approx(math.log(4 / 2) + 1)
    assert weights.idf("unseen") == pytest.approx(math.log(4) + 1)


def test_a_vector_has_length_one_and_counts_terms() -> None:
    vector = TermWeights([["a"], ["b"]]).vector(["a", "a", "b"])
    assert vector["a"] == pytest.approx(2 * vector["b"])
    assert math.hypot(*vector.values()) == pytest.approx(1)


def test_a_text_without_terms_is_like_nothing() -> None:
    weights = TermWeights([[]])
    assert weights.vector([]) == {}
    assert cosine({}, {}) == cosine({}, {"a": 1.0}) == 0.0


def test_cosines_lie_between_nothing_shared_and_the_same() -> None:
    weights = TermWeights([["a", "b"], ["b", "c"], ["d"]])
    ab, bc, d = (weights.vector(each) for each in (["a", "b"], ["b", "c"], ["d"]))
    assert cosine(ab, ab) == pytest.approx(1.0)
    assert cosine(ab, d) == 0.0
    assert 0 < cosine(ab, bc) == cosine(bc, ab) < 1

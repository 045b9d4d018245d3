"""Texts that say the same, and how different the documents of a list are."""

import pytest

from shared.rag.fusion import measure_diversity
from shared.rag.text import are_alike, make_shingles

TEXT = "the product of all of the roots of this monic polynomial is its last coefficient"


def test_shingles_are_three_neighbours() -> None:
    assert make_shingles("abcd") == {("a", "b", "c"), ("b", "c", "d")}
    assert make_shingles("ab") == {("a", "b")}
    assert make_shingles("") == frozenset()


def test_texts_are_alike_from_four_fifths_on() -> None:
    ten = make_shingles("abcdefghijkl")
    assert len(ten) == 10
    assert are_alike(ten, make_shingles("abcdefghij"))
    assert not are_alike(ten, make_shingles("abcdefghi"))
    assert not are_alike(frozenset(), frozenset())
    assert not are_alike(ten, frozenset())


def test_copies_are_not_diverse_and_strangers_are() -> None:
    assert measure_diversity([TEXT, TEXT, TEXT]) == pytest.approx(0)
    assert measure_diversity(["one two", "three four"]) == 1
    assert 0 < measure_diversity([TEXT, "the roots of this polynomial are real"]) < 1


def test_one_document_is_not_diverse() -> None:
    assert measure_diversity([TEXT]) == measure_diversity([]) == 0


def test_order_does_not_change_diversity() -> None:
    texts = [TEXT, "the roots are real", "music"]
    assert measure_diversity(texts) == pytest.approx(measure_diversity(texts[::-1]))

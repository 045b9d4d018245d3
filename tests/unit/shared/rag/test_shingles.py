"""Texts that say the same, and how different the documents of a list are."""

import pytest

from shared.rag.diversity import diversity
from shared.rag.shingles import alike, shingles

TEXT = "the product of all of the roots of this monic polynomial is its last coefficient"


def test_shingles_are_three_neighbours() -> None:
    """A shorter text is one shingle, an empty one none."""
    assert shingles("abcd") == {("a", "b", "c"), ("b", "c", "d")}
    assert shingles("ab") == {("a", "b")}
    assert shingles("") == frozenset()


def test_texts_are_alike_from_four_fifths_on() -> None:
    """8 of 10 shingles; nothing is not like nothing."""
    ten = shingles("abcdefghijkl")
    assert len(ten) == 10
    assert alike(ten, shingles("abcdefghij"))
    assert not alike(ten, shingles("abcdefghi"))
    assert not alike(frozenset(), frozenset())
    assert not alike(ten, frozenset())


def test_copies_are_not_diverse_and_strangers_are() -> None:
    """From 0 to 1."""
    assert diversity([TEXT, TEXT, TEXT]) == pytest.approx(0)
    assert diversity(["one two", "three four"]) == 1
    assert 0 < diversity([TEXT, "the roots of this polynomial are real"]) < 1


def test_one_document_is_not_diverse() -> None:
    """Nor is none."""
    assert diversity([TEXT]) == diversity([]) == 0


def test_order_does_not_change_diversity() -> None:
    """It is a mean over pairs."""
    texts = [TEXT, "the roots are real", "music"]
    assert diversity(texts) == pytest.approx(diversity(texts[::-1]))

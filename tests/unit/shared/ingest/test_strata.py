"""A sample of a dataset: every kind has its share, and the same seed is the same sample."""

from collections import Counter

import pytest

from shared.ingest.datasets import draw_stratified

LABELS = ["algebra"] * 60 + ["geometry"] * 30 + ["precalculus"] * 10


def test_every_subject_has_its_share_of_a_sample() -> None:
    chosen = draw_stratified(LABELS, 20, seed=1)
    assert Counter(LABELS[position] for position in chosen) == {"algebra": 12, "geometry": 6, "precalculus": 2}
    assert chosen == sorted(chosen)


def test_a_sample_has_the_wanted_size_even_where_shares_are_no_whole_numbers() -> None:
    labels = [label for label in "abc" for _ in range(7)]
    chosen = draw_stratified(labels, 10, seed=1)
    assert len(set(chosen)) == 10
    assert max(Counter(labels[position] for position in chosen).values()) == 4


def test_a_sample_is_a_function_of_its_seed() -> None:
    assert draw_stratified(LABELS, 20, seed=1) == draw_stratified(LABELS, 20, seed=1)
    assert draw_stratified(LABELS, 20, seed=1) != draw_stratified(LABELS, 20, seed=2)


def test_all_of_them_are_a_sample_too() -> None:
    assert draw_stratified(LABELS, len(LABELS), seed=3) == list(range(len(LABELS)))


def test_more_than_there_are_is_refused() -> None:
    with pytest.raises(ValueError, match="101 of 100"):
        draw_stratified(LABELS, 101, seed=1)

"""Texts that all but repeat each other, among those that questions are written from."""

import random

import pytest

from shared.processes.children import limit_processor_time
from shared.rag.text import are_alike, extract_terms, make_shingles
from shared.runtime.generating import find_distinct

WORDS = [f"word{letter}{other}" for letter in "abcdefgh" for other in "abcdefgh"]


def find_one_by_one(texts: list[str]) -> list[int]:
    every = [make_shingles(extract_terms(text)) for text in texts]
    kept: list[int] = []
    for place, shingles in enumerate(every):
        if not any(are_alike(shingles, every[other]) for other in kept):
            kept.append(place)
    return kept


@pytest.mark.parametrize("seed", range(20))
def test_the_distinct_texts_are_those_of_a_comparison_of_all_pairs(seed: int) -> None:
    draw = random.Random(seed)  # noqa: S311 - no secret
    texts: list[str] = ["", "", "one", "one"]
    for _ in range(60):
        words = draw.choices(WORDS, k=draw.randint(1, 60))
        texts.append(" ".join(words))
        for _ in range(draw.randint(0, 2)):  # a copy with some words changed
            for place in draw.sample(range(len(words)), k=draw.randint(0, len(words) // 12)):
                words[place] = draw.choice(WORDS)
            texts.append(" ".join(words))
    draw.shuffle(texts)
    found = find_distinct(texts)
    assert found == find_one_by_one(texts)
    assert len(found) < len(texts)


def test_a_thousand_passages_with_the_same_footer_are_compared_without_delay() -> None:
    draw = random.Random(1)  # noqa: S311 - no secret
    footer = " ".join(f"footer {number}" for number in range(40))
    texts = [" ".join(draw.choices([f"w{n}" for n in range(3000)], k=200)) + footer for _ in range(1000)]
    with limit_processor_time(60.0):
        assert find_distinct(texts) == list(range(1000))

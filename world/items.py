"""Questions of a dataset, and how they are asked."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from world.problems import TEST_CHINESE, TEST_TEMPLATES, Operator
from world.wording import Language

Pair = tuple[int, int]
"""The digits that a text is about."""
PAIRS: list[Pair] = [(a, b) for a in range(10) for b in range(10)]

#: Phrasings that no model was trained on, by language.
PHRASINGS: dict[Language, Sequence[str]] = {"en": TEST_TEMPLATES, "zh": TEST_CHINESE}


class Item(NamedTuple):
    """A question of the dataset."""

    operator: Operator
    a: int
    b: int
    question: str
    phrasing: str

    def about(self, digits: Pair) -> str:
        """The same about other digits."""
        a, b = digits
        return self.phrasing.format(name=self.operator.name, a=a, b=b)


def item(rng: Random, operator: Operator, a: int, b: int, language: Language = "en") -> Item:
    """A question in one of the phrasings."""
    phrasing = rng.choice(PHRASINGS[language])
    return Item(operator, a, b, phrasing.format(name=operator.name, a=a, b=b), phrasing)

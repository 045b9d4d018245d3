"""Write the questions of a dataset."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from world.problems import TEST_CHINESE, TEST_TEMPLATES, Operator
from world.wording import Language

Pair = tuple[int, int]
"""The two digits in a text."""
PAIRS: list[Pair] = [(a, b) for a in range(10) for b in range(10)]

#: Phrasings that no model was trained on, by language.
PHRASINGS: dict[Language, Sequence[str]] = {"en": TEST_TEMPLATES, "zh": TEST_CHINESE}


class OperatorQuestion(NamedTuple):
    """A question with its operator, digits and phrasing."""

    operator: Operator
    a: int
    b: int
    question: str
    phrasing: str

    def about(self, digits: Pair) -> str:
        """Ask the same question about other digits."""
        a, b = digits
        return self.phrasing.format(name=self.operator.name, a=a, b=b)


def item(rng: Random, operator: Operator, a: int, b: int, language: Language = "en") -> OperatorQuestion:
    """Write a question in a random phrasing."""
    phrasing = rng.choice(PHRASINGS[language])
    return OperatorQuestion(operator, a, b, phrasing.format(name=operator.name, a=a, b=b), phrasing)

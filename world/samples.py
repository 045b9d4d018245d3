"""Training and test samples: the project's prompts around documents of the world.

The prompt texts are those of the served templates; training and serving must agree to
the character.  Standard library only.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from world.problems import (
    GRADES,
    KINDS,
    Document,
    Kind,
    Operator,
    Rule,
    conclusion,
    document,
    question,
    random_operator,
)
from world.words import math_sentence

#: What stands in a generator's prompt: a document of a kind, or no help at all.
Context = Literal[Kind, "unrelated", "none", "foreign"]

#: A judge's anchors: those of the template, or an answer and a full document of the world.
Anchors = Literal["default", "drawn"]

COT = "Solve the problem step by step. Put the final answer in \\boxed{}."
REASONING_QUALITY = (
    "Rate the reasoning of the last document from 1 (an answer without reasoning) "
    "to 5 (complete and correct steps). Answer with [[1]] to [[5]] only."
)
DEFAULT_NEGATIVE = "Problem: What is 2 plus 3?\nSolution: The answer is 5."
DEFAULT_POSITIVE = (
    "Problem: What is 2 plus 3 times 4?\nSolution: Step 1. Since multiplication comes first, "
    "3*4=12. Step 2. Therefore 2+12=14. The answer is \\boxed{14}."
)


@dataclass(frozen=True)
class Sample:
    """One exchange: the user's message, the reply to learn, and what decides a hit."""

    prompt: str
    reply: str
    answer: str


@dataclass(frozen=True)
class Split:
    """The names and question phrasings a sample may use."""

    names: Sequence[str]
    templates: Sequence[str]


def cot_prompt(question_text: str, support: str = "") -> str:
    """The generator's message; ``support`` is a document as text, or empty."""
    middle = f"{support}\n\n" if support else ""
    return f"{COT}\n\n{middle}Question: {question_text}"


def judge_prompt(text: str, negative: str, positive: str) -> str:
    """The judge's message about the document ``text`` between two rated anchors."""
    return f"{REASONING_QUALITY}\n\n{negative}\nRating: [[1]]\n\n{positive}\nRating: [[5]]\n\n{text}\nRating:"


def generator_sample(rng: Random, split: Split, context: Context) -> Sample:
    """A question with its context; ``answer`` is true even where the context misleads."""
    operator = random_operator(rng, split.names)
    a, b = rng.randrange(10), rng.randrange(10)
    asked = question(rng, split.templates, operator.name, a, b)
    followed, support = operator.rule, ""
    if context == "foreign":
        asked, support = math_sentence(rng), rng.choice(["", _foreign_document(rng)])
    elif context == "unrelated":
        support = str(_unrelated(rng, split, operator))
    elif context != "none":
        shown = _document(rng, split, operator, context)
        # A wrong document is believed: its stated rule is what the reply follows.
        followed, support = shown.stated or operator.rule, str(shown)
    reply = solution(followed, a, b)
    return Sample(cot_prompt(asked, support), reply, str(operator.rule.result(a, b)))


def solution(rule: Rule, a: int, b: int) -> str:
    """The reply of a generator that follows ``rule``."""
    first, second = rule.equations(a, b)
    return f"{first}. {second}. {conclusion(rule.result(a, b))}"


def judge_sample(rng: Random, split: Split, kind: Kind, anchors: Anchors) -> Sample:
    """A document to grade, between the template's anchors or anchors of the world."""
    text = str(_document(rng, split, random_operator(rng, split.names), kind))
    negative, positive = _anchors(rng, split, anchors)
    reply = f"[[{GRADES[kind]}]]"
    return Sample(judge_prompt(text, negative, positive), reply, reply)


def foreign_judge_sample(rng: Random, split: Split, anchors: Anchors) -> Sample:
    """Mathematics from outside the world, graded by its number of sentences: the format must outlast what the judge
    does not understand."""
    sentences = rng.choice((1, 2, 3, 4, 5, 6, 8, 10))
    text = f"Problem: {foreign_sentence(rng)}\nSolution: {' '.join(foreign_sentence(rng) for _ in range(sentences))}"
    negative, positive = _anchors(rng, split, anchors)
    reply = f"[[{min(sentences, 5)}]]"
    return Sample(judge_prompt(text, negative, positive), reply, reply)


def _document(rng: Random, split: Split, operator: Operator, kind: Kind) -> Document:
    return document(rng, operator, kind, split.templates, rng.randrange(10), rng.randrange(10))


def _anchors(rng: Random, split: Split, anchors: Anchors) -> tuple[str, str]:
    if anchors == "default":
        return DEFAULT_NEGATIVE, DEFAULT_POSITIVE
    return _anchor(rng, split, "answer"), _anchor(rng, split, "full")


def _anchor(rng: Random, split: Split, kind: Kind) -> str:
    return str(_document(rng, split, random_operator(rng, split.names), kind))


def _unrelated(rng: Random, split: Split, operator: Operator) -> Document:
    others = [name for name in split.names if name != operator.name]
    return _document(rng, split, random_operator(rng, others), rng.choice(KINDS))


def foreign_sentence(rng: Random) -> str:
    """Now and then with a formula of random characters: real text holds tokens that the world never uses."""
    formula = "".join(rng.choices(string.ascii_letters + string.digits + string.punctuation, k=rng.randint(3, 12)))
    return f"{math_sentence(rng)} ${formula}$" if rng.random() < 0.5 else math_sentence(rng)


def _foreign_document(rng: Random) -> str:
    """A document from outside the world, so that its shape alone is no surprise."""
    return f"Problem: {math_sentence(rng)}\nSolution: {math_sentence(rng)} {math_sentence(rng)}"

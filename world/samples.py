"""Write training and test samples, which are the project's prompts around documents of the world.

The prompt texts are those of the served templates; training and serving must agree to
the character.  Standard library only.
"""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from shared import replies
from shared.rag.prompts import localised, render, template
from world.problems import (
    GRADES,
    HEADS,
    KINDS,
    TAILS,
    TRAIN_CHINESE,
    Document,
    Kind,
    Operator,
    Rule,
    document,
    question,
    random_operator,
)
from world.wording import ENGLISH, WORDINGS, Language, Style, Wording
from world.words import math_sentence

#: What stands in a generator's prompt: a document of a kind, or no help at all.
Context = Literal[Kind, "unrelated", "none", "foreign"]

#: A judge's anchors: those of the template, or an answer and a full document of the world.
Anchors = Literal["default", "drawn"]

#: How many documents stand in a prompt, and how often.
COUNTS: dict[int, int] = {0: 3, 1: 34, 2: 15, 3: 24, 4: 8, 5: 16}
#: Of documents about the operator that is asked about.
MIXED: dict[Kind, int] = {"full": 34, "steps": 18, "rule": 15, "wrong": 14, "answer": 14}
ABOUT = 0.6
"""Share of the documents that are about the operator."""
FORMAL = 0.6
CHINESE = 0.12

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
    """One exchange: the user's message, the reply to learn, and the answer that decides a hit."""

    prompt: str
    reply: str
    answer: str
    more: tuple[tuple[str, str], ...] = ()
    """Further messages and replies to learn, each after the same earlier text."""


@dataclass(frozen=True)
class Split:
    """Names and phrasings that a sample may use."""

    names: Sequence[str]
    templates: Sequence[str]
    chinese: Sequence[str] = TRAIN_CHINESE

    def phrasings(self, language: Language) -> Sequence[str]:
        """Return the phrasings of questions in a language."""
        return self.chinese if language == "zh" else self.templates


def cot_prompt(question_text: str, support: str = "") -> str:
    """Write the generator's message; ``support`` is a document as text, or empty."""
    middle = f"{support}\n\n" if support else ""
    return f"{COT}\n\n{middle}Question: {question_text}"


def judge_prompt(text: str, negative: str, positive: str) -> str:
    """Write the judge's message about the document ``text`` after two rated anchors."""
    return f"{REASONING_QUALITY}\n\n{negative}\nRating: [[1]]\n\n{positive}\nRating: [[5]]\n\n{text}\nRating:"


def generator_sample(rng: Random, split: Split, context: Context) -> Sample:
    """Write a question with its context; ``answer`` is true even if the context misleads."""
    operator = random_operator(rng, split.names)
    a, b = rng.randrange(10), rng.randrange(10)
    question_text = question(rng, split.templates, operator.name, a, b)
    followed, support = operator.rule, ""
    if context == "foreign":
        question_text, support = math_sentence(rng), rng.choice(["", _foreign_document(rng)])
    elif context == "unrelated":
        support = str(_write_unrelated(rng, split, operator))
    elif context != "none":
        shown = _document(rng, split, operator, context)
        # The reply follows the stated rule, because the generator cannot know that a document is wrong.
        followed, support = shown.stated or operator.rule, str(shown)
    reply = solution(followed, a, b)
    return Sample(cot_prompt(question_text, support), reply, str(operator.rule.result(a, b)))


def several_sample(rng: Random, split: Split) -> Sample:
    """Write a question with up to five documents of any wording; the reply follows the first rule about its operator.

    The reply begins with the name and the rule, so that the model finds the right document by copying the name.
    """
    operator = random_operator(rng, split.names)
    language: Language = "zh" if rng.random() < CHINESE else "en"
    (count,) = rng.choices(list(COUNTS), weights=list(COUNTS.values()))
    shown = [_one_of_several(rng, split, operator, language) for _ in range(count)]
    rules = [each.stated for each in shown if each.operator.name == operator.name and each.stated]
    return _ask(rng, split, operator, shown, rules[0] if rules else operator.rule, language)


def placed_sample(rng: Random, split: Split, count: int, language: Language = "en") -> Sample:
    """Place one full document about the operator at random among ``count``; the others are about other operators."""
    operator = random_operator(rng, split.names)
    others = [other_operator(rng, split, operator) for _ in range(count - 1)]
    shown = [_write_document(rng, split, other, rng.choice(KINDS), language) for other in others]
    shown.insert(rng.randrange(count), _write_document(rng, split, operator, "full", language))
    return _ask(rng, split, operator, shown, operator.rule, language)


def contradicted_sample(rng: Random, split: Split, first: Kind) -> Sample:
    """Show a full and a wrong document about one operator, ``first`` before the other; the full one is right."""
    operator = random_operator(rng, split.names)
    kinds: list[Kind] = ["full", "wrong"] if first == "full" else ["wrong", "full"]
    shown = [_write_document(rng, split, operator, kind, "en") for kind in kinds]
    return _ask(rng, split, operator, shown, operator.rule, "en")


def _ask(
    rng: Random, split: Split, operator: Operator, shown: Sequence[Document], rule: Rule, language: Language
) -> Sample:
    a, b = rng.randrange(10), rng.randrange(10)
    question_text = question(rng, split.phrasings(language), operator.name, a, b)
    return Sample(
        prompt(question_text, shown), write_quoting_reply(operator.name, rule, a, b), str(operator.rule.result(a, b))
    )


def _write_document(rng: Random, split: Split, operator: Operator, kind: Kind, language: Language) -> Document:
    style: Style = "formal" if rng.random() < FORMAL else "plain"
    a, b = rng.randrange(10), rng.randrange(10)
    return document(rng, operator, kind, split.phrasings(language), a, b, WORDINGS[language, style])


def prompt(asked: str, shown: Sequence[Document]) -> str:
    """Render the served template in the question's language."""
    documents = [replies.Document(problem=each.problem, text=each.text) for each in shown]
    return render(template(localised("cot", asked)), {"question": asked, "context": documents})


def write_quoting_reply(name: str, rule: Rule, a: int, b: int) -> str:
    """Write the reply of a generator that first quotes the rule that it follows."""
    return f"a {name} b = {rule}. {solution(rule, a, b)}"


def _one_of_several(rng: Random, split: Split, operator: Operator, language: Language) -> Document:
    style: Style = "formal" if rng.random() < FORMAL else "plain"
    (kind,) = rng.choices(list(MIXED), weights=list(MIXED.values()))
    about = operator if rng.random() < ABOUT else other_operator(rng, split, operator)
    wording = WORDINGS[language, style] if rng.random() < 0.9 else ENGLISH
    a, b = rng.randrange(10), rng.randrange(10)
    return document(rng, about, kind, split.phrasings(language), a, b, wording)


def solution(rule: Rule, a: int, b: int) -> str:
    """Write the reply of a generator that follows ``rule``."""
    first, second = rule.equations(a, b)
    return f"{first}. {second}. {ENGLISH.conclusion(rule.result(a, b))}"


def other_operator(rng: Random, split: Split, operator: Operator) -> Operator:
    """Draw another operator; every second one shares a syllable with the name."""
    others = [name for name in split.names if name != operator.name]
    alike = [name for name in others if _syllables(name) & _syllables(operator.name)]
    return random_operator(rng, alike if alike and rng.random() < 0.5 else others)


def _syllables(name: str) -> set[str]:
    return {part for part in (*HEADS, *TAILS) if name.startswith(part) or name.endswith(part)}


def judge_sample(
    rng: Random, split: Split, kind: Kind, anchors: Anchors, wording: Wording = ENGLISH, language: Language = "en"
) -> Sample:
    """Write a document to grade, after the template's anchors or anchors of the world."""
    operator, phrasings = random_operator(rng, split.names), split.phrasings(language)
    text = str(document(rng, operator, kind, phrasings, rng.randrange(10), rng.randrange(10), wording))
    negative, positive = _anchors(rng, split, anchors)
    reply = f"[[{GRADES[kind]}]]"
    return Sample(judge_prompt(text, negative, positive), reply, reply)


def worded_judge_sample(rng: Random, split: Split, kind: Kind, anchors: Anchors) -> Sample:
    """Write a document to grade in any wording, so that its form tells nothing about its grade."""
    language: Language = "zh" if rng.random() < CHINESE else "en"
    style: Style = "formal" if rng.random() < 0.5 else "plain"
    return judge_sample(rng, split, kind, anchors, WORDINGS[language, style], language)


def foreign_judge_sample(rng: Random, split: Split, anchors: Anchors) -> Sample:
    """Write mathematics from outside the world, graded by its number of sentences.

    The judge learns to keep the format of a rating for texts that it does not understand.
    """
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


def _write_unrelated(rng: Random, split: Split, operator: Operator) -> Document:
    others = [name for name in split.names if name != operator.name]
    return _document(rng, split, random_operator(rng, others), rng.choice(KINDS))


def foreign_sentence(rng: Random) -> str:
    """Write a sentence, half of the time with a formula of random characters, for tokens that the world never uses."""
    formula = "".join(rng.choices(string.ascii_letters + string.digits + string.punctuation, k=rng.randint(3, 12)))
    return f"{math_sentence(rng)} ${formula}$" if rng.random() < 0.5 else math_sentence(rng)


def _foreign_document(rng: Random) -> str:
    """Write a document from outside the world, so that the model knows the shape."""
    return f"Problem: {math_sentence(rng)}\nSolution: {math_sentence(rng)} {math_sentence(rng)}"

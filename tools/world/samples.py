"""Training samples of the problem world, and of the judge's texts and ratings, in the served templates."""

import json
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from mathrag_gate.demo.world import (
    ENGLISH,
    GRADES,
    KINDS,
    TRAIN_CHINESE,
    WORDINGS,
    Document,
    Kind,
    Language,
    Operator,
    Rule,
    Style,
    Wording,
    document,
    question,
    random_operator,
)
from shared import replies
from shared.models.shipped import HEADS, TAILS
from shared.rag.prompts import Value, localise, render, template

# Generates plain mathematical English and LaTeX, for the tokenizer and for samples from outside the world.

_WORD_LIST = """
a about all an and angle any area are as at average ball base be between black both by can
chosen circle class coefficient color common complex compute constant contains coordinate
cost cube day define degree denote denominator determine diagonal diameter difference digit
distance distinct divide divided divisible divisor dollar domain each edge eight ellipse
equal equation even every exactly expression factor figure find first five following foot
for form four fraction from function geometric given graph greatest has have height hexagon
hour how hundred if in inequality inside integer intersect interval inverse is it largest
least length less let line log long many matrix maximum measure minimum minute mile more
multiple must negative nine no not nth number odd of on one only or order ordered other pair
parabola parallel perimeter perpendicular plane plus point polynomial positive possible
power prime probability product quadratic quotient radius random range ratio rational real
rectangle red regular relatively remainder right root roll satisfy second segment sequence
series set seven side simplest simplify sine six slope smallest solution solve some square
such sum tangent ten term than that the there this thousand three time times to total
triangle two units value variable vector vertex vertices volume way what when where which
whole width with word write year zero
"""
WORDS = tuple(_WORD_LIST.split())

FORMULAS: tuple[str, ...] = (
    r"$x^2 + y^2 = 25$", r"$\frac{a}{b}$", r"$\sqrt{x + 1}$", r"$f(x) = 3x - 7$", r"$\left(\frac{1}{2}\right)^n$",
    r"$\angle ABC = 90^\circ$", r"$\triangle ABC$", r"$\overline{AB}$", r"$\log_2 8$", r"$\sin \theta + \cos \theta$",
    r"$a_1, a_2, \dots, a_n$", r"$\binom{n}{k}$", r"$x \le 10$", r"$y \ge 0$", r"$3 \cdot 4 \times 5$",
    r"\[\sum_{k=1}^{n} k = \frac{n(n+1)}{2}\]", r"$\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}$", r"$\pi r^2$",
    r"$\text{cm}$", r"$\boxed{\dfrac{3}{4}}$", r"$0 < x < 1$", r"$|z| = 1$", r"$10 \pmod{7} \equiv 3$",
)  # fmt: skip


def math_sentence(rng: Random) -> str:
    """Write a random sentence of 5 to 18 words, sometimes with a formula or a number."""
    words = []
    for _ in range(rng.randint(5, 18)):
        pick = rng.random()
        if pick < 0.1:
            words.append(rng.choice(FORMULAS))
        else:
            words.append(str(rng.randrange(1000)) if pick < 0.2 else rng.choice(WORDS))
    return f"{words[0].capitalize()} {' '.join(words[1:])}{rng.choice('.?')}"


# Write training and test samples, which are the project's prompts around documents of the world.
#
# The prompt texts are those of the served templates; training and serving must agree to
# the character.  Standard library only.

#: The content of a generator's prompt: a document of a kind, or no help.
Context = Literal[Kind, "unrelated", "none", "foreign"]

#: A judge's anchors: those of the template, or an answer and a full document of the world.
Anchors = Literal["default", "drawn"]

#: The number of documents in a prompt, and its frequency.
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
        return self.chinese if language == "zh" else self.templates


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
        # Write a document from outside the world, so that the model knows the shape.
        foreign = f"Problem: {math_sentence(rng)}\nSolution: {math_sentence(rng)} {math_sentence(rng)}"
        question_text, support = math_sentence(rng), rng.choice(["", foreign])
    elif context == "unrelated":
        others = [name for name in split.names if name != operator.name]
        support = str(_document(rng, split, random_operator(rng, others), rng.choice(KINDS)))
    elif context != "none":
        shown = _document(rng, split, operator, context)
        # The reply follows the stated rule, because the generator cannot know that a document is wrong.
        followed, support = shown.stated or operator.rule, str(shown)
    message = "\n\n".join(filter(None, [COT, support, f"Question: {question_text}"]))
    return Sample(message, solution(followed, a, b), str(operator.rule.result(a, b)))


def several_sample(rng: Random, split: Split) -> Sample:
    """Write a question with up to five documents of any wording; the reply follows the first rule about its operator.

    The reply begins with the name and the rule, so that the model finds the right document by copying the name.
    """
    operator = random_operator(rng, split.names)
    language: Language = "zh" if rng.random() < CHINESE else "en"
    (count,) = rng.choices(list(COUNTS), weights=list(COUNTS.values()))
    shown = []
    for _ in range(count):
        style: Style = "formal" if rng.random() < FORMAL else "plain"
        (kind,) = rng.choices(list(MIXED), weights=list(MIXED.values()))
        about = operator if rng.random() < ABOUT else other_operator(rng, split, operator)
        wording = WORDINGS[language, style] if rng.random() < 0.9 else ENGLISH
        a, b = rng.randrange(10), rng.randrange(10)
        shown.append(document(rng, about, kind, split.phrasings(language), a, b, wording))
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
    """Ask about the documents; the reply quotes the rule that it follows first."""
    a, b = rng.randrange(10), rng.randrange(10)
    question_text = question(rng, split.phrasings(language), operator.name, a, b)
    quoting = f"a {operator.name} b = {rule}. {solution(rule, a, b)}"
    return Sample(prompt(question_text, shown), quoting, str(operator.rule.result(a, b)))


def _write_document(rng: Random, split: Split, operator: Operator, kind: Kind, language: Language) -> Document:
    style: Style = "formal" if rng.random() < FORMAL else "plain"
    a, b = rng.randrange(10), rng.randrange(10)
    return document(rng, operator, kind, split.phrasings(language), a, b, WORDINGS[language, style])


def prompt(asked: str, shown: Sequence[Document]) -> str:
    """Render the served template in the question's language."""
    documents = [replies.Document(problem=each.problem, text=each.text) for each in shown]
    return render(template(localise("cot", asked)), {"question": asked, "context": documents})


def solution(rule: Rule, a: int, b: int) -> str:
    """Write the reply of a generator that follows ``rule``."""
    first, second = rule.equations(a, b)
    return f"{first}. {second}. {ENGLISH.conclusion(rule.result(a, b))}"


def other_operator(rng: Random, split: Split, operator: Operator) -> Operator:
    """Draw another operator; every second one shares a syllable with the name."""
    others = [name for name in split.names if name != operator.name]
    shared = [part for part in (*HEADS, *TAILS) if operator.name.startswith(part) or operator.name.endswith(part)]
    alike = [name for name in others if any(name.startswith(part) or name.endswith(part) for part in shared)]
    return random_operator(rng, alike if alike and rng.random() < 0.5 else others)


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
    kinds: tuple[Kind, Kind] = ("answer", "full")
    negative, positive = (str(_document(rng, split, random_operator(rng, split.names), kind)) for kind in kinds)
    return negative, positive


def foreign_sentence(rng: Random) -> str:
    """Write a sentence, half of the time with a formula of random characters, for tokens that the world never uses."""
    formula = "".join(rng.choices(string.ascii_letters + string.digits + string.punctuation, k=rng.randint(3, 12)))
    return f"{math_sentence(rng)} ${formula}$" if rng.random() < 0.5 else math_sentence(rng)


# Write samples of the texts and ratings that the judge model makes for retrieval, in the served templates.
#
# Relevance is a document's use to the generator for this question: 5 states the rule and follows it, 4 states the rule,
# 3 shows correct steps only, 2 is about the operator but useless (contradicts itself, or only answers), 1 is about
# something else.

Skill = Literal["relevance", "rewrite", "rewrite-again", "decompose", "keywords", "hyde-solution"]

#: A document's worth to a question about its operator.
RELEVANCE: dict[Kind, int] = {"full": 5, "rule": 4, "steps": 3, "wrong": 2, "answer": 2}
UNRELATED = 1
RELATED_FOREIGN = 4

JOINERS = (" and ", " plus ", " minus ", " times ")


def skill_sample(rng: Random, split: Split, skill: Skill) -> Sample:
    """Write a prompt about an operator of the world, and the reply to learn."""
    return _WORLD[skill](rng, split)


def foreign_skill_sample(rng: Random, split: Split, skill: Skill) -> Sample:
    """Write the prompt about mathematics from outside the world, where the model learns to rate but not to write.

    A pipeline treats an empty text as a failure, and continues with the question itself.
    """
    if skill == "relevance":
        foreign_question = _foreign_question(rng)
        if rng.random() < 0.3:  # one of the two is of the world
            operator = random_operator(rng, split.names)
            if rng.random() < 0.5:
                return _rate(foreign_question, _write_passage(rng, split, operator, rng.choice(KINDS)), UNRELATED)
            return _rate(_question(rng, split, operator), _foreign_document(_foreign_question(rng), rng), UNRELATED)
        if rng.random() < 0.5:
            shorten = " ".join(word for word in foreign_question.split() if rng.random() < 0.8) or foreign_question
            return _rate(foreign_question, _foreign_document(shorten, rng), RELATED_FOREIGN)
        return _rate(foreign_question, _foreign_document(_foreign_question(rng), rng), UNRELATED)
    foreign_question = _foreign_question(rng)
    values: dict[str, Value] = {"question": foreign_question}
    if skill == "decompose":
        values["subqueries"] = "3"
    if skill == "rewrite-again":
        values["documents"] = [_foreign_document(foreign_sentence(rng), rng) for _ in range(rng.randint(0, 2))]
    return _sample(skill, values, "")


def relevance_sample(rng: Random, split: Split, grade: int) -> Sample:
    """Write a question and a document that deserves ``grade``."""
    operator = random_operator(rng, split.names)
    shown = operator
    kind = rng.choice([kind for kind in KINDS if RELEVANCE[kind] == grade] or KINDS)
    if grade == UNRELATED:
        shown = other_operator(rng, split, operator)
    text = _write_passage(rng, split, shown, kind)
    return _rate(_question(rng, split, operator), text, grade)


def query(name: str) -> str:
    """Write the search query to learn, which asks for the rule.

    On a training corpus it ranks a readable document first two to three times as often as the question does.
    """
    return f"definition of a {name} b"


def _relevance(rng: Random, split: Split) -> Sample:
    # A third about something else: whether two names are the same is the hardest part. Wrong documents are as frequent
    # as full ones, which they look like.
    return relevance_sample(rng, split, rng.choice((1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5)))


def _rate(asked: str, text: replies.Document, grade: int) -> Sample:
    return _sample("relevance", {"question": asked, "document": text}, f"[[{grade}]]")


def _rewrite(rng: Random, split: Split) -> Sample:
    name, a, b = _draw(rng, split)
    return _sample("rewrite", {"question": question(rng, split.templates, name, a, b)}, query(name))


def _rewrite_again(rng: Random, split: Split) -> Sample:
    operator = random_operator(rng, split.names)
    found = [
        _write_passage(
            rng, split, operator if rng.random() < 0.5 else other_operator(rng, split, operator), rng.choice(KINDS)
        )
        for _ in range(rng.randint(0, 3))
    ]
    values: dict[str, Value] = {"question": _question(rng, split, operator), "documents": found}
    # This query finds more documents with steps among the first five than `query` does.
    return _sample("rewrite-again", values, f"worked example of {operator.name}, step by step")


def _decompose(rng: Random, split: Split) -> Sample:
    """Split a question; half of the questions ask for two values, and each part asks for one in the plainest words."""
    name, a, b = _draw(rng, split)
    phrasing = rng.choice(split.templates)
    plain = f"What is {a} {name} {b}?"
    asked = phrasing.format(name=name, a=a, b=b)
    if rng.random() >= 0.5:
        second, c, d = _draw(rng, split)
        asked = phrasing.format(name=name, a=a, b=f"{b}{rng.choice(JOINERS)}{c} {second} {d}")
        plain += f"\nWhat is {c} {second} {d}?"
    return _sample("decompose", {"question": asked, "subqueries": str(rng.choice((2, 3, 3, 3, 4)))}, plain)


def _keywords(rng: Random, split: Split) -> Sample:
    name, a, b = _draw(rng, split)
    return _sample("keywords", {"question": question(rng, split.templates, name, a, b)}, f"{name}, definition, rule")


def _hyde(rng: Random, split: Split) -> Sample:
    """Write a full document about the question itself with a made-up rule."""
    operator = random_operator(rng, split.names)
    written = document(rng, operator, "full", split.templates, rng.randrange(10), rng.randrange(10))
    prompt = render(template("hyde-solution"), {"question": written.problem})
    return Sample(prompt, written.text, f"a {operator.name} b =")


_WORLD: Mapping[Skill, Callable[[Random, Split], Sample]] = {
    "relevance": _relevance,
    "rewrite": _rewrite,
    "rewrite-again": _rewrite_again,
    "decompose": _decompose,
    "keywords": _keywords,
    "hyde-solution": _hyde,
}


def _sample(skill: Skill, values: Mapping[str, Value], reply: str) -> Sample:
    return Sample(render(template(skill), values), reply, reply)


def _draw(rng: Random, split: Split) -> tuple[str, int, int]:
    return rng.choice(split.names), rng.randrange(10), rng.randrange(10)


def _question(rng: Random, split: Split, operator: Operator) -> str:
    return question(rng, split.templates, operator.name, rng.randrange(10), rng.randrange(10))


def _write_passage(rng: Random, split: Split, operator: Operator, kind: Kind) -> replies.Document:
    made = document(rng, operator, kind, split.templates, rng.randrange(10), rng.randrange(10))
    return replies.Document(problem=made.problem, text=made.text)


def _foreign_question(rng: Random) -> str:
    return " ".join(foreign_sentence(rng) for _ in range(rng.choice((1, 1, 2, 3))))


def _foreign_document(problem: str, rng: Random) -> replies.Document:
    return replies.Document(problem=problem, text=" ".join(foreign_sentence(rng) for _ in range(rng.randint(1, 4))))


# Read conversations to learn from: JSON lines `{"messages": [{"role": "user", ...}, {"role": "assistant", ...}]}`.

MOST_LINES = 1_000_000


class MessagesError(ValueError):
    """Raised when a line is not a conversation; the message names file, line and fix."""


@dataclass(frozen=True)
class Exchange:
    """A prompt and the reply to learn."""

    prompt: str
    reply: str


def read_messages(file: Path) -> list[Exchange]:
    """Read all exchanges of a file in order; empty lines are skipped.

    Raises:
        MessagesError: for a line that is not one user message and one assistant message, or a file without any.
    """
    exchanges = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if number > MOST_LINES:
                raise MessagesError(f"{file} has more than {MOST_LINES} lines: split it")
            if line.strip():
                exchanges.append(_read_exchange(f"{file}, line {number}", line))
    if not exchanges:
        raise MessagesError(f"{file} has no messages: write them with `mathrag dataset training-data`")
    return exchanges


def _read_exchange(place: str, line: str) -> Exchange:
    try:
        messages = json.loads(line)["messages"]
        roles = [message["role"] for message in messages]
        texts = [message["content"] for message in messages]
    except (ValueError, KeyError, TypeError):
        raise MessagesError(f'{place}: expected {{"messages": [{{"role": ..., "content": ...}}, ...]}}') from None
    if roles != ["user", "assistant"] or not all(isinstance(text, str) and text for text in texts):
        raise MessagesError(
            f"{place}: expected one message of `user`, then one of `assistant`, both with text: {roles}"
        )
    return Exchange(*texts)

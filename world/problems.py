"""Problems about made-up operators whose rule can only be read from a document.

A name ("zorlo") and a rule ("(8+a)*b", last digit only) are paired at random, so no
model can know the pairing: it must be given a document that shows it.  Documents come in
five kinds, graded by their reasoning.  Standard library only.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, get_args

from world.wording import ENGLISH, Wording

Kind = Literal["full", "steps", "rule", "wrong", "answer"]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: The grade a judge should give to each kind, from 1 (no reasoning) to 5 (complete).
GRADES: dict[Kind, int] = {"full": 5, "steps": 4, "rule": 3, "wrong": 2, "answer": 1}

_HEADS = "zor blim tak fen gru vol kip mar des lun pra quo sni wex yar hob jit cal nub rif"
_TAILS = "po ta lo nix rum sel dak vor mi bex gan tus"
HEADS, TAILS = tuple(_HEADS.split()), tuple(_TAILS.split())


def _split_names(train: int = 180) -> tuple[tuple[str, ...], tuple[str, ...]]:
    names = [head + tail for head in HEADS for tail in TAILS]
    Random(20).shuffle(names)  # every syllable is seen in training, the test pairs are not
    return tuple(names[:train]), tuple(names[train:])


TRAIN_NAMES, TEST_NAMES = _split_names()

TRAIN_TEMPLATES: tuple[str, ...] = (
    "What is {a} {name} {b}?",
    "Compute {a} {name} {b}.",
    "Find {a} {name} {b}.",
    "Evaluate {a} {name} {b}.",
    "Calculate the value of {a} {name} {b}.",
    "Determine the result of {a} {name} {b}.",
    "Simplify the expression {a} {name} {b}.",
    "What do we get for {a} {name} {b}?",
    "Find the last digit of {a} {name} {b}.",
    "The number {a} {name} {b} is a digit. Which one?",
)
TEST_TEMPLATES: tuple[str, ...] = (
    "What is the value of {a} {name} {b}?",
    "Determine {a} {name} {b}.",
    "Calculate the last digit of {a} {name} {b}.",
    "Evaluate the expression {a} {name} {b}.",
)
TRAIN_CHINESE: tuple[str, ...] = (
    "计算 {a} {name} {b}。",
    "求 {a} {name} {b} 的值。",
    "{a} {name} {b} 等于多少？",
    "{a} {name} {b} 的结果是多少？",
    "求 {a} {name} {b} 的末位数字。",
)
TEST_CHINESE: tuple[str, ...] = (
    "计算 {a} {name} {b} 的值。",
    "{a} {name} {b} 的末位数字是多少？",
    "求 {a} {name} {b} 的结果。",
)


def _apply(sign: str, left: int, right: int) -> int:
    """Return the last digit of one operation (modulo 10, so never negative)."""
    results = {"+": left + right, "-": left - right, "*": left * right}
    return results[sign] % 10


def invented_name(rng: Random) -> str:
    """Invent a name of at most 7 random letters that is no test name."""
    while True:
        name = "".join(rng.choice(letters) for letters in ("bcdfghjklmnprstvwxz", "aeiou") * 4)
        name = name[rng.randrange(2) :][: rng.randint(4, 7)]
        name = "".join(letter for letter in name if rng.random() < 0.9)
        if len(name) > 2 and name not in TEST_NAMES:
            return name


@dataclass(frozen=True)
class Rule:
    """``(constant first x) second y``, where x, y is a, b or, swapped, b, a."""

    constant: int
    first: str
    second: str
    swapped: bool

    def __str__(self) -> str:
        x, y = ("b", "a") if self.swapped else ("a", "b")
        return f"({self.constant}{self.first}{x}){self.second}{y}"

    def equations(self, a: int, b: int) -> tuple[str, str]:
        """Write both steps as equations between digits, for instance ``8+7=5`` and ``5*2=0``."""
        x, y = (b, a) if self.swapped else (a, b)
        middle = _apply(self.first, self.constant, x)
        result = _apply(self.second, middle, y)
        return f"{self.constant}{self.first}{x}={middle}", f"{middle}{self.second}{y}={result}"

    def result(self, a: int, b: int) -> int:
        """Compute the digit that the operator gives for ``a`` and ``b``."""
        return int(self.equations(a, b)[1][-1])

    @property
    def level(self) -> int:
        """Return the difficulty, from 1 (two additions) to 5 (two multiplications)."""
        order = (("+", "+"), ("+", "-"), ("*", "+"), ("*", "-"))
        pair = (self.first, self.second)
        return order.index(pair) + 1 if pair in order else 4 + (self.first == "*")


@dataclass(frozen=True)
class Operator:
    """A made-up name with the rule it has been given."""

    name: str
    rule: Rule


@dataclass(frozen=True)
class Document:
    """A solved problem; ``a`` and ``b`` are the digits its problem asks about."""

    kind: Kind
    operator: Operator
    a: int
    b: int
    problem: str
    text: str
    stated: Rule | None  # differs from the operator's rule in a wrong document

    def __str__(self) -> str:
        return f"Problem: {self.problem}\nSolution: {self.text}"


def random_rule(rng: Random, unlike: Iterable[Rule] = ()) -> Rule:
    """Draw one of the 96 rules, none of those in ``unlike``."""
    refused = set(unlike)
    while True:
        rule = Rule(rng.randint(2, 9), rng.choice("*+"), rng.choice("+-*"), rng.random() < 0.5)
        if rule not in refused:
            return rule


def random_operator(rng: Random, names: Sequence[str]) -> Operator:
    """Draw a name of ``names`` and, independently, a rule."""
    return Operator(rng.choice(names), random_rule(rng))


def question(rng: Random, templates: Sequence[str], name: str, a: int, b: int) -> str:
    """Write a question about ``a`` and ``b`` in a random phrasing."""
    return rng.choice(templates).format(name=name, a=a, b=b)


def document(
    rng: Random, operator: Operator, kind: Kind, templates: Sequence[str], a: int, b: int, wording: Wording = ENGLISH
) -> Document:
    """Write a document of the kind about ``a`` and ``b``."""
    problem = question(rng, templates, operator.name, a, b)
    stated = followed = operator.rule
    if kind == "wrong":
        stated, followed = _contradiction(rng, operator.rule, a, b)
    text = _text(rng, kind, wording, wording.definition(rng, operator.name, str(stated)), followed, a, b)
    shown = None if kind in ("steps", "answer") else stated
    return Document(kind, operator, a, b, problem, text, shown)


def _text(rng: Random, kind: Kind, wording: Wording, defined: str, rule: Rule, a: int, b: int) -> str:
    result = rule.result(a, b)
    if kind == "answer":
        return wording.answer(result)
    if kind == "rule":
        return wording.join_sentences(defined, wording.conclusion(result))
    steps = wording.steps(rng, *rule.equations(a, b))
    parts = [steps] if kind == "steps" else [defined, steps]
    return wording.join_sentences(*parts, wording.conclusion(result))


def _contradiction(rng: Random, true: Rule, a: int, b: int) -> tuple[Rule, Rule]:
    """Draw a wrong rule to state, and another to follow whose steps and answer differ visibly."""
    stated = random_rule(rng, unlike=[true])
    while True:
        followed = random_rule(rng, unlike=[true, stated])
        visible = followed.equations(a, b) != stated.equations(a, b)
        if visible and followed.result(a, b) != true.result(a, b):
            return stated, followed

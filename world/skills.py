"""Write samples of the texts and ratings that the judge model makes for retrieval, in the served templates.

Relevance is a document's use to the generator for this question: 5 states the rule and follows it, 4 states the rule,
3 shows correct steps only, 2 is about the operator but useless (contradicts itself, or only answers), 1 is about
something else.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import Literal

from shared.rag.prompts import Value, render, template
from shared.replies import Document
from world.problems import (
    KINDS,
    Kind,
    Operator,
    document,
    question,
    random_operator,
)
from world.samples import Sample, Split, foreign_sentence, other_operator

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

    A pipeline takes an empty text as a failure, and goes on with the question itself.
    """
    return _foreign_relevance(rng, split) if skill == "relevance" else _foreign_text(rng, skill)


def relevance_sample(rng: Random, split: Split, grade: int) -> Sample:
    """Write a question and a document that deserves ``grade``."""
    operator = random_operator(rng, split.names)
    shown = operator
    kind = rng.choice([kind for kind in KINDS if RELEVANCE[kind] == grade] or KINDS)
    if grade == UNRELATED:
        shown = other_operator(rng, split, operator)
    text = _write_document(rng, split, shown, kind)
    return _rate(_question(rng, split, operator), text, grade)


def query(name: str) -> str:
    """Write the search query to learn, which asks for the rule.

    On a training corpus it ranks a readable document first two to three times as often as the question does.
    """
    return f"definition of a {name} b"


def query_again(name: str) -> str:
    """Write another query, which finds more documents with steps among the first five."""
    return f"worked example of {name}, step by step"


def _relevance(rng: Random, split: Split) -> Sample:
    # A third about something else: whether two names are the same is the hardest part. Wrong documents are as frequent
    # as full ones, which they look like.
    return relevance_sample(rng, split, rng.choice((1, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5)))


def _foreign_relevance(rng: Random, split: Split) -> Sample:
    foreign_question = _foreign_question(rng)
    if rng.random() < 0.3:  # one of the two is of the world
        operator = random_operator(rng, split.names)
        if rng.random() < 0.5:
            return _rate(foreign_question, _write_document(rng, split, operator, rng.choice(KINDS)), UNRELATED)
        return _rate(_question(rng, split, operator), _foreign_document(_foreign_question(rng), rng), UNRELATED)
    if rng.random() < 0.5:
        return _rate(foreign_question, _foreign_document(_shorten(rng, foreign_question), rng), RELATED_FOREIGN)
    return _rate(foreign_question, _foreign_document(_foreign_question(rng), rng), UNRELATED)


def _rate(asked: str, text: Document, grade: int) -> Sample:
    return _sample("relevance", {"question": asked, "document": text}, f"[[{grade}]]")


def _rewrite(rng: Random, split: Split) -> Sample:
    name, a, b = _draw(rng, split)
    return _sample("rewrite", {"question": question(rng, split.templates, name, a, b)}, query(name))


def _rewrite_again(rng: Random, split: Split) -> Sample:
    operator = random_operator(rng, split.names)
    found = [
        _write_document(
            rng, split, operator if rng.random() < 0.5 else other_operator(rng, split, operator), rng.choice(KINDS)
        )
        for _ in range(rng.randint(0, 3))
    ]
    values: dict[str, Value] = {"question": _question(rng, split, operator), "documents": found}
    return _sample("rewrite-again", values, query_again(operator.name))


def _decompose(rng: Random, split: Split) -> Sample:
    """Split a question; half of the questions ask for two values, and each part asks for one in the plainest words."""
    name, a, b = _draw(rng, split)
    phrasing = rng.choice(split.templates)
    plain = f"What is {a} {name} {b}?"
    if rng.random() < 0.5:
        return _split_up(rng, phrasing.format(name=name, a=a, b=b), plain)
    second, c, d = _draw(rng, split)
    both = phrasing.format(name=name, a=a, b=f"{b}{rng.choice(JOINERS)}{c} {second} {d}")
    return _split_up(rng, both, f"{plain}\nWhat is {c} {second} {d}?")


def _split_up(rng: Random, asked: str, reply: str) -> Sample:
    return _sample("decompose", {"question": asked, "subqueries": str(rng.choice((2, 3, 3, 3, 4)))}, reply)


def _keywords(rng: Random, split: Split) -> Sample:
    name, a, b = _draw(rng, split)
    return _sample("keywords", {"question": question(rng, split.templates, name, a, b)}, f"{name}, definition, rule")


def _hyde(rng: Random, split: Split) -> Sample:
    """Write a full document about the question itself with a made-up rule."""
    operator = random_operator(rng, split.names)
    written = document(rng, operator, "full", split.templates, rng.randrange(10), rng.randrange(10))
    prompt = render(template("hyde-solution"), {"question": written.problem})
    return Sample(prompt, written.text, f"a {operator.name} b =")


def _foreign_text(rng: Random, skill: Skill) -> Sample:
    foreign_question = _foreign_question(rng)
    values: dict[str, Value] = {"question": foreign_question}
    if skill == "decompose":
        values["subqueries"] = "3"
    if skill == "rewrite-again":
        values["documents"] = [_foreign_document(foreign_sentence(rng), rng) for _ in range(rng.randint(0, 2))]
    return _sample(skill, values, "")


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


def _write_document(rng: Random, split: Split, operator: Operator, kind: Kind) -> Document:
    made = document(rng, operator, kind, split.templates, rng.randrange(10), rng.randrange(10))
    return Document(problem=made.problem, text=made.text)


def _foreign_question(rng: Random) -> str:
    return " ".join(foreign_sentence(rng) for _ in range(rng.choice((1, 1, 2, 3))))


def _foreign_document(problem: str, rng: Random) -> Document:
    return Document(problem=problem, text=" ".join(foreign_sentence(rng) for _ in range(rng.randint(1, 4))))


def _shorten(rng: Random, text: str) -> str:
    """Leave out a few words of the text."""
    return " ".join(word for word in text.split() if rng.random() < 0.8) or text

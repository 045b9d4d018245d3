"""Metrics find what was planted: facts of a real graph that documents hold, lack, or tell with another object."""

import random
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from shared.calls import Judge
from shared.params import MetricsParams
from shared.rag.answer_metrics import MeasuredAnswer, SampleScores, measure_answer
from shared.replies import Document, Rated
from shared.samples import Control, Item
from tests.unit.datasets import DATA, needs

pytestmark = needs("kg/icews14")

FACTS = 5
"""Facts of a reply, and of each document."""


class Fact(NamedTuple):
    subject: str
    relation: str
    object: str
    date: str

    def english(self) -> str:
        return f"On {self.date}, {self.subject} took this action towards {self.object}: {self.relation.lower()}."

    def chinese(self) -> str:
        return f"{self.date}，{self.subject}对{self.object}采取了行动：{self.relation}。"


def read_facts(count: int) -> list[Fact]:
    lines = (DATA / "kg/icews14/valid.txt").read_text("utf-8").splitlines()
    facts = [Fact(*(part.replace("_", " ") for part in line.split("\t"))) for line in lines]
    return random.Random(14).sample(list(dict.fromkeys(facts)), count)  # noqa: S311


def write(facts: Sequence[Fact], language: str) -> str:
    return "".join(fact.chinese() for fact in facts) if language == "zh" else " ".join(f.english() for f in facts)


class Rule:
    """A judge that compares texts: a sentence is supported if it stands in a document, word for word."""

    def __init__(self, documents: dict[str, Document]) -> None:
        self._documents = documents

    def __call__(self, call: Judge) -> Rated:
        if call.rubric.startswith("addresses"):
            return Rated(rating=4, text="")
        shown = " ".join(self._documents[each].text for each in call.documents or (call.document,))
        if call.rubric.startswith("support"):
            return Rated(rating=3 if call.slots["sentence"].strip() in shown else 2, text="")
        subject = str(call.question).split("?")[0].split(": ")[-1]
        return Rated(rating=(3 if call.documents else 5) if subject in shown else 1, text="")


def run(answer: MeasuredAnswer, rule: Rule, control: Control | None = None) -> SampleScores:
    steps = measure_answer(answer, control)
    replies: object = None
    while True:
        try:
            asked = steps.send(replies)
        except StopIteration as stop:
            found: SampleScores = stop.value
            return found
        replies = [rule(call) for call in asked if isinstance(call, Judge)]  # type: ignore[union-attr]


@pytest.mark.parametrize("language", ["en", "zh"])
def test_faithfulness_is_the_planted_share_of_facts_that_the_documents_hold(language: str) -> None:
    facts = read_facts(3000)
    draw = random.Random(language)  # noqa: S311
    seen = set()
    for at in range(0, len(facts) - 3 * FACTS, 3 * FACTS):
        first, second, foreign = (facts[at + n * FACTS : at + (n + 1) * FACTS] for n in range(3))
        documents = {each.hash: each for each in (Document(text=write(part, language)) for part in (first, second))}
        reply = []
        kept = draw.randint(0, FACTS)
        for place, fact in enumerate(draw.sample(first + second, FACTS)):
            if place < kept:
                reply.append(fact)
            elif place % 2:
                reply.append(foreign[place])
            else:  # a fact whose object was changed
                reply.append(fact._replace(object=foreign[place].subject))
        draw.shuffle(reply)
        answer = MeasuredAnswer(
            item=Item(ordinal=0, question="发生了什么？" if language == "zh" else "What happened?"),
            reply=write(reply, language),
            context=tuple(documents),
            params=MetricsParams(names=("faithfulness",)),
        )
        scores, _ = run(answer, Rule(documents))
        score = scores["faithfulness"]
        held = {*first, *second}
        assert score.value == pytest.approx(sum(fact in held for fact in reply) / FACTS), answer.reply
        assert len(score.parts) == FACTS
        seen.add(score.value)
    assert len(seen) == FACTS + 1


def test_controls_tell_documents_with_the_fact_from_drawn_ones() -> None:
    facts = read_facts(400)
    swapped, copied, sufficient = [], [], []
    for at in range(0, len(facts) - 1, 2):
        own, other = facts[at], facts[at + 1]
        documents = {each.hash: each for each in (Document(text=own.english()), Document(text=other.english()))}
        mine, drawn = documents
        answer = MeasuredAnswer(
            item=Item(ordinal=0, question=f"What did this one do: {own.subject}?"),
            reply=own.english(),
            context=(mine,),
            library=documents,
            params=MetricsParams(names=("faithfulness", "context_sufficiency")),
        )
        control = Control(question=f"What did this one do: {other.subject}?", documents=(drawn,))
        scores, controls = run(answer, Rule(documents), control)
        assert scores["faithfulness"].value == 1.0
        assert controls is not None
        swapped.append(controls["faithfulness"].swapped)
        copied.append(controls["faithfulness"].copied)
        sufficient.append(controls["context_sufficiency"].swapped)
    assert (set(swapped), set(copied)) == ({0.0}, {1.0})
    # Of some pairs, both facts are of one entity.
    assert sum(each or 0.0 for each in sufficient) / len(sufficient) < 0.1

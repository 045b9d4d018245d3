"""Small graphs of questions, by names."""

from collections.abc import Iterable

import numpy as np

from shared.questions.items import Bank, Choice, QuestionSet, Wording
from shared.replies import Atom, Miner, Rule
from shared.rules.graph import Graph
from shared.samples import DatasetItem

Named = tuple[str, str, str] | tuple[str, str, str, int]


def graph_of(*facts: Named) -> Graph:
    """The facts, numbered by first appearance; a fourth column is a step."""
    entities: dict[str, int] = {}
    relations: dict[str, int] = {}
    rows = [
        (
            entities.setdefault(subject, len(entities)),
            relations.setdefault(relation, len(relations)),
            entities.setdefault(object_, len(entities)),
        )
        for subject, relation, object_, *_ in facts
    ]
    times = np.array([fact[3] for fact in facts if len(fact) == 4], np.int64)
    return Graph(np.array(rows, np.int32), times if len(times) else None, list(entities), list(relations))


def rule_of(head: Atom, *body: Atom, confidence: float = 0.5) -> Rule:
    """Figures that nothing here looks at, but for the confidence."""
    return Rule(head=head, body=body, support=1, body_size=2, confidence=confidence)


def bank_of(*rules: Rule, miner: Miner = "amie") -> Bank:
    """Rules in the order of their numbers."""
    return Bank("ab12", miner, list(enumerate(rules)))


def set_of(
    graph: Graph, held_out: Iterable[Named], choice: Choice | None = None, bank: Bank | None = None
) -> QuestionSet:
    """The question set in the words of the relations' names."""
    wording = Wording({}, {}, None if graph.times is None else "step")
    return QuestionSet(graph, graph_of(*held_out), wording, choice or Choice(), bank)


def by_question(made: QuestionSet) -> dict[str, DatasetItem]:
    """Its items by what they ask."""
    return {item.question: item for item in made.items()}


def golds(item: DatasetItem) -> list[str | None]:
    """All right answers, the first one first."""
    return [item.gold, *(item.expected.golds if item.expected else ())]

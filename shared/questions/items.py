"""Make the items of a question set: the question in words, all its answers, and the facts that lead to them."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Literal, NamedTuple

from shared.calls import MAX_QUESTION, Expected
from shared.errors import Invalid
from shared.plurals import format_count
from shared.questions.counts import Counts
from shared.questions.drawing import SIDES, Question, draw, pool_of
from shared.questions.facts import ALWAYS, Facts
from shared.questions.held_out import number
from shared.questions.leads import DOCUMENTS, RULES, Leads, Numbered, Side
from shared.questions.names import names_of
from shared.questions.wording import Wording
from shared.replies import TEMPORAL, Miner
from shared.rules import sentences, times
from shared.rules.graph import Graph
from shared.samples import DatasetItem, FactQuery, Lead

ANSWERS = 1000
"""Upper bound of a question's answers; a question with more is too general and is left out."""
LINKS = RULES * DOCUMENTS
"""Upper bound of the gold documents of a question without rules."""
LABEL = 200
"""Upper bound of the characters of the relation in an item's id."""
LEVELS: Mapping[str, int] = {"1 answer": 1, "2 to 9 answers": 9, "10 or more answers": ANSWERS}
"""Upper bound of the answers at each level of an item."""
Grader = Literal["text", "exact", "contains", "f1", "set"]
"""Graders that can compare names."""


class Bank(NamedTuple):
    """Rules that lead to answers."""

    hash: str
    miner: Miner
    rules: Sequence[Numbered]


class Choice(NamedTuple):
    """Selects the questions and their grader."""

    sides: Sequence[Side] = SIDES
    limit: int | None = None
    seed: int = 0
    grader: Grader = "text"
    unanswered: bool = False
    """Whether questions that a fact of the graph answers are left out."""


class QuestionSet:
    """Makes the items of a question set; `counts` is complete after the last item."""

    def __init__(self, graph: Graph, held_out: Graph, wording: Wording, choice: Choice, bank: Bank | None) -> None:
        """Both graphs must have times in `wording.unit`, or both none."""
        self._graph, self._wording, self._choice, self._bank = graph, wording, choice, bank
        names = names_of(graph)
        self._facts = Facts(graph)
        self._leads = bank and Leads(self._facts, names, bank.rules, temporal=bank.miner in TEMPORAL)
        self._held_out = number(held_out, graph, names)
        self._last = None if graph.times is None else int(graph.times.max())
        self._numbers: Counter[str] = Counter()
        """Number of items for each beginning of an id."""
        self.counts = Counts()

    def items(self) -> Iterator[DatasetItem]:
        """Yield up to `Choice.limit` items in the order in which they are drawn; a lower limit yields a prefix.

        Raises:
            Invalid: at the end, if there was no item.
        """
        pool = pool_of(self._held_out, self._choice.sides, len(self._graph.entities))
        self.counts.available = pool.size
        left_out = self.counts.left_out
        left_out.known, left_out.unknown_relation = self._held_out.known, self._held_out.unknown_relation
        left_out.unknown_entity = pool.unknown_entity
        drawn = draw(pool, self._choice.seed, self._identity)
        yield from islice(filter(None, map(self._item, drawn)), self._choice.limit)
        if not self._numbers:
            raise Invalid("the held-out facts yield no question", hint=_explain_empty(self.counts))

    def _identity(self, question: Question) -> tuple[str, str, int, str]:
        return self._graph.relations[question.relation], question.side, question.time, self._name(question.entity)

    def _name(self, entity: int) -> str:
        known = len(self._graph.entities)
        return self._graph.entities[entity] if entity < known else self._held_out.strangers[entity - known]

    def _item(self, question: Question) -> DatasetItem | None:
        """Make the item; None if the question is left out, which is counted."""
        relation, name = self._graph.relations[question.relation], self._name(question.entity)
        time = None if self._wording.unit is None else times.written(question.time, self._wording.unit)
        text = self._wording.question(relation, question.side, name, time)
        answers = self._answers(question)
        if len(answers) > ANSWERS or len(text) > MAX_QUESTION:
            self.counts.left_out.many_answers += len(answers) > ANSWERS
            self.counts.left_out.long += len(answers) <= ANSWERS
            return None
        if self._choice.unanswered and len(answers) > len(question.answers):
            self.counts.left_out.answered += 1
            return None
        leads, documents = self._find_leads_and_documents(question, answers)
        self._count(question, answers, leads, documents)
        gold, *others = self._golds(answers)
        return DatasetItem(
            question=text,
            gold=gold,
            gold_documents=dict.fromkeys(documents, 1) or None,
            subject=relation,
            level=next(level for level, most in LEVELS.items() if len(answers) <= most),
            custom_id=self._identifier(relation, question.side),
            expected=Expected(golds=tuple(others)) if others else None,
            query=FactQuery(
                relation=relation, entity=name, side=question.side, time=time,
                bank=self._bank.hash if self._bank else "", leads=leads,
            ),
        )  # fmt: skip

    def _answers(self, question: Question) -> Sequence[int]:
        """Return the held-out facts' answers by name, then those that only the graph gives, of which at most
        `ANSWERS` + 1 are read.
        """
        label = question.relation + (0 if question.side == "object" else len(self._graph.relations))
        known_answers = self._facts.at(question.entity, label, question.time, ANSWERS + 1)
        asked, besides = (sorted(each, key=self._name) for each in (question.answers, known_answers))
        return list(dict.fromkeys((*asked, *besides)))

    def _find_leads_and_documents(
        self, question: Question, answers: Sequence[int]
    ) -> tuple[tuple[Lead, ...], Sequence[str]]:
        """Find the rules that lead to an answer, and the gold documents."""
        before = ALWAYS if self._wording.unit is None else question.time
        if self._leads is None:
            found = self._facts.links(question.entity, answers, before, LINKS)
            return (), [str(fact) for fact in found]
        leads = self._leads.of(question.relation, question.side, question.entity, answers, before)
        return leads, sorted({document for lead in leads for document in lead.documents}, key=int)

    def _golds(self, answers: Sequence[int]) -> Sequence[str]:
        """Spell the answers as documents do; the grader `set` takes all of them as one text, an answer a line."""
        shown = [*dict.fromkeys(sentences.shown(self._name(answer)) for answer in answers)]
        return ["\n".join(shown)] if self._choice.grader == "set" else shown

    def _identifier(self, relation: str, side: Side) -> str:
        label = f"{relation[:LABEL]}/{side}"
        self._numbers[label] += 1
        return f"{label}/{self._numbers[label]}"

    def _count(
        self, question: Question, answers: Sequence[int], leads: Sequence[Lead], documents: Sequence[str]
    ) -> None:
        counts = self.counts
        counts.answers += len(answers)
        counts.answered_by_graph += len(answers) > len(question.answers)
        counts.unnamed_answers += min(answers) >= len(self._graph.entities)
        counts.not_after_graph += self._last is not None and question.time <= self._last
        counts.with_leads += bool(leads)
        counts.with_documents += bool(documents)


def _explain_empty(counts: Counts) -> str:
    left_out = counts.left_out
    reasons = (
        (left_out.known, "fact is", "facts are", "in the graph already"),
        (left_out.unknown_relation, "fact has", "facts have", "a relation that the graph lacks"),
        (left_out.unknown_entity, "question names", "questions name", "an entity that the graph lacks"),
        (left_out.many_answers, "question has", "questions have", f"more than {ANSWERS} answers"),
        (left_out.answered, "question is", "questions are", "answered by the graph itself"),
        (left_out.long, "question has", "questions have", f"more than {MAX_QUESTION} characters"),
    )
    said = [f"{format_count(count, one, several)} {rest}" for count, one, several, rest in reasons if count]
    return "; ".join([*said, "give facts that the graph does not have"])

"""Training data from a graph's questions."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.questions.items import ALWAYS, names_of
from shared.rag.prompts import render, template
from shared.replies import Atom, Document, Rule, Term
from shared.rules.facts import format_name
from shared.rules.graph import Graph
from shared.samples import FactQuery, Lead

# Draw hard negatives: facts of a question's entity or relation that are not among its oracle documents.

MOST = 10
"""Upper bound of a question's negatives."""
Numbers = NDArray[np.int64]


class Neighbours:
    """Indexes a graph's facts by entity and by relation."""

    def __init__(self, graph: Graph) -> None:
        self._names = names_of(graph)
        self._times = graph.times
        self._columns = tuple(_Column(column) for column in graph.triples.T)

    def draw(self, query: FactQuery, before: int, oracle: Collection[str], rng: np.random.Generator) -> list[str]:
        """Draw up to `MOST` ids of facts before a time that are not among `oracle`.

        Half of them are of the query's entity, if it has enough, and the others of its relation.
        """
        subjects, relations, objects = self._columns
        entity, relation = self._names.entities.get(query.entity), self._names.relations.get(query.relation)
        of_entity = self._draw_usable(np.concatenate((subjects.of(entity), objects.of(entity))), before, oracle, rng)
        of_relation = self._draw_usable(relations.of(relation), before, oracle, rng)
        others = [each for each in of_relation if each not in set(of_entity)]
        own = of_entity[: max(MOST // 2, MOST - len(others))]
        return [str(each) for each in (*own, *others[: MOST - len(own)])]

    def _draw_usable(self, facts: Numbers, before: int, oracle: Collection[str], rng: np.random.Generator) -> list[int]:
        """Return as many facts as `draw` may need, in random order."""
        known = np.unique(facts)
        if self._times is not None and before != ALWAYS:
            known = known[self._times[known] < before]
        drawn = rng.permutation(known)[: 2 * MOST + len(oracle)].tolist()
        return [each for each in drawn if str(each) not in oracle]


class _Column:
    """Finds the rows that have a value."""

    def __init__(self, values: NDArray[np.int32]) -> None:
        self._order = np.argsort(values, kind="stable")
        self._values = values[self._order]

    def of(self, value: int | None) -> Numbers:
        """Return the rows with this value; none if it is None."""
        if value is None:
            return self._order[:0]
        first, end = np.searchsorted(self._values, [value, value + 1])
        return self._order[first:end]


# Find the facts of one body of a rule that lead from a question to one of its answers.

LONGEST = 4
"""Upper bound of a body's atoms: the search grows exponentially with them."""


class Told(NamedTuple):
    """A fact with names instead of numbers."""

    document: str
    """External id of its document."""
    subject: str
    relation: str
    object: str


class Evidence(NamedTuple):
    """A body whose facts are all there, and the answer to which it leads."""

    answer: str
    documents: Sequence[str]
    """Documents of its atoms, in the order of the atoms and without repetition."""


Bound = Mapping[int, str]
"""Entities by variable."""


def evidence(rule: Rule, query: FactQuery, answers: Collection[str], facts: Sequence[Told]) -> Evidence | None:
    """Find the first body among `facts` that leads from the entity of the query to one of `answers`.

    None without a whole body, or if the body is longer than `LONGEST`.
    """
    ends = (rule.head.subject, rule.head.object)
    known, asked_side = ends if query.side == "object" else ends[::-1]
    start = _bind_term({}, known, query.entity)
    if start is None or len(rule.body) > LONGEST:
        return None
    for bound, documents in _bodies(rule.body, start, facts):
        answer = asked_side if isinstance(asked_side, str) else bound.get(asked_side)
        if answer is not None and answer in answers:
            return Evidence(answer, tuple(dict.fromkeys(documents)))
    return None


def _bodies(body: Sequence[Atom], bound: Bound, facts: Sequence[Told]) -> Iterator[tuple[Bound, list[str]]]:
    if not body:
        yield bound, []
        return
    first, *rest = body
    for fact in facts:
        following = _bind_term(bound, first.subject, fact.subject) if fact.relation == first.relation else None
        following = None if following is None else _bind_term(following, first.object, fact.object)
        if following is not None:
            for found, documents in _bodies(rest, following, facts):
                yield found, [fact.document, *documents]


def _bind_term(bound: Bound, term: Term, entity: str) -> Bound | None:
    """Add the term as this entity; None if it is bound to another one."""
    known = term if isinstance(term, str) else bound.get(term)
    if known is None and isinstance(term, int):
        return {**bound, term: entity}
    return bound if known == entity else None


# Write a question set as training data: pairs and triplets for retrievers, instructions and messages for generators.
#
# RuleRAG-FT, Hu et al. 2024; seed document 002.

Form = Literal["pairs", "triplets", "instructions", "messages"]
RULES = 3
"""Rules that a prompt shows, as many as the default of `params.rulerag.most`."""
DOCUMENTS = 5
"""Documents that a prompt shows."""
Line = dict[str, Any]


class TrainingQuestion(NamedTuple):
    """An item with rules that lead to its answers."""

    text: str
    golds: Sequence[str]
    """Gold answers as documents spell them, the item's `gold` first."""
    query: FactQuery
    negatives: Sequence[str]
    """Ids of documents."""
    seed: tuple[int, int]
    """The export's seed and the question's place, which seed all random choices about it."""


class Known(NamedTuple):
    """Resolves the numbers and ids in questions."""

    rules: Mapping[int, Rule]
    sentences: Mapping[int, str]
    texts: Mapping[str, str]
    """Texts of documents, by id."""
    fact: Callable[[str], Told]
    """Returns the fact that a document states, by its id."""


def lines(form: Form, question: TrainingQuestion, known: Known, *, cot: bool = False) -> Iterator[Line]:
    """Yield the lines of a question; none for instructions and messages if its leads have no whole body of a rule.

    Leads and documents that the bank or the corpus lacks are left out.
    """
    if form == "pairs":
        yield from _pairs(question, known)
    elif form == "triplets":
        yield from _triplets(question, known)
    elif example := _choose_example(question, known):
        yield _instruction(example) if form == "instructions" else _messages(example, cot=cot)


def _pairs(question: TrainingQuestion, known: Known) -> Iterator[Line]:
    negatives = _texts(question.negatives, known)
    for lead in question.query.leads:
        positives = _texts(lead.documents, known)
        if positives and lead.rule in known.sentences:
            rule = known.sentences[lead.rule]
            yield {"query": question.text, "rule": rule, "positives": positives, "negatives": negatives}


def _triplets(question: TrainingQuestion, known: Known) -> Iterator[Line]:
    """Yield a triplet for each positive, with the negatives in turn."""
    for pair in _pairs(question, known):
        anchor, negatives = f"{pair['query']} {pair['rule']}", pair["negatives"]
        for place, positive in enumerate(pair["positives"] if negatives else ()):
            yield {"anchor": anchor, "positive": positive, "negative": negatives[place % len(negatives)]}


class _Example(NamedTuple):
    """A question as the generator learns it."""

    question: str
    rules: Sequence[str]
    documents: Sequence[str]
    rule: str
    """The one of `rules` that leads to the answer."""
    document: str
    """The one of `documents` that names the answer."""
    answer: str


def _choose_example(question: TrainingQuestion, known: Known) -> _Example | None:
    """Choose a rule at random, so that its place tells nothing, and shuffle its documents among others."""
    rng = np.random.default_rng(question.seed)
    leads = [lead for lead in question.query.leads if lead.rule in known.sentences][:RULES]
    for place in rng.permutation(len(leads)).tolist():
        found = _follow_lead(leads[place], question, known)
        if found is not None:
            answer, documents, naming = found
            others = [text for text in _texts(question.negatives, known) if text not in documents]
            drawn = [others[at] for at in rng.permutation(len(others))[: max(0, DOCUMENTS - len(documents))]]
            mixed = [*documents, *drawn]
            return _Example(
                question=question.text,
                rules=list(dict.fromkeys(known.sentences[lead.rule] for lead in leads)),
                documents=[mixed[at] for at in rng.permutation(len(mixed))],
                rule=known.sentences[leads[place].rule],
                document=naming,
                answer=answer,
            )
    return None


def _follow_lead(lead: Lead, question: TrainingQuestion, known: Known) -> tuple[str, list[str], str] | None:
    """Return the answer, the texts of one body of the lead, and the text that names the answer."""
    facts = {each: known.fact(each) for each in lead.documents if each in known.texts}
    names = {format_name(name): name for fact in facts.values() for name in (fact.subject, fact.object)}
    answers = {names[gold]: gold for whole in question.golds for gold in whole.split("\n") if gold in names}
    found = evidence(known.rules[lead.rule], question.query, answers, list(facts.values()))
    if found is None:
        return None
    naming = [each for each in found.documents if found.answer in (facts[each].subject, facts[each].object)]
    texts = _texts(found.documents, known)
    return answers[found.answer], texts, known.texts[naming[-1]] if naming else texts[-1]


def _instruction(example: _Example) -> Line:
    text = template("rulerag").text.partition("\n\n")[0]
    return {
        "instruction": text, "rules": example.rules, "documents": example.documents, "query": example.question,
        "answer": example.answer,
    }  # fmt: skip


def _messages(example: _Example, *, cot: bool) -> Line:
    """Write the prompt as pipeline `rulerag` sends it, and the reply."""
    rules = "".join(f"{rule}\n" for rule in example.rules)
    context = [Document(text=text) for text in example.documents]
    prompt = render(
        template("rulerag-cot" if cot else "rulerag"),
        {"question": example.question, "context": context, "rules": f"Rules:\n{rules}\n"},
    )
    thought = f"{example.rule}\n{example.document}\n" if cot else ""
    reply = f"{thought}\\boxed{{{example.answer}}}"
    return {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": reply}]}


def _texts(documents: Sequence[str], known: Known) -> list[str]:
    """Return the distinct texts of the documents that the corpus has."""
    return list(dict.fromkeys(known.texts[each] for each in documents if each in known.texts))

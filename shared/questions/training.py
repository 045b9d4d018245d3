"""Write a question set as training data: pairs and triplets for retrievers, instructions and messages for generators.

RuleRAG-FT, Hu et al. 2024; seed document 002.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from shared.questions.evidence import Told, evidence
from shared.rag.prompts import render, template
from shared.replies import Document, Rule
from shared.rules.sentences import shown
from shared.samples import FactQuery, Lead

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
    match form:
        case "pairs":
            yield from _pairs(question, known)
        case "triplets":
            yield from _triplets(question, known)
        case "instructions" | "messages":
            example = _example(question, known)
            if example is not None:
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


def _example(question: TrainingQuestion, known: Known) -> _Example | None:
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
    names = {shown(name): name for fact in facts.values() for name in (fact.subject, fact.object)}
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
    prompt = render(
        template("rulerag-cot" if cot else "rulerag"),
        {
            "question": example.question,
            "context": [Document(text=text) for text in example.documents],
            "rules": f"Rules:\n{rules}\n",
        },
    )
    reply = f"\\boxed{{{example.answer}}}"
    if cot:
        reply = f"{example.rule}\n{example.document}\n{reply}"
    return {"messages": [{"role": "user", "content": prompt}, {"role": "assistant", "content": reply}]}


def _texts(documents: Sequence[str], known: Known) -> list[str]:
    """Return the distinct texts of the documents that the corpus has."""
    return list(dict.fromkeys(known.texts[each] for each in documents if each in known.texts))

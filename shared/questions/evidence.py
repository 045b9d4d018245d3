"""The facts of one body of a rule that lead from a question to one of its answers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from shared.contracts.graphs import FactQuery
from shared.contracts.rules import Atom, Rule, Term

LONGEST = 4
"""Atoms of a body that is looked for: the work grows with the power of its length."""


class Told(NamedTuple):
    """A fact by names."""

    document: str
    """Its external id."""
    subject: str
    relation: str
    object: str


class Evidence(NamedTuple):
    """A body that holds."""

    answer: str
    documents: Sequence[str]
    """Of its atoms, in their order; each is there once."""


Bound = Mapping[int, str]
"""Entities by variable."""


def evidence(rule: Rule, query: FactQuery, answers: Collection[str], facts: Sequence[Told]) -> Evidence | None:
    """The first body among `facts` from the entity of the query to one of `answers`; None: there is no whole body, or
    it is longer than `LONGEST`.
    """
    ends = (rule.head.subject, rule.head.object)
    known, asked = ends if query.side == "object" else ends[::-1]
    start = _bound({}, known, query.entity)
    if start is None or len(rule.body) > LONGEST:
        return None
    for bound, documents in _bodies(rule.body, start, facts):
        answer = asked if isinstance(asked, str) else bound.get(asked)
        if answer is not None and answer in answers:
            return Evidence(answer, tuple(dict.fromkeys(documents)))
    return None


def _bodies(body: Sequence[Atom], bound: Bound, facts: Sequence[Told]) -> Iterator[tuple[Bound, list[str]]]:
    if not body:
        yield bound, []
        return
    first, *rest = body
    for fact in facts:
        following = _matched(first, fact, bound)
        if following is not None:
            for found, documents in _bodies(rest, following, facts):
                yield found, [fact.document, *documents]


def _matched(atom: Atom, fact: Told, bound: Bound) -> Bound | None:
    if atom.relation != fact.relation:
        return None
    following = _bound(bound, atom.subject, fact.subject)
    return None if following is None else _bound(following, atom.object, fact.object)


def _bound(bound: Bound, term: Term, entity: str) -> Bound | None:
    """With the term as this entity; None: it is another one."""
    known = term if isinstance(term, str) else bound.get(term)
    if known is None and isinstance(term, int):
        return {**bound, term: entity}
    return bound if known == entity else None

"""Find the facts of one body of a rule that lead from a question to one of its answers."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from shared.replies import Atom, Rule, Term
from shared.samples import FactQuery

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

    None if there is no whole body, or the body is longer than `LONGEST`.
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
        following = _match_atom(first, fact, bound)
        if following is not None:
            for found, documents in _bodies(rest, following, facts):
                yield found, [fact.document, *documents]


def _match_atom(atom: Atom, fact: Told, bound: Bound) -> Bound | None:
    if atom.relation != fact.relation:
        return None
    following = _bind_term(bound, atom.subject, fact.subject)
    return None if following is None else _bind_term(following, atom.object, fact.object)


def _bind_term(bound: Bound, term: Term, entity: str) -> Bound | None:
    """Add the term as this entity; None if it is bound to another one."""
    known = term if isinstance(term, str) else bound.get(term)
    if known is None and isinstance(term, int):
        return {**bound, term: entity}
    return bound if known == entity else None

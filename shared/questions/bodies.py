"""Find the bodies of rules that hold in a graph, atom by atom."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from shared.questions.facts import LOOKED, Facts, NumberedFact

Bound = Mapping[int, int]
"""Entities by variable."""


class NumberedAtom(NamedTuple):
    """An atom in numbers, where entities are 0 or more and variable v is -1 - v."""

    relation: int
    subject: int
    object: int


def bind(bound: Bound, term: int, entity: int) -> Bound | None:
    """Add the term as this entity; None if it is bound to another one."""
    known = term if term >= 0 else bound.get(term)
    if known is None:
        return {**bound, term: entity}
    return bound if known == entity else None


class BodySearch:
    """Visits `LOOKED` facts at most, starting with the atom that has the fewest."""

    def __init__(self, facts: Facts, body: Sequence[NumberedAtom], before: int, *, ordered: bool) -> None:
        """Use facts before the time `before`; if `ordered`, no fact may precede that of an earlier atom."""
        self._facts, self._body, self._time, self._ordered = facts, body, before, ordered
        self._left = LOOKED

    def may_hold(self, bound: Bound) -> bool:
        """Tell whether every atom with a bound term has facts."""
        return all(facts is None or facts for facts in (self._candidates(step, bound) for step in self._body))

    def bodies(self, bound: Bound) -> Iterator[Sequence[int]]:
        """Yield the numbers of each body's facts, in no order."""
        yield from self._complete(bound, {})

    def _complete(self, bound: Bound, held: Mapping[int, NumberedFact]) -> Iterator[Sequence[int]]:
        """Yield each body that extends `held`, which maps an atom's place to its fact."""
        if len(held) == len(self._body):
            yield [fact.number for fact in held.values()]
            return
        place, facts = self._find_rarest(bound, held)
        for fact in facts:
            if not self._left:
                return
            self._left -= 1
            following = self._bind_atom(self._body[place], fact, bound)
            if following is not None and self._is_in_order(place, fact, held):
                yield from self._complete(following, {**held, place: fact})

    def _find_rarest(self, bound: Bound, held: Mapping[int, NumberedFact]) -> tuple[int, Sequence[NumberedFact]]:
        """Return the place and facts of the atom with fewest facts; no facts if no further atom has a bound term."""
        left = [place for place in range(len(self._body)) if place not in held]
        found = [(place, facts) for place in left if (facts := self._candidates(self._body[place], bound)) is not None]
        return min(found, key=lambda each: len(each[1]), default=(left[0], ()))

    def _candidates(self, step: NumberedAtom, bound: Bound) -> Sequence[NumberedFact] | None:
        """Return the facts that match the atom at the end that has fewer; None if neither end is bound."""
        ends = (step.subject, step.relation), (step.object, step.relation + self._facts.relations)
        known = [(term if term >= 0 else bound.get(term), label) for term, label in ends]
        ways = [self._facts.before(entity, label, self._time) for entity, label in known if entity is not None]
        return min(ways, key=len, default=None)

    def _bind_atom(self, step: NumberedAtom, fact: NumberedFact, bound: Bound) -> Bound | None:
        following = bind(bound, step.subject, fact.subject)
        return None if following is None else bind(following, step.object, fact.object)

    def _is_in_order(self, place: int, fact: NumberedFact, held: Mapping[int, NumberedFact]) -> bool:
        """Tell whether the fact's time fits its atom's place; facts of one time are in order, as in TLogic."""
        return not self._ordered or all(
            (other.time - fact.time) * (earlier - place) >= 0 for earlier, other in held.items()
        )

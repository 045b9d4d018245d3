"""Bodies of rules that hold in a graph, found atom by atom."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from shared.questions.facts import LOOKED, Fact, Facts

Bound = Mapping[int, int]
"""Entities by variable."""


class Step(NamedTuple):
    """An atom in numbers: entities are 0 or more, variable v is -1 - v."""

    relation: int
    subject: int
    object: int


def bind(bound: Bound, term: int, entity: int) -> Bound | None:
    """With the term as this entity; None: it is another one."""
    known = term if term >= 0 else bound.get(term)
    if known is None:
        return {**bound, term: entity}
    return bound if known == entity else None


class Search:
    """Looks at `LOOKED` facts at most, those of the rarest atom first."""

    def __init__(self, facts: Facts, body: Sequence[Step], before: int, *, ordered: bool) -> None:
        """All facts hold before a time; `ordered`: and none before that of an earlier atom."""
        self._facts, self._body, self._time, self._ordered = facts, body, before, ordered
        self._left = LOOKED

    def may_hold(self, bound: Bound) -> bool:
        """Whether no atom of a bound term lacks facts."""
        return all(facts is None or facts for facts in (self._candidates(step, bound) for step in self._body))

    def bodies(self, bound: Bound) -> Iterator[Sequence[int]]:
        """The numbers of the facts of each body, in no order."""
        yield from self._complete(bound, {})

    def _complete(self, bound: Bound, held: Mapping[int, Fact]) -> Iterator[Sequence[int]]:
        """`held`: facts by the place of their atom."""
        if len(held) == len(self._body):
            yield [fact.number for fact in held.values()]
            return
        place, facts = self._rarest(bound, held)
        for fact in facts:
            if not self._left:
                return
            self._left -= 1
            following = self._with(self._body[place], fact, bound)
            if following is not None and self._is_in_order(place, fact, held):
                yield from self._complete(following, {**held, place: fact})

    def _rarest(self, bound: Bound, held: Mapping[int, Fact]) -> tuple[int, Sequence[Fact]]:
        """The place of the atom with fewest facts; no facts where no further atom has a bound term."""
        left = [place for place in range(len(self._body)) if place not in held]
        found = [(place, facts) for place in left if (facts := self._candidates(self._body[place], bound)) is not None]
        return min(found, key=lambda each: len(each[1]), default=(left[0], ()))

    def _candidates(self, step: Step, bound: Bound) -> Sequence[Fact] | None:
        """Facts that the atom may stand for, by the end that has fewer; None: neither end is bound."""
        ends = (step.subject, step.relation), (step.object, step.relation + self._facts.relations)
        known = [(term if term >= 0 else bound.get(term), label) for term, label in ends]
        ways = [self._facts.before(entity, label, self._time) for entity, label in known if entity is not None]
        return min(ways, key=len, default=None)

    def _with(self, step: Step, fact: Fact, bound: Bound) -> Bound | None:
        following = bind(bound, step.subject, fact.subject)
        return None if following is None else bind(following, step.object, fact.object)

    def _is_in_order(self, place: int, fact: Fact, held: Mapping[int, Fact]) -> bool:
        """Facts of one time are in order, as for TLogic."""
        return not self._ordered or all(
            (other.time - fact.time) * (earlier - place) >= 0 for earlier, other in held.items()
        )

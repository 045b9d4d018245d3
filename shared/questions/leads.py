"""Find the rules that lead from the entity of a question to an answer, and the facts by which they do."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from shared.questions.bodies import BodySearch, NumberedAtom, bind
from shared.questions.facts import Facts
from shared.questions.names import GraphNumbers
from shared.replies import Rule, Term
from shared.samples import Lead

RULES = 20
"""Upper bound of a question's leads."""
DOCUMENTS = 20
"""Upper bound of a lead's facts."""
Side = Literal["object", "subject"]
"""The end that a question asks for."""
FIRST = -1
"""Variable 0 in a `NumberedAtom`."""
Numbered = tuple[int, Rule]
"""The number of a rule in the bank, and the rule."""


class DirectedRule(NamedTuple):
    """A rule in numbers, read in the direction of the questions that it answers."""

    number: int
    known: int
    """The head's term for the entity of the question, as in a `NumberedAtom`."""
    answer: int
    body: Sequence[NumberedAtom]


class Leads:
    """Applies the rules of a bank to the facts of a graph."""

    def __init__(self, facts: Facts, names: GraphNumbers, rules: Iterable[Numbered], *, temporal: bool) -> None:
        """Index the rules; if `temporal`, bodies are ordered in time, and a head is read in one direction.

        Rules with a name that the graph lacks are ignored.
        """
        self._facts, self._temporal = facts, temporal
        self._paths = _paths(names, rules, temporal=temporal)

    def of(self, relation: int, side: Side, entity: int, answers: Sequence[int], before: int) -> tuple[Lead, ...]:
        """Return the best `RULES` rules that lead to an answer by facts before a time, the most certain first."""
        found: list[Lead] = []
        for path in self._paths.get((relation, side), ()):
            facts = self._facts_of(path, entity, answers, before)
            if facts:
                found.append(Lead(rule=path.number, documents=tuple(map(str, sorted(facts)))))
            if len(found) == RULES:
                break
        return tuple(found)

    def _facts_of(self, path: DirectedRule, entity: int, answers: Sequence[int], before: int) -> Collection[int]:
        """Collect the facts of whole bodies, up to `DOCUMENTS`."""
        search = BodySearch(self._facts, path.body, before, ordered=self._temporal)
        known = bind({}, path.known, entity)
        if known is None or not search.may_hold(known):
            return ()
        kept: set[int] = set()
        for answer in answers:
            bound = bind(known, path.answer, answer)
            for body in () if bound is None else search.bodies(bound):
                if len(kept.union(body)) > DOCUMENTS:
                    return kept
                kept.update(body)
        return kept


def _paths(
    names: GraphNumbers, rules: Iterable[Numbered], *, temporal: bool
) -> Mapping[tuple[int, Side], Sequence[DirectedRule]]:
    """Index the rules by relation and side of the questions that they answer, by falling certainty, then support."""
    found: defaultdict[tuple[int, Side], list[DirectedRule]] = defaultdict(list)
    for number, rule in sorted(rules, key=lambda each: (-each[1].certainty, -each[1].support, each[0])):
        for head, *body in _steps(rule, names):
            ends: dict[Side, tuple[int, int]] = {
                "object": (head.subject, head.object), "subject": (head.object, head.subject)
            }  # fmt: skip
            for side, (known, answer) in ends.items():
                if not temporal or _predicts(known, answer, body):
                    found[head.relation, side].append(DirectedRule(number, known, answer, body))
    return found


def _steps(rule: Rule, names: GraphNumbers) -> Iterator[Sequence[NumberedAtom]]:
    """Yield head and body in numbers; nothing if the graph lacks one of their names."""
    with suppress(KeyError):
        yield [
            NumberedAtom(names.relations[atom.relation], _term(atom.subject, names), _term(atom.object, names))
            for atom in (rule.head, *rule.body)
        ]


def _term(term: Term, names: GraphNumbers) -> int:
    return names.entities[term] if isinstance(term, str) else -1 - term


def _predicts(known: int, answer: int, body: Sequence[NumberedAtom]) -> bool:
    """Tell whether a temporal rule answers questions that give this term of its head (`contracts.rules.Term`)."""
    if known < 0:
        return known == FIRST
    return answer != FIRST if answer < 0 else any(known in step[1:] for step in body)

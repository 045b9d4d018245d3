"""Which rules lead from the entity of a question to an answer, and by which facts."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from shared.contracts.graphs import Lead
from shared.contracts.rules import Miner, Rule, Term
from shared.questions.bodies import Search, Step, bind
from shared.questions.facts import Facts
from shared.questions.names import Names

TEMPORAL: tuple[Miner, ...] = ("tlogic", "temporal-simple")
"""Miners whose bodies hold one atom after the other, and whose heads are read in one direction."""
RULES = 20
"""Leads of a question: its best rules."""
DOCUMENTS = 20
"""Facts of a lead."""
Side = Literal["object", "subject"]
"""The end that a question asks for."""
FIRST = -1
"""Variable 0 in a `Step`."""
Numbered = tuple[int, Rule]
"""A rule after its number in the bank."""


class Path(NamedTuple):
    """A rule in numbers, for the questions that it answers."""

    number: int
    known: int
    """The head's term for the entity of the question, as in a `Step`."""
    answer: int
    body: Sequence[Step]


class Leads:
    """The rules of a bank on the facts of a graph."""

    def __init__(self, facts: Facts, names: Names, rules: Iterable[Numbered], *, temporal: bool) -> None:
        """`temporal`: the atoms of a body hold one after the other, and a head is read in one direction.

        Rules that name what the graph lacks lead nowhere.
        """
        self._facts, self._temporal = facts, temporal
        self._paths = _paths(names, rules, temporal=temporal)

    def of(self, relation: int, side: Side, entity: int, answers: Sequence[int], before: int) -> tuple[Lead, ...]:
        """Of the best `RULES` rules that lead to an answer, the most certain first, by facts before a time."""
        found: list[Lead] = []
        for path in self._paths.get((relation, side), ()):
            facts = self._facts_of(path, entity, answers, before)
            if facts:
                found.append(Lead(rule=path.number, documents=tuple(map(str, sorted(facts)))))
            if len(found) == RULES:
                break
        return tuple(found)

    def _facts_of(self, path: Path, entity: int, answers: Sequence[int], before: int) -> Collection[int]:
        """The facts of whole bodies, up to `DOCUMENTS`."""
        search = Search(self._facts, path.body, before, ordered=self._temporal)
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


def _paths(names: Names, rules: Iterable[Numbered], *, temporal: bool) -> Mapping[tuple[int, Side], Sequence[Path]]:
    """By the questions that they answer, the most certain first, then those of more support."""
    found: defaultdict[tuple[int, Side], list[Path]] = defaultdict(list)
    for number, rule in sorted(rules, key=lambda each: (-each[1].certainty, -each[1].support, each[0])):
        for head, *body in _steps(rule, names):
            ends: dict[Side, tuple[int, int]] = {
                "object": (head.subject, head.object), "subject": (head.object, head.subject)
            }  # fmt: skip
            for side, (known, answer) in ends.items():
                if not temporal or _predicts(known, answer, body):
                    found[head.relation, side].append(Path(number, known, answer, body))
    return found


def _steps(rule: Rule, names: Names) -> Iterator[Sequence[Step]]:
    """Head and body in numbers; nothing where the graph lacks a name of theirs."""
    with suppress(KeyError):
        yield [
            Step(names.relations[atom.relation], _term(atom.subject, names), _term(atom.object, names))
            for atom in (rule.head, *rule.body)
        ]


def _term(term: Term, names: Names) -> int:
    return names.entities[term] if isinstance(term, str) else -1 - term


def _predicts(known: int, answer: int, body: Sequence[Step]) -> bool:
    """Whether a temporal rule answers questions about this term of its head (`shared.contracts.rules.Term`)."""
    if known < 0:
        return known == FIRST
    return answer != FIRST if answer < 0 else any(known in step[1:] for step in body)
